"""The sweep: prompts with their states and the recorded outcome of every block size.

A sweep is a folder with `sweep.parquet` (one row per prompt, temperature and seed) and
`metadata.json` (pair, block sizes, latency profile, provenance). Environments, agents and
comparisons read it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from blockpilot_rl.decoding.acceptance import is_repetitive
from blockpilot_rl.decoding.latency import LatencyProfile, possible_seconds
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.decoding.state import StateLayout, sampling_features
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import atomic_directory, write_json
from blockpilot_rl.prompts.prompt import SPLITS
from blockpilot_rl.sweeps.metadata import SweepMetadata, read_metadata
from blockpilot_rl.sweeps.parquet import KEY, SCALARS, SWEEP_FILE, Key, keys_of, read_parquet

BUNDLED_SWEEP = Path(__file__).parents[1] / "bundled" / "sweep"


@dataclass(frozen=True, eq=False)
class Sweep:
    """A sweep in memory. All attributes but `metadata` are aligned by row.

    Attributes:
        metadata: What all rows share.
        rows: Data frame with the columns `parquet.SCALARS` and the index 0..n-1; `id`,
            `temperature` and `seed` together are unique.
        states: State vectors, `[n, metadata.state.width]`, float32.
        output_tokens: Emitted tokens of each row.
        accepted: For each row and block size, the tokens emitted by each decode pass after prefill.
            The first token comes from prefill, so they sum to one less than the emitted tokens.
        seconds: Predicted decode time after prefill, `[n, arms]`.
        measured_seconds: Measured decode time after prefill, `[n, arms]`; NaN if the row was not
            decoded, or the decode gave another text.
    """

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
    def speedups(self) -> np.ndarray:
        """Speedup over plain decoding, `[n, arms]`: plain seconds / seconds."""
        speedups: np.ndarray = self.seconds[:, :1] / self.seconds
        return speedups

    @cached_property
    def passes(self) -> np.ndarray:
        """Number of decode passes after prefill, `[n, arms]`."""
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

    @cached_property
    def temperatures(self) -> np.ndarray:
        """Sampling temperature of each row, `[n]`; 0 is greedy."""
        return self.rows["temperature"].to_numpy(dtype=np.float64)

    @property
    def keys(self) -> list[Key]:
        """Prompt id, temperature and seed of each row."""
        return keys_of(self.rows)

    def arm_index(self, block_size: int) -> int:
        """Find the column of a block size.

        Raises:
            BlockPilotError: If the sweep does not have it.
        """
        if block_size not in self.arms:
            raise BlockPilotError(f"block size {block_size} is not an arm; arms are {self.arms}")
        return self.arms.index(block_size)

    def select_rows(self, mask: np.ndarray) -> Sweep:
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

    def default_rows(self) -> Sweep:
        """Keep the greedy rows if the sweep has any, otherwise all rows.

        Greedy and sampled answers to a prompt have different best block sizes, and a policy does
        not see the temperature, so they are not mixed by default.
        """
        greedy = self.temperatures == 0
        return self if greedy.all() or not greedy.any() else self.select_rows(greedy)

    def split(self, name: str) -> Sweep:
        """Keep the rows of one split.

        Raises:
            BlockPilotError: If the split has no rows.
        """
        mask = (self.rows["split"] == name).to_numpy()
        if not mask.any():
            found = ", ".join(sorted(set(self.rows["split"])))
            raise BlockPilotError(f"sweep has no {name!r} rows; it has {found}")
        return self.select_rows(mask)

    def select_arms(self, arms: tuple[int, ...]) -> Sweep:
        """Keep some block sizes; 1 must be among them."""
        columns = [self.arm_index(arm) for arm in arms]
        return dataclasses.replace(
            self,
            metadata=dataclasses.replace(self.metadata, arms=arms),
            accepted=[[row[c] for c in columns] for row in self.accepted],
            seconds=self.seconds[:, columns],
            measured_seconds=self.measured_seconds[:, columns],
        )

    def with_groups(self, names: Sequence[str]) -> Sweep:
        """Make sure that the states hold some groups.

        Sweeps of release 0.1 lack the group `sampling`; it follows from their rows and is added to
        their states.

        Raises:
            BlockPilotError: If another group is unknown or was not recorded.
        """
        layout = self.metadata.state
        if "sampling" not in names or "sampling" in layout.names:
            layout.columns(names)
            return self
        top_k, top_p = self.metadata.top_k, self.metadata.top_p
        by_temperature = {
            value: sampling_features(Sampling(value, top_k, top_p)).numpy()
            for value in np.unique(self.temperatures).tolist()
        }
        added = np.stack([by_temperature[value] for value in self.temperatures])
        layout = StateLayout((*layout.groups, ("sampling", added.shape[1])))
        layout.columns(names)
        return dataclasses.replace(
            self,
            metadata=dataclasses.replace(self.metadata, state=layout),
            states=np.concatenate([self.states, added], axis=1),
        )

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the sweep to a folder, atomically.

        Raises:
            BlockPilotError: If the sweep is invalid, or the folder holds files and `overwrite` is
                not set.
        """
        with atomic_directory(folder, overwrite=overwrite) as partial:
            self.write(partial)

    def write(self, folder: Path) -> None:
        """Write the sweep's files into an existing folder.

        Raises:
            BlockPilotError: If the sweep is invalid.
        """
        self.validate()
        columns: dict[str, Any] = {name: self.rows[name].to_list() for name in SCALARS}
        columns["state"] = pa.array(list(self.states.astype(np.float32)))
        columns["output_tokens"] = pa.array([t.astype(np.int32) for t in self.output_tokens])
        for index, arm in enumerate(self.arms):
            columns[f"accepted_{arm}"] = pa.array(
                [row[index].astype(np.int16) for row in self.accepted]
            )
            columns[f"seconds_{arm}"] = self.seconds[:, index]
            columns[f"measured_seconds_{arm}"] = self.measured_seconds[:, index]
        pq.write_table(pa.table(columns), folder / SWEEP_FILE, compression="zstd")
        write_json(folder / "metadata.json", self.metadata.to_dict())

    @classmethod
    def load(cls, folder: str | Path | None = None) -> Sweep:
        """Read and check a sweep.

        Args:
            folder: Folder of the sweep; None for the bundled sweep.

        Raises:
            BlockPilotError: If the folder is missing, or its files are corrupt or invalid.
        """
        path = BUNDLED_SWEEP if folder is None else Path(folder)
        values = read_metadata(path)
        try:
            metadata = SweepMetadata.from_dict(values)
            if metadata.latency:
                LatencyProfile.from_dict(metadata.latency)
        except BlockPilotError as error:
            raise BlockPilotError(f"{path / 'metadata.json'}: {error}") from error
        frame = _read_rows(path / SWEEP_FILE, metadata)
        table = cls(
            metadata=metadata,
            # Recordings of earlier versions flag short phrases only.
            rows=frame[list(SCALARS)].assign(
                repetitive=[is_repetitive(tokens) for tokens in frame["output_tokens"]]
            ),
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
            BlockPilotError: If a row repeats an id, temperature and seed, has an impossible value
                (such as seconds that are NaN, zero or 1e-320), an unknown split or another split
                than its prompt's other rows, or accepted lengths that do not add up. The message
                names the row.
        """
        if len(self) == 0:
            raise BlockPilotError(f"{where} has no rows")
        refuse_unseen_training(self, where)
        splits, measured = self.rows["split"].to_numpy(), self.measured_seconds
        lengths = np.array(
            [[int(arm.sum()) if len(arm) else 0 for arm in row] for row in self.accepted]
        )
        possible = np.array([_are_possible(row, self.arms) for row in self.accepted])
        checks = (
            (
                self.rows.duplicated(KEY).to_numpy(),
                "repeats an id with the same temperature and seed",
            ),
            (
                ~self.rows["split"].isin(SPLITS).to_numpy(),
                f"is in an unknown split; known are {', '.join(SPLITS)}",
            ),
            (
                splits != self.rows.groupby("id")["split"].transform("first").to_numpy(),
                "is in another split than an earlier row of the same prompt",
            ),
            (
                ~(self.rows["temperature"].between(0, np.inf, inclusive="left")).to_numpy(),
                "has a temperature that is not 0 or more",
            ),
            ((self.rows["seed"] < 0).to_numpy(), "has a seed that is not 0 or more"),
            (
                (self.rows["prompt_tokens"] < 1).to_numpy(),
                "has a number of prompt tokens that is not positive",
            ),
            (~np.isfinite(self.states).all(axis=1), "has NaN or infinity in its state"),
            (
                ~possible_seconds(self.seconds).all(axis=1),
                "has seconds that are not positive numbers of a possible size",
            ),
            (
                ~(np.isnan(measured) | possible_seconds(measured)).all(axis=1),
                "has measured seconds that are neither empty nor positive numbers of a possible "
                "size",
            ),
            (~possible, "has a pass that emitted no token or more than its block size"),
            (
                (lengths != self.emitted[:, None]).any(axis=1),
                "has accepted lengths that do not sum to its output",
            ),
            (
                np.array([(np.asarray(tokens) < 0).any() for tokens in self.output_tokens]),
                "has an output token that is negative",
            ),
            (self.emitted < 1, "has fewer than two output tokens, so no decode pass to time"),
        )
        for bad, what in checks:
            if bad.any():
                row = int(np.flatnonzero(bad)[0])
                raise BlockPilotError(f"{where}: row {row} ({self.rows['id'][row]}) {what}")


def refuse_unseen_training(sweep: Sweep, where: str = "sweep") -> None:
    """Refuse a sweep that trains on a family that it calls unseen.

    Raises:
        BlockPilotError: If a row of an unseen family is not a test row.
    """
    unseen = sweep.rows["family"].isin(sweep.metadata.unseen_families)
    leaking = sweep.rows[unseen & (sweep.rows["split"] != "test")]
    if len(leaking):
        first = leaking.iloc[0]
        raise BlockPilotError(
            f"leakage: {where} has {len(leaking)} rows of unseen families outside the test split; "
            f"the first is prompt {first['id']} of family {first['family']!r}, split "
            f"{first['split']!r}; record them with `blockpilot collect-sweep --unseen "
            f"{','.join(sweep.metadata.unseen_families)}`"
        )


def _are_possible(row: Sequence[np.ndarray], arms: Sequence[int]) -> bool:
    """Whether every pass emitted at least one token and at most its block size."""
    return all(
        bool(((lengths >= 1) & (lengths <= size)).all())
        for lengths, size in zip(row, arms, strict=True)
    )


def _read_rows(path: Path, metadata: SweepMetadata) -> pd.DataFrame:
    """Read `sweep.parquet` and check its columns against the metadata."""
    accepted = [f"accepted_{arm}" for arm in metadata.arms]
    filled = [*SCALARS, "state", "output_tokens", *accepted]
    times = [f"{name}_{arm}" for arm in metadata.arms for name in ("seconds", "measured_seconds")]
    frame = read_parquet(path, filled, times)
    if frame.empty:
        raise BlockPilotError(f"{path} has no rows")
    widths = frame["state"].map(len)
    wrong = frame.index[widths != metadata.state.width]
    if len(wrong):
        raise BlockPilotError(
            f"{path}: row {wrong[0]} has a state of {widths[wrong[0]]} numbers, "
            f"metadata says {metadata.state.width}"
        )
    return frame
