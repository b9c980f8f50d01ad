"""The recorded sweep: prompts with their states and the outcome of every arm.

A sweep is a folder of `sweep.parquet` (one row per prompt) and `metadata.json` (pair, arms,
latency profile, provenance). Everything downstream (environments, agents, comparison) reads it.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.files import atomic_directory, write_json

SCHEMA_VERSION = 1
DEFAULT_ARMS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
BUNDLED_SWEEP = Path(__file__).parents[1] / "bundled" / "sweep"


@dataclass(frozen=True)
class SweepMetadata:
    """What a sweep's rows have in common.

    Attributes:
        arms: Block sizes, increasing; the first is 1 (plain decoding).
        default_block_size: Block size the drafter was trained for.
        target: Name of the target.
        drafter: Name of the drafter.
        fingerprint: Digest of the pair's configs and weights.
        dtype: Dtype of the reference continuations.
        latency_dtype: Dtype that the seconds belong to.
        device: Device that the seconds belong to, in words.
        temperature: Sampling temperature of the continuations (0 is greedy).
        max_new_tokens: Budget of each continuation.
        template: Options that the chat template was rendered with.
        state: Names and widths of the state groups.
        latency: The latency profile, as `LatencyProfile.to_dict` gives it.
        provenance: Command, versions, git SHA, date.
        schema_version: Version of this format.
    """

    arms: tuple[int, ...]
    default_block_size: int
    target: str
    drafter: str
    fingerprint: str
    dtype: str
    latency_dtype: str
    device: str
    temperature: float
    max_new_tokens: int
    template: dict[str, Any]
    state: StateLayout
    latency: dict[str, Any]
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        """Check the arms and the version.

        Raises:
            BlockPilotError: If arms are not increasing from 1, or the version is another.
        """
        validate_arms(self.arms)
        if self.schema_version != SCHEMA_VERSION:
            raise BlockPilotError(
                f"sweep has schema version {self.schema_version}, this release reads "
                f"{SCHEMA_VERSION}; record it again with scripts/collect_sweep.py"
            )

    def to_dict(self) -> dict[str, Any]:
        """Render as JSON-ready values."""
        return {**dataclasses.asdict(self), "state": [list(group) for group in self.state.groups]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SweepMetadata:
        """Read what `to_dict` gave.

        Raises:
            BlockPilotError: If a key is missing, unknown or of a wrong type.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        unknown, missing = values.keys() - names, names - values.keys()
        if unknown or missing:
            raise BlockPilotError(
                f"sweep metadata has unknown keys {sorted(unknown)}, lacks {sorted(missing)}"
            )
        try:
            groups = tuple((str(name), int(width)) for name, width in values["state"])
            arms = tuple(int(arm) for arm in values["arms"])
        except (TypeError, ValueError) as error:
            raise BlockPilotError(
                f"sweep metadata has a value of a wrong type: {one_line(error)}"
            ) from error
        return cls(**{**values, "arms": arms, "state": StateLayout(groups)})


def validate_arms(arms: tuple[int, ...]) -> None:
    """Check a list of block sizes.

    Raises:
        BlockPilotError: If they are not increasing whole numbers that begin with 1.
    """
    increasing = all(a < b for a, b in itertools.pairwise(arms))
    if not arms or arms[0] != 1 or not increasing or len(arms) < 2:
        raise BlockPilotError(
            f"arms {list(arms)} must be increasing block sizes that begin with 1 (plain decoding)"
        )


@dataclass(frozen=True, eq=False)
class SweepTable:
    """A sweep in memory, aligned by row.

    Attributes:
        metadata: What the rows have in common.
        rows: The columns `SCALARS`, index 0..n-1.
        states: `[n, metadata.state.width]`, float32.
        output_tokens: Emitted tokens of each row.
        accepted: For each row and arm, the tokens emitted by each decode pass behind prefill (the
            first token comes from prefill, so they sum to one less than the emitted tokens).
        seconds: Predicted decode time behind prefill, `[n, arms]`.
        measured_seconds: The same as measured in a real decode, `[n, arms]`, NaN where none was.
    """

    SCALARS: ClassVar[tuple[str, ...]] = (
        "id",
        "suite",
        "family",
        "language",
        "split",
        "prompt_tokens",
        "finish_reason",
        "repetitive",
    )

    metadata: SweepMetadata
    rows: pd.DataFrame
    states: np.ndarray
    output_tokens: list[np.ndarray]
    accepted: list[list[np.ndarray]]
    seconds: np.ndarray
    measured_seconds: np.ndarray

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @property
    def arms(self) -> tuple[int, ...]:
        """Block sizes, increasing from 1."""
        return self.metadata.arms

    @cached_property
    def rewards(self) -> np.ndarray:
        """Speedup over plain decoding, `[n, arms]`: plain seconds / seconds of the arm."""
        speedups: np.ndarray = self.seconds[:, :1] / self.seconds
        return speedups

    @cached_property
    def passes(self) -> np.ndarray:
        """Decode passes behind prefill, `[n, arms]`."""
        return np.array([[len(arm) for arm in row] for row in self.accepted])

    @cached_property
    def emitted(self) -> np.ndarray:
        """Tokens emitted by the decode passes (all but the first), `[n]`."""
        return np.array([len(tokens) - 1 for tokens in self.output_tokens])

    @cached_property
    def acceptance_lengths(self) -> np.ndarray:
        """Tokens per decode pass, `[n, arms]`."""
        lengths: np.ndarray = self.emitted[:, None] / self.passes
        return lengths

    def arm_index(self, block_size: int) -> int:
        """Column of a block size.

        Raises:
            BlockPilotError: If it is not an arm.
        """
        if block_size not in self.arms:
            raise BlockPilotError(f"block size {block_size} is not an arm; arms are {self.arms}")
        return self.arms.index(block_size)

    def select_rows(self, mask: np.ndarray) -> SweepTable:
        """Keep some rows.

        Args:
            mask: Boolean `[n]`, or row numbers.
        """
        index = np.flatnonzero(mask) if mask.dtype == bool else np.asarray(mask)
        return dataclasses.replace(
            self,
            rows=self.rows.iloc[index].reset_index(drop=True),
            states=self.states[index],
            output_tokens=[self.output_tokens[i] for i in index],
            accepted=[self.accepted[i] for i in index],
            seconds=self.seconds[index],
            measured_seconds=self.measured_seconds[index],
        )

    def split(self, name: str) -> SweepTable:
        """Keep the rows of one split.

        Raises:
            BlockPilotError: If the split has no rows.
        """
        mask = (self.rows["split"] == name).to_numpy()
        if not mask.any():
            found = ", ".join(sorted(set(self.rows["split"])))
            raise BlockPilotError(f"sweep has no {name!r} rows; it has {found}")
        return self.select_rows(mask)

    def select_arms(self, arms: tuple[int, ...]) -> SweepTable:
        """Keep some arms; 1 must be among them."""
        columns = [self.arm_index(arm) for arm in arms]
        return dataclasses.replace(
            self,
            metadata=dataclasses.replace(self.metadata, arms=arms),
            accepted=[[row[c] for c in columns] for row in self.accepted],
            seconds=self.seconds[:, columns],
            measured_seconds=self.measured_seconds[:, columns],
        )

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the sweep to a folder, atomically.

        Raises:
            BlockPilotError: If the table is invalid, or the folder holds files and `overwrite` is
                not set.
        """
        self.validate()
        columns: dict[str, Any] = {name: self.rows[name].to_list() for name in self.SCALARS}
        columns["state"] = pa.array(list(self.states.astype(np.float32)))
        columns["output_tokens"] = pa.array([t.astype(np.int32) for t in self.output_tokens])
        for index, arm in enumerate(self.arms):
            columns[f"accepted_{arm}"] = pa.array(
                [row[index].astype(np.int16) for row in self.accepted]
            )
            columns[f"seconds_{arm}"] = self.seconds[:, index]
            columns[f"measured_seconds_{arm}"] = self.measured_seconds[:, index]
        with atomic_directory(folder, overwrite=overwrite) as partial:
            pq.write_table(pa.table(columns), partial / "sweep.parquet", compression="zstd")
            write_json(partial / "metadata.json", self.metadata.to_dict())

    @classmethod
    def load(cls, folder: str | Path | None = None) -> SweepTable:
        """Read and check a sweep.

        Args:
            folder: Its folder; None for the bundled sweep.

        Raises:
            BlockPilotError: If the folder is missing, or its files are corrupt or invalid.
        """
        path = BUNDLED_SWEEP if folder is None else Path(folder)
        metadata = SweepMetadata.from_dict(_read_json(path / "metadata.json"))
        parquet = path / "sweep.parquet"
        try:
            frame = pq.read_table(parquet).to_pandas()
        except FileNotFoundError:
            raise BlockPilotError(f"sweep {path} has no sweep.parquet") from None
        except (OSError, pa.ArrowException) as error:
            raise BlockPilotError(f"{parquet} is corrupt: {one_line(error)}") from error
        wanted = [*cls.SCALARS, "state", "output_tokens"]
        for arm in metadata.arms:
            wanted += [f"accepted_{arm}", f"seconds_{arm}", f"measured_seconds_{arm}"]
        missing = [name for name in wanted if name not in frame]
        if missing:
            raise BlockPilotError(f"{parquet} lacks the columns {missing}")
        if frame.empty:
            raise BlockPilotError(f"{parquet} has no rows")
        for name in (name for name in wanted if "seconds" not in name):
            empty = frame.index[frame[name].isna()]
            if len(empty):
                raise BlockPilotError(f"{parquet}: row {empty[0]} has no {name}")
        widths = frame["state"].map(len)
        wrong = frame.index[widths != metadata.state.width]
        if len(wrong):
            raise BlockPilotError(
                f"{parquet}: row {wrong[0]} has a state of {widths[wrong[0]]} numbers, "
                f"metadata says {metadata.state.width}"
            )
        table = cls(
            metadata=metadata,
            rows=frame[list(cls.SCALARS)],
            states=np.stack(frame["state"].to_list()).astype(np.float32),
            output_tokens=frame["output_tokens"].to_list(),
            accepted=[
                list(row)
                for row in zip(*(frame[f"accepted_{arm}"] for arm in metadata.arms), strict=True)
            ],
            seconds=frame[[f"seconds_{arm}" for arm in metadata.arms]].to_numpy(),
            measured_seconds=frame[[f"measured_seconds_{arm}" for arm in metadata.arms]].to_numpy(),
        )
        table.validate(str(path))
        return table

    def validate(self, where: str = "sweep") -> None:
        """Check every row.

        Raises:
            BlockPilotError: If a row repeats an id, has NaN or non-positive numbers, or accepted
                lengths that do not add up; the message names the row.
        """
        if len(self) == 0:
            raise BlockPilotError(f"{where} has no rows")
        repeated = self.rows["id"].duplicated().to_numpy()
        lengths = np.array(
            [[int(arm.sum()) if len(arm) else 0 for arm in row] for row in self.accepted]
        )
        possible = np.array([_are_possible(row, self.arms) for row in self.accepted])
        checks = (
            (repeated, "repeats an id"),
            (~np.isfinite(self.states).all(axis=1), "has NaN or infinity in its state"),
            (
                ~(np.isfinite(self.seconds) & (self.seconds > 0)).all(axis=1),
                "has seconds that are not positive numbers",
            ),
            (~possible, "has a pass that emitted no token or more than its block size"),
            (
                (lengths != self.emitted[:, None]).any(axis=1),
                "has accepted lengths that do not sum to its output",
            ),
            (self.emitted < 1, "has fewer than two output tokens, so no decode pass to time"),
        )
        for bad, what in checks:
            if bad.any():
                row = int(np.flatnonzero(bad)[0])
                raise BlockPilotError(f"{where}: row {row} ({self.rows['id'][row]}) {what}")


def _are_possible(row: Sequence[np.ndarray], arms: Sequence[int]) -> bool:
    """Whether every pass emitted at least one token and at most its block size."""
    return all(
        bool(((lengths >= 1) & (lengths <= size)).all())
        for lengths, size in zip(row, arms, strict=True)
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BlockPilotError(
            f"no sweep at {path.parent} (metadata.json is missing); record one with "
            "scripts/collect_sweep.py"
        ) from None
    except (OSError, ValueError) as error:
        raise BlockPilotError(f"{path} cannot be read as JSON: {one_line(error)}") from error
    if not isinstance(values, dict):
        raise BlockPilotError(f"{path} holds no JSON object")
    return values
