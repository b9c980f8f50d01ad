"""Performance over the training data paid for, in prompts and in decodes.

Decodes are the price of learning. A full-information learner needs the label of every arm of an
answer, a bandit learner the outcome of one arm per decision. A prompt has one answer or, at several
temperatures and seeds, several, which are rows of the sweep. Two prices are shown:

- `decode`: every label is decoded for. An answer costs a full-information learner one decode per
  arm, a decision costs a bandit learner one decode. Where its reward is the difference to the best
  fixed size, a decision costs another one, and that size the labels of the prompts that it was
  chosen on.
- `replay`: as the text does not depend on the block size, the labels of all arms of an answer cost
  about one decode; a bandit learner may then decide on it as often as it likes.

Validation answers are paid for by an agent that learns from them, as the ridge regression does.
Those that an agent is only selected by are counted for none.
"""

from __future__ import annotations

import numpy as np

from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.judge import Judge
from blockpilot_rl.evaluation.results import CurvePoint
from blockpilot_rl.sweeps.table import Sweep

PRICES = ("decode", "replay")

_POINTS = 5
FEWEST = 32


def prompt_counts(train: Sweep) -> list[int]:
    """Numbers of training prompts to learn from: all, half, a quarter and so on, increasing."""
    prompts = int(train.rows["id"].nunique())
    halved = [prompts >> step for step in range(_POINTS)]
    return sorted({prompts, *(count for count in halved if count >= FEWEST)})


def decision_counts(decisions: int) -> list[int]:
    """Numbers of decisions for a bandit learner: all, a quarter and so on, increasing.

    Args:
        decisions: What it takes by default.
    """
    quartered = [decisions >> (2 * step) for step in range(_POINTS)]
    return sorted({decisions, *(count for count in quartered if count >= FEWEST)})


def some_prompts(table: Sweep, count: int, seed: int) -> Sweep:
    """Keep the rows of some prompts; a smaller count keeps some of a larger one's.

    Args:
        table: The rows.
        count: Number of prompts.
        seed: Decides which.
    """
    ids = table.rows["id"].unique()
    kept = np.random.default_rng(seed).permutation(ids)[:count]
    return table.select_rows(table.rows["id"].isin(kept).to_numpy())


def curve_point(
    judge: Judge, choices: Choices, prompts: int, decodes: int | None = None
) -> CurvePoint:
    """Judge choices of agents that learned from part of the training data.

    Args:
        judge: Judges against the best fixed size of all training prompts.
        choices: Choices on its test rows.
        prompts: Training prompts that were learned from.
        decodes: Decodes that were paid for.
    """
    seconds = judge.seconds(choices)
    found = judge.requests.mean_speedups(seconds)
    return CurvePoint(
        prompts=prompts,
        decodes=decodes,
        mean_speedup=found.choice,
        gain=judge.requests.gain(seconds),
        gap_closed=found.gap_closed,
        regret=found.regret,
    )
