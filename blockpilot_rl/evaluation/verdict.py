"""The verdict of a comparison: ship an agent or a fixed block size."""

from __future__ import annotations

import dataclasses
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

    An agent may be shipped if it is significantly faster than the best fixed size and than each of
    the sizes that it takes itself, and loses at most the margin in every family. If several agents
    pass, the one whose gain has the highest lower bound is shipped. The comparison with an agent's
    own sizes rules out constants and mixtures of constants: an agent that also learned from
    validation prompts could use a better constant.

    Args:
        judge: Measures gains at a level that is adjusted for the number of agents (Bonferroni).
        best_fixed: The best fixed block size.
        choices: What each agent chose.
        agents: What each agent achieved.
        family_margin: Largest loss in a single family, as a fraction, with which an agent is
            shipped. The point estimate counts; families whose intervals reach further are listed.
    """
    fixed = Verdict(
        ship="fixed",
        block_size=best_fixed,
        code="no_agents",
        best_fixed=best_fixed,
        agents=len(choices),
        confidence=judge.confidence,
        family_margin=family_margin,
    )
    if not choices:
        return fixed
    level = 1 - (1 - judge.confidence) / len(choices)
    gains = {
        name: judge.requests.gain(judge.seconds(chosen), level) for name, chosen in choices.items()
    }
    ranked = sorted(gains, key=lambda name: gains[name].low, reverse=True)
    over_constants = {
        name: _over_constants(judge, choices[name], level) for name in ranked if gains[name].low > 0
    }
    adapting = [name for name, (_, change) in over_constants.items() if change.low > 0]
    shippable = [name for name in adapting if _worst(agents[name])[1].value >= -family_margin]
    best = (shippable or ranked)[0]
    worst, loss = _worst(agents[best])
    constant, change = over_constants.get(best, (None, None))
    return dataclasses.replace(
        fixed,
        ship=best if shippable else "fixed",
        block_size=None if shippable else best_fixed,
        code=_code(best, shippable, adapting, gains[best]),
        confidence=level,
        best_agent=best,
        gain=gains[best],
        total_gain=agents[best].total_gain,
        constant=constant,
        gain_over_constant=change,
        worst_family=worst,
        worst_family_gain=loss,
        within_margin=loss.value >= -family_margin,
        unsure_families=_unsure_families(agents[best], family_margin),
        passed_over=adapting[: adapting.index(best)] if shippable else [],
    )


def _code(best: str, shippable: list[str], adapting: list[str], gain: Interval) -> str:
    if shippable:
        return "ships"
    if not gain.low > 0:
        return "no_gain"
    return "family_loss" if best in adapting else "no_gain_over_constant"


def _over_constants(judge: Judge, choices: Choices, confidence: float) -> tuple[int, Interval]:
    """Compare choices with each of their own sizes as a fixed size.

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
    """Family with the least gain, and that gain."""
    name = min(outcome.per_family, key=lambda family: outcome.per_family[family].gain.value)
    return name, outcome.per_family[name].gain


def _unsure_families(outcome: Outcome, margin: float) -> list[str]:
    """Families whose intervals reach beyond the margin."""
    groups = outcome.per_family.items()
    return [family for family, measured in groups if not measured.gain.low >= -margin]
