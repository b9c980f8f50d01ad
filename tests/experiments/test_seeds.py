from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blockpilot_rl.agents import make_agent
from blockpilot_rl.experiments.processes import process_map
from blockpilot_rl.experiments.seeds import (
    SeedTask,
    Splits,
    Trainer,
    random_prompts,
)
from tests.evaluation.replicates import replicated
from tests.synthetic import synthetic_table

GROUPS = ("last_hidden",)


@pytest.fixture(scope="module")
def splits() -> Splits:
    return Splits.from_sweep(synthetic_table(n=300))


def test_a_sweep_without_validation_rows():
    table = synthetic_table(n=100)
    found = Splits.from_sweep(table.select_rows((table.rows["split"] != "validation").to_numpy()))
    assert found.validation is None
    few = found.map(lambda part: part.select_rows(np.arange(3)))
    assert (len(few.train), few.validation, len(few.test)) == (3, None, 3)


def test_fewer_prompts_are_part_of_more():
    rows = replicated(synthetic_table(n=300), 2)
    few, more = random_prompts(rows, 30, seed=1), random_prompts(rows, 60, seed=1)
    assert few.rows["id"].nunique() == 30
    assert len(few) == 60
    assert set(few.rows["id"]) < set(more.rows["id"])
    assert set(random_prompts(rows, 30, seed=2).rows["id"]) != set(few.rows["id"])
    assert random_prompts(rows, 300, seed=1).rows.equals(rows.rows)


def test_decisions_and_the_labels_of_their_baseline_are_paid_for(splits):
    task = SeedTask("linucb", splits, GROUPS, decisions=64)
    arms = len(splits.train.arms)
    found = task.run(seed=1)
    assert (found.decisions, found.decodes) == (64, 128 + arms * len(splits.train))
    few = dataclasses.replace(task, baseline_prompts=5).run(seed=1)
    assert (few.decisions, few.decodes) == (64, 128 + 5 * arms)
    free = dataclasses.replace(task, hyperparams={"reward_baseline": "none"}).run(seed=1)
    assert (free.decisions, free.decodes) == (64, 64)
    labels = SeedTask("supervised", splits, GROUPS, decisions=2).run(seed=1)
    assert (labels.decisions, labels.decodes) == (0, 0)


def test_the_baseline_is_chosen_on_the_given_number_of_prompts(splits):
    sizes = set()
    for seed in range(8):
        sizes.update(SeedTask("fixed", splits, GROUPS, baseline_prompts=1).run(seed).arms)
    assert len(sizes) > 1


def test_only_training_and_validation_states_are_shuffled(splits):
    task = SeedTask("reward-regression", splits, GROUPS, shuffle_states=True)
    train, validation = task.training_rows(seed=1)
    for shuffled, table in ((train, splits.train), (validation, splits.validation)):
        assert (shuffled.states != table.states).any()
        np.testing.assert_array_equal(np.sort(shuffled.states, 0), np.sort(table.states, 0))
        np.testing.assert_array_equal(shuffled.speedups, table.speedups)


def test_fewer_prompts_keep_all_their_rows(splits):
    several = splits.map(lambda table: replicated(table, 2))
    half = len(splits.train) // 2
    train, validation = SeedTask("fixed", several, ("prompt",), prompts=half).training_rows(seed=1)
    assert (train.rows["id"].nunique(), len(train)) == (half, 2 * half)
    # An agent that learns from validation prompts too must not see all of them.
    held = validation.rows["id"].nunique()
    assert held == pytest.approx(len(splits.validation) / 2, abs=1)
    assert len(validation) == 2 * held


def test_hyperparameters_reach_the_agent(splits):
    penalty = {"alphas": [1e9]}
    found = SeedTask("reward-regression", splits, GROUPS, hyperparams=penalty).run(0)
    assert set(found.arms) == {make_agent("fixed").learn(splits.train).choose(splits.test)[0]}


def test_every_seed_returns_its_choices_and_their_time(splits):
    calls = []
    trainer = Trainer((3, 4, 5), GROUPS, progress=lambda *call: calls.append(call))
    trained = trainer.train("reward-regression", splits)
    assert trained.decodes == 0
    assert trained.choices.arms.shape == (3, len(splits.test))
    assert trained.choices.validation.shape == (3, len(splits.validation))
    assert (trained.choices.policy_seconds > 0).all()
    agent = make_agent("reward-regression", seed=4, state_groups=GROUPS)
    agent.learn(splits.train, splits.validation)
    np.testing.assert_array_equal(trained.choices.arms[1], agent.choose(splits.test))
    assert calls == [("reward-regression", done, 3) for done in range(4)]


def test_notes_are_kept_once(splits):
    few = Splits(splits.train, splits.validation.select_rows(np.arange(3)), splits.test)
    trainer = Trainer(range(3), GROUPS)
    trainer.train("fixed", few)
    trainer.train("fixed", few, label="on 96 prompts")
    (note,) = trainer.notes
    assert "fewer than 20 validation prompts" in note


def test_notes_name_the_part_they_belong_to(splits):
    few = Splits(splits.train, splits.validation.select_rows(np.arange(3)), splits.test)
    trainer = Trainer(range(3), GROUPS)
    for _ in range(2):
        trainer.train("fixed", few, label="on 96 prompts")
    (note,) = trainer.notes
    assert note.startswith("on 96 prompts: fewer than 20 validation prompts")


@pytest.mark.slow
def test_other_processes_learn_the_same(splits):
    groups = ("last_hidden", "prompt")
    with process_map(2) as map_seeds:
        apart = Trainer(range(2), groups, map_seeds=map_seeds).train("supervised", splits)
    here = Trainer(range(2), groups).train("supervised", splits)
    np.testing.assert_array_equal(apart.choices.arms, here.choices.arms)
    np.testing.assert_array_equal(apart.choices.validation, here.choices.validation)
    assert (here.choices.arms[0] != here.choices.arms[1]).any()
