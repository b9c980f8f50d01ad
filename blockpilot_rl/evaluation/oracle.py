"""References for choices: the best fixed size and oracles that know the outcome.

The oracle that takes the fastest of many sizes partly profits from noise within each answer, which
no policy can predict. `crossfit_oracle` and `half_oracle` choose on one measurement and are judged
on another, so they do not profit from noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from blockpilot_rl.evaluation.measure import Requests
from blockpilot_rl.evaluation.statistics import Interval
from blockpilot_rl.sweeps.table import Sweep

NO_ARM = -1


def best_fixed_by_mean(train: Sweep) -> int:
    """Find the arm with the largest mean speedup over the training rows.

    Returns:
        Its index.
    """
    return int(train.speedups.mean(axis=0).argmax())


def best_fixed_by_total(train: Sweep) -> int:
    """Find the arm with the least total time over the training rows.

    Long answers weigh more in the total than in the mean speedup, so the two arms can differ.

    Returns:
        Its index.
    """
    return int(train.seconds.sum(axis=0).argmin())


def oracle_arms(table: Sweep) -> np.ndarray:
    """Find the fastest arm of every row.

    Returns:
        Arm indices, `[n]`; the smallest of equally fast arms.
    """
    return np.asarray(table.seconds.argmin(axis=1))


def replicate_arms(table: Sweep) -> np.ndarray:
    """Find the arm with the largest mean speedup on the prompt's other rows of the temperature.

    Returns:
        Arm indices, `[n]`; -1 for rows without others, and for greedy rows, which repeat the same
        answer.
    """
    group = table.rows.groupby(["id", "temperature"])["id"]
    repeated = (group.transform("size") > 1).to_numpy() & (table.temperatures > 0)
    sums = pd.DataFrame(table.speedups).groupby(group.ngroup().to_numpy()).transform("sum")
    return np.where(repeated, (sums.to_numpy() - table.speedups).argmax(axis=1), NO_ARM)


def mixed_arms(table: Sweep) -> np.ndarray:
    """Find an arm for every row by the prompt's other answers, where there are any.

    Returns:
        Arm indices, `[n]`: those of `replicate_arms`, and the fastest where there are none.
    """
    arms = replicate_arms(table)
    return np.where(arms == NO_ARM, oracle_arms(table), arms)


@dataclass(frozen=True)
class CrossFit:
    """An oracle chosen on one measurement and judged on another.

    Attributes:
        source: How: `"replicates"` chooses on a prompt's other samples and judges on the one left
            out, `"stopwatch"` chooses on predicted seconds and judges on measured ones, `"halves"`
            chooses on one half of an answer and judges on the other.
        prompts: Number of prompts that it can be judged on.
        rows: Number of their rows.
        mean_speedup: Mean speedup over these rows.
        in_sample: Mean speedup on the same rows of an oracle that is chosen and judged on the same
            numbers.
        fixed: Mean speedup of a fixed size on the same rows.
        gain: Gain in mean speedup over the fixed size on the same rows.
    """

    source: str
    prompts: int
    rows: int
    mean_speedup: float
    in_sample: float
    fixed: float
    gain: Interval


def crossfit_oracle(
    table: Sweep, fixed: int, *, confidence: float = 0.95, seed: int = 0
) -> CrossFit | None:
    """Judge an oracle on measurements that it did not choose by.

    At a temperature above 0 a prompt has several answers, and a policy, which sees only the prompt,
    cannot choose for each of them. So the arm with the largest mean speedup on the prompt's other
    rows of the temperature is judged on the row left out. If there are no such rows, the arm is
    chosen by predicted and judged by measured seconds, where both are recorded.

    A few rows are noisy evidence: with a single other row, this oracle can be worse than a policy
    that predicts well.

    Args:
        table: Rows to judge on.
        fixed: Arm to compare with.
        confidence: Level of the interval.
        seed: Seed of the bootstrap.

    Returns:
        What it achieves; None if fewer than two prompts have two measurements.
    """
    arms = replicate_arms(table)
    repeated, measured = arms != NO_ARM, np.isfinite(table.measured_seconds).all(axis=1)
    ids = table.rows["id"].to_numpy()
    if len(np.unique(ids[repeated])) > 1:
        source, rows, seconds = "replicates", repeated, table.seconds[repeated]
    elif len(np.unique(ids[measured])) > 1:
        source, rows, seconds = "stopwatch", measured, table.measured_seconds[measured]
        arms = oracle_arms(table)
    else:
        return None
    chosen = seconds[np.arange(len(seconds)), arms[rows]]
    return _crossfit(source, seconds[:, 0], seconds, chosen, fixed, ids[rows], confidence, seed)


def half_oracle(
    table: Sweep, fixed: int, *, confidence: float = 0.95, seed: int = 0
) -> CrossFit | None:
    """Judge an oracle that chooses on one half of each answer and is judged on the other.

    Part of the oracle's lead depends on where drafts happen to end in one answer. That part does
    not carry over to the other half; the remaining lead comes from the prompt and the answer as a
    whole. For an answer with `E` tokens after the first:

    - The passes that begin before token `E / 2` form the first half under each arm, the others the
      second. A pass across the middle belongs to the first half with all its tokens.
    - The time per token of an arm in a half is the arm's mean seconds per pass in the row, times
      its passes in the half, over the tokens that they emit. Only accepted lengths differ between
      the halves.
    - The fastest arm of each half is judged on the other half, and both halves weigh the same. The
      speedup of the row is plain decoding's time per token over the average of the two. The fixed
      size and the in-sample oracle take one arm for both halves.

    Rows with an arm that has no pass in its second half, such as very short answers, are left out.

    This is not a strict bound. Half an answer is noisy evidence too, so a policy that predicts well
    can do better; and predictable differences between halves, such as a remark before a list, count
    as noise.

    Args:
        table: Rows to judge on.
        fixed: Arm to compare with.
        confidence: Level of the interval.
        seed: Seed of the bootstrap.

    Returns:
        What it achieves; None if fewer than two prompts have rows with two halves.
    """
    passes, tokens = _halves(table)
    rows = (passes > 0).all(axis=(0, 2))
    ids = table.rows["id"].to_numpy()[rows]
    if len(np.unique(ids)) < 2:
        return None
    per_pass = (table.seconds / table.passes)[rows]
    first, second = per_pass * passes[:, rows] / tokens[:, rows]
    every = np.arange(len(ids))
    crossed = first[every, second.argmin(axis=1)] + second[every, first.argmin(axis=1)]
    plain, seconds = 2 * first[:, 0], first + second
    return _crossfit("halves", plain, seconds, crossed, fixed, ids, confidence, seed)


def _halves(table: Sweep) -> tuple[np.ndarray, np.ndarray]:
    """Passes of the two halves under every arm and the tokens they emit, `[2, n, arms]` each."""
    passes = np.zeros((2, *table.seconds.shape), dtype=np.int64)
    tokens = np.zeros_like(passes)
    for row, emitted in enumerate(table.emitted):
        for arm, lengths in enumerate(table.accepted[row]):
            ends = np.cumsum(lengths)
            early = int(np.searchsorted(2 * (ends - lengths), emitted))
            passes[:, row, arm] = early, len(lengths) - early
            tokens[:, row, arm] = ends[early - 1], emitted - ends[early - 1]
    return passes, tokens


def _crossfit(
    source: str,
    plain: np.ndarray,
    seconds: np.ndarray,
    chosen: np.ndarray,
    fixed: int,
    ids: np.ndarray,
    confidence: float,
    seed: int,
) -> CrossFit:
    """Judge chosen seconds, `[n]`, on requests with the seconds of every arm, `[n, arms]`."""
    requests = Requests(
        plain=plain,
        fixed=seconds[:, fixed],
        fixed_total=seconds[:, fixed],
        oracle=seconds.min(axis=1),
        ids=ids,
        confidence=confidence,
        seed=seed,
    )
    found = requests.mean_speedups(chosen)
    return CrossFit(
        source=source,
        prompts=len(np.unique(ids)),
        rows=len(ids),
        mean_speedup=found.choice,
        in_sample=found.oracle,
        fixed=found.fixed,
        gain=requests.gain(chosen),
    )
