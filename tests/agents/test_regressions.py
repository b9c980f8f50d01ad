"""The regressions of rewards and the choice of the ridge penalty."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from blockpilot_rl.agents import AGENTS, Monitor, make_agent
from blockpilot_rl.agents.pooling import pooled_speedups
from blockpilot_rl.decoding.state import StateLayout
from tests.synthetic import synthetic_table


def ridge(**hyperparams):
    return make_agent("ridge-regression", hyperparams=hyperparams)


@pytest.fixture(scope="module")
def tables():
    table = synthetic_table(600)
    return table.split("train"), table.split("validation"), table.split("test")


def both(tables, part):
    """The rows that the ridge regression learns from: training and validation prompts."""
    return np.concatenate([part(table) for table in tables[:2]])


def gains_of(agent, tables):
    return both(tables, agent.problem.gains)


def standardised(tables):
    states = both(tables, lambda table: table.states.astype(np.float64))
    return (states - states.mean(axis=0)) / states.std(axis=0)


@pytest.mark.parametrize("target", ["recorded", "pooled"])
def test_ridge_is_the_closed_form(tables, target):
    """The minimum of |XW + b - Y|² + alpha |W|² for the gains Y over the best fixed size."""
    alpha = 250.0
    agent = ridge(alphas=[alpha], target=target).learn(*tables[:2])
    gains = gains_of(agent, tables)
    if target == "pooled":
        speedups = both(tables, pooled_speedups)
        pooled = speedups - speedups[:, [agent.problem.best_fixed_arm]]
        gains = pooled - pooled.mean(axis=0) + gains.mean(axis=0)
    inputs = standardised(tables)
    layer = agent.policy.net[0]
    weights, bias = layer.weight.detach().double().T.numpy(), layer.bias.detach().double().numpy()
    residual = inputs @ weights + bias - gains
    # The gradient of the objective vanishes at its minimum.
    np.testing.assert_allclose(inputs.T @ residual + alpha * weights, 0, atol=2e-3)
    np.testing.assert_allclose(residual.sum(axis=0), 0, atol=2e-3)


def test_pooling_reduces_the_noise_of_the_targets(tables):
    """Few passes over short answers; the true gain of a prompt is known from its draws."""
    errors = {}
    for target in ("recorded", "pooled"):
        agent = ridge(alphas=[30.0], target=target).learn(*tables[:2])
        with torch.inference_mode():
            scores = agent.policy(torch.from_numpy(tables[2].states)).numpy()
        gains = agent.problem.gains(tables[2])
        errors[target] = float(((scores - gains) ** 2).mean())
    assert errors["pooled"] < errors["recorded"]


def test_of_equally_good_penalties_the_strongest_is_kept():
    """Without information in the states, all huge penalties choose the best fixed size."""
    table = synthetic_table(500, signal=False)
    train, validation = table.split("train"), table.split("validation")
    agent = ridge(alphas=[1e7, 1e9, 1e8]).learn(train, validation)
    strongest = ridge(alphas=[1e9]).learn(train, validation)
    assert torch.equal(agent.policy.net[0].weight, strongest.policy.net[0].weight)


def test_the_penalty_is_chosen_by_the_reward_of_choices_on_prompts_left_out(tables, tmp_path):
    """By hand: fit without a fold, choose on it, add up what the choices gain; repeatedly."""
    alphas, folds, repeats = [3000.0, 100.0, 1.0], 4, 2
    monitor = Monitor(tmp_path)
    agent = ridge(alphas=alphas, folds=folds, repeats=repeats, target="recorded")
    agent.learn(*tables[:2], monitor)
    monitor.close()
    scaled, gains = standardised(tables), gains_of(agent, tables)
    ids = both(tables, lambda table: table.rows["id"].to_numpy())
    prompts, rng = np.unique(ids), np.random.default_rng(agent.seed)
    chosen = np.zeros((len(alphas), repeats, len(ids)), dtype=int)
    for repeat in range(repeats):
        part = (rng.permutation(len(prompts)) % folds)[np.searchsorted(prompts, ids)]
        for index, alpha in enumerate(alphas):
            for left_out in range(folds):
                inside = part != left_out
                inputs = np.c_[scaled[inside], np.ones(inside.sum())]
                penalty = alpha * np.diag([1.0] * scaled.shape[1] + [0.0])
                weights = np.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ gains[inside])
                scores = np.c_[scaled[~inside], np.ones((~inside).sum())] @ weights
                chosen[index, repeat, ~inside] = scores.argmax(axis=1)
    earned = gains[np.arange(len(gains)), chosen].mean(axis=(1, 2))
    events = EventAccumulator(str(tmp_path)).Reload()
    found = [event.value for event in events.Scalars("train/cross_validated_gain")]
    np.testing.assert_allclose(found, earned, rtol=1e-3, atol=1e-6)
    assert len(set(found)) == len(alphas)
    (alpha,) = events.Scalars("train/alpha")
    assert alpha.value == alphas[int(np.argmax(earned))]
    # The score is that of the same choices, on the validation prompts alone.
    held = chosen[int(np.argmax(earned)), :, len(tables[0]) :]
    rewards = tables[1].speedups[np.arange(len(tables[1])), held]
    assert monitor.result.reward == pytest.approx(rewards.mean())
    assert "learns from all training and validation prompts" in monitor.notes[0]


def test_no_other_agent_learns_from_validation_prompts():
    fitted = [name for name in AGENTS if make_agent(name).learns_from_validation]
    assert fitted == ["ridge-regression", "acceptance"]


def test_few_validation_prompts_hold_nothing_out(tables):
    """Ten times fewer prompts, and all of them are learned from."""
    train, few = tables[0], tables[1].select_rows(np.arange(3))
    agent = ridge(alphas=[100.0]).learn(train, few)
    states = np.concatenate([train.states, few.states]).astype(np.float64)
    np.testing.assert_allclose(agent.policy.mean, states.mean(axis=0), rtol=1e-5, atol=1e-6)
    monitor = Monitor()
    alone = ridge(alphas=[100.0]).learn(train, None, monitor)
    np.testing.assert_allclose(alone.policy.mean, train.states.mean(axis=0), rtol=1e-4, atol=1e-6)
    (note,) = monitor.notes
    assert "learns from all training prompts;" in note


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
        "ridge-regression",
        state_groups=["last_hidden"],
        hyperparams={"alphas": [1e-3, 1e6]},
    )
    agent.learn(twice)
    assert set(agent.choose(unique)) == {agent.problem.best_fixed_arm}


def test_the_network_predicts_gains(tables):
    """Its scores are in units of the reward, so that they can be read as predictions."""
    train, validation, test = tables
    settings = {"epochs": 30, "weight_decay": 0.01, "learning_rate": 0.003}
    agent = make_agent("network-regression", hyperparams=settings)
    agent.learn(train, validation)
    with torch.inference_mode():
        predicted = agent.policy(torch.from_numpy(test.states)).numpy()
    gains = agent.problem.gains(test)
    explained = 1 - ((predicted - gains) ** 2).sum() / ((gains - gains.mean(axis=0)) ** 2).sum()
    assert explained > 0.3
    assert agent.num_timesteps == 30
