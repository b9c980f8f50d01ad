"""Measures choices among the block sizes of a sweep on its test rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.measure import LOOPS, Requests
from blockpilot_rl.evaluation.oracle import oracle_arms
from blockpilot_rl.evaluation.results import Outcome
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True, eq=False)
class Judge:
    """Measures choices on the test rows against the best fixed sizes and the oracle.

    Attributes:
        test: The rows.
        best_fixed: Arm index of the size that is best in mean speedup on the training prompts; one
            for all, or one per row where the rows have different training prompts, `[n]`.
        best_fixed_total: The same for the size that is best in total time.
        confidence: Level of the intervals.
        seed: Seed of the bootstrap.
    """

    test: Sweep
    best_fixed: int | np.ndarray
    best_fixed_total: int | np.ndarray
    confidence: float
    seed: int

    @cached_property
    def requests(self) -> Requests:
        """The test rows as requests."""
        return Requests.from_sweep(
            self.test,
            self.best_fixed,
            self.best_fixed_total,
            confidence=self.confidence,
            seed=self.seed,
        )

    def seconds(self, choices: Choices) -> np.ndarray:
        """Seconds of every row, decisions included, `[seeds, n]`."""
        decode = self.test.seconds[np.arange(len(self.test)), choices.arms]
        return np.asarray(decode + choices.policy_seconds)

    def outcome(self, choices: Choices, block_size: int | None = None) -> Outcome:
        """Measure everything about some choices.

        Args:
            choices: The choices.
            block_size: The size, if it is the same for every row.
        """
        test, arms, seconds = self.test, choices.arms, self.seconds(choices)
        passes = test.passes[np.arange(len(test)), arms]
        tokens = test.emitted.sum() * len(arms)
        shares = np.bincount(arms.ravel(), minlength=len(test.arms)) / arms.size
        requests = self.requests
        speedups = requests.plain / seconds
        measured = requests.measure(seconds, block_size=block_size)
        return Outcome(
            **vars(measured),
            gain_by_seed=(
                speedups.mean(axis=1) / requests.mean_speedups(seconds).fixed - 1
            ).tolist(),
            acceptance_length=float(tokens / passes.sum()),
            acceptance_length_per_request=float((test.emitted / passes).mean()),
            tokens_per_second=float(tokens / seconds.sum()),
            arms=dict(zip(test.arms, shares.tolist(), strict=True)),
            policy_microseconds=float(choices.policy_seconds.mean() * 1e6),
            per_family=requests.measure_groups("family", seconds),
            per_language=requests.measure_groups("language", seconds),
            per_temperature=requests.measure_groups("temperature", seconds),
            per_loops=requests.measure_groups(LOOPS, seconds),
        )

    def fixed_size(self, arm: int) -> Outcome:
        """Measure one size for every row, which takes no decision."""
        arms = np.full((1, len(self.test)), arm)
        return self.outcome(Choices.free(arms), self.test.arms[arm])

    def oracle(self) -> Outcome:
        """Measure the fastest size of every row."""
        return self.outcome(Choices.free(oracle_arms(self.test)[None]))

    def random(self) -> Outcome:
        """Measure a random size for every row: the average over all arms."""
        arms = np.arange(len(self.test.arms))
        return self.outcome(Choices.free(np.repeat(arms[:, None], len(self.test), axis=1)))
