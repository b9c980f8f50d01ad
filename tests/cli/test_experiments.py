from __future__ import annotations

import numpy as np
import pytest

from blockpilot_rl.agents import ALGORITHMS, make_agent
from blockpilot_rl.cli.experiments import Laboratory, Splits, decodes_per_decision
from tests.synthetic import synthetic_table


@pytest.fixture(scope="module")
def splits() -> Splits:
    return Splits.of(synthetic_table(n=300))


def laboratory(**settings) -> Laboratory:
    defaults = {
        "algos": ["reward-regression"],
        "seeds": range(2),
        "features": ("last_hidden",),
        "shuffle": False,
        "confidence": 0.95,
    }
    return Laboratory(**{**defaults, **settings})


def test_what_a_decision_costs():
    """A label of every arm is no decision; a baseline is decoded for too."""
    costs = {name: decodes_per_decision(make_agent(name)) for name in ALGORITHMS}
    for name in ("supervised", "reward-regression", "fixed"):
        assert costs[name] == 0
    assert costs["ppo"] == costs["linucb"] == 2
    plain = make_agent("linucb", hyperparams={"reward_baseline": "none"})
    assert decodes_per_decision(plain) == 1


def test_every_seed_hands_in_its_choices_and_their_price(splits):
    trained = laboratory(seeds=(3, 4, 5)).train("reward-regression", splits)
    assert trained.decodes == 0
    assert trained.choices.arms.shape == (3, len(splits.test))
    assert trained.choices.validation.shape == (3, len(splits.validation))
    assert (trained.choices.policy_seconds > 0).all()
    agent = make_agent("reward-regression", seed=4, features=("last_hidden",))
    agent.learn(splits.train, splits.validation)
    np.testing.assert_array_equal(trained.choices.arms[1], agent.choose(splits.test))


def test_shuffling_is_for_what_is_learned_from_alone(splits):
    lab = laboratory(shuffle=True)
    train, validation = lab._dealt_out(splits.train, splits.validation, seed=1)
    for shuffled, table in ((train, splits.train), (validation, splits.validation)):
        assert (shuffled.states != table.states).any()
        np.testing.assert_array_equal(np.sort(shuffled.states, 0), np.sort(table.states, 0))
        np.testing.assert_array_equal(shuffled.rewards, table.rewards)


def test_the_fixed_size_learns_beside_the_agents(splits):
    """From few prompts another size can look best, and that is what is judged."""
    lab = laboratory(seeds=range(4))
    chosen = lab._fixed(splits, 3)
    assert chosen.arms.shape == (4, len(splits.test))
    assert len(np.unique(chosen.arms)) > 1
    assert len(np.unique(lab._fixed(splits, 1000).arms)) == 1
    assert (chosen.policy_seconds == 0).all()


def test_remarks_are_kept_once(splits):
    few = Splits(splits.train, splits.validation.select_rows(np.arange(3)), splits.test)
    lab = laboratory(seeds=range(3))
    lab.train("reward-regression", few)
    (note,) = lab.notes
    assert "fewer than 20 validation prompts" in note
