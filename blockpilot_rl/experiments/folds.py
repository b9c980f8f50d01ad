"""Families left out: results on kinds of prompts that policies were not trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.judge import Judge
from blockpilot_rl.evaluation.leakage import refuse_copied_answers, refuse_overlap
from blockpilot_rl.evaluation.measure import group_masks
from blockpilot_rl.evaluation.oracle import best_fixed_by_mean, best_fixed_by_total
from blockpilot_rl.evaluation.results import LeftOut
from blockpilot_rl.experiments.seeds import Splits, Trainer
from blockpilot_rl.sweeps.table import Sweep


def family_folds(splits: Splits) -> dict[str, Splits]:
    """Leave out each family of the test rows in turn.

    Args:
        splits: The rows of all families.

    Returns:
        For each family its test rows, and the training and validation rows of the other families.

    Raises:
        BlockPilotError: If there is no other family to learn from.
    """
    folds = {}
    for family, mask in group_masks(splits.test, "family").items():
        train = _without(splits.train, family)
        if train is None:
            raise BlockPilotError(
                f"family {family!r} cannot be left out: the training split has no other family"
            )
        validation = _without(splits.validation, family)
        folds[family] = Splits(train, validation, splits.test.select_rows(mask))
    return folds


def leave_families_out(
    trainer: Trainer,
    algorithms: Sequence[str],
    test: Sweep,
    folds: Mapping[str, Splits],
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> LeftOut:
    """Train agents without each family and judge them on that family.

    Args:
        trainer: Trains the agents.
        algorithms: The algorithms to train.
        test: The test rows of all families.
        folds: The folds of all families.
        confidence: Level of the intervals.
        seed: Seed of the bootstrap.

    Raises:
        BlockPilotError: If a fold's tables overlap, or an agent knows the test answers.
    """
    choices = {
        name: {
            family: trainer.train(name, fold, label=f"without {family}").choices
            for family, fold in folds.items()
        }
        for name in algorithms
    }
    return judge_folds(test, folds, choices, confidence=confidence, seed=seed)


def judge_folds(
    test: Sweep,
    folds: Mapping[str, Splits],
    choices: Mapping[str, Mapping[str, Choices]],
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> LeftOut:
    """Judge each family by the agents, and by the best fixed size, that were trained without it.

    Args:
        test: The test rows of all families.
        folds: The folds of all families.
        choices: For each agent and family its choices on the test rows of the fold.
        confidence: Level of the intervals.
        seed: Seed of the bootstrap.

    Raises:
        BlockPilotError: If a fold's tables overlap, or an agent knows the test answers.
    """
    for family, fold in folds.items():
        refuse_overlap((fold.train, fold.validation), fold.test)
        refuse_copied_answers({name: parts[family] for name, parts in choices.items()}, fold.test)
    masks = group_masks(test, "family")
    fixed, total = np.zeros((2, len(test)), dtype=np.int64)
    for family, fold in folds.items():
        fixed[masks[family]] = best_fixed_by_mean(fold.train)
        total[masks[family]] = best_fixed_by_total(fold.train)
    judge = Judge(test, fixed, total, confidence, seed)
    return LeftOut(
        best_fixed={
            family: test.arms[best_fixed_by_mean(fold.train)] for family, fold in folds.items()
        },
        fixed=judge.outcome(Choices.free(fixed[None])),
        agents={name: judge.outcome(_join(test, parts)) for name, parts in choices.items()},
    )


def _join(test: Sweep, parts: Mapping[str, Choices]) -> Choices:
    """Put the choices on all families together, in the order of the test rows."""
    masks = group_masks(test, "family")
    seeds = len(next(iter(parts.values())).arms)
    arms = np.zeros((seeds, len(test)), dtype=np.int64)
    seconds = np.zeros(arms.shape)
    for family, part in parts.items():
        arms[:, masks[family]] = part.arms
        seconds[:, masks[family]] = part.policy_seconds
    return Choices(arms, seconds)


def _without(table: Sweep | None, family: str) -> Sweep | None:
    """The rows of the other families; None if there are none."""
    if table is None:
        return None
    mask = (table.rows["family"] != family).to_numpy()
    return table.select_rows(mask) if mask.any() else None
