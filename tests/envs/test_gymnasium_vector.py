from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics

import blockpilot_rl.envs  # noqa: F401
from blockpilot_rl.envs.block_size import BlockSizeEnv
from blockpilot_rl.envs.gymnasium_vector import BlockSizeVectorEnv
from blockpilot_rl.errors import BlockPilotError
from tests.synthetic import ARMS, synthetic_table

NAME = "blockpilot_rl/BlockSize-v0"


@pytest.fixture(scope="module")
def table():
    return synthetic_table(120)


def assert_same(expected, found) -> None:
    """Equal values of equal types, through dictionaries and arrays of arrays."""
    assert type(expected) is type(found)
    if isinstance(expected, dict):
        assert expected.keys() == found.keys()
        for key in expected:
            assert_same(expected[key], found[key])
        return
    assert expected.dtype == found.dtype
    assert expected.shape == found.shape
    for one, other in zip(expected.ravel(), found.ravel(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_make_vec_takes_the_native_one(table):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make_vec(NAME, num_envs=4, sweep=table, split="test")
    assert isinstance(env, BlockSizeVectorEnv)
    assert env.num_envs == 4
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert env.spec.id == NAME
    single = BlockSizeEnv(table, split="test")
    assert env.single_observation_space == single.observation_space
    assert env.single_action_space == single.action_space


def test_other_modes_can_still_be_asked_for(table):
    env = gymnasium.make_vec(NAME, num_envs=2, vectorization_mode="sync", sweep=table)
    assert isinstance(env, SyncVectorEnv)


def test_equals_gymnasiums_own_vectorisation(table):
    """Same seed, same actions: spaces, states, rewards, ends and infos, over several epochs."""
    options = {"baseline": 4, "policy_seconds": 0.01}
    expected = SyncVectorEnv(
        [lambda: BlockSizeEnv(table, **options)], autoreset_mode=AutoresetMode.SAME_STEP
    )
    found = gymnasium.make_vec(NAME, num_envs=1, sweep=table, **options)
    assert found.observation_space == expected.observation_space
    assert found.action_space == expected.action_space
    for one, other in zip(expected.reset(seed=3), found.reset(seed=3), strict=True):
        assert_same(one, other)
    for action in np.random.default_rng(0).integers(len(ARMS), size=(200, 1)):
        for one, other in zip(expected.step(action), found.step(action), strict=True):
            assert_same(one, other)


def test_infos_have_the_layout_of_gymnasiums_own(table):
    """The same keys, masks, shapes and types for several environments."""
    expected = SyncVectorEnv(
        [lambda: BlockSizeEnv(table)] * 3, autoreset_mode=AutoresetMode.SAME_STEP
    )
    found = BlockSizeVectorEnv(3, table)
    infos = []
    for env in (expected, found):
        _, begun = env.reset(seed=0)
        stepped = env.step(np.array([0, 2, 4]))
        infos.append((begun, stepped[4]))
        assert [part.dtype for part in stepped[:4]] == [np.float32, np.float64, bool, bool]
    for one, other in zip(*infos, strict=True):
        assert one.keys() == other.keys()
        for key in one:
            assert type(one[key]) is type(other[key])
    assert infos[0][1]["final_info"].keys() == infos[1][1]["final_info"].keys()
    for key, values in infos[0][1]["final_info"].items():
        assert values.dtype == infos[1][1]["final_info"][key].dtype


def test_no_step_is_wasted_by_autoreset(table):
    """Every step decides a prompt in every environment, and ends it: terminated, not truncated."""
    train = table.split("train")
    rows = {prompt: row for row, prompt in enumerate(train.rows["id"])}
    env = BlockSizeVectorEnv(16, table)
    states, infos = env.reset(seed=0)
    generator = np.random.default_rng(0)
    for _ in range(20):
        waiting = [rows[prompt] for prompt in infos["prompt_id"]]
        np.testing.assert_array_equal(states, train.states[waiting])
        actions = generator.integers(len(ARMS), size=16)
        following, rewards, terminated, truncated, infos = env.step(actions)
        assert terminated.all()
        assert not truncated.any()
        np.testing.assert_array_equal(rewards, train.speedups[waiting, actions])
        final = infos["final_info"]
        assert [rows[prompt] for prompt in final["prompt_id"]] == waiting
        assert final["block_size"].tolist() == [ARMS[action] for action in actions]
        np.testing.assert_array_equal(np.stack(infos["final_obs"]), states)
        states = following


def test_rows_can_be_picked(table):
    train = table.split("train")
    env = BlockSizeVectorEnv(3, table)
    states, infos = env.reset(options={"row": [5, 0, 7]})
    np.testing.assert_array_equal(states, train.states[[5, 0, 7]])
    assert infos["prompt_id"].tolist() == train.rows["id"][[5, 0, 7]].tolist()
    states, _ = env.reset(options={"row": 2})
    np.testing.assert_array_equal(states, train.states[[2, 2, 2]])
    with pytest.raises(BlockPilotError, match="row 1000 is outside"):
        env.reset(options={"row": [0, 1000, 1]})


def test_an_invalid_action_is_refused(table):
    env = BlockSizeVectorEnv(2, table)
    with pytest.raises(BlockPilotError, match="call reset"):
        env.step(np.array([0, 0]))
    env.reset(seed=0)
    with pytest.raises(BlockPilotError, match="action -1 is outside"):
        env.step(np.array([0, -1]))


def test_gymnasiums_wrappers_work(table):
    env = DictInfoToList(RecordEpisodeStatistics(BlockSizeVectorEnv(8, table)))
    env.reset(seed=0)
    for _ in range(5):
        _, rewards, _, _, infos = env.step(env.action_space.sample())
    assert [info["episode"]["l"] for info in infos] == [1] * 8
    assert [info["episode"]["r"] for info in infos] == pytest.approx(rewards.tolist())
    assert all(info["final_info"]["block_size"] in ARMS for info in infos)
