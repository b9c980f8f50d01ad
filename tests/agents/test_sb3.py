"""The Stable-Baselines3 agents: their files, their curves and exact propensities."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, DQN, PPO
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from blockpilot_rl.agents import Monitor, load_agent, make_agent
from blockpilot_rl.agents.sb3 import _global_random_state
from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.errors import BlockPilotError
from tests.agents.quick import BRIEF
from tests.synthetic import ARMS, synthetic_table

MODELS = {"ppo": PPO, "a2c": A2C, "dqn": DQN}


@pytest.fixture(scope="module")
def tables():
    table = synthetic_table(500)
    return table.split("train"), table.split("validation"), table.split("test")


@pytest.fixture(scope="module")
def learned(tables):
    """Every Stable-Baselines3 agent, trained once; no test changes them."""
    return {name: make_agent(name, hyperparams=BRIEF[name]).learn(*tables[:2]) for name in MODELS}


@pytest.mark.parametrize("algorithm", MODELS)
def test_the_saved_model_works_with_stable_baselines_alone(algorithm, learned, tables, tmp_path):
    """It takes recorded states as they are, for the scaler is inside."""
    learned[algorithm].save(tmp_path)
    model = MODELS[algorithm].load(tmp_path / "best_model.zip")
    choices, _ = model.predict(tables[2].states, deterministic=True)
    np.testing.assert_array_equal(choices, learned[algorithm].choose(tables[2]))


@pytest.mark.parametrize("algorithm", MODELS)
def test_every_decision_is_logged_with_its_propensity(algorithm, learned, tables):
    """VowpalWabbit/vowpal_wabbit#1352."""
    agent, train = learned[algorithm], tables[0]
    log = agent.decisions.frame()
    assert len(log) == agent.num_timesteps == 1280
    assert ((log["propensity"] > 0) & (log["propensity"] <= 1)).all()
    row = train.rows["id"].reset_index().set_index("id")["index"][log["prompt_id"]].to_numpy()
    arm = np.searchsorted(ARMS, log["block_size"])
    np.testing.assert_array_equal(log["reward"], train.speedups[row, arm])
    # The mean of 1/p over the decisions is the number of arms, in expectation.
    weight = 1 / log["propensity"]
    assert abs(weight.mean() - len(ARMS)) < 4 * weight.std() / np.sqrt(len(log)) + 1e-6


@pytest.mark.parametrize("width", [1, 64, 640, 4096])
def test_the_buffer_of_dqn_takes_no_more_memory_for_wider_states(tables, width):
    """16,384 states of 4,096 numbers took 268 MB."""
    train = tables[0]
    states = np.random.default_rng(0).normal(size=(len(train), width)).astype(np.float32)
    state = StateLayout((("last_hidden", width),))
    metadata = dataclasses.replace(train.metadata, state=state)
    wide = dataclasses.replace(train, states=states, metadata=metadata)
    agent = make_agent("dqn", state_groups=["last_hidden"], hyperparams={"learning_starts": 16})
    agent.learn(wide, total_timesteps=32)
    buffer = agent.model.replay_buffer
    arrays = [value for value in vars(buffer).values() if isinstance(value, np.ndarray)]
    assert sum(value.nbytes for value in arrays if value is not buffer.states) < 2**20
    sampled = buffer.sample(64).observations.numpy()
    assert all((sample == states).all(axis=1).any() for sample in sampled)


@pytest.mark.parametrize("change", ["rows", "values", "order"])
def test_dqn_resumed_on_another_sweep_keeps_the_states_it_saw(tables, tmp_path, change):
    hyperparams = {**BRIEF["dqn"], "learning_starts": 16}
    train, validation, _ = tables
    first = make_agent("dqn", hyperparams=hyperparams)
    first.learn(train, validation, total_timesteps=64).save(tmp_path)
    agent = load_agent(tmp_path)
    other = {
        "rows": validation,
        "values": dataclasses.replace(train, states=train.states + 1),
        "order": train.select_rows(np.arange(len(train))[::-1]),
    }[change]
    agent.learn(other, validation, total_timesteps=64, reset_num_timesteps=False)
    buffer = agent.model.replay_buffer
    count = len(buffer.states) - len(other)
    rows = buffer.observations[: buffer.pos, :, 0]
    assert (rows[:4] < count).all()
    assert (rows[4:] >= count).all()
    seen, resumed = (found.decisions.frame()["prompt_id"] for found in (first, agent))
    assert list(seen) == list(resumed[:64])
    expected = train.states[[list(train.rows["id"]).index(prompt) for prompt in seen]]
    np.testing.assert_array_equal(buffer.states[rows[:4]].reshape(64, -1), expected)


def test_dqn_propensities_are_those_of_epsilon_greedy(learned):
    agent = learned["dqn"]
    propensities = agent.decisions.frame()["propensity"].to_numpy()
    warm_up = agent.hyperparams.learning_starts
    np.testing.assert_allclose(propensities[:warm_up], 1 / len(ARMS))
    # In the end exploration has fallen to its final rate.
    epsilon = agent.hyperparams.exploration_final_eps
    last = propensities[-160:]
    by_chance = epsilon / len(ARMS)
    assert set(np.round(last, 9)) <= {round(by_chance, 9), round(1 - epsilon + by_chance, 9)}
    assert agent.model.exploration_rate == pytest.approx(epsilon)


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_actors_keep_exploring(algorithm, learned, tables):
    probabilities = learned[algorithm].action_probabilities(tables[2].states)
    entropy = -(probabilities * np.log(probabilities + 1e-12)).sum(axis=1)
    assert entropy.mean() > 0.05


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_probabilities_are_those_of_the_actor(algorithm, learned, tables, tmp_path):
    learned[algorithm].save(tmp_path)
    model = MODELS[algorithm].load(tmp_path / "best_model.zip")
    states, _ = model.policy.obs_to_tensor(tables[2].states)
    with torch.inference_mode():
        expected = model.policy.get_distribution(states).distribution.probs
    np.testing.assert_allclose(
        learned[algorithm].action_probabilities(tables[2].states), expected, atol=1e-6
    )


@pytest.mark.parametrize("algorithm", MODELS)
def test_candidates_are_judged_on_every_validation_prompt(algorithm, tables):
    """SB3's `EvalCallback` takes 5 episodes by default and so chooses the best model by noise."""
    train, validation, _ = tables
    seen = []

    class Watching(Monitor):
        def evaluate(self, agent, judged, step, total):
            reward = super().evaluate(agent, judged, step, total)
            chosen = agent.choose(validation)
            seen.append((reward, validation.speedups[np.arange(len(validation)), chosen].mean()))
            return reward

    monitor = Watching()
    agent = make_agent(algorithm, hyperparams=BRIEF[algorithm]).learn(train, validation, monitor)
    rewards = [reward for reward, _ in seen]
    assert len(validation) > 5
    assert len(seen) == -(-agent.num_timesteps // agent.eval_freq) > 1
    assert rewards == pytest.approx([whole for _, whole in seen])
    assert monitor.result.reward == max(rewards)


def test_global_random_generators_are_left_alone(tables, tmp_path):
    """SB3 seeds them; training and loading must restore the caller's state."""
    torch.manual_seed(5)
    random.seed(5)
    before = _global_random_state()
    agent = make_agent("ppo", hyperparams=BRIEF["ppo"]).learn(*tables[:2], total_timesteps=64)
    agent.save(tmp_path)
    load_agent(tmp_path)
    after = _global_random_state()
    assert after["python"] == before["python"]
    assert torch.equal(after["torch"], before["torch"])
    assert torch.equal(after["numpy"]["state"]["key"], before["numpy"]["state"]["key"])
    assert after["numpy"]["state"]["pos"] == before["numpy"]["state"]["pos"]


@pytest.mark.parametrize("algorithm", MODELS)
def test_curves_of_stable_baselines_are_kept(algorithm, tables, tmp_path):
    monitor = Monitor(tmp_path)
    make_agent(algorithm, hyperparams=BRIEF[algorithm]).learn(*tables[:2], monitor)
    monitor.close()
    tags = set(EventAccumulator(str(tmp_path)).Reload().Tags()["scalars"])
    wanted = {
        "ppo": {"train/entropy_loss", "train/approx_kl"},
        "a2c": {"train/entropy_loss", "train/value_loss"},
        "dqn": {"train/loss", "rollout/exploration_rate"},
    }
    assert {"rollout/ep_rew_mean", *wanted[algorithm]} <= tags


def test_the_discount_and_the_target_network_have_no_effect(tables):
    """Episodes of one step are terminated, so nothing is bootstrapped from later states."""
    agent = make_agent("dqn", hyperparams=BRIEF["dqn"]).learn(*tables[:2], total_timesteps=640)
    other = make_agent("dqn", hyperparams=BRIEF["dqn"])
    begin = other.initialize

    def begin_with_another_discount(train):
        begin(train)
        other.model.gamma = 0.1
        for parameter in other.model.q_net_target.parameters():
            parameter.data.fill_(3.0)

    other.initialize = begin_with_another_discount
    other.learn(*tables[:2], total_timesteps=640)
    ours, theirs = agent.to_policy().state_dict(), other.to_policy().state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("name", ["last_model.zip", "training.pt", "replay_buffer.pt"])
def test_a_damaged_file_of_a_run_is_named(learned, tmp_path, name):
    learned["dqn"].save(tmp_path)
    file = tmp_path / name
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"nonsense"):
        file.write_bytes(damaged)
        with pytest.raises(BlockPilotError, match=f"{name} is missing or corrupt"):
            load_agent(tmp_path)
