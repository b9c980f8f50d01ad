"""The verdict: ship an agent, or a fixed block size, and why."""

from __future__ import annotations

from collections.abc import Mapping

from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.judge import Judge
from blockpilot_rl.evaluation.results import Outcome, Verdict


def decide(
    judge: Judge,
    best_fixed: int,
    choices: Mapping[str, Choices],
    agents: Mapping[str, Outcome],
    family_margin: float,
) -> Verdict:
    """Choose between the agent with the highest lower bound and the best fixed size.

    Args:
        judge: Gives gains at a level that is adjusted for the number of agents.
        best_fixed: The best fixed block size.
        choices: What each agent chose.
        agents: What each agent achieved.
        family_margin: Loss in a single family that is tolerated; the verdict reports it.
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
    gains = {name: judge.gain(chosen, level) for name, chosen in choices.items()}
    best = max(gains, key=lambda name: gains[name].low)
    gain, outcome = gains[best], agents[best]
    worst = min(outcome.per_family, key=lambda name: outcome.per_family[name].gain.value)
    loss = outcome.per_family[worst].gain
    within = loss.value >= -family_margin
    judged = f"{'within' if within else 'beyond'} the margin of {family_margin:.1%}"
    fixed = "plain decoding" if best_fixed == 1 else f"the best fixed size {best_fixed}"
    adjusted = f", adjusted for {len(choices)} agents" if len(choices) > 1 else ""
    interval = f"{100 * level:.3g}% interval {gain.low:+z.1%} to {gain.high:+z.1%}{adjusted}"
    if gain.low > 0:
        reason = (
            f"{best} gains {gain.value:+z.1%} in mean speedup over {fixed} ({interval}), its own "
            f"decisions included, and {outcome.total_gain.value:+z.1%} in total time; in its worst "
            f"family, {worst}, it has {loss.value:+z.1%}{'' if loss.value >= 0 else ', ' + judged}"
        )
    else:
        reason = (
            f"no agent surely gains over {fixed}: the surest of them, {best}, has "
            f"{gain.value:+z.1%} in mean speedup ({interval}), its own decisions included"
        )
    return Verdict(
        ship=best if gain.low > 0 else "fixed",
        block_size=None if gain.low > 0 else best_fixed,
        reason=reason,
        confidence=level,
        family_margin=family_margin,
        best_agent=best,
        gain=gain,
        worst_family=worst,
        worst_family_gain=loss,
        within_margin=within,
    )
