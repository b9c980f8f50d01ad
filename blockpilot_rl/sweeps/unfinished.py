"""OUT.partial, where a sweep is recorded before it is written to OUT.

It is removed in the end, its claim last, so that whoever was killed at that can be told to go on.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from blockpilot_rl.decoding.calibration import Calibration
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.sweeps.collect import CLAIM_FILE, Collection
from blockpilot_rl.sweeps.table import Sweep

ANSWERS = "continuations"
"""Folder in OUT.partial of the target's answers."""


def unfinished_folder(out: Path) -> Path:
    """Where the sweep of a folder is recorded."""
    return out.parent / f"{out.name}.partial"


def holds_something(path: Path) -> bool:
    """Whether there is a file of this name, or a folder that is not empty."""
    return path.exists() and not (path.is_dir() and not any(path.iterdir()))


def refuse_taken(out: Path, *, may_be_finished: bool) -> None:
    """Check, before any work, that a sweep can be written to a folder.

    Args:
        out: The folder.
        may_be_finished: Whether the sweep may be there already, if its unfinished work is too.

    Raises:
        BlockPilotError: If it holds something.
    """
    claimed = (unfinished_folder(out) / CLAIM_FILE).exists()
    if holds_something(out) and not (may_be_finished and claimed):
        raise _taken(out)


def refuse_foreign(unfinished: Path) -> None:
    """Refuse a folder that is no unfinished work, since it is removed in the end.

    Raises:
        BlockPilotError: If it holds something, and no unfinished work is among it.
    """
    marks = (CLAIM_FILE, ANSWERS)
    if holds_something(unfinished) and not any((unfinished / mark).exists() for mark in marks):
        raise BlockPilotError(
            f"{unfinished} is where unfinished work goes, and is something else; move it away or "
            "name another --out"
        )


def load_finished(out: Path, collection: Collection, calibration: Calibration | None) -> Sweep:
    """Load a sweep that was written before its unfinished work could be removed.

    Args:
        out: Folder of the sweep.
        collection: The unfinished work.
        calibration: What the sweep must be priced by; None for any.

    Raises:
        BlockPilotError: If the folder holds something else.
    """
    try:
        collection.claim()
        table = Sweep.load(out)
        latency = LatencyProfile.from_dict(table.metadata.latency)
    except BlockPilotError as error:
        raise _taken(out) from error
    priced = calibration is None or latency == calibration.latency
    if not priced or table.metadata.provenance.get("claim") != collection.digest:
        raise _taken(out)
    return table


def remove_unfinished(collection: Collection) -> None:
    """Remove the folder of a recording, its claim last."""
    for path in collection.folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path != collection.claim_file:
            path.unlink()
    shutil.rmtree(collection.folder)


def _taken(out: Path) -> BlockPilotError:
    return BlockPilotError(f"{out} exists; name a new folder or remove it first")
