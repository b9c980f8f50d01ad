from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.experiments.judging import make_judge
from blockpilot_rl.experiments.paper_table import as_arms_of, paper_rows
from blockpilot_rl.experiments.seeds import Splits
from tests.evaluation.replicates import replicated
from tests.synthetic import synthetic_table


@pytest.fixture(scope="module")
def table():
    return synthetic_table(n=200)


def test_indices_are_those_of_the_whole_table(table):
    assert as_arms_of(table, np.array([[2, 0, 1]]), (1, 8, 16)).tolist() == [[4, 0, 3]]


def test_rows_from_plain_decoding_to_the_oracle(table):
    judge = make_judge(Splits.from_sweep(table))
    test = judge.test
    chosen = Choices(np.full((2, len(test)), 2), np.full(2, 1e-3))
    rows = paper_rows(judge, 8, {"policy": ("all", chosen)})
    names = ["plain decoding", "drafter's training size", "best fixed", "policy", "oracle"]
    assert list(rows) == names
    assert [row.block_sizes for row in rows.values()] == ["1", "16", "8", "all", "all"]
    plain = rows["plain decoding"]
    assert (plain.acceptance_length, plain.mean_speedup, plain.total_speedup) == (1, 1, 1)
    assert rows["best fixed"].gain == (0, 0, 0)
    expected = (test.seconds[:, 0] / (test.seconds[:, 2] + 1e-3)).mean()
    assert rows["policy"].mean_speedup == pytest.approx(expected)
    assert rows["oracle"].mean_speedup == pytest.approx(test.speedups.max(axis=1).mean())
    pooled = test.emitted.sum() / test.passes[:, 4].sum()
    assert rows["drafter's training size"].acceptance_length == pytest.approx(pooled)


def test_a_second_oracle_knows_only_the_other_samples(table):
    noisy = replicated(table, 2, noise=0.3)
    splits = Splits.from_sweep(noisy)
    judge = make_judge(splits)
    rows, test = paper_rows(judge, 8, {}), judge.test
    assert list(rows)[-2:] == ["oracle", "oracle, by other samples"]
    ids, best = test.rows["id"].to_numpy(), test.speedups.argmax(axis=1)
    other = [next(j for j in np.flatnonzero(ids == ids[i]) if j != i) for i in range(len(test))]
    expected = test.speedups[np.arange(len(test)), best[other]].mean()
    assert rows["oracle, by other samples"].mean_speedup == pytest.approx(expected)
    assert rows["oracle, by other samples"].gain.value < rows["oracle"].gain.value
    keep = np.arange(len(test)) != len(test) - 1
    fewer = paper_rows(make_judge(dataclasses.replace(splits, test=test.select_rows(keep))), 8, {})
    n = len(test)
    assert list(fewer)[-1] == f"oracle, by other samples, {n - 2} of {n - 1} rows"


def test_a_size_that_is_not_an_arm_has_no_row(table):
    narrow = table.select_arms((1, 2, 4))
    judge = make_judge(Splits.from_sweep(narrow))
    assert "drafter's training size" not in paper_rows(judge, 4, {})
