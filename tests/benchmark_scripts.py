"""The scripts of `benchmarks/`, which are no package, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[1] / "benchmarks"


def load(name: str) -> ModuleType:
    """Import `benchmarks/NAME.py`, once."""
    full = f"benchmarks.{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]
