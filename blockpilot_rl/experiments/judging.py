"""The comparison of agents with fixed sizes and the oracle, on held-out prompts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.judge import Judge, decide
from blockpilot_rl.evaluation.leakage import refuse_copied_answers, refuse_overlap
from blockpilot_rl.evaluation.measure import group_masks
from blockpilot_rl.evaluation.off_policy import check_off_policy
from blockpilot_rl.evaluation.oracle import (
    best_fixed_by_mean,
    best_fixed_by_total,
    crossfit_oracle,
    half_oracle,
)
from blockpilot_rl.evaluation.results import ALL_PROMPTS, Comparison
from blockpilot_rl.experiments.seeds import Splits
from blockpilot_rl.sweeps.table import Sweep


def judge_agents(
    splits: Splits,
    choices: Mapping[str, Choices],
    *,
    confidence: float = 0.95,
    family_margin: float = 0.01,
    seed: int = 0,
) -> Comparison:
    """Judge the choices of agents on the test prompts.

    The best fixed size is chosen on the training prompts and judged, like the agents, on the test
    prompts. An agent is shipped if its gain over that size is significantly above 0 and if it loses
    no more than a margin in any family. The level of the deciding interval is adjusted for the
    number of agents (Bonferroni), because the best of many agents looks good in any case.

    Args:
        splits: The rows that the agents learned from, were selected by, and are judged on.
        choices: Choices of each agent on the test rows.
        confidence: Level of the intervals.
        family_margin: Loss against the best fixed size in a single family, as a fraction, up to
            which an agent may be shipped.
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
    agents = {name: judge.outcome(chosen) for name, chosen in choices.items()}
    default = test.metadata.default_block_size
    fixed = best_fixed_by_mean(train)
    verdict = decide(judge, test.arms[fixed], choices, agents, family_margin)
    best = verdict.best_agent
    return Comparison(
        split=_describe_splits(splits),
        pair=_describe_pair(test),
        confidence=confidence,
        default=judge.fixed_size(test.arm_index(default)) if default in test.arms else None,
        best_fixed=judge.fixed_size(fixed),
        best_fixed_total=judge.fixed_size(best_fixed_by_total(train)),
        random=judge.random(),
        agents=agents,
        oracle=judge.oracle(),
        crossfit=crossfit_oracle(test, fixed, confidence=confidence, seed=seed),
        halves=half_oracle(test, fixed, confidence=confidence, seed=seed),
        speedups=_speedups(test),
        verdict=verdict,
        off_policy=None
        if best is None
        else check_off_policy(
            test, choices[best].shares(len(test.arms)), confidence=confidence, seed=seed
        ),
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


def _speedups(table: Sweep) -> dict[str, dict[int, float]]:
    groups = {ALL_PROMPTS: np.ones(len(table), dtype=bool), **group_masks(table, "family")}
    return {
        name: dict(zip(table.arms, table.speedups[mask].mean(axis=0).tolist(), strict=True))
        for name, mask in groups.items()
    }


def _describe_splits(splits: Splits) -> dict[str, object]:
    tables = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    prompts = {
        f"{name}_prompts": 0 if table is None else int(table.rows["id"].nunique())
        for name, table in tables.items()
    }
    rows = {f"{name}_rows": 0 if table is None else len(table) for name, table in tables.items()}
    families = group_masks(splits.test, "family")
    return {
        **prompts,
        **rows,
        "families": {family: int(mask.sum()) for family, mask in families.items()},
    }


def _describe_pair(table: Sweep) -> dict[str, str]:
    metadata = table.metadata
    return {
        "target": metadata.target,
        "drafter": metadata.drafter,
        "fingerprint": metadata.fingerprint,
        "device": metadata.device,
        "dtype": metadata.latency_dtype,
    }
