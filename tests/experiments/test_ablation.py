from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.oracle import oracle_arms
from blockpilot_rl.experiments.ablation import ALL_GROUPS, ablate, ablation_rows, group_sets
from blockpilot_rl.experiments.judging import make_judge
from blockpilot_rl.experiments.seeds import Splits, Trainer
from tests.synthetic import HIDDEN, synthetic_table


def layout(*names: str) -> StateLayout:
    return StateLayout(tuple((name, 2) for name in names))


def test_each_group_alone_all_but_each_and_all():
    names = ("last_hidden", "next_token", "prompt", "draft")
    sets = group_sets(layout(*names))
    assert len(sets) == 9
    for name in names:
        assert sets[f"{name} alone"] == (name,)
        assert sets[f"all but {name}"] == tuple(other for other in names if other != name)
    assert list(sets)[-1] == ALL_GROUPS
    assert sets[ALL_GROUPS] == names


def test_no_set_is_repeated():
    assert group_sets(layout("prompt")) == {ALL_GROUPS: ("prompt",)}
    assert group_sets(layout("prompt", "draft")) == {
        "prompt alone": ("prompt",),
        "draft alone": ("draft",),
        ALL_GROUPS: ("prompt", "draft"),
    }


def test_the_numbers_of_a_row():
    judge = make_judge(Splits.from_sweep(synthetic_table(n=300)))
    test = judge.test
    sets = group_sets(test.metadata.state)
    best = np.stack([oracle_arms(test), np.full(len(test), 1)])
    poor = np.full((2, len(test)), 1)
    choices = {
        name: Choices(best if "last_hidden" in groups else poor, np.array([1e-3, 2e-3]))
        for name, groups in sets.items()
    }
    rows = ablation_rows(judge, sets, choices)
    assert list(rows) == list(sets)
    assert [row.width for row in rows.values()] == [HIDDEN, 3, 1, 4, HIDDEN + 1, HIDDEN + 3, 16]
    seeing, blind = judge.outcome(Choices(best, np.array([1e-3, 2e-3]))), rows["prompt alone"]
    for row in (rows[ALL_GROUPS], rows["last_hidden alone"], rows["all but prompt"]):
        assert row.mean_speedup == pytest.approx(seeing.mean_speedup)
        assert row.gain == pytest.approx(seeing.gain)
        assert row.gap_closed == pytest.approx(seeing.gap_closed)
        assert row.change == (0, 0, 0)
    assert blind.change.value == pytest.approx(blind.mean_speedup / seeing.mean_speedup - 1)
    assert blind.change.low < blind.change.value < blind.change.high < 0


def test_only_groups_with_information_gain_something():
    """Here that is the hidden state. Agents that saw the trainer's groups are not trained again."""
    splits = Splits.from_sweep(synthetic_table(n=1500))
    trainer, judge = Trainer(range(2), ("next_token", "prompt")), make_judge(splits)
    trained = {"reward-regression": trainer.train("reward-regression", splits)}
    found = ablate(trainer, judge, "reward-regression", splits, trained)
    assert found.algorithm == "reward-regression"
    rows = found.rows
    assert list(rows) == [
        "last_hidden alone",
        "next_token alone",
        "prompt alone",
        "all but last_hidden",
        "all but next_token",
        "all but prompt",
        ALL_GROUPS,
    ]
    for name, row in rows.items():
        assert (row.gain.low > 0) == ("last_hidden" in row.groups), name
    assert rows["all but last_hidden"].change.high < 0
    choices = trained["reward-regression"].choices
    speedup = (splits.test.seconds[:, 0] / judge.seconds(choices)).mean()
    assert choices.policy_seconds.min() > 0
    assert rows["all but last_hidden"].mean_speedup == pytest.approx(speedup, abs=1e-12)


def test_an_agent_that_is_not_compared_can_be_ablated():
    splits = Splits.from_sweep(synthetic_table(n=300)).map(_without_hidden)
    trainer = Trainer(range(2), ("prompt",))
    found = ablate(trainer, make_judge(splits), "reward-regression", splits, {})
    assert [row.groups for row in found.rows.values()] == [
        ["next_token"],
        ["prompt"],
        ["next_token", "prompt"],
    ]


def _without_hidden(table):
    layout = table.metadata.state
    names = ("next_token", "prompt")
    metadata = dataclasses.replace(table.metadata, state=layout.select(names))
    return dataclasses.replace(
        table, metadata=metadata, states=table.states[:, layout.columns(names)]
    )
