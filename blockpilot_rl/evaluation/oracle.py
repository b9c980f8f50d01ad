"""What a policy is measured against: the best fixed size below it and the oracle above it."""

from __future__ import annotations

import numpy as np

from blockpilot_rl.sweeps.table import SweepTable


def best_fixed_by_mean(train: SweepTable) -> int:
    """Find the arm whose mean speedup over the training prompts is largest.

    Returns:
        Its index.
    """
    return int(train.rewards.mean(axis=0).argmax())


def best_fixed_by_total(train: SweepTable) -> int:
    """Find the arm with which all training prompts together take the least time.

    Long answers weigh more here than in the mean of the prompts' speedups, so the two can differ.

    Returns:
        Its index.
    """
    return int(train.seconds.sum(axis=0).argmin())


def oracle_arms(table: SweepTable) -> np.ndarray:
    """Find the fastest arm of every prompt, as only one who has tried them all can know it.

    A sweep replays one continuation and takes its seconds from one latency profile, so an arm
    cannot win a prompt by a lucky measurement. Were every prompt timed on its own, the fastest of
    noisy times would flatter the oracle, and it would have to be chosen on one measurement and
    judged on another.

    Returns:
        Arm indices, `[n]`; of equally fast arms the smallest.
    """
    return np.asarray(table.seconds.argmin(axis=1))


def gap_closed(speedup: float, fixed: float, oracle: float) -> float:
    """Share of the way from the best fixed size to the oracle.

    Args:
        speedup: Mean speedup of the policy.
        fixed: Mean speedup of the best fixed size.
        oracle: Mean speedup of the oracle.

    Returns:
        1 at the oracle, 0 at the fixed size, negative below it; NaN if there is no gap.
    """
    gap = oracle - fixed
    return (speedup - fixed) / gap if gap > 0 else float("nan")
