"""What a policy is measured against: the best fixed size below it and the oracle above it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from blockpilot_rl.evaluation.statistics import Interval, relative_gain
from blockpilot_rl.sweeps.table import Sweep

NO_ARM = -1


def best_fixed_by_mean(train: Sweep) -> int:
    """Find the arm whose mean speedup over the training prompts is largest.

    Returns:
        Its index.
    """
    return int(train.speedups.mean(axis=0).argmax())


def best_fixed_by_total(train: Sweep) -> int:
    """Find the arm with which all training prompts together take the least time.

    Long answers weigh more here than in the mean of the prompts' speedups, so the two can differ.

    Returns:
        Its index.
    """
    return int(train.seconds.sum(axis=0).argmin())


def oracle_arms(table: Sweep) -> np.ndarray:
    """Find the fastest arm of every row, as only one who has tried them all can know it.

    Where a prompt has several rows, or was timed for real, the fastest of noisy times flatters the
    oracle: see `crossfit_oracle`.

    Returns:
        Arm indices, `[n]`; of equally fast arms the smallest.
    """
    return np.asarray(table.seconds.argmin(axis=1))


@dataclass(frozen=True)
class CrossFit:
    """An oracle chosen on one measurement and judged on another.

    Attributes:
        source: `"replicates"` where it is chosen on a prompt's other samples and judged on the
            one left out; `"stopwatch"` where it is chosen on predicted seconds and judged on
            measured ones; `"halves"` where it is chosen on one half of an answer and judged on the
            other.
        prompts: Prompts that could be judged so.
        rows: Their rows.
        mean_speedup: Mean speedup over those rows.
        in_sample: Mean speedup of the oracle that is chosen and judged on the same numbers, over
            the same rows.
        fixed: The same of a fixed size.
        gain: Gain in mean speedup over that size on those rows, whole prompts being resampled.
    """

    source: str
    prompts: int
    rows: int
    mean_speedup: float
    in_sample: float
    fixed: float
    gain: Interval

    @classmethod
    def of(
        cls,
        source: str,
        ids: np.ndarray,
        achieved: np.ndarray,
        in_sample: np.ndarray,
        fixed: np.ndarray,
        *,
        confidence: float,
        seed: int,
    ) -> CrossFit:
        """Average the speedups of every row, `[n]` each, of the prompts `ids`."""
        return cls(
            source=source,
            prompts=len(np.unique(ids)),
            rows=len(ids),
            mean_speedup=float(achieved.mean()),
            in_sample=float(in_sample.mean()),
            fixed=float(fixed.mean()),
            gain=relative_gain(achieved, fixed, ids, confidence=confidence, seed=seed),
        )


def crossfit_oracle(
    table: Sweep, fixed: int, *, confidence: float = 0.95, seed: int = 0
) -> CrossFit | None:
    """Judge an oracle that cannot profit from the noise it chose by.

    At a temperature above 0 a prompt has several answers and a policy, which sees the prompt alone,
    cannot choose for each of them. So the arm is chosen by the mean speedup on the prompt's other
    rows of that temperature and judged on the row that was left out. Without such rows, the arm is
    chosen by predicted seconds and judged by the measured ones, where both are recorded.

    Few other rows tell little: chosen by a single one, the oracle can fall short of a policy that
    knows what to expect of the prompt.

    Args:
        table: Rows to judge on.
        fixed: Index of an arm to judge beside it.
        confidence: Level of the interval.
        seed: Seed of the bootstrap.

    Returns:
        What it achieves; None if fewer than two prompts have two measurements.
    """
    arms = replicate_arms(table)
    repeated, measured = arms != NO_ARM, np.isfinite(table.measured_seconds).all(axis=1)
    ids = table.rows["id"].to_numpy()
    if len(np.unique(ids[repeated])) > 1:
        source, rows, rewards = "replicates", repeated, table.speedups[repeated]
    elif len(np.unique(ids[measured])) > 1:
        seconds = table.measured_seconds[measured]
        source, rows, rewards = "stopwatch", measured, seconds[:, :1] / seconds
        arms = oracle_arms(table)
    else:
        return None
    return CrossFit.of(
        source,
        ids[rows],
        rewards[np.arange(len(rewards)), arms[rows]],
        rewards.max(axis=1),
        rewards[:, fixed],
        confidence=confidence,
        seed=seed,
    )


def replicate_arms(table: Sweep) -> np.ndarray:
    """Find the arm that is best in mean speedup on the prompt's other rows of the temperature.

    Returns:
        Arm indices, `[n]`; -1 for a row that has no other, and for greedy ones, whose replicates
        are copies from which nothing can be crossed.
    """
    group = table.rows.groupby(["id", "temperature"])["id"]
    repeated = (group.transform("size") > 1).to_numpy() & (table.temperatures > 0)
    sums = pd.DataFrame(table.speedups).groupby(group.ngroup().to_numpy()).transform("sum")
    return np.where(repeated, (sums.to_numpy() - table.speedups).argmax(axis=1), NO_ARM)


def mixed_arms(table: Sweep) -> np.ndarray:
    """Find an arm for every row by the prompt's other answers, where there are any.

    Returns:
        Arm indices, `[n]`: cross-fitted where the prompt has other rows of the temperature, the
        fastest elsewhere.
    """
    arms = replicate_arms(table)
    return np.where(arms == NO_ARM, oracle_arms(table), arms)
