"""Flags that name a pair of target and drafter, its dtype and its device."""

from __future__ import annotations

from typing import Any

from blockpilot_rl.cli.parsing import arg


def target_arg() -> Any:
    """Declare `--target` as a field of an arguments dataclass."""
    return arg(None, help="hub id, folder or GGUF file (default: SmolLM2-135M)")


def drafter_arg() -> Any:
    """Declare `--drafter`."""
    return arg(None, help="hub id or folder (default: the bundled drafter)")


def dtype_arg(default: str) -> Any:
    """Declare `--dtype`."""
    return arg(default, help="float32, bfloat16 or float16")


def device_arg() -> Any:
    """Declare `--device`."""
    return arg("cpu", help="where both models run")
