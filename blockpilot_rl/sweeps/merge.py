"""Combine sweeps of one pair, such as greedy and sampled rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.provenance import provenance
from blockpilot_rl.sweeps.table import Sweep
from blockpilot_rl.sweeps.traces import TRACE_FILE, load_traces, save_sweep

_SHARED = (
    "fingerprint",
    "arms",
    "state",
    "dtype",
    "max_new_tokens",
    "shortens_blocks",
    "template",
)
"""Metadata that merged sweeps must share, in addition to prices and sampling options."""

_PRICES = ("latency", "latency_dtype", "device")
_SAMPLING = ("top_k", "top_p")


def merge_sweeps(folders: Sequence[str | Path], out: str | Path) -> Sweep:
    """Merge sweeps on disk with their traces into a new folder.

    Args:
        folders: Folders of the sweeps, which must be of one pair, recorded and priced with the same
            options. Temperatures, seeds and prompts may differ.
        out: The new folder.

    Returns:
        The merged sweep.

    Raises:
        BlockPilotError: If a sweep or trace cannot be read, the sweeps do not fit together, or
            `out` holds files.
    """
    tables = [Sweep.load(folder) for folder in folders]
    merged = merge(tables)
    traces, start = {}, 0
    for folder, table in zip(folders, tables, strict=True):
        if (Path(folder) / TRACE_FILE).exists():
            for row, trace in load_traces(folder, table).items():
                traces[start + row] = trace
        start += len(table)
    save_sweep(out, merged, traces)
    return merged


def merge(tables: Sequence[Sweep]) -> Sweep:
    """Combine the rows of several sweeps, in order.

    Args:
        tables: Sweeps of one pair, recorded and priced with the same options. Temperatures, seeds
            and prompts may differ.

    Returns:
        The merged sweep. Families that are unseen in one of the sweeps are unseen in it. Its
        provenance holds that of each part under `merged`.

    Raises:
        BlockPilotError: If there is no sweep, they do not fit together, two of them share a row, or
            one trains on a family that is unseen in another.
    """
    if not tables:
        raise BlockPilotError("no sweep to merge")
    first = tables[0].metadata
    # Greedy rows do not depend on top-k and top-p, so only sampled rows decide them.
    sampled = next((t for t in tables if (t.rows["temperature"] > 0).any()), tables[0])
    for number, table in enumerate(tables[1:], start=2):
        metadata = table.metadata
        for name in (*_SHARED, *_PRICES):
            if getattr(metadata, name) != getattr(first, name):
                raise BlockPilotError(_difference(number, name, table, tables[0]))
        if (table.rows["temperature"] > 0).any():
            for name in _SAMPLING:
                if getattr(metadata, name) != getattr(sampled.metadata, name):
                    raise BlockPilotError(_difference(number, name, table, sampled))
    metadata = dataclasses.replace(
        first,
        top_k=sampled.metadata.top_k,
        top_p=sampled.metadata.top_p,
        unseen_families=tuple(
            sorted({name for table in tables for name in table.metadata.unseen_families})
        ),
        provenance={
            **provenance(),
            "ended_with_first_token": [
                key
                for table in tables
                for key in table.metadata.provenance.get("ended_with_first_token", [])
            ],
            "merged": [table.metadata.provenance for table in tables],
        },
    )
    merged = Sweep(
        metadata=metadata,
        rows=pd.concat([table.rows for table in tables], ignore_index=True),
        states=np.concatenate([table.states for table in tables]),
        output_tokens=[tokens for table in tables for tokens in table.output_tokens],
        accepted=[arms for table in tables for arms in table.accepted],
        seconds=np.concatenate([table.seconds for table in tables]),
        measured_seconds=np.concatenate([table.measured_seconds for table in tables]),
    )
    merged.validate("the merged sweep")
    return merged


def _difference(number: int, name: str, table: Sweep, other: Sweep) -> str:
    """Describe what differs and how to fix it."""
    if name in _PRICES:
        return (
            f"sweep {number} has another {name} than the first, so their seconds cannot be "
            "compared; re-price both with the same profile (`blockpilot calibrate --sweep DIR "
            "--profile FILE`), or record with the same profile"
        )
    ours, theirs = getattr(table.metadata, name), getattr(other.metadata, name)
    if name == "fingerprint":
        ours = f"{ours} ({table.metadata.target} with {table.metadata.drafter})"
        theirs = f"{theirs} ({other.metadata.target} with {other.metadata.drafter})"
    return f"sweep {number} has another {name}, {ours}, than {theirs}; merged sweeps must share it"
