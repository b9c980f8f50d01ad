from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.oracle import oracle_arms
from blockpilot_rl.experiments.folds import family_folds, judge_folds
from blockpilot_rl.experiments.seeds import Splits
from tests.synthetic import synthetic_table


@pytest.fixture(scope="module")
def splits() -> Splits:
    """Three families; short blocks suit `easy`, long ones the others."""
    table = synthetic_table(n=500)
    family = table.rows["family"].to_numpy(copy=True)
    family[::3] = "other"
    seconds = table.seconds.copy()
    seconds[family == "easy"] *= [1.0, 0.5, 1.0, 1.3, 2.0]
    table = dataclasses.replace(table, rows=table.rows.assign(family=family), seconds=seconds)
    return Splits.from_sweep(table)


def test_folds_train_without_the_family_they_test(splits):
    folds = family_folds(splits)
    assert list(folds) == ["easy", "hard", "other"]
    for family, fold in folds.items():
        others = {"easy", "hard", "other"} - {family}
        assert set(fold.train.rows["family"]) == others == set(fold.validation.rows["family"])
        assert set(fold.test.rows["family"]) == {family}
    assert sum(len(fold.test) for fold in folds.values()) == len(splits.test)
    assert sum(len(fold.train) for fold in folds.values()) == 2 * len(splits.train)


def test_each_family_is_measured_in_its_own_fold(splits):
    test = splits.test
    folds = family_folds(splits)
    parts = {
        family: Choices(np.full((2, len(fold.test)), arm), (1 + arm) * np.array([1e-3, 3e-3]))
        for arm, (family, fold) in enumerate(folds.items())
    }
    found = judge_folds(test, folds, {"steady": parts})
    agent = found.agents["steady"]
    for arm, (family, fold) in enumerate(folds.items()):
        seconds = fold.test.seconds
        pay = (1 + arm) * np.array([1e-3, 3e-3])
        expected = np.mean([seconds[:, 0] / (seconds[:, arm] + s) for s in pay])
        size = found.best_fixed[family]
        assert size == fold.train.arms[int(fold.train.speedups.mean(axis=0).argmax())]
        fixed = fold.test.speedups[:, fold.test.arm_index(size)].mean()
        outcome = agent.per_family[family]
        assert outcome.mean_speedup == pytest.approx(expected)
        assert outcome.gain.value == pytest.approx(expected / fixed - 1)
        assert found.fixed.per_family[family].mean_speedup == pytest.approx(fixed)
    assert found.best_fixed["easy"] != found.best_fixed["hard"]
    assert found.fixed.gain == (0, 0, 0)
    paid = sum(2000 * (1 + arm) * len(fold.test) for arm, fold in enumerate(folds.values()))
    assert agent.policy_microseconds == pytest.approx(paid / len(test))
    rows = sum(outcome.rows for outcome in agent.per_family.values())
    mean = sum(o.rows * o.mean_speedup for o in agent.per_family.values()) / rows
    assert mean == pytest.approx(agent.mean_speedup)


def test_knowing_the_answers_of_a_family_is_refused(splits):
    folds = family_folds(splits)
    parts = {family: Choices.free(oracle_arms(fold.test)[None]) for family, fold in folds.items()}
    with pytest.raises(BlockPilotError, match="leakage: agent 'copycat'"):
        judge_folds(splits.test, folds, {"copycat": parts})


def test_one_family_cannot_be_left_out(splits):
    only = splits.map(lambda table: table.select_rows((table.rows["family"] == "easy").to_numpy()))
    with pytest.raises(BlockPilotError, match="family 'easy' cannot be left out"):
        family_folds(only)


def test_validation_rows_may_be_missing(splits):
    folds = family_folds(dataclasses.replace(splits, validation=None))
    assert all(fold.validation is None for fold in folds.values())
