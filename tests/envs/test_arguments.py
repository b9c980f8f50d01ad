"""What callers pass to the environments works in every form, or is refused in one line."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3.common.vec_env import VecMonitor

import blockpilot_rl.envs  # noqa: F401
from blockpilot_rl.envs.block_size import BlockSizeEnv
from blockpilot_rl.envs.gymnasium_vector import BlockSizeVectorEnv
from blockpilot_rl.envs.vector import BlockSizeVecEnv
from blockpilot_rl.errors import BlockPilotError
from tests.synthetic import synthetic_table

NAME = "blockpilot_rl/BlockSize-v0"
KINDS = (
    lambda table, **settings: BlockSizeEnv(table, **settings),
    lambda table, **settings: BlockSizeVectorEnv(2, table, **settings),
    lambda table, **settings: BlockSizeVecEnv(2, table, **settings),
)


@pytest.fixture(scope="module")
def table():
    return synthetic_table(120)


@pytest.mark.parametrize(
    "action",
    [
        2,
        np.int64(2),
        np.int32(2),
        np.uint8(2),
        np.array(2),
        np.array([2]),
        np.array([[2]]),
        torch.tensor(2),
        torch.tensor([2]),
        torch.tensor(2, dtype=torch.int32),
    ],
)
def test_an_action_may_be_a_number_or_an_array_or_tensor_of_one(table, action):
    env = BlockSizeEnv(table)
    env.reset(seed=0)
    expected = env.step(2)
    env.reset(seed=0)
    assert env.step(action)[1:] == expected[1:]


@pytest.mark.parametrize(
    "action",
    [
        5,
        -1,
        2.0,
        True,
        "2",
        None,
        np.array([1, 2]),
        torch.tensor([1, 2]),
        torch.tensor(2.0),
        [1, 2],
    ],
)
def test_another_action_is_refused_and_the_episode_continues(table, action):
    env = BlockSizeEnv(table)
    env.reset(seed=0)
    with pytest.raises(BlockPilotError, match="action") as refused:
        env.step(action)
    assert "\n" not in str(refused.value)
    env.step(0)


@pytest.mark.parametrize("kind", [np.array, torch.tensor, list, tuple])
def test_actions_of_many_may_be_arrays_tensors_or_lists(table, kind):
    for env in (BlockSizeVectorEnv(3, table), BlockSizeVecEnv(3, table)):
        env.reset()
        rewards = env.step(kind([0, 1, 2]))[1]
        assert rewards[0] == 1


@pytest.mark.parametrize("row", [3, np.int64(3), np.array([3]), torch.tensor(3)])
def test_a_row_is_picked_in_every_environment(table, row):
    expected = table.split("train").states[3]
    single = BlockSizeEnv(table)
    np.testing.assert_array_equal(single.reset(options={"row": row})[0], expected)
    vector = BlockSizeVectorEnv(2, table)
    np.testing.assert_array_equal(vector.reset(options={"row": row})[0], [expected] * 2)
    native = BlockSizeVecEnv(2, table)
    native.set_options({"row": row})
    np.testing.assert_array_equal(native.reset(), [expected] * 2)
    wrapped = VecMonitor(BlockSizeVecEnv(2, table))
    wrapped.set_options({"row": row})
    np.testing.assert_array_equal(wrapped.reset(), [expected] * 2)


def test_options_of_single_environments(table):
    env = BlockSizeVecEnv(3, table, seed=1)
    states = table.split("train").states
    env.set_options([{"row": 4}, {}, {"row": 0}])
    found = env.reset()
    np.testing.assert_array_equal(found[[0, 2]], states[[4, 0]])
    # Options hold for one reset.
    assert (env.reset() != found).any()


@pytest.mark.parametrize("row", [-1, 10**6, 1.5, True, "3", math.nan])
def test_an_invalid_row_is_refused(table, row):
    native = BlockSizeVecEnv(2, table)
    native.set_options({"row": row})
    for call in (
        lambda: BlockSizeEnv(table).reset(options={"row": row}),
        lambda: BlockSizeVectorEnv(2, table).reset(options={"row": row}),
        native.reset,
    ):
        with pytest.raises(BlockPilotError, match="row"):
            call()


def test_unknown_options_are_refused(table):
    native = BlockSizeVecEnv(2, table)
    native.set_options({"rows": 3})
    for call in (
        lambda: BlockSizeEnv(table).reset(options={"rows": 3}),
        lambda: BlockSizeVectorEnv(2, table).reset(options={"rows": 3}),
        native.reset,
    ):
        with pytest.raises(BlockPilotError, match=r"no option 'rows'.* Did you mean 'row'"):
            call()


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, -1e-9, "fast", None])
@pytest.mark.parametrize("make", KINDS)
def test_invalid_policy_seconds_are_refused(table, make, seconds):
    with pytest.raises(BlockPilotError, match="policy_seconds must be a finite number"):
        make(table, policy_seconds=seconds)


@pytest.mark.parametrize("make", KINDS)
def test_seconds_may_be_numpy_numbers(table, make):
    for seconds in (np.float32(0.5), np.float64(0.5), np.int64(1)):
        make(table, policy_seconds=seconds)


@pytest.mark.parametrize("make", KINDS)
def test_no_render_mode_may_be_given_and_unknown_ones_are_refused(table, make):
    make(table, render_mode=None)
    with pytest.raises(BlockPilotError, match="render_mode must be None"):
        make(table, render_mode="human")


def test_gymnasium_passes_the_render_mode(table):
    gymnasium.make_vec(NAME, num_envs=2, sweep=table, render_mode=None).close()
    gymnasium.make_vec(
        NAME, num_envs=2, vectorization_mode="sync", sweep=table, render_mode=None
    ).close()
    gymnasium.make(NAME, sweep=table, render_mode=None).close()


@pytest.mark.parametrize("count", [0, -1, 2.5, math.nan, "2", True])
def test_an_invalid_number_of_environments_is_refused(table, count):
    for kind in (BlockSizeVectorEnv, BlockSizeVecEnv):
        with pytest.raises(BlockPilotError, match="num_envs"):
            kind(count, table)


@pytest.mark.parametrize("seed", [7, np.int64(7), np.array(7), torch.tensor(7)])
def test_seeds_of_every_integer_type_are_the_same(table, seed):
    expected = BlockSizeEnv(table).reset(seed=7)[0]
    np.testing.assert_array_equal(BlockSizeEnv(table).reset(seed=seed)[0], expected)
    vector = BlockSizeVectorEnv(1, table)
    np.testing.assert_array_equal(vector.reset(seed=seed)[0], [expected])
    native = BlockSizeVecEnv(1, table)
    native.seed(seed)
    np.testing.assert_array_equal(native.reset(), [expected])


@pytest.mark.parametrize("seed", [-1, 1.5, "1", math.nan, [1, 2]])
def test_invalid_seeds_are_refused(table, seed):
    for call in (
        lambda: BlockSizeEnv(table).reset(seed=seed),
        lambda: BlockSizeVectorEnv(2, table).reset(seed=seed),
        lambda: BlockSizeVecEnv(2, table).seed(seed),
        lambda: BlockSizeVecEnv(2, table, seed=seed),
    ):
        with pytest.raises(BlockPilotError, match="seed"):
            call()
