from __future__ import annotations

import dataclasses
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_checker import check_env as check_sb3
from stable_baselines3.common.vec_env import DummyVecEnv

from blockpilot_rl.control.requests import StepSplits, TracedRequests
from blockpilot_rl.control.simulate import simulate
from blockpilot_rl.control.tuning import plain_seconds
from blockpilot_rl.envs.step import BlockSizeStepEnv
from blockpilot_rl.envs.step_batch import StepBatch, list_actions
from blockpilot_rl.envs.step_vector import BlockSizeStepVecEnv, BlockSizeStepVectorEnv
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.policies.rate_prior import RatePrior
from blockpilot_rl.policies.rules import FixedRule, PrefixRule
from tests.control.traced import COSTS, SIZES, some_traces
from tests.synthetic import synthetic_table

NAME = "blockpilot_rl/BlockSizeStep-v0"


@pytest.fixture(scope="module")
def splits():
    rng = np.random.default_rng(0)

    def requests(rows, seed, sampled=False):
        traces = some_traces(rows, seed, sampled)
        targets = rng.uniform(size=(*traces.accepted.shape[:2], 3)).astype(np.float32)
        traces = dataclasses.replace(traces, next_token=targets)
        ids = np.array([f"prompt {seed} {row}" for row in range(rows)], dtype=object)
        return TracedRequests(traces, rng.uniform(0.2, 0.9, rows), COSTS, ids, np.arange(rows))

    table = synthetic_table(20)
    return StepSplits(
        requests(15, 1), None, requests(9, 2, True), RatePrior.constant(0.5), 0.5, table
    )


def episode(env, actions, row=None):
    env.reset(options=None if row is None else {"row": row})
    rewards, infos, ended = [], [], False
    while not ended:
        _, reward, ended, truncated, info = env.step(next(actions))
        assert not truncated
        rewards.append(reward)
        infos.append(info)
    return rewards, infos


def always(action):
    while True:
        yield action


@pytest.mark.parametrize("actions", ["lengths", "thresholds"])
def test_checkers_pass(splits, actions):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(NAME, sweep=splits, actions=actions)
        check_env(env.unwrapped, skip_render_check=True)
        check_sb3(env.unwrapped)


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_return_is_minus_the_time_relative_to_plain_decoding(splits, split):
    """For each action, against the simulator with the rule that does the same."""
    env = BlockSizeStepEnv(splits, split)
    requests = getattr(splits, split)
    plain = plain_seconds(requests)
    for number, (length, threshold) in enumerate(env.batch.actions):
        rule = PrefixRule(length, threshold) if length > 1 else FixedRule(1)
        expected = requests.simulate(rule, record=True)
        for row in range(len(env)):
            rewards, infos = episode(env, always(number), row)
            assert sum(rewards) == pytest.approx(-expected.seconds[row] / plain[row])
            assert infos[-1]["speedup"] == pytest.approx(plain[row] / expected.seconds[row])
            seen = [(info["drafted"], info["verified"], info["accepted"]) for info in infos]
            assert seen == expected.of(row)
            assert infos[0]["prompt_id"] == requests.ids[row]


def test_the_observation_follows_the_request(splits):
    env = BlockSizeStepEnv(splits, actions="lengths")
    traces, names = splits.train.traces, env.batch.names
    row = int(np.argmax(traces.anchors))
    rate = splits.train.rates[row]
    seen, info = env.reset(options={"row": row})
    values = dict(zip(names, seen, strict=True))
    assert info == {"prompt_id": f"prompt 1 {row}"}
    log_odds = np.log(rate / (1 - rate))
    assert values["log odds of the prior"] == pytest.approx(log_odds, rel=1e-5)
    assert values["entropy of the target"] == traces.next_token[row, 0, 0]
    assert values["rounds since the last full block"] == 1
    seen, _, _, _, info = env.step(2)
    values = dict(zip(names, seen, strict=True))
    emitted = info["accepted"]
    assert values["accepted in the last round"] == emitted / 4
    assert values["confidence of draft 2"] == traces.confidences[row, 0, 0, 1]
    assert values["top-1 probability"] == traces.next_token[row, emitted, 1]
    expected = np.log1p(traces.prompt_tokens[row] + emitted) / 7
    assert values["log of the context"] == pytest.approx(expected)
    recent = (4 * rate + emitted - 1) / (4 + emitted - 1 + (emitted < 4))
    found = values["log odds of recent acceptance, memory 0.7"]
    assert found == pytest.approx(np.log(recent / (1 - recent)), rel=1e-4)


def test_equals_gymnasiums_own_vectorisation(splits):
    """Same seed, same actions: the same observations, rewards, ends and outcomes."""
    expected = SyncVectorEnv(
        [lambda: BlockSizeStepEnv(splits)], autoreset_mode=AutoresetMode.SAME_STEP
    )
    native = gymnasium.make_vec(NAME, num_envs=1, sweep=splits)
    assert isinstance(native, BlockSizeStepVectorEnv)
    assert native.single_observation_space == expected.single_observation_space
    assert native.single_action_space == expected.single_action_space
    for one, other in zip(expected.reset(seed=5), native.reset(seed=5), strict=True):
        assert_same(one, other)
    generator = np.random.default_rng(0)
    for _ in range(400):
        actions = generator.integers(native.single_action_space.n, size=1)
        for one, other in zip(expected.step(actions), native.step(actions), strict=True):
            assert_same(one, other)


def assert_same(expected, found):
    if isinstance(expected, dict):
        for name in expected:
            if not name.startswith("_"):
                assert_same(expected[name], found[name])
        return
    assert expected.shape == found.shape
    for one, other in zip(expected.ravel(), found.ravel(), strict=True):
        if one is None:
            assert other is None
        else:
            np.testing.assert_array_equal(one, other)


def test_equals_the_single_environment_in_sb3(splits):
    single = DummyVecEnv([lambda: BlockSizeStepEnv(splits)])
    native = BlockSizeStepVecEnv(1, splits)
    single.seed(3)
    native.seed(3)
    np.testing.assert_array_equal(native.reset(), single.reset())
    generator = np.random.default_rng(0)
    for _ in range(300):
        action = generator.integers(native.action_space.n, size=1)
        expected, found = single.step(action), native.step(action)
        for one, other in zip(expected[:3], found[:3], strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
        for key, value in found[3][0].items():
            np.testing.assert_array_equal(value, expected[3][0][key])


def test_many_at_once_visit_each_prompt_once_an_epoch(splits):
    env = BlockSizeStepVectorEnv(4, splits)
    env.reset(seed=0)
    ended = []
    generator = np.random.default_rng(0)
    while len(ended) < 60:
        actions = generator.integers(env.single_action_space.n, size=4)
        _, _, ends, _, infos = env.step(actions)
        if ends.any():
            assert (infos["_final_info"] == ends).all()
            ended += infos["final_info"]["prompt_id"][ends].tolist()
    counts = [ended.count(name) for name in splits.train.ids]
    assert min(counts) >= 2


def test_requests_do_not_depend_on_the_others(splits):
    """Each of many environments on one prompt sees what it would see alone."""
    actions = list_actions(SIZES, "thresholds")
    together, alone = (StepBatch(splits.train, count, actions) for count in (5, 1))
    generator = np.random.default_rng(1)
    chosen = generator.integers(len(actions), size=(5, 3))
    together.begin(generator, answers=[7] * 5)
    rounds = [together.step(chosen[:, index]) for index in range(3)]
    for env in range(5):
        alone.begin(generator, answers=[7])
        for index in range(3):
            done = alone.step(chosen[env, index])
            assert done.accepted[0] == rounds[index].accepted[env]
            assert done.rewards[0] == pytest.approx(rounds[index].rewards[env])
            if done.ended[0]:
                break


@pytest.mark.parametrize("model", [PPO, DQN])
def test_sb3_learns_on_it(splits, model):
    env = BlockSizeStepVecEnv(4, splits, actions="lengths", seed=0)
    settings = {"n_steps": 16, "batch_size": 32} if model is PPO else {"learning_starts": 50}
    agent = model("MlpPolicy", env, gamma=1.0, seed=0, device="cpu", **settings)
    agent.learn(200)
    actions, _ = agent.predict(env.reset(), deterministic=True)
    assert actions.shape == (4,)


def test_without_an_action_set_or_a_split_a_line_names_them(splits):
    with pytest.raises(BlockPilotError, match=r"unknown action set 'sizes'; choose from lengths"):
        BlockSizeStepEnv(splits, actions="sizes")
    with pytest.raises(BlockPilotError, match=r"split 'validation' has no traced requests; choose"):
        BlockSizeStepEnv(splits, "validation")
    with pytest.raises(BlockPilotError, match="num_envs must be at least 1"):
        BlockSizeStepVecEnv(0, splits)


@pytest.mark.parametrize("action", [-1, 9, 1.5, "2", None])
def test_actions_out_of_range_are_refused(splits, action):
    env = BlockSizeStepEnv(splits)
    env.reset()
    with pytest.raises(BlockPilotError, match="action"):
        env.step(action)


def test_an_episode_that_is_over_or_has_not_begun_is_refused(splits):
    env = BlockSizeStepEnv(splits)
    with pytest.raises(BlockPilotError, match="call reset before step"):
        env.step(0)
    episode(env, always(0), 0)
    with pytest.raises(BlockPilotError, match="call reset before step"):
        env.step(0)
    with pytest.raises(BlockPilotError, match="call reset before step"):
        BlockSizeStepVectorEnv(2, splits).step(np.zeros(2, dtype=int))


def test_the_bundled_traces_are_the_default():
    env = gymnasium.make(NAME, split="test")
    assert len(env.unwrapped) == 40
    rewards, infos = episode(env, always(0), 0)
    assert sum(rewards) == pytest.approx(-1)
    assert infos[-1]["speedup"] == pytest.approx(1)


def test_the_simulator_of_one_request_walks_as_the_environment(splits):
    """A rule that changes its mind, as actions."""
    env = BlockSizeStepEnv(splits, actions="lengths")
    generator = np.random.default_rng(5)
    actions = generator.integers(3, size=200).tolist()
    _, infos = episode(env, iter(actions), 6)

    class Replayed:
        reads_confidences = stops_early = reads_target = False

        def draft_lengths(self, rows, contexts):
            return np.array([SIZES[actions.pop(0)]])

        def verify_lengths(self, rows, confidences, drafts):
            return drafts + 1

        def observe(self, rows, drafted, verified, accepted):
            pass

    one = splits.train.traces.select(np.array([6]))
    found = simulate(one, Replayed(), COSTS, record=True)
    seen = [(info["drafted"], info["verified"], info["accepted"]) for info in infos]
    assert seen == found.of(0)
    assert sum(info["seconds"] for info in infos) == pytest.approx(found.seconds[0])
