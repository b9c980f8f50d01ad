"""What a policy is measured against: the best fixed size below it and the oracle above it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

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
            measured ones.
        prompts: Prompts that could be judged so.
        rows: Their rows.
        mean_speedup: Mean speedup over those rows.
        in_sample: Mean speedup of the oracle that is chosen and judged on the same numbers, over
            the same rows.
        fixed: The same of a fixed size.
    """

    source: str
    prompts: int
    rows: int
    mean_speedup: float
    in_sample: float
    fixed: float


def crossfit_oracle(table: SweepTable, fixed: int) -> CrossFit | None:
    """Judge an oracle that cannot profit from the noise it chose by.

    At a temperature above 0 a prompt has several answers and a policy, which sees the prompt alone,
    cannot choose for each of them. So the arm is chosen by the mean speedup on the prompt's other
    rows of that temperature and judged on the row that was left out. Without such rows, the arm is
    chosen by predicted seconds and judged by the measured ones, where both are recorded.

    Args:
        table: Rows to judge on.
        fixed: Index of an arm to judge beside it.

    Returns:
        What it achieves; None if fewer than two prompts have two measurements.
    """
    ids, group = table.rows["id"], table.rows.groupby(["id", "temperature"])["id"]
    # Replicates of a greedy answer are copies, from which nothing can be crossed.
    repeated = (group.transform("size") > 1).to_numpy() & (temperatures(table) > 0)
    if ids[repeated].nunique() > 1:
        rewards = table.rewards[repeated]
        totals = pd.DataFrame(rewards).groupby(group.ngroup().to_numpy()[repeated]).transform("sum")
        return _judge("replicates", ids[repeated], rewards, totals.to_numpy() - rewards, fixed)
    measured = np.isfinite(table.measured_seconds).all(axis=1)
    if ids[measured].nunique() > 1:
        seconds = table.measured_seconds[measured]
        rewards = seconds[:, :1] / seconds
        return _judge("stopwatch", ids[measured], rewards, table.rewards[measured], fixed)
    return None


def temperatures(table: SweepTable) -> np.ndarray:
    """Sampling temperature of every row, `[n]`."""
    return table.rows["temperature"].to_numpy(dtype=np.float64)


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


def _judge(
    source: str, ids: pd.Series[str], rewards: np.ndarray, chosen_by: np.ndarray, fixed: int
) -> CrossFit:
    rows = np.arange(len(rewards))
    return CrossFit(
        source=source,
        prompts=int(ids.nunique()),
        rows=len(rewards),
        mean_speedup=float(rewards[rows, chosen_by.argmax(axis=1)].mean()),
        in_sample=float(rewards.max(axis=1).mean()),
        fixed=float(rewards[:, fixed].mean()),
    )
