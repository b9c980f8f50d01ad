from __future__ import annotations

import numpy as np
import pytest

from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.experiments.curves import (
    curve_point,
    decision_counts,
    prompt_counts,
    some_prompts,
)
from blockpilot_rl.experiments.judged_comparison import make_judge
from tests.evaluation.replicates import replicated
from tests.synthetic import synthetic_table


@pytest.fixture(scope="module")
def table():
    return synthetic_table(n=300)


def test_prompts_are_halved_and_counted_once(table):
    train = table.split("train")
    prompts = len(train)
    assert prompt_counts(train) == [prompts >> 2, prompts >> 1, prompts]
    assert prompt_counts(replicated(train, 3)) == prompt_counts(train)
    assert prompt_counts(train.select_rows(np.arange(20))) == [20]


def test_decisions_are_quartered():
    assert decision_counts(200_000) == [781, 3125, 12_500, 50_000, 200_000]
    assert decision_counts(100) == [100]


def test_fewer_prompts_are_part_of_more(table):
    rows = replicated(table, 2)
    few, more = some_prompts(rows, 30, seed=1), some_prompts(rows, 60, seed=1)
    assert few.rows["id"].nunique() == 30
    assert len(few) == 60
    assert set(few.rows["id"]) < set(more.rows["id"])
    assert set(some_prompts(rows, 30, seed=2).rows["id"]) != set(few.rows["id"])
    assert some_prompts(rows, 300, seed=1).rows.equals(rows.rows)


def test_a_point_has_the_numbers_of_the_outcome(table):
    judge = make_judge(table.split("train"), table.split("test"))
    rng = np.random.default_rng(0)
    arms = rng.integers(5, size=(3, len(judge.test)))
    chosen = Choices(arms, np.array([1e-3, 2e-3, 3e-3]))
    point, outcome = curve_point(judge, chosen, 50, 250), judge.outcome(chosen)
    assert (point.prompts, point.decodes) == (50, 250)
    assert point.gain == outcome.gain
    for name in ("mean_speedup", "gap_closed", "regret"):
        assert getattr(point, name) == pytest.approx(getattr(outcome, name))
