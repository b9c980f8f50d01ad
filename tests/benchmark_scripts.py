"""The scripts of `benchmarks/`, which is not a package, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[1] / "benchmarks"


def load(name: str) -> ModuleType:
    """Import `benchmarks/NAME.py`, once."""
    # Processes that a benchmark starts import it by this name, from the path of this one.
    if str(FOLDER.parent) not in sys.path:
        sys.path.append(str(FOLDER.parent))
    full = f"benchmarks.{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]
