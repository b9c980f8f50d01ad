from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blockpilot_rl.agents import make_agent
from blockpilot_rl.evaluation.results import CurvePoint
from blockpilot_rl.evaluation.statistics import Interval
from blockpilot_rl.experiments.ablation import ALL_GROUPS
from blockpilot_rl.experiments.curves import prompt_counts, some_prompts
from blockpilot_rl.experiments.laboratory import Laboratory
from blockpilot_rl.experiments.trainings import Splits, Training
from tests.evaluation.replicates import mixed
from tests.synthetic import synthetic_table


@pytest.fixture(scope="module")
def splits() -> Splits:
    return Splits.of(synthetic_table(n=300))


def laboratory(**settings) -> Laboratory:
    defaults = {
        "algos": ["reward-regression"],
        "seeds": range(2),
        "state_groups": ("last_hidden",),
        "shuffle": False,
        "confidence": 0.95,
    }
    return Laboratory(**{**defaults, **settings})


def test_every_seed_hands_in_its_choices_and_their_price(splits):
    trained = laboratory(seeds=(3, 4, 5)).train("reward-regression", splits)
    assert trained.decodes == 0
    assert trained.choices.arms.shape == (3, len(splits.test))
    assert trained.choices.validation.shape == (3, len(splits.validation))
    assert (trained.choices.policy_seconds > 0).all()
    agent = make_agent("reward-regression", seed=4, state_groups=("last_hidden",))
    agent.learn(splits.train, splits.validation)
    np.testing.assert_array_equal(trained.choices.arms[1], agent.choose(splits.test))


def test_the_fixed_size_learns_beside_the_agents(splits):
    """From few prompts another size can look best, and that is what is judged."""
    lab = laboratory(seeds=range(4))
    chosen = lab._fixed(splits, 3)
    assert chosen.arms.shape == (4, len(splits.test))
    assert len(np.unique(chosen.arms)) > 1
    assert len(np.unique(lab._fixed(splits, 1000).arms)) == 1
    assert (chosen.policy_seconds == 0).all()


def test_a_prompt_with_several_answers_costs_as_many_decodes():
    splits = Splits.of(mixed(synthetic_table(n=300), 150))
    train = splits.train
    assert len(train) > train.rows["id"].nunique()
    lab = laboratory(algos=[], seeds=range(3))
    learning = lab.learning_curve(splits, {})
    curves = lab.budget_curves(splits, {}, learning)
    counts = [point.prompts for point in learning["fixed"]]
    assert counts[-1] == train.rows["id"].nunique()
    answers = [
        round(np.mean([len(some_prompts(train, count, seed)) for seed in range(3)]))
        for count in counts
    ]
    assert answers[-1] == len(train)
    assert all(paid > prompts for paid, prompts in zip(answers, counts, strict=True))
    paid = {price: [p.decodes for p in curves[price]["fixed"]] for price in ("decode", "replay")}
    assert paid == {"replay": answers, "decode": [5 * count for count in answers]}
    assert [point.prompts for point in curves["replay"]["fixed"]] == counts


def test_who_learns_from_validation_answers_pays_for_them():
    splits = Splits.of(mixed(synthetic_table(n=300), 150))
    point = CurvePoint(0, None, 1.5, Interval(0.0, 0.0, 0.0), 0.0, 0.0)
    counts = prompt_counts(splits.train)
    algos = ("reward-regression", "supervised")
    points = [dataclasses.replace(point, prompts=count) for count in counts]
    learning = dict.fromkeys(("fixed", *algos), points)
    lab = laboratory(algos=algos, seeds=range(3))
    curves = lab.budget_curves(splits, {}, learning)["decode"]
    paid = {name: [point.decodes for point in curves[name]] for name in learning}
    lessons = [
        [
            [len(rows) for rows in Training("fixed", splits, (), prompts=count).lesson(seed)]
            for seed in range(3)
        ]
        for count in counts
    ]
    train, both = np.mean(lessons, axis=1)[:, 0], np.mean(lessons, axis=1).sum(axis=1)
    assert both[-1] == len(splits.train) + len(splits.validation)
    assert paid["fixed"] == paid["supervised"] == [5 * round(rows) for rows in train]
    assert paid["reward-regression"] == [5 * round(rows) for rows in both]
    network = laboratory(algos=algos, hyperparams={"reward-regression": {"model": "mlp"}})
    replayed = network.budget_curves(splits, {}, learning)["replay"]["reward-regression"]
    assert replayed[-1].decodes == len(splits.train)
    alone = dataclasses.replace(splits, validation=None)
    replayed = lab.budget_curves(alone, {}, learning)["replay"]["reward-regression"]
    assert replayed[-1].decodes == len(splits.train)


def test_remarks_are_kept_once(splits):
    few = Splits(splits.train, splits.validation.select_rows(np.arange(3)), splits.test)
    lab = laboratory(seeds=range(3))
    lab.train("fixed", few)
    lab.train("fixed", few, what="on 96 prompts")
    (note,) = lab.notes
    assert "fewer than 20 validation prompts" in note


def test_remarks_of_a_part_say_of_which(splits):
    few = Splits(splits.train, splits.validation.select_rows(np.arange(3)), splits.test)
    lab = laboratory(seeds=range(3))
    for _ in range(2):
        lab.train("fixed", few, what="on 96 prompts")
    (note,) = lab.notes
    assert note.startswith("on 96 prompts: fewer than 20 validation prompts")


def test_the_groups_that_tell_something_are_worth_it():
    """Here that is the hidden state; what saw the laboratory's groups is not trained again."""
    splits = Splits.of(synthetic_table(n=1500))
    lab = laboratory(state_groups=("next_token", "prompt"))
    trained = lab.main_view(splits)
    found = lab.ablation("reward-regression", splits, trained)
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
    groups = splits.test.metadata.state.names
    for name, row in rows.items():
        assert set(row.groups) <= set(groups)
        assert (row.gain.low > 0) == ("last_hidden" in row.groups), name
    assert rows["all but last_hidden"].change.high < 0
    seconds = trained["reward-regression"].choices.policy_seconds
    blind = lab._judge(splits).seconds(trained["reward-regression"].choices)
    speedup = (splits.test.seconds[:, 0] / blind).mean()
    assert seconds.min() > 0
    assert rows["all but last_hidden"].mean_speedup == pytest.approx(speedup, abs=1e-12)


def test_another_agent_than_those_compared_can_be_asked_for(splits):
    narrow = splits.each(_without_hidden)
    found = laboratory(state_groups=("prompt",)).ablation("reward-regression", narrow, {})
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
