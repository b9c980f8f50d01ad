"""The ridge regression of rewards and the choice of its penalty."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from blockpilot_rl.agents import Monitor, make_agent
from blockpilot_rl.agents.reward_regression import ridge_path
from blockpilot_rl.decoding.state import StateLayout
from tests.synthetic import synthetic_table


def ridge(**hyperparams):
    return make_agent("reward-regression", hyperparams=hyperparams)


@pytest.fixture(scope="module")
def tables():
    table = synthetic_table(600)
    return table.split("train"), table.split("validation"), table.split("test")


def test_ridge_is_the_closed_form(tables):
    """The minimum of |XW + b - Y|² + alpha |W|² for the gains Y over the best fixed size."""
    train = tables[0]
    alpha = 250.0
    agent = ridge(alphas=[alpha]).learn(*tables[:2])
    gains = train.rewards - train.rewards[:, [agent.problem.best_fixed_arm]]
    mean, std = (
        train.states.mean(axis=0, dtype=np.float64),
        train.states.std(axis=0, dtype=np.float64),
    )
    inputs = (train.states - mean) / std
    layer = agent.policy.net[0]
    weights, bias = layer.weight.detach().double().T.numpy(), layer.bias.detach().double().numpy()
    residual = inputs @ weights + bias - gains
    # The gradient of the objective vanishes at its minimum.
    np.testing.assert_allclose(inputs.T @ residual + alpha * weights, 0, atol=2e-3)
    np.testing.assert_allclose(residual.sum(axis=0), 0, atol=2e-3)


def test_of_equally_good_penalties_the_strongest_is_kept():
    """Where the states tell nothing, huge penalties all leave the best fixed size."""
    table = synthetic_table(500, signal=False)
    train, validation = table.split("train"), table.split("validation")
    agent = ridge(alphas=[1e7, 1e9, 1e8]).learn(train, validation)
    strongest = ridge(alphas=[1e9]).learn(train, validation)
    assert torch.equal(agent.policy.net[0].weight, strongest.policy.net[0].weight)


def test_the_penalty_is_chosen_by_the_reward_of_choices_on_prompts_left_out(tables, tmp_path):
    """By hand: fit without a fold, choose on it, add up what the choices gain."""
    train = tables[0]
    alphas, folds = [3000.0, 100.0, 1.0], 4
    monitor = Monitor(tmp_path)
    agent = ridge(alphas=alphas, folds=folds).learn(train, tables[1], monitor)
    monitor.close()
    scaled = (train.states - train.states.mean(axis=0)) / train.states.std(axis=0)
    gains = agent.problem.gains(train)
    prompts = np.unique(train.rows["id"])
    fold = np.random.default_rng(agent.seed).permutation(len(prompts)) % folds
    part = fold[np.searchsorted(prompts, train.rows["id"])]
    earned = np.zeros(len(alphas))
    for index, alpha in enumerate(alphas):
        for left_out in range(folds):
            inside = part != left_out
            inputs = np.c_[scaled[inside], np.ones(inside.sum())].astype(np.float64)
            penalty = alpha * np.diag([1.0] * scaled.shape[1] + [0.0])
            weights = np.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ gains[inside])
            scores = np.c_[scaled[~inside], np.ones((~inside).sum())] @ weights
            earned[index] += gains[~inside][np.arange(len(scores)), scores.argmax(axis=1)].sum()
    events = EventAccumulator(str(tmp_path)).Reload()
    found = [event.value for event in events.Scalars("train/cross_validated_gain")]
    np.testing.assert_allclose(found, earned / len(train), rtol=1e-3, atol=1e-6)
    assert len(set(found)) == len(alphas)
    (chosen,) = events.Scalars("train/alpha")
    assert chosen.value == alphas[int(np.argmax(earned))]


def test_rows_of_one_prompt_are_never_on_both_sides_of_a_fold(tables):
    """Each prompt twice, with answers of its own: a fold that split them would see the test state.

    With the states shuffled among prompts, weak penalties can only gain by such a leak.
    """
    train = tables[0]
    rng = np.random.default_rng(0)
    states = rng.normal(size=(len(train), 200)).astype(np.float32)
    layout = StateLayout((("last_hidden", 200),))
    metadata = dataclasses.replace(train.metadata, state=layout)
    unique = dataclasses.replace(train, states=states, metadata=metadata)
    twice = unique.select_rows(np.repeat(np.arange(len(train)), 2))
    agent = make_agent(
        "reward-regression",
        features=["last_hidden"],
        hyperparams={"alphas": [1e-3, 1e6]},
    )
    agent.learn(twice, twice)
    assert set(agent.choose(unique)) == {agent.problem.best_fixed_arm}


@pytest.mark.parametrize("shape", [(40, 12), (12, 40), (20, 20)])
def test_the_path_solves_the_normal_equations_of_every_penalty(shape):
    """Tall and wide inputs alike, with means of their own."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(loc=2.0, size=shape)
    targets = rng.normal(loc=-1.0, size=(shape[0], 3))
    for penalty, (weights, intercept) in zip(
        (0.5, 10.0), ridge_path(inputs, targets, (0.5, 10.0)), strict=True
    ):
        residual = inputs @ weights + intercept - targets
        np.testing.assert_allclose(inputs.T @ residual + penalty * weights, 0, atol=1e-8)
        np.testing.assert_allclose(residual.sum(axis=0), 0, atol=1e-8)


def test_the_mlp_predicts_gains(tables):
    """Its scores are in units of the reward, so that they can be read as predictions."""
    train, validation, test = tables
    agent = ridge(model="mlp", epochs=30, weight_decay=0.01, learning_rate=0.003)
    agent.learn(train, validation)
    with torch.inference_mode():
        predicted = agent.policy(torch.from_numpy(test.states)).numpy()
    gains = agent.problem.gains(test)
    explained = 1 - ((predicted - gains) ** 2).sum() / ((gains - gains.mean(axis=0)) ** 2).sum()
    assert explained > 0.3
    assert agent.num_timesteps == 30
