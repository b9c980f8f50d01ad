"""The verdict: ship an agent, or a fixed block size, and why."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.judge import Judge
from blockpilot_rl.evaluation.results import Outcome, Verdict
from blockpilot_rl.evaluation.statistics import Interval


def decide(
    judge: Judge,
    best_fixed: int,
    choices: Mapping[str, Choices],
    agents: Mapping[str, Outcome],
    family_margin: float,
) -> Verdict:
    """Choose between the agents and the best fixed size.

    An agent may be shipped if it surely gains, both over the best fixed size and over every size
    that it takes itself, and loses no more than the margin in any family; of several, the one whose
    gain has the highest lower bound is. The second gain tells a policy from a constant, or from a
    mixture of constants: an agent that learned from validation prompts too could know a better one.

    Args:
        judge: Gives gains at a level that is adjusted for the number of agents.
        best_fixed: The best fixed block size.
        choices: What each agent chose.
        agents: What each agent achieved.
        family_margin: Loss in a single family, as a fraction, beyond which no agent is shipped. The
            loss itself counts; the verdict names the families whose intervals reach further.
    """
    if not choices:
        return Verdict(
            ship="fixed",
            block_size=best_fixed,
            reason="no learned agent was compared",
            confidence=judge.confidence,
            family_margin=family_margin,
        )
    level = 1 - (1 - judge.confidence) / len(choices)
    gains = {
        name: judge.requests.gain(judge.seconds(chosen), level) for name, chosen in choices.items()
    }
    surest = sorted(gains, key=lambda name: gains[name].low, reverse=True)
    adapting = {
        name: _over_constants(judge, chosen, level)
        for name, chosen in choices.items()
        if gains[name].low > 0
    }
    gaining = [name for name in surest if name in adapting and adapting[name][1].low > 0]
    shippable = [name for name in gaining if _worst(agents[name])[1].value >= -family_margin]
    best = shippable[0] if shippable else surest[0]
    gain, (worst, loss) = gains[best], _worst(agents[best])
    unsure = [
        family
        for family, outcome in agents[best].per_family.items()
        if not outcome.gain.low >= -family_margin
    ]
    fixed = "plain decoding" if best_fixed == 1 else f"the best fixed size {best_fixed}"
    adjusted = f", adjusted for {len(choices)} agents" if len(choices) > 1 else ""
    interval = f"{100 * level:.3g}% interval {gain.low:+z.1%} to {gain.high:+z.1%}{adjusted}"
    if gain.low > 0 and best not in gaining:
        size, change = adapting[best]
        reason = (
            f"{best} gains {gain.value:+z.1%} in mean speedup over {fixed} ({interval}), but "
            f"{change.value:+z.1%} over always taking {size}, one of its sizes ({change.low:+z.1%} "
            f"to {change.high:+z.1%}), so it is not surely better than a fixed size"
        )
    elif gain.low > 0:
        reason = (
            f"{best} gains {gain.value:+z.1%} in mean speedup over {fixed} ({interval}), its own "
            f"decisions included, and {agents[best].total_gain.value:+z.1%} in total time; in its "
            f"worst family, {worst}, it has {loss.value:+z.1%}"
            f"{_margin_words(loss.value, unsure, family_margin)}"
        )
        if shippable and (passed := gaining[: gaining.index(best)]):
            reason += f"; {' and '.join(passed)} gained more surely, but lost too much in a family"
    else:
        reason = (
            f"no agent surely gains over {fixed}: the surest of them, {best}, has "
            f"{gain.value:+z.1%} in mean speedup ({interval}), its own decisions included"
        )
    return Verdict(
        ship=best if shippable else "fixed",
        block_size=None if shippable else best_fixed,
        reason=reason,
        confidence=level,
        family_margin=family_margin,
        best_agent=best,
        gain=gain,
        worst_family=worst,
        worst_family_gain=loss,
        within_margin=loss.value >= -family_margin,
        unsure_families=unsure,
    )


def _over_constants(judge: Judge, choices: Choices, confidence: float) -> tuple[int, Interval]:
    """Compare choices with always taking one of the sizes that they take.

    Returns:
        The size with the least lower bound of the relative difference, and that difference.
    """
    seconds, sizes = judge.seconds(choices), judge.test.seconds
    changes = {
        judge.test.arms[arm]: judge.requests.change(seconds, sizes[:, arm], confidence)
        for arm in np.unique(choices.arms)
    }
    return min(changes.items(), key=lambda item: item[1].low)


def _worst(outcome: Outcome) -> tuple[str, Interval]:
    """The family with the least gain, and that gain."""
    name = min(outcome.per_family, key=lambda family: outcome.per_family[family].gain.value)
    return name, outcome.per_family[name].gain


def _margin_words(loss: float, unsure: list[str], margin: float) -> str:
    """How the worst family's gain, and the intervals of all, lie to the margin of loss."""
    if loss < -margin:
        return f", beyond the margin of {margin:.1%} that an agent may lose"
    if unsure:
        are = "is" if len(unsure) == 1 else "are"
        return f"; not surely within the margin of {margin:.1%} {are} {', '.join(unsure)}"
    return "" if loss >= 0 else f", within the margin of {margin:.1%}"
