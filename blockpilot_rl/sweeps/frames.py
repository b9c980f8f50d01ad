"""The Parquet form of a sweep's rows: its columns, and reading them with errors by row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from blockpilot_rl.errors import BlockPilotError, one_line

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
"""Columns that tell rows apart."""


def read_parquet(path: Path, filled: Sequence[str], others: Sequence[str] = ()) -> pd.DataFrame:
    """Read a Parquet file.

    Args:
        path: The file.
        filled: Columns that it must have, with a value in every row.
        others: Further columns that it must have.

    Raises:
        BlockPilotError: If it is missing or corrupt, or lacks a column or a value.
    """
    try:
        frame: pd.DataFrame = pq.read_table(path).to_pandas()
    except FileNotFoundError:
        raise BlockPilotError(f"{path.parent} has no {path.name}") from None
    except (OSError, pa.ArrowException) as error:
        raise BlockPilotError(f"{path} is corrupt: {one_line(error)}") from error
    missing = [name for name in (*filled, *others) if name not in frame]
    if missing:
        raise BlockPilotError(f"{path} lacks the columns {missing}")
    for name in filled:
        empty = frame.index[frame[name].isna()]
        if len(empty):
            raise BlockPilotError(f"{path}: row {empty[0]} has no {name}")
    return frame
