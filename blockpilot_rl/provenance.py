"""Provenance of results: the command, the versions and the machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

_PACKAGES = (
    "blockpilot-rl",
    "torch",
    "transformers",
    "numpy",
    "pandas",
    "gymnasium",
    "stable-baselines3",
)
_CHUNK_BYTES = 1 << 20


def provenance() -> dict[str, Any]:
    """Describe this process, so that its result can be traced and reproduced.

    Returns:
        JSON values: `command` (the program and its arguments), `versions` (of Python and the main
        packages), `git_sha` (of the checkout of this package, followed by `-dirty` if files differ
        from that commit; None outside a checkout), `platform`, `cpu` (model), `cpus` (number that
        this process may use), `threads` (of PyTorch) and `date` (UTC).
    """
    return {
        "command": list(sys.argv),
        "versions": {"python": platform.python_version(), **_package_versions()},
        "git_sha": _git_sha(),
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cpus": usable_cpus(),
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def sha256_file(path: str | os.PathLike[str]) -> str:
    """Hash a file's bytes.

    Args:
        path: The file.

    Returns:
        The SHA-256 digest as 64 hexadecimal digits.

    Raises:
        OSError: If the file cannot be read.
    """
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _package_versions() -> dict[str, str]:
    """Return the versions of the main packages that are installed."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _git_sha() -> str | None:
    """Return the commit of the checkout of this package, not of a repository around it."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        # Without tags, the description is the full commit.
        described = subprocess.run(
            [*command, "--exclude=*"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()


def _cpu_model() -> str:
    """Return the model name of the processor if the system reports it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def usable_cpus() -> int:
    """Count the processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
