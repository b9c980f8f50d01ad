"""Is adapting the block size worth it? One sentence on the headroom of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from blockpilot_rl.evaluation.measure import Measured, Requests
from blockpilot_rl.evaluation.oracle import CrossFit
from blockpilot_rl.evaluation.statistics import Interval
from blockpilot_rl.headroom.results import Steps, Worth


@dataclass(frozen=True, eq=False)
class Candidate:
    """A way of choosing the block size that takes no learning.

    Attributes:
        name: What it is, in words.
        requests: The rows that it was tried on.
        seconds: What it took on them, `[n]`.
    """

    name: str
    requests: Requests
    seconds: np.ndarray


def judge_worth(
    best_fixed: Measured,
    oracle: Measured,
    mixed: Interval,
    crossfit: CrossFit | None,
    steps: Steps | None,
    candidates: Sequence[Candidate],
    *,
    confidence: float,
    min_gain: float,
) -> Worth:
    """Say whether adapting is worth it.

    Yes, if a candidate gains `min_gain` or more over the best fixed size, and surely something;
    their intervals are adjusted for their number (Bonferroni). No, if even choices that know the
    outcome surely gain less than `min_gain`: the fastest size of each request, and the best prefix
    at every step. Otherwise only training can tell; a cross-fitted oracle chooses by single other
    samples, which a good predictor can beat, so it is told and bounds nothing.

    Args:
        best_fixed: The best fixed size.
        oracle: The fastest size of each request.
        mixed: Gain of the fastest size of each request, cross-fitted where a prompt has several
            answers.
        crossfit: The cross-fitted oracle alone, if there is one.
        steps: Deciding at every step, if it was measured.
        candidates: What takes no learning.
        confidence: Level of the intervals, before adjustment.
        min_gain: Gain that is worth the trouble, as a fraction.
    """
    size = best_fixed.block_size
    fixed = "plain decoding" if size == 1 else f"the best fixed size {size}"
    known = f"knowing the fastest size of each request would gain {oracle.gain.value:+.1%}"
    if crossfit is not None and crossfit.source == "replicates":
        known += (
            f" ({mixed.value:+.1%} with the {crossfit.prompts} prompts that have several answers "
            "cross-fitted)"
        )
    most = oracle.gain.high
    if steps is not None:
        known += f", the best prefix at every step {steps.prefix_oracle.gain.value:+.1%}"
        most = max(most, steps.prefix_oracle.gain.high)
    best = _best(candidates, confidence, min_gain)
    if best is not None:
        name, gain, level = best
        return Worth(
            "yes",
            f"adapting is worth it here: {name} alone gains {gain.value:+.1%} in mean speedup "
            f"({100 * level:.3g}% interval {gain.low:+.1%} to {gain.high:+.1%}) over {fixed}; "
            f"{known}",
        )
    if most < min_gain:
        return Worth(
            "no",
            f"adapting is not worth it here: {known} over {fixed}, at most {most:+.1%}, less than "
            f"the {min_gain:.1%} that would be worth the trouble; ship {fixed}",
        )
    return Worth(
        "maybe",
        f"adapting may be worth it here: {known} over {fixed}, but no simple rule surely gains "
        f"{min_gain:.1%}; train policies and judge them with scripts/compare.py",
    )


def _best(
    candidates: Sequence[Candidate], confidence: float, min_gain: float
) -> tuple[str, Interval, float] | None:
    """The candidate with the highest lower bound among those that gain enough."""
    level = 1 - (1 - confidence) / max(1, len(candidates))
    gains = [(item.name, item.requests.gain(item.seconds, level), level) for item in candidates]
    enough = [found for found in gains if found[1].low > 0 and found[1].value >= min_gain]
    return max(enough, key=lambda found: found[1].low, default=None)
