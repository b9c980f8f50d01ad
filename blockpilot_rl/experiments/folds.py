"""The view by family left out: how a policy does on a kind of prompt that it never saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.judge import Judge
from blockpilot_rl.evaluation.leakage import refuse_copied_answers, refuse_overlap
from blockpilot_rl.evaluation.measure import group_masks
from blockpilot_rl.evaluation.oracle import best_fixed_by_mean, best_fixed_by_total
from blockpilot_rl.evaluation.results import LeftOut
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True, eq=False)
class Fold:
    """One family's test rows, and what may be learned from to judge on them.

    Attributes:
        family: The family that is left out.
        train: Training rows of the other families.
        validation: Validation rows of the other families, if there are any.
        test: Test rows of the family.
    """

    family: str
    train: Sweep
    validation: Sweep | None
    test: Sweep


def family_folds(train: Sweep, validation: Sweep | None, test: Sweep) -> list[Fold]:
    """Leave out each family of the test rows in turn.

    Raises:
        BlockPilotError: If no other family is left to learn from.
    """
    return [
        Fold(family, others, _without(validation, family), test.select_rows(mask))
        for family, mask in group_masks(test, "family").items()
        if (others := _required(_without(train, family), family))
    ]


def judge_folds(
    test: Sweep,
    folds: Sequence[Fold],
    choices: Mapping[str, Sequence[Choices]],
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> LeftOut:
    """Judge each family by the agents, and by the best fixed size, that never saw it.

    Args:
        test: All test rows.
        folds: The folds of all its families.
        choices: For each agent its choices on the test rows of each fold.
        confidence: Level of the intervals.
        seed: Seed of the bootstrap.

    Raises:
        BlockPilotError: If a fold's tables overlap, or an agent knows the test answers.
    """
    for index, fold in enumerate(folds):
        refuse_overlap((fold.train, fold.validation), fold.test)
        refuse_copied_answers({name: parts[index] for name, parts in choices.items()}, fold.test)
    masks = group_masks(test, "family")
    fixed, total = np.zeros((2, len(test)), dtype=np.int64)
    for fold in folds:
        fixed[masks[fold.family]] = best_fixed_by_mean(fold.train)
        total[masks[fold.family]] = best_fixed_by_total(fold.train)
    judge = Judge(test, fixed, total, confidence, seed)
    return LeftOut(
        best_fixed={fold.family: test.arms[best_fixed_by_mean(fold.train)] for fold in folds},
        fixed=judge.outcome(Choices.free(fixed[None])),
        agents={
            name: judge.outcome(_joined(test, folds, parts)) for name, parts in choices.items()
        },
    )


def _joined(test: Sweep, folds: Sequence[Fold], parts: Sequence[Choices]) -> Choices:
    """Lay the choices of all folds beside each other, in the order of the test rows."""
    masks = group_masks(test, "family")
    arms = np.zeros((len(parts[0].arms), len(test)), dtype=np.int64)
    seconds = np.zeros(arms.shape)
    for fold, part in zip(folds, parts, strict=True):
        arms[:, masks[fold.family]] = part.arms
        seconds[:, masks[fold.family]] = part.policy_seconds
    return Choices(arms, seconds)


def _without(table: Sweep | None, family: str) -> Sweep | None:
    if table is None:
        return None
    mask = (table.rows["family"] != family).to_numpy()
    return table.select_rows(mask) if mask.any() else None


def _required(train: Sweep | None, family: str) -> Sweep:
    if train is None:
        raise BlockPilotError(
            f"family {family!r} cannot be left out: the training split has no other family"
        )
    return train
