"""The measuring core: a choice of block sizes against the best fixed size and the oracle.

Everything is measured from the seconds of each request, so a block size per request, a rule that
decides at every step and any other controller are measured in the same way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.statistics import Interval, ratio_of_sums, relative_gain
from blockpilot_rl.sweeps.table import Sweep

GROUPINGS = ("family", "language", "temperature")
"""Labels that a request can be grouped by before it is decoded."""

LOOPS = "loops"
"""Grouping by the answer: `looping` if it ends in a loop, else `other`."""

SOURCE = "source"
"""Grouping by whether anything is trained on the family: `SEEN` or `UNSEEN`."""

SEEN, UNSEEN = "seen sources", "unseen sources"

_TIMES = ("plain", "fixed", "fixed_total", "oracle")


@dataclass(frozen=True)
class MeanSpeedups:
    """Mean speedups over plain decoding on the same requests.

    Attributes:
        choice: Mean speedup of the choice that is measured.
        fixed: Mean speedup of the best fixed size.
        oracle: Mean speedup of the oracle, which takes the fastest size of each request.
    """

    choice: float
    fixed: float
    oracle: float

    @property
    def regret(self) -> float:
        """Mean speedup of the oracle minus that of the choice."""
        return self.oracle - self.choice

    @property
    def gap_closed(self) -> float:
        """Share of the way from the best fixed size to the oracle.

        It is 1 at the oracle, 0 at the fixed size, negative below it, and NaN if there is no gap.
        """
        gap = self.oracle - self.fixed
        return (self.choice - self.fixed) / gap if gap > 0 else float("nan")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one choice of block sizes achieves on some requests.

    Where several seeds of an agent are measured together, the numbers are averages over them.

    Attributes:
        rows: Number of requests.
        mean_speedup: Mean over requests of plain seconds / seconds.
        total_speedup: Plain seconds of all requests / seconds of all requests.
        gain: Gain in mean speedup over the best fixed size, as a fraction.
        total_gain: Gain in total time over the fixed size that is best in total time.
        gap_closed: Share of the way in mean speedup from the best fixed size to the oracle; NaN if
            there is no gap.
        gap_closed_interval: The same with its interval.
        regret: Mean over requests of the oracle's speedup minus the one achieved.
        slower_share: Share of the requests that take longer than plain decoding.
        slower_loss: Mean over these requests of 1 - speedup; 0 if there are none.
        block_size: The block size, if it is the same for all requests.
        block_sizes: The block size of each group, if it is the same within groups.
        settings: Tuned settings of a rule.
    """

    rows: int
    mean_speedup: float
    total_speedup: float
    gain: Interval
    total_gain: Interval
    gap_closed: float
    gap_closed_interval: Interval
    regret: float
    slower_share: float
    slower_loss: float
    block_size: int | None = None
    block_sizes: dict[str, int] = field(default_factory=dict)
    settings: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests with the times that a choice of block sizes is measured against.

    Attributes:
        plain: Seconds of plain decoding, `[n]`.
        fixed: Seconds of the fixed size that is best in mean speedup, `[n]`.
        fixed_total: Seconds of the fixed size that is best in total time, `[n]`.
        oracle: Seconds of the fastest choice for each request, `[n]`.
        ids: Prompt of each request, `[n]`. Requests with the same prompt are resampled together.
        groups: Labels of the requests for each grouping, such as `family`, `[n]` each.
        confidence: Level of the intervals.
        seed: Seed of the bootstrap.
    """

    plain: np.ndarray
    fixed: np.ndarray
    fixed_total: np.ndarray
    oracle: np.ndarray
    ids: np.ndarray
    groups: Mapping[str, np.ndarray] = field(default_factory=dict)
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If the arrays differ in length or a time is not a positive number.
        """
        for name in ("ids", *_TIMES):
            if np.shape(getattr(self, name)) != (len(self.plain),):
                raise BlockPilotError(
                    f"{name} has shape {np.shape(getattr(self, name))}, but there are "
                    f"{len(self.plain)} requests"
                )
        for name in _TIMES:
            _check_seconds(name, getattr(self, name))

    @classmethod
    def from_sweep(
        cls,
        test: Sweep,
        fixed: int | np.ndarray,
        fixed_total: int | np.ndarray,
        *,
        confidence: float = 0.95,
        seed: int = 0,
    ) -> Requests:
        """Take the rows of a sweep as requests.

        Args:
            test: The rows to measure on.
            fixed: Arm of the fixed size that is best in mean speedup on training prompts. It may
                differ between rows that have different training prompts, `[n]`.
            fixed_total: The same for the fixed size that is best in total time.
            confidence: Level of the intervals.
            seed: Seed of the bootstrap.
        """
        rows, seconds = np.arange(len(test)), test.seconds
        return cls(
            plain=seconds[:, 0],
            fixed=seconds[rows, fixed],
            fixed_total=seconds[rows, fixed_total],
            oracle=seconds.min(axis=1),
            ids=test.rows["id"].to_numpy(),
            groups={name: group_labels(test, name) for name in (*GROUPINGS, SOURCE, LOOPS)},
            confidence=confidence,
            seed=seed,
        )

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.plain)

    @property
    def prompts(self) -> int:
        """Number of different prompts."""
        return len(np.unique(self.ids))

    def select(self, rows: np.ndarray) -> Requests:
        """Keep some requests.

        Args:
            rows: Their numbers, or a boolean mask `[n]`.
        """
        kept = {name: getattr(self, name)[rows] for name in ("ids", *_TIMES)}
        groups = {name: labels[rows] for name, labels in self.groups.items()}
        return dataclasses.replace(self, **kept, groups=groups)

    def speedups(self, seconds: np.ndarray) -> np.ndarray:
        """Speedup of each request over plain decoding, averaged over the seeds.

        Args:
            seconds: Seconds of each request, `[n]` or `[seeds, n]`.

        Returns:
            Speedups, `[n]`.
        """
        return np.asarray(np.atleast_2d(self.plain / seconds).mean(axis=0))

    def mean_speedups(self, seconds: np.ndarray) -> MeanSpeedups:
        """Compute mean speedups without intervals, which takes far less time than `measure`.

        Args:
            seconds: Seconds of each request, `[n]` or `[seeds, n]`.
        """
        times = (seconds, self.fixed, self.oracle)
        return MeanSpeedups(*(float(self.speedups(each).mean()) for each in times))

    def measure(self, seconds: np.ndarray, **chosen: Any) -> Measured:
        """Measure a choice by the seconds that its requests take.

        Args:
            seconds: Seconds of each request, decisions included, `[n]` or `[seeds, n]`.
            **chosen: `block_size`, `block_sizes` or `settings` to note in the result.

        Raises:
            BlockPilotError: If there is not a positive number for each request.
        """
        every_seed = np.atleast_2d(seconds)
        if every_seed.shape[1] != len(self):
            raise BlockPilotError(
                f"seconds have shape {np.shape(seconds)}, but there are {len(self)} requests"
            )
        _check_seconds("seconds", every_seed)
        taken, speedups = every_seed.mean(axis=0), self.speedups(seconds)
        fixed, oracle = self.plain / self.fixed, self.plain / self.oracle
        losses = 1 - self.plain / every_seed
        slower = losses > 0
        return Measured(
            rows=len(self),
            mean_speedup=float(speedups.mean()),
            total_speedup=float(self.plain.sum() / taken.sum()),
            gain=self.gain(seconds),
            total_gain=self.total_gain(seconds),
            gap_closed=self.mean_speedups(seconds).gap_closed,
            gap_closed_interval=ratio_of_sums(
                speedups - fixed,
                oracle - fixed,
                self.ids,
                confidence=self.confidence,
                seed=self.seed,
            ),
            regret=float((oracle - speedups).mean()),
            slower_share=float(slower.mean()),
            slower_loss=float(losses[slower].mean()) if slower.any() else 0.0,
            **chosen,
        )

    def measure_groups(self, grouping: str, seconds: np.ndarray) -> dict[str, Measured]:
        """Measure a choice within each group of the requests.

        Args:
            grouping: The label to group by, such as `family`.
            seconds: Seconds of each request, `[n]` or `[seeds, n]`.
        """
        return {
            label: self.select(mask).measure(np.compress(mask, seconds, axis=-1))
            for label, mask in _masks(self.groups[grouping]).items()
        }

    def gain(self, seconds: np.ndarray, confidence: float | None = None) -> Interval:
        """Estimate the gain in mean speedup over the best fixed size, as a fraction.

        Args:
            seconds: Seconds of each request, `[n]` or `[seeds, n]`.
            confidence: Level of the interval; None for that of the requests.
        """
        return self.change(seconds, self.fixed, confidence)

    def total_gain(self, seconds: np.ndarray) -> Interval:
        """Estimate the gain in total time over the fixed size that is best in total time.

        Args:
            seconds: Seconds of each request, `[n]` or `[seeds, n]`.
        """
        return self._relative_gain(self.fixed_total, np.atleast_2d(seconds).mean(axis=0))

    def change(
        self, seconds: np.ndarray, other: np.ndarray, confidence: float | None = None
    ) -> Interval:
        """Estimate the relative difference in mean speedup between two choices, request by request.

        Args:
            seconds: Seconds of each request with the one, `[n]` or `[seeds, n]`.
            other: Seconds with the other.
            confidence: Level of the interval; None for that of the requests.
        """
        return self._relative_gain(self.speedups(seconds), self.speedups(other), confidence)

    def _relative_gain(
        self, numerator: np.ndarray, denominator: np.ndarray, confidence: float | None = None
    ) -> Interval:
        return relative_gain(
            numerator,
            denominator,
            self.ids,
            confidence=confidence or self.confidence,
            seed=self.seed,
        )


def group_labels(sweep: Sweep, grouping: str) -> np.ndarray:
    """Return the label of every row, `[n]`.

    Args:
        sweep: The rows.
        grouping: One of `GROUPINGS`, `SOURCE` or `LOOPS`.
    """
    if grouping == "temperature":
        return np.array([f"{value:g}" for value in sweep.temperatures])
    if grouping == LOOPS:
        return np.where(sweep.rows["repetitive"].to_numpy(dtype=bool), "looping", "other")
    if grouping == SOURCE:
        unseen = sweep.rows["family"].isin(sweep.metadata.unseen_families).to_numpy(dtype=bool)
        return np.where(unseen, UNSEEN, SEEN)
    return sweep.rows[grouping].to_numpy(dtype=str)


def group_masks(sweep: Sweep, grouping: str) -> dict[str, np.ndarray]:
    """Return the rows of each group as masks, `[n]`."""
    return _masks(group_labels(sweep, grouping))


def _masks(labels: np.ndarray) -> dict[str, np.ndarray]:
    return {str(label): labels == label for label in np.unique(labels)}


def _check_seconds(name: str, seconds: np.ndarray) -> None:
    if not (np.isfinite(seconds) & (seconds > 0)).all():
        raise BlockPilotError(f"{name} must be positive seconds for every request")
