"""The Parquet files of a sweep: their columns, and checks that name the row of an error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.sweeps.claims import CLAIM, check_claim

SCALARS = (
    "id",
    "temperature",
    "seed",
    "suite",
    "family",
    "language",
    "split",
    "prompt_tokens",
    "finish_reason",
    "repetitive",
)
"""Columns with one value per row."""

KEY = ["id", "temperature", "seed"]
"""Columns that identify a row."""

Key = tuple[str, float, int]
"""Prompt id, temperature and seed of a row."""

SWEEP_FILE = "sweep.parquet"
"""File of a sweep's rows."""

_KINDS = {
    **dict.fromkeys(("id", "suite", "family", "language", "split", "finish_reason"), "text"),
    **dict.fromkeys(("seed", "prompt_tokens", "max_new_tokens"), "whole numbers"),
    **dict.fromkeys(("temperature", "seconds", "measured_seconds"), "numbers"),
    "repetitive": "true or false",
    **dict.fromkeys(("output_tokens", "accepted"), "lists of whole numbers"),
    **dict.fromkeys(("state", "confidences", "margins", "proposed"), "lists of numbers"),
    **dict.fromkeys(("entropy", "top1", "margin"), "lists of numbers"),
}
"""Kind of value in each column, by its name without a block size."""


def read_parquet(
    path: Path, filled: Sequence[str], others: Sequence[str] = (), claim: str | None = None
) -> pd.DataFrame:
    """Read a Parquet file as a data frame with the index 0..n-1, in the order of the file.

    An index that pandas has stored in the file is read as plain columns, so that row numbers in
    messages are those of the file.

    Args:
        path: The file.
        filled: Columns that must be there, with a value in every row.
        others: Further columns that must be there.
        claim: Digest of the claim under which the file must have been written; None for any.

    Raises:
        BlockPilotError: If the file is missing, corrupt or part of other work, or a column is
            missing, incomplete or of the wrong type.
    """
    try:
        table = pq.read_table(path)
        frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    except FileNotFoundError:
        raise BlockPilotError(f"{path.parent} has no {path.name}") from None
    except (OSError, pa.ArrowException) as error:
        raise BlockPilotError(f"{path} is corrupt: {one_line(error)}") from error
    if claim is not None:
        digest = (table.schema.metadata or {}).get(CLAIM.encode())
        check_claim(path, None if digest is None else digest.decode(), claim)
    missing = [name for name in (*filled, *others) if name not in frame]
    if missing:
        raise BlockPilotError(f"{path} lacks the columns {missing}")
    for name in filled:
        empty = frame.index[frame[name].isna()]
        if len(empty):
            raise BlockPilotError(f"{path}: row {empty[0]} has no {name}")
    if not frame.empty:  # a column without rows may have no type
        for name in (*filled, *others):
            _check_column(path, name, table[name])
    return frame


def column_names(path: Path) -> list[str]:
    """Names of the columns of a Parquet file; none if it cannot be read."""
    try:
        return list(pq.read_schema(path).names)
    except (OSError, pa.ArrowException):
        return []


def keys_of(frame: pd.DataFrame) -> list[Key]:
    """The key of each row."""
    return list(zip(*(frame[name].to_list() for name in KEY), strict=True))


def write_parquet(path: Path, table: pa.Table, claim: str | None = None, **options: Any) -> None:
    """Write a Parquet file.

    Args:
        path: The file.
        table: Its rows.
        claim: Digest of the claim under which the file is written; it goes into the metadata.
        **options: Options of pyarrow's writer.
    """
    if claim is not None:
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), CLAIM: claim})
    pq.write_table(table, path, **options)


def _check_column(path: Path, name: str, column: pa.ChunkedArray) -> None:
    """Check the type of a column.

    Raises:
        BlockPilotError: If the type is wrong, or a list of whole numbers has an empty element.
    """
    kind = _KINDS[re.sub(r"_\d+$", "", name)]
    if not _holds(column.type, kind):
        raise BlockPilotError(
            f"{path}: column {name} must hold {kind}, not {column.type}; "
            "record it again with `blockpilot collect-sweep`"
        )
    if kind == "lists of whole numbers" and pc.list_flatten(column).null_count:
        raise BlockPilotError(f"{path}: column {name} has a list with an empty element")


def _holds(found: pa.DataType, kind: str) -> bool:
    """Whether an Arrow type is of a kind."""
    types = pa.types
    if kind.startswith("lists of "):
        if not (types.is_list(found) or types.is_large_list(found)):
            return False
        # A column of empty lists may have no element type.
        element = found.value_type
        return types.is_null(element) or _holds(element, kind.removeprefix("lists of "))
    if kind == "text":
        plain = found.value_type if types.is_dictionary(found) else found
        return bool(types.is_string(plain) or types.is_large_string(plain))
    if kind == "true or false":
        return bool(types.is_boolean(found))
    whole = types.is_integer(found)
    return bool(whole or (kind == "numbers" and types.is_floating(found)))
