from __future__ import annotations

import warnings

import numpy as np
import pytest
from stable_baselines3 import A2C
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

from blockpilot_rl.envs.block_size import BlockSizeEnv
from blockpilot_rl.envs.vector import BlockSizeVecEnv
from blockpilot_rl.errors import BlockPilotError
from tests.synthetic import ARMS, synthetic_table


@pytest.fixture(scope="module")
def table():
    return synthetic_table(120)


def test_equals_the_single_environment(table):
    """Same seed, same actions: the same states, rewards and infos, over several epochs."""
    single = DummyVecEnv([lambda: BlockSizeEnv(table, baseline=4, policy_seconds=0.01)])
    native = BlockSizeVecEnv(1, table, baseline=4, policy_seconds=0.01)
    assert native.observation_space == single.observation_space
    assert native.action_space == single.action_space
    single.seed(3)
    native.seed(3)
    np.testing.assert_array_equal(native.reset(), single.reset())
    actions = np.random.default_rng(0).integers(len(ARMS), size=(300, 1))
    for action in actions:
        expected, found = single.step(action), native.step(action)
        for one, other in zip(expected[:3], found[:3], strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
        assert expected[3][0].keys() == found[3][0].keys()
        for key, value in expected[3][0].items():
            np.testing.assert_array_equal(value, found[3][0][key])


def test_many_at_once_get_the_recorded_rewards(table):
    train = table.split("train")
    rows = {prompt: row for row, prompt in enumerate(train.rows["id"])}
    env = BlockSizeVecEnv(16, table, seed=0)
    states = env.reset()
    generator = np.random.default_rng(0)
    for _ in range(20):
        actions = generator.integers(len(ARMS), size=16)
        following, rewards, dones, infos = env.step(actions)
        decided = [rows[info["prompt_id"]] for info in infos]
        np.testing.assert_array_equal(states, train.states[decided])
        np.testing.assert_array_equal(env.decided.rows, decided)
        np.testing.assert_array_equal(env.decided.arms, actions)
        np.testing.assert_allclose(rewards, train.speedups[decided, actions], rtol=1e-6)
        assert dones.all()
        assert [info["block_size"] for info in infos] == [ARMS[a] for a in actions]
        for state, info in zip(states, infos, strict=True):
            np.testing.assert_array_equal(info["terminal_observation"], state)
            assert not info["TimeLimit.truncated"]
        states = following


def test_the_environments_share_epochs(table):
    train = table.split("train")
    env = BlockSizeVecEnv(7, table, seed=0)
    env.reset()
    found = [
        info["prompt_id"]
        for _ in range(len(train))
        for info in env.step(np.zeros(7, dtype=np.int64))[3]
    ]
    for epoch in range(7):
        seen = found[epoch * len(train) : (epoch + 1) * len(train)]
        assert sorted(seen) == sorted(train.rows["id"])


def test_infos_are_copies(table):
    """Writing into an info reaches neither the sweep nor the next time the prompt comes."""
    env = BlockSizeVecEnv(len(table.split("train")), table, seed=0)
    env.reset()
    actions = np.zeros(env.num_envs, dtype=np.int64)
    first = {info["prompt_id"]: dict(info) for info in env.step(actions)[3]}
    for info in env.step(actions)[3]:
        with pytest.raises(ValueError, match="read-only"):
            info["terminal_observation"][:] = 0
        info.clear()
    for info in env.step(actions)[3]:
        assert info.keys() == first[info["prompt_id"]].keys()
        assert info["seconds"] == first[info["prompt_id"]]["seconds"]


def test_more_environments_than_prompts(table):
    env = BlockSizeVecEnv(2 * len(table), table, split="validation", seed=0)
    assert env.reset().shape[0] == 2 * len(table)


def test_a_seed_fixes_the_order(table):
    env = BlockSizeVecEnv(4, table)
    env.seed(5)
    first = env.reset()
    env.step(np.zeros(4, dtype=np.int64))
    env.seed(5)
    np.testing.assert_array_equal(env.reset(), first)
    np.testing.assert_array_equal(BlockSizeVecEnv(4, table, seed=5).reset(), first)


def test_attributes_are_those_of_the_environments(table):
    env = BlockSizeVecEnv(3, table)
    assert env.get_attr("arms") == [ARMS] * 3
    assert env.get_attr("arms", indices=[0]) == [ARMS]
    with pytest.raises(AttributeError, match="share one recorded sweep"):
        env.set_attr("arms", (1, 2))


def test_an_action_that_is_not_an_arm_is_refused(table):
    env = BlockSizeVecEnv(3, table, seed=0)
    with pytest.raises(BlockPilotError, match="call reset"):
        env.step(np.zeros(3, dtype=np.int64))
    env.reset()
    for action in (-1, len(ARMS)):
        with pytest.raises(BlockPilotError, match=f"action {action} is outside 0..4"):
            env.step(np.array([0, action, 1]))
    with pytest.raises(BlockPilotError, match="3 whole numbers"):
        env.step(np.zeros(2, dtype=np.int64))
    with pytest.raises(BlockPilotError, match="num_envs must be at least 1"):
        BlockSizeVecEnv(0, table)


def test_stable_baselines_learns_on_it(table):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = VecMonitor(BlockSizeVecEnv(32, table))
        model = A2C("MlpPolicy", env, seed=0, device="cpu").learn(2000)
    assert len(model.ep_info_buffer) > 0
    assert {episode["l"] for episode in model.ep_info_buffer} == {1}
