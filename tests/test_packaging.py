from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "blockpilot_rl": CHECKOUT / "blockpilot_rl",
    "blockpilot_rl.envs": CHECKOUT / "envs",
    "blockpilot_rl.agents": CHECKOUT / "agents",
}
CORE = {
    f"blockpilot_rl.{name}"
    for name in ("models", "decoding", "sweeps", "policies", "evaluation", "training", "provenance")
}


@pytest.mark.parametrize("package", FOLDERS)
def test_package_imports_under_its_name(package):
    assert importlib.import_module(package).__name__ == package


@pytest.mark.parametrize("package", FOLDERS)
def test_every_file_of_the_checkout_is_installed(package):
    """Trivial in an editable install; run against the wheel it finds what the build left out."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    installed = [Path(location) for location in spec.submodule_search_locations]
    files = [
        file.relative_to(FOLDERS[package])
        for file in FOLDERS[package].rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    ]
    assert files
    missing = [
        str(file) for file in files if not any((root / file).is_file() for root in installed)
    ]
    assert not missing


def test_package_is_typed():
    spec = importlib.util.find_spec("blockpilot_rl")
    assert spec is not None
    assert spec.origin is not None
    assert (Path(spec.origin).parent / "py.typed").is_file()


def test_core_needs_no_rl_library():
    program = """
import importlib, json, pathlib, sys
import blockpilot_rl
root = pathlib.Path(blockpilot_rl.__file__).parent
paths = [path.relative_to(root.parent) for path in root.rglob("*.py")]
names = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths}
apart = tuple(f"blockpilot_rl.{name}" for name in ("envs", "agents", "experiments", "cli"))
modules = sorted(name for name in names if not name.startswith(apart))
for name in modules:
    importlib.import_module(name)
    for library in ("gymnasium", "stable_baselines3"):
        if library in sys.modules:
            raise SystemExit(f"{name} imports {library}")
print(json.dumps(modules))
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert set(json.loads(result.stdout)) >= CORE
