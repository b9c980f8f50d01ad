"""The comparison of agents with fixed sizes and the oracle, on held-out prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.comparison import compare_choices, describe_splits
from blockpilot_rl.evaluation.judge import Judge
from blockpilot_rl.evaluation.leakage import refuse_copied_answers, refuse_overlap
from blockpilot_rl.evaluation.oracle import best_fixed_by_mean, best_fixed_by_total
from blockpilot_rl.evaluation.pooling import FAMILY_RISK, FamilyRule
from blockpilot_rl.evaluation.results import ByTemperature, Comparison
from blockpilot_rl.experiments.seeds import Splits
from blockpilot_rl.sweeps.table import Sweep


def judge_agents(
    splits: Splits,
    choices: Mapping[str, Choices],
    *,
    confidence: float = 0.95,
    family_margin: float = 0.01,
    family_risk: float = FAMILY_RISK,
    seed: int = 0,
) -> Comparison:
    """Judge the choices of agents on the test prompts.

    The best fixed size is chosen on the training prompts and judged, like the agents, on the test
    prompts. An agent is shipped if its gain over that size is significantly above 0, if it is not
    significantly slower on unseen sources, and if no family credibly loses more than a margin. The
    level of the deciding interval is adjusted for the number of agents (Bonferroni), because the
    best of many agents looks good in any case.

    Args:
        splits: The rows that the agents learned from, were selected by, and are judged on.
        choices: Choices of each agent on the test rows.
        confidence: Level of the intervals.
        family_margin: Loss against the best fixed size in a single family, as a fraction, up to
            which an agent may be shipped.
        family_risk: Probability of a larger loss in a family up to which it may be shipped.
        seed: Seed of the bootstrap.

    Raises:
        BlockPilotError: If the tables overlap, an agent knows the test answers, or shapes do not
            fit.
    """
    train, validation, test = splits.train, splits.validation, splits.test
    judge = make_judge(splits, confidence=confidence, seed=seed)
    refuse_overlap((train, validation), test)
    for name, chosen in choices.items():
        chosen.check(name, test)
    refuse_copied_answers(choices, test, validation)
    rule = FamilyRule(family_margin, family_risk)
    split = describe_splits(train, validation, test)
    comparison = compare_choices(judge, choices, split, rule)
    return dataclasses.replace(comparison, by_temperature=_by_temperature(judge, train, choices))


def _by_temperature(
    judge: Judge, train: Sweep, choices: Mapping[str, Choices]
) -> ByTemperature | None:
    """Compare agents with the best fixed size of each temperature, chosen on training rows."""
    test, seen = judge.test, train.temperatures
    temperatures = np.unique(test.temperatures)
    if len(temperatures) < 2:
        return None
    arms = np.zeros((1, len(test)), dtype=np.int64)
    sizes = {}
    for temperature in temperatures:
        own = seen == temperature
        arm = best_fixed_by_mean(train.select_rows(own) if own.any() else train)
        arms[0, test.temperatures == temperature] = arm
        sizes[f"{temperature:g}"] = test.arms[arm]
    fixed = Choices.free(arms)
    seconds = judge.seconds(fixed)
    return ByTemperature(
        best_fixed=dataclasses.replace(judge.outcome(fixed), block_sizes=sizes),
        agents={
            name: judge.requests.change(judge.seconds(chosen), seconds)
            for name, chosen in choices.items()
        },
    )


def make_judge(splits: Splits, *, confidence: float = 0.95, seed: int = 0) -> Judge:
    """Make a judge of the test rows that compares with the best fixed sizes of the training rows.

    Raises:
        BlockPilotError: If the confidence is invalid, or the test rows are of a single prompt.
    """
    if not 0 < confidence < 1:
        raise BlockPilotError(f"confidence {confidence} must lie between 0 and 1, such as 0.95")
    if splits.test.rows["id"].nunique() < 2:
        raise BlockPilotError(
            "the test split has a single prompt and an interval needs two or more; record more "
            "prompts with blockpilot collect-sweep"
        )
    return Judge(
        splits.test,
        best_fixed_by_mean(splits.train),
        best_fixed_by_total(splits.train),
        confidence,
        seed,
    )
