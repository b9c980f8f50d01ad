"""Traces of a sweep's rows, for decisions at every step.

`trace.parquet` is next to `sweep.parquet` and has a row for each traced row: `id`, `temperature`,
`seed`, `accepted_B` for every block size B (`Trace.accepted`) and `confidences`
(`Trace.confidences`, anchor by anchor).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from blockpilot_rl.decoding.replay import Trace
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import atomic_directory
from blockpilot_rl.sweeps.parquet import (
    KEY,
    SWEEP_FILE,
    Key,
    keys_of,
    read_parquet,
    write_parquet,
)
from blockpilot_rl.sweeps.table import BUNDLED_SWEEP, Sweep

TRACE_FILE = "trace.parquet"


def save_sweep(folder: str | Path, sweep: Sweep, traces: Mapping[int, Trace]) -> None:
    """Write a sweep with its traces to a new folder, atomically.

    Args:
        folder: The folder.
        sweep: The sweep.
        traces: Traces of some of its rows, by row number.

    Raises:
        BlockPilotError: If the sweep is invalid, or the folder holds files.
    """
    keys = sweep.keys
    with atomic_directory(folder) as partial:
        sweep.write(partial)
        if traces:
            by_key = {keys[row]: traces[row] for row in sorted(traces)}
            write_traces(partial / TRACE_FILE, sweep.arms, by_key)


def load_traces(folder: str | Path | None, table: Sweep) -> dict[int, Trace]:
    """Read the traces of a sweep and check them against its rows.

    Args:
        folder: Folder of the sweep; None for the bundled sweep.
        table: The sweep, or some of its rows, with all block sizes.

    Returns:
        Traces by row number of `table`. Rows without a trace are absent.

    Raises:
        BlockPilotError: If there are no traces, or the file is corrupt, invalid or part of another
            sweep.
    """
    path = (BUNDLED_SWEEP if folder is None else Path(folder)) / TRACE_FILE
    if not path.exists():
        raise BlockPilotError(
            f"{path.parent} has no traces; record it with `blockpilot collect-sweep --trace`"
        )
    by_key = read_traces(path, table.arms)
    # `table` may be a selection, so the traces are compared with the file of all rows.
    foreign = by_key.keys() - set(keys_of(read_parquet(path.with_name(SWEEP_FILE), KEY)))
    if foreign:
        raise BlockPilotError(
            f"{path}: {len(foreign)} traces have no row in {SWEEP_FILE}, such as that of "
            f"{min(foreign)}; the file is part of another recording"
        )
    rows = {key: row for row, key in enumerate(table.keys) if key in by_key}
    traces = {row: by_key[key] for key, row in rows.items()}
    for row, found in traces.items():
        for arm, lengths in enumerate(table.accepted[row]):
            if found.trajectory(arm) != lengths.tolist():
                raise BlockPilotError(
                    f"{path}: the trace of {table.keys[row]} contradicts accepted_"
                    f"{table.arms[arm]} of the sweep; the file is part of another recording"
                )
    return traces


def write_traces(
    path: Path, arms: tuple[int, ...], traces: Mapping[Key, Trace], claim: str | None = None
) -> None:
    """Write traces to a file.

    Args:
        path: The file.
        arms: Block sizes of the traces.
        traces: The traces by prompt id, temperature and seed.
        claim: Digest of the recording's claim; None outside a recording.
    """
    columns = {
        name: pa.array([key[index] for key in traces], kind)
        for index, (name, kind) in enumerate(zip(KEY, _KEY_TYPES, strict=True))
    }
    for index, arm in enumerate(arms):
        lengths = [trace.accepted[:, index] for trace in traces.values()]
        columns[f"accepted_{arm}"] = pa.array(lengths, pa.list_(pa.int16()))
    confidences = [trace.confidences.ravel() for trace in traces.values()]
    columns["confidences"] = pa.array(confidences, pa.list_(pa.float16()))
    write_parquet(path, pa.table(columns), claim, compression="zstd")


def read_traces(path: Path, arms: tuple[int, ...], claim: str | None = None) -> dict[Key, Trace]:
    """Read traces that `write_traces` wrote.

    Args:
        path: The file.
        arms: Block sizes that the file must have, increasing.
        claim: Digest of the claim under which it must have been written; None for any.

    Raises:
        BlockPilotError: If the file is missing, corrupt or part of other work, or a row is invalid.
            The message names the row.
    """
    names = [f"accepted_{arm}" for arm in arms]
    frame = read_parquet(path, [*KEY, *names, "confidences"], claim=claim)
    foreign = {name for name in map(str, frame) if name.startswith("accepted_")} - set(names)
    if foreign:
        raise BlockPilotError(
            f"{path} also has the block sizes {sorted(foreign)}; read it with the whole sweep"
        )
    repeated = frame.index[frame.duplicated(KEY)]
    if len(repeated):
        raise BlockPilotError(f"{path}: row {repeated[0]} repeats an id, temperature and seed")
    traces, keys = {}, keys_of(frame)
    for row, (_, values) in enumerate(frame.iterrows()):
        try:
            trace = _parse(values, names, arms)
        except ValueError as error:
            raise BlockPilotError(f"{path}: row {row} ({values['id']}) {error}") from error
        traces[keys[row]] = trace
    return traces


_KEY_TYPES = (pa.string(), pa.float64(), pa.int64())


def _parse(values: pd.Series, names: list[str], arms: tuple[int, ...]) -> Trace:
    """Turn one row of the file into a trace.

    Raises:
        ValueError: If the row is invalid. The message continues the row's name.
    """
    anchors = len(values[names[0]])
    if any(len(values[name]) != anchors for name in names):
        raise ValueError("has block sizes with different numbers of anchors")
    accepted = np.stack([values[name] for name in names], axis=1).astype(np.int16)
    left = np.arange(anchors, 0, -1)[:, None]
    if not ((accepted >= 1) & (accepted <= np.minimum(left, arms))).all():
        raise ValueError("has a pass that emits no token, more than its block, or past the end")
    confidences = np.asarray(values["confidences"], dtype=np.float16)
    if len(confidences) != anchors * (arms[-1] - 1):
        raise ValueError(f"has {len(confidences)} confidences for {anchors} anchors")
    if not ((confidences >= 0) & (confidences <= 1)).all():
        raise ValueError("has a confidence that is not a probability")
    return Trace(accepted, confidences.reshape(anchors, arms[-1] - 1))
