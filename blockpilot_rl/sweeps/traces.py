"""Traces of a sweep's rows, for decisions at every step.

`trace.parquet` is next to `sweep.parquet` and has a row for each traced row: `id`, `temperature`,
`seed`, `max_new_tokens`, and, for every block size B, `accepted_B` (`Trace.accepted`) and the codes
of its chain, anchor by anchor: `confidences_B`, `margins_B` and `proposed_B`, as differences to the
codes of the next smaller size. `entropy`, `top1` and `margin` are the columns of
`Trace.next_token`. Files of release 0.1 have `accepted_B` and `confidences` of the largest block
alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from blockpilot_rl.decoding.replay import (
    Trace,
    decode_probabilities,
    draft_columns,
    encode_probabilities,
    is_drafted,
)
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import atomic_directory
from blockpilot_rl.sweeps.parquet import (
    KEY,
    SWEEP_FILE,
    Key,
    column_names,
    keys_of,
    read_parquet,
    write_parquet,
)
from blockpilot_rl.sweeps.table import BUNDLED_SWEEP, Sweep

TRACE_FILE = "trace.parquet"

CHAINS = ("confidences", "margins", "proposed")
"""Fields of a trace with a value for each draft of each block size."""

NEXT_TOKEN = ("entropy", "top1", "margin")
"""Columns of `Trace.next_token`."""

_LEVEL = 9
"""Compression level of zstd."""


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
        if found.max_new_tokens != table.metadata.budget:
            raise BlockPilotError(
                f"{path}: the trace of {table.keys[row]} has another budget than the sweep; the "
                "file is part of another recording"
            )
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
    items = list(traces.values())
    for index, arm in enumerate(arms):
        lengths = [trace.accepted[:, index] for trace in items]
        columns[f"accepted_{arm}"] = pa.array(lengths, pa.list_(pa.int16()))
    if {trace.is_extended for trace in items} == {False}:  # read from release 0.1
        confidences = [trace.confidences.ravel() for trace in items]
        columns["confidences"] = pa.array(confidences, pa.list_(pa.float16()))
    else:
        columns |= _extended_columns(path, arms, items)
    write_parquet(path, pa.table(columns), claim, compression="zstd", compression_level=_LEVEL)


def _extended_columns(
    path: Path, arms: tuple[int, ...], traces: Sequence[Trace]
) -> dict[str, pa.Array]:
    """Columns that traces of release 0.1 do not have.

    Raises:
        BlockPilotError: If some of the traces are of release 0.1.
    """
    budgets = [trace.max_new_tokens for trace in traces]
    if not all(trace.is_extended for trace in traces):
        raise BlockPilotError(
            f"{path}: traces of release 0.1 and later ones cannot be in one file; record the older "
            "sweep again"
        )
    columns = {"max_new_tokens": pa.array(budgets, pa.int32())}
    for name in CHAINS:
        chains = [_pack(getattr(trace, name), arms) for trace in traces]
        if name == "proposed" and all(chain is None for chain in chains):
            continue
        for arm, own in zip(arms, draft_columns(arms), strict=True):
            if arm > 1:
                codes = [None if chain is None else chain[:, own].ravel() for chain in chains]
                columns[f"{name}_{arm}"] = pa.array(codes, pa.list_(pa.uint8()))
    for index, name in enumerate(NEXT_TOKEN):
        values = [
            None if trace.next_token is None else trace.next_token[:, index] for trace in traces
        ]
        columns[name] = pa.array(values, pa.list_(pa.float16()))
    return columns


def _pack(chains: np.ndarray | None, arms: tuple[int, ...]) -> np.ndarray | None:
    """Encode chains as differences, which compress well, to those of the next smaller block size.

    Args:
        chains: Probabilities of the drafts, `[anchors, drafts]`, or None.
        arms: Block sizes.

    Returns:
        Differences of codes modulo 256 at the same place, same shape; the last draft of a chain
        that the smaller block does not have keeps its code.
    """
    if chains is None:
        return None
    codes = encode_probabilities(chains)
    packed, columns = codes.copy(), draft_columns(arms)
    for smaller, own in itertools.pairwise(columns):
        shared = smaller.stop - smaller.start
        packed[:, own.start : own.start + shared] -= codes[:, smaller]
    return packed


def _unpack(packed: np.ndarray, arms: tuple[int, ...]) -> np.ndarray:
    """Read what `_pack` wrote as probabilities."""
    codes = packed.copy()
    for smaller, own in itertools.pairwise(draft_columns(arms)):
        shared = smaller.stop - smaller.start
        codes[:, own.start : own.start + shared] += codes[:, smaller]
    return decode_probabilities(codes)


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
    extended = "max_new_tokens" in column_names(path)
    filled = _extended_names(arms) if extended else ["confidences"]
    frame = read_parquet(path, [*KEY, *names, *filled], claim=claim)
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
    if "max_new_tokens" in values:
        return _parse_extended(values, arms, accepted)
    confidences = np.asarray(values["confidences"], dtype=np.float16)
    if len(confidences) != anchors * (arms[-1] - 1):
        raise ValueError(f"has {len(confidences)} confidences for {anchors} anchors")
    if not ((confidences >= 0) & (confidences <= 1)).all():
        raise ValueError("has a confidence that is not a probability")
    return Trace(accepted, confidences.reshape(anchors, arms[-1] - 1))


def _parse_extended(values: pd.Series, arms: tuple[int, ...], accepted: np.ndarray) -> Trace:
    """Read the columns that files of release 0.1 do not have; see `_parse`."""
    anchors, budget = len(accepted), int(values["max_new_tokens"])
    if budget <= anchors:
        raise ValueError(f"has {anchors + 1} tokens, more than its budget of {budget}")
    drafted = is_drafted(arms, anchors, budget)
    chains = {}
    for name in CHAINS:
        columns = [f"{name}_{arm}" for arm in arms if arm > 1]
        if name == "proposed" and (
            columns[0] not in values or not isinstance(values[columns[0]], np.ndarray)
        ):
            continue
        parts = []
        for column, arm in zip(columns, arms[-len(columns) :], strict=True):
            codes = np.asarray(values[column])
            if codes.size != anchors * (arm - 1) or not ((codes >= 0) & (codes <= 255)).all():
                raise ValueError(f"has {column} that are not {arm - 1} codes for each anchor")
            parts.append(codes.astype(np.uint8).reshape(anchors, arm - 1))
        chain = _unpack(np.concatenate(parts, axis=1), arms)
        chains[name] = np.where(drafted, chain, np.float16(0))
    next_token = np.stack([np.asarray(values[name], np.float16) for name in NEXT_TOKEN], axis=1)
    if len(next_token) != anchors + 1 or not (next_token >= 0).all():
        raise ValueError(f"has no entropy, top1 and margin of each of its {anchors + 1} tokens")
    return Trace(
        accepted,
        chains["confidences"],
        chains["margins"],
        chains.get("proposed"),
        next_token,
        budget,
    )


def _extended_names(arms: tuple[int, ...]) -> list[str]:
    """Columns that must be filled; `proposed_B` are empty in greedy rows."""
    chains = [f"{name}_{arm}" for name in CHAINS[:2] for arm in arms if arm > 1]
    return ["max_new_tokens", *chains, *NEXT_TOKEN]
