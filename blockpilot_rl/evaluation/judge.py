"""Measures choices on the test rows against a fixed size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.oracle import gap_closed, oracle_arms
from blockpilot_rl.evaluation.results import GroupOutcome, Outcome
from blockpilot_rl.evaluation.statistics import Interval, ratio_of_sums, relative_gain
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True, eq=False)
class Judge:
    """Judges choices on the test rows against the best fixed sizes.

    Attributes:
        test: The rows.
        best_fixed: Arm index of the size that is best in mean speedup on the training prompts; one
            for all, or one per row where the rows have different training prompts, `[n]`.
        best_fixed_total: The same of the size that is best in total time.
        confidence: Level of the intervals.
        seed: Seed of the bootstrap.
    """

    test: Sweep
    best_fixed: int | np.ndarray
    best_fixed_total: int | np.ndarray
    confidence: float
    seed: int

    def outcome(self, choices: Choices, block_size: int | None = None) -> Outcome:
        """Measure everything about some choices.

        Args:
            choices: The choices.
            block_size: The size, if it is the same for every row.
        """
        test, rows, arms = self.test, np.arange(len(self.test)), choices.arms
        seconds = self.seconds(choices)
        speedups = test.seconds[:, 0] / seconds
        fixed, oracle = self.fixed_speedups, test.speedups.max(axis=1)
        passes = test.passes[rows, arms]
        tokens = test.emitted.sum() * len(arms)
        shares = np.bincount(arms.ravel(), minlength=len(test.arms)) / arms.size
        mean, mean_seconds = speedups.mean(axis=0), seconds.mean(axis=0)
        return Outcome(
            block_size=block_size,
            mean_speedup=float(speedups.mean()),
            total_speedup=float(test.seconds[:, 0].sum() / mean_seconds.sum()),
            gain=self.gain(choices),
            total_gain=relative_gain(
                test.seconds[rows, self.best_fixed_total],
                mean_seconds,
                **self._resampling(self.confidence),
            ),
            gain_by_seed=(speedups.mean(axis=1) / fixed.mean() - 1).tolist(),
            gap_closed=gap_closed(float(mean.mean()), float(fixed.mean()), float(oracle.mean())),
            gap_closed_interval=ratio_of_sums(
                mean - fixed, oracle - fixed, **self._resampling(self.confidence)
            ),
            regret=float((oracle - mean).mean()),
            acceptance_length=float(tokens / passes.sum()),
            acceptance_length_per_request=float((test.emitted / passes).mean()),
            tokens_per_second=float(tokens / seconds.sum()),
            arms=dict(zip(test.arms, shares.tolist(), strict=True)),
            policy_microseconds=float(choices.policy_seconds.mean() * 1e6),
            per_family=self._groups(families(test), mean, mean_seconds),
            per_language=self._groups(languages(test), mean, mean_seconds),
            per_temperature=self._groups(by_temperature(test), mean, mean_seconds),
        )

    def fixed_size(self, arm: int) -> Outcome:
        """Measure one size for every row, which no policy need decide."""
        arms = np.full((1, len(self.test)), arm)
        return self.outcome(Choices.free(arms), self.test.arms[arm])

    def oracle(self) -> Outcome:
        """Measure the fastest size of every row."""
        return self.outcome(Choices.free(oracle_arms(self.test)[None]))

    def chance(self) -> Outcome:
        """Measure a size drawn anew for every row, in expectation: the average over every arm."""
        arms = np.arange(len(self.test.arms))
        return self.outcome(Choices.free(np.repeat(arms[:, None], len(self.test), axis=1)))

    def gain(self, choices: Choices, confidence: float | None = None) -> Interval:
        """Gain in mean speedup over the best fixed size, if wished at a level of its own."""
        every = np.ones(len(self.test), dtype=bool)
        return self._gain(self.speedups(choices), every, confidence or self.confidence)

    def change(self, choices: Choices, other: Choices, confidence: float | None = None) -> Interval:
        """Relative difference in mean speedup to other choices, row by row."""
        options = self._resampling(confidence or self.confidence)
        return relative_gain(self.speedups(choices), self.speedups(other), **options)

    def over_constants(self, choices: Choices, confidence: float) -> tuple[int, Interval]:
        """Set choices against always taking one of the sizes that they take.

        Returns:
            The size that they surpass least surely, and their relative difference to it.
        """
        changes = {
            self.test.arms[arm]: self.change(
                choices, Choices.free(np.full((1, len(self.test)), arm)), confidence
            )
            for arm in np.unique(choices.arms)
        }
        return min(changes.items(), key=lambda item: item[1].low)

    def speedups(self, choices: Choices) -> np.ndarray:
        """Speedup of every row over plain decoding, averaged over the seeds, `[n]`."""
        return np.asarray((self.test.seconds[:, 0] / self.seconds(choices)).mean(axis=0))

    def seconds(self, choices: Choices) -> np.ndarray:
        """Seconds of every row, the decision's included, `[seeds, n]`."""
        decode = self.test.seconds[np.arange(len(self.test)), choices.arms]
        return np.asarray(decode + choices.policy_seconds)

    @property
    def fixed_speedups(self) -> np.ndarray:
        """Speedup of the best fixed size on every row, `[n]`."""
        return np.asarray(self.test.speedups[np.arange(len(self.test)), self.best_fixed])

    def _groups(
        self, groups: Mapping[str, np.ndarray], speedups: np.ndarray, seconds: np.ndarray
    ) -> dict[str, GroupOutcome]:
        """Measure each group of rows by the speedups and seconds of all rows, `[n]` each."""
        return {
            name: GroupOutcome(
                rows=int(mask.sum()),
                mean_speedup=float(speedups[mask].mean()),
                total_speedup=float(self.test.seconds[mask, 0].sum() / seconds[mask].sum()),
                gain=self._gain(speedups, mask, self.confidence),
            )
            for name, mask in groups.items()
        }

    def _gain(self, speedups: np.ndarray, mask: np.ndarray, confidence: float) -> Interval:
        options = self._resampling(confidence, mask)
        return relative_gain(speedups[mask], self.fixed_speedups[mask], **options)

    def _resampling(self, confidence: float, mask: np.ndarray | None = None) -> dict[str, Any]:
        ids = self.test.rows["id"].to_numpy()
        clusters = ids if mask is None else ids[mask]
        return {"clusters": clusters, "confidence": confidence, "seed": self.seed}


def families(table: Sweep) -> dict[str, np.ndarray]:
    """Rows of each family, as masks `[n]`."""
    return _by_name(table, "family")


def languages(table: Sweep) -> dict[str, np.ndarray]:
    """Rows of each language, as masks `[n]`."""
    return _by_name(table, "language")


def by_temperature(table: Sweep) -> dict[str, np.ndarray]:
    """Rows of each sampling temperature, as masks `[n]`."""
    found = table.temperatures
    return {f"{value:g}": found == value for value in np.unique(found)}


def _by_name(table: Sweep, column: str) -> dict[str, np.ndarray]:
    found = table.rows[column].to_numpy()
    return {str(name): found == name for name in sorted(set(found))}
