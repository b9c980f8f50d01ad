"""Comparison of choices of block sizes with fixed sizes and the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.judge import Judge, decide
from blockpilot_rl.evaluation.measure import SOURCE, group_masks
from blockpilot_rl.evaluation.off_policy import check_off_policy
from blockpilot_rl.evaluation.oracle import crossfit_oracle, half_oracle
from blockpilot_rl.evaluation.pooling import FamilyRule
from blockpilot_rl.evaluation.results import ALL_PROMPTS, Comparison, SourceResult
from blockpilot_rl.sweeps.table import Sweep


def compare_choices(
    judge: Judge, choices: Mapping[str, Choices], split: dict[str, Any], rule: FamilyRule
) -> Comparison:
    """Compare choices on the judge's rows with its fixed sizes, random sizes and the oracle.

    Args:
        judge: Judges against one best fixed size for all rows.
        choices: Choices of each agent.
        split: Description of the rows, of `describe_splits`.
        rule: When a family loses too much for an agent to be shipped.
    """
    test, fixed = judge.test, int(judge.best_fixed)
    resampling: dict[str, Any] = {"confidence": judge.confidence, "seed": judge.seed}
    agents = {name: judge.outcome(chosen) for name, chosen in choices.items()}
    families = {name: judge.families(chosen, rule) for name, chosen in choices.items()}
    default = test.metadata.default_block_size
    verdict = decide(judge, test.arms[fixed], choices, families, rule)
    best = verdict.best_agent
    return Comparison(
        split=split,
        pair=_describe_pair(test),
        confidence=judge.confidence,
        default=judge.fixed_size(test.arm_index(default)) if default in test.arms else None,
        best_fixed=judge.fixed_size(fixed),
        best_fixed_total=judge.fixed_size(int(judge.best_fixed_total)),
        random=judge.random(),
        agents=agents,
        oracle=judge.oracle(),
        crossfit=crossfit_oracle(test, fixed, **resampling),
        halves=half_oracle(test, fixed, **resampling),
        speedups=_speedups(test),
        verdict=verdict,
        families=families,
        sources=_sources(judge, choices, rule),
        off_policy=None
        if best is None
        else check_off_policy(test, choices[best].shares(len(test.arms)), **resampling),
    )


def _sources(
    judge: Judge, choices: Mapping[str, Choices], rule: FamilyRule
) -> dict[str, SourceResult]:
    """Compare the choices on seen and on unseen sources alone."""
    found = {}
    for name, mask in group_masks(judge.test, SOURCE).items():
        part = judge.select(mask)
        if part.requests.prompts > 1:
            chosen = {agent: every.select(mask) for agent, every in choices.items()}
            found[name] = _source(part, chosen, rule)
    return found


def _source(judge: Judge, choices: Mapping[str, Choices], rule: FamilyRule) -> SourceResult:
    requests, test, fixed = judge.requests, judge.test, int(judge.best_fixed)
    families = {name: judge.families(chosen, rule) for name, chosen in choices.items()}
    return SourceResult(
        prompts=requests.prompts,
        rows=len(test),
        families=sorted(set(test.rows["family"])),
        best_fixed=requests.measure(requests.fixed, block_size=test.arms[fixed]),
        agents={name: requests.measure(judge.seconds(each)) for name, each in choices.items()},
        oracle=requests.measure(requests.oracle),
        halves=half_oracle(test, fixed, confidence=judge.confidence, seed=judge.seed),
        verdict=decide(judge, test.arms[fixed], choices, families, rule),
    )


def _speedups(table: Sweep) -> dict[str, dict[int, float]]:
    groups = {ALL_PROMPTS: np.ones(len(table), dtype=bool), **group_masks(table, "family")}
    return {
        name: dict(zip(table.arms, table.speedups[mask].mean(axis=0).tolist(), strict=True))
        for name, mask in groups.items()
    }


def describe_splits(train: Sweep | None, validation: Sweep | None, test: Sweep) -> dict[str, Any]:
    """Count the prompts and rows of each split, and the test rows of each family."""
    tables = {"train": train, "validation": validation, "test": test}
    prompts = {
        f"{name}_prompts": 0 if table is None else int(table.rows["id"].nunique())
        for name, table in tables.items()
    }
    rows = {f"{name}_rows": 0 if table is None else len(table) for name, table in tables.items()}
    families = group_masks(test, "family")
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
