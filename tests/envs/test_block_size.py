from __future__ import annotations

import dataclasses
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as check_env_sb3

import blockpilot_rl.envs  # noqa: F401
from blockpilot_rl.envs.block_size import BlockSizeEnv
from blockpilot_rl.errors import BlockPilotError
from tests.evaluation.replicates import mixed
from tests.synthetic import ARMS, HIDDEN, synthetic_table


@pytest.fixture(scope="module")
def table():
    return synthetic_table(120)


@pytest.fixture
def env(table):
    return BlockSizeEnv(table)


@pytest.mark.parametrize(
    "name", ["blockpilot_rl/BlockSize-v0", "blockpilot_rl.envs:blockpilot_rl/BlockSize-v0"]
)
def test_make(name, table):
    env = gymnasium.make(name, sweep=table, split="test")
    assert isinstance(env.unwrapped, BlockSizeEnv)
    assert len(env.unwrapped) == len(table.split("test"))


@pytest.mark.parametrize("render_mode", [None, "ansi"])
def test_checkers_find_nothing(table, render_mode):
    """Gymnasium's and SB3's rules, among them that one-step episodes terminate, never truncate."""
    env = gymnasium.make("blockpilot_rl/BlockSize-v0", sweep=table, render_mode=render_mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
        check_env_sb3(env)


def test_every_reward_is_the_recorded_speedup(table):
    train = table.split("train")
    env = BlockSizeEnv(table)
    assert len(env) == len(train)
    for row in range(len(train)):
        for arm, block_size in enumerate(ARMS):
            state, _ = env.reset(options={"row": row})
            np.testing.assert_array_equal(state, train.states[row])
            _, reward, terminated, truncated, info = env.step(np.int64(arm))
            assert (terminated, truncated) == (True, False)
            assert reward == pytest.approx(train.seconds[row, 0] / train.seconds[row, arm])
            assert info == {
                "block_size": block_size,
                "seconds": train.seconds[row, arm],
                "acceptance_length": train.acceptance_lengths[row, arm],
                "prompt_id": train.rows["id"][row],
            }


def test_reward_is_time_where_acceptance_disagrees(table):
    """The longest acceptance length is not the fastest (vllm-project/vllm#26504)."""
    test = table.split("test")
    env = BlockSizeEnv(table, split="test")
    row = int(np.flatnonzero(test.speedups.argmax(1) != test.acceptance_lengths.argmax(1))[0])
    rewards, acceptances = [], []
    for arm in range(len(ARMS)):
        env.reset(options={"row": row})
        _, reward, _, _, info = env.step(np.int64(arm))
        rewards.append(reward)
        acceptances.append(info["acceptance_length"])
    assert np.argmax(rewards) == test.seconds[row].argmin() != np.argmax(acceptances)


def test_policy_time_lowers_every_reward(table):
    train = table.split("train")
    env = BlockSizeEnv(table, policy_seconds=0.5)
    env.reset(options={"row": 3})
    assert env.step(np.int64(0))[1] == pytest.approx(
        train.seconds[3, 0] / (train.seconds[3, 0] + 0.5)
    )


def test_baseline_is_subtracted(table):
    train = table.split("train")
    env = BlockSizeEnv(table, baseline=8)
    env.reset(options={"row": 3})
    expected = train.speedups[3, 1] - train.speedups[3, ARMS.index(8)]
    assert env.step(np.int64(1))[1] == pytest.approx(expected)


def test_arms_and_state_groups_can_be_chosen(table):
    env = BlockSizeEnv(table, arms=(1, 4, 16), state_groups=("prompt", "next_token"))
    train = table.split("train")
    assert env.action_space.n == 3
    state, _ = env.reset(options={"row": 0})
    np.testing.assert_array_equal(
        state, [train.states[0, HIDDEN + 3], *train.states[0, HIDDEN : HIDDEN + 3]]
    )
    assert env.step(np.int64(1))[4]["block_size"] == 4


def ids(env, count, seed=None):
    found = [env.reset(seed=seed)[1]["prompt_id"]]
    return found + [env.reset()[1]["prompt_id"] for _ in range(count - 1)]


def test_each_epoch_has_every_prompt_once_in_a_new_order(env):
    found = ids(env, 3 * len(env), seed=0)
    epochs = [found[i : i + len(env)] for i in range(0, len(found), len(env))]
    assert all(len(set(epoch)) == len(env) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_a_seed_fixes_the_order(env):
    ids(env, 5)
    first = ids(env, 2 * len(env), seed=7)
    assert ids(env, 2 * len(env), seed=7) == first
    assert ids(env, 2 * len(env), seed=8) != first


def test_renders_the_decision(table):
    env = BlockSizeEnv(table, render_mode="ansi")
    _, info = env.reset(options={"row": 0})
    assert env.render() == "no decision yet"
    env.step(np.int64(2))
    assert info["prompt_id"] in env.render()
    assert "block size 4" in env.render()


def test_reads_a_folder(table, tmp_path):
    table.save(tmp_path / "sweep")
    env = BlockSizeEnv(tmp_path / "sweep", split="validation")
    assert len(env) == len(table.split("validation"))


def test_no_split_means_all_prompts(table):
    assert len(BlockSizeEnv(table, split=None)) == len(table)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "tset"}, "no 'tset' rows"),
        ({"state_groups": ("last_hiden",)}, "Did you mean 'last_hidden'"),
        ({"state_groups": ("draft",)}, "not recorded"),
        ({"arms": (1, 3)}, "block size 3 is not an arm"),
        ({"arms": (2, 4)}, "begin with 1"),
        ({"baseline": 3}, "block size 3 is not an arm"),
        ({"policy_seconds": -1.0}, "policy_seconds"),
    ],
)
def test_invalid_settings_are_refused(table, settings, message):
    with pytest.raises(BlockPilotError, match=message):
        BlockSizeEnv(table, **settings)


def test_missing_sweep(tmp_path):
    with pytest.raises(BlockPilotError, match="no sweep at"):
        BlockSizeEnv(tmp_path / "nowhere")


def test_bad_steps(env):
    with pytest.raises(BlockPilotError, match="call reset"):
        env.step(np.int64(0))
    env.reset()
    with pytest.raises(BlockPilotError, match=r"action 5 is outside 0\.\.4"):
        env.step(np.int64(5))
    env.step(np.int64(4))
    with pytest.raises(BlockPilotError, match="call reset"):
        env.step(np.int64(0))
    with pytest.raises(BlockPilotError, match="row 1000"):
        env.reset(options={"row": 1000})


def test_observations_are_copies(env):
    """Writing into an observation must not reach the sweep."""
    state, _ = env.reset(options={"row": 0})
    before = state.copy()
    state[:] = 0
    np.testing.assert_array_equal(env.step(np.int64(0))[0], before)


def test_states_of_any_size_are_in_the_space(table):
    large = dataclasses.replace(table, states=table.states * np.float32(1e30))
    state, _ = BlockSizeEnv(large).reset(seed=0)
    assert np.abs(state).max() > 1e29
    assert state in BlockSizeEnv(large).observation_space


def test_a_folder_of_several_temperatures_gives_its_greedy_rows(table, tmp_path):
    """A `Sweep` is used as it is."""
    sweep = mixed(table, 10)
    sweep.save(tmp_path / "sweep")
    assert len(BlockSizeEnv(tmp_path / "sweep", split=None)) == len(table)
    assert len(BlockSizeEnv(sweep, split=None)) == len(sweep) > len(table)


@pytest.mark.parametrize("groups", [("sampling",), ("prompt", "sampling"), ("sampling", "prompt")])
def test_the_sampling_options_are_observed_in_sweeps_that_lack_the_group(groups):
    env = BlockSizeEnv(mixed(synthetic_table(20), 10), split=None, state_groups=groups)
    first = groups.index("sampling")
    for row, temperature in enumerate(mixed(synthetic_table(20), 10).temperatures):
        observed, _ = env.reset(options={"row": row})
        assert observed[first : first + 3].tolist() == [temperature, 1, 0]
