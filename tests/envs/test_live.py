from __future__ import annotations

import dataclasses
import time
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as check_env_sb3

import blockpilot_rl.envs  # noqa: F401
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.envs.live import BlockSizeLiveEnv
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.prompts import Prompt
from tests.tiny_pair import tiny_pair

ARMS = (1, 2, 4, 8)
PROMPTS = [Prompt.from_text(text) for text in ("hello there", "one two", "blue", "a b c d")]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return tiny_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def env(pair):
    return BlockSizeLiveEnv(pair, PROMPTS, max_new_tokens=24, arms=ARMS)


def test_checkers_find_nothing(pair):
    env = gymnasium.make(
        "blockpilot_rl/BlockSizeLive-v0", pair=pair, prompts=PROMPTS, max_new_tokens=8, arms=ARMS
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
        check_env_sb3(env)


@pytest.mark.parametrize("row", range(len(PROMPTS)))
def test_state_and_acceptance_are_the_decoders(env, pair, row):
    decoder = Decoder(pair)
    prefill = decoder.prefill(pair.encode(PROMPTS[row].chat()), 24)
    state, info = env.reset(options={"row": row})
    np.testing.assert_allclose(state, decoder.state(prefill, env.state_groups).numpy(), rtol=1e-5)
    assert info == {"prompt_id": PROMPTS[row].id}
    _, reward, terminated, truncated, info = env.step(np.int64(2))
    assert (terminated, truncated) == (True, False)
    assert info["block_size"] == 4
    assert info["acceptance_length"] == decoder.decode(prefill, 4).acceptance_length
    if info["seconds"] > 0:
        assert reward == pytest.approx(info["plain_seconds"] / info["seconds"])


def test_prompts_are_completions_where_the_pair_or_the_environment_says_so(pair):
    texts = dataclasses.replace(pair, template={"completion": True})
    for env in (
        BlockSizeLiveEnv(texts, PROMPTS, 8, ARMS),
        BlockSizeLiveEnv(pair, PROMPTS, 8, ARMS, template={"completion": True}),
    ):
        env.reset(options={"row": 1})
        assert env._prefill.prompt_tokens == len(PROMPTS[1].text)


def test_the_reward_of_plain_decoding_is_exactly_one(env):
    env.reset(options={"row": 0})
    _, reward, _, _, info = env.step(np.int64(0))
    assert reward == 1.0
    assert info["seconds"] == info["plain_seconds"]


def test_the_chosen_size_pays_for_a_state_that_takes_a_draft(pair, monkeypatch):
    env = BlockSizeLiveEnv(pair, PROMPTS, max_new_tokens=24, arms=ARMS, state_groups=("draft",))
    draft = env.decoder.drafter.draft

    def slow(*arguments):
        time.sleep(0.05)
        return draft(*arguments)

    monkeypatch.setattr(env.decoder.drafter, "draft", slow)
    rewards = []
    for row in range(len(PROMPTS)):
        env.reset(options={"row": row})
        _, reward, _, _, info = env.step(np.int64(0))
        assert info["seconds"] >= info["plain_seconds"] + 0.05
        if info["plain_seconds"] > 0:
            assert reward == pytest.approx(info["plain_seconds"] / info["seconds"])
            rewards.append(reward)
    assert rewards
    assert max(rewards) < 1


def test_which_is_decoded_first_alternates(env, monkeypatch):
    order = []
    decode = env.decoder.decode

    def recording(prefill, block_size):
        order.append(block_size)
        return decode(prefill, block_size)

    monkeypatch.setattr(env.decoder, "decode", recording)
    for action in (2, 0, 3, 1):
        env.reset(options={"row": 0})
        env.step(np.int64(action))
    assert order == [1, 4, 1, 8, 1, 1, 2]


def test_every_size_is_warmed_up(pair, warmed):
    env = BlockSizeLiveEnv(pair, PROMPTS, max_new_tokens=8, arms=ARMS)
    for action in (1, 2):
        env.reset(options={"row": 0})
        env.step(np.int64(action))
    assert warmed == [True] * 4


def test_the_reward_of_an_answer_of_one_token_is_one(pair):
    env = BlockSizeLiveEnv(pair, PROMPTS, max_new_tokens=1, arms=ARMS)
    env.reset(seed=0)
    assert env.step(np.int64(3))[1] == 1.0


def test_each_epoch_has_every_prompt_once(env):
    found = [env.reset(seed=0)[1]["prompt_id"]]
    found += [env.reset()[1]["prompt_id"] for _ in range(len(PROMPTS) - 1)]
    assert sorted(found) == sorted(prompt.id for prompt in PROMPTS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompts": []}, "no prompts"),
        ({"arms": (2, 4)}, "begin with 1"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"state_groups": ("promt",)}, "Did you mean 'prompt'"),
    ],
)
def test_invalid_settings_are_refused(pair, settings, message):
    with pytest.raises(BlockPilotError, match=message):
        BlockSizeLiveEnv(pair, **{"prompts": PROMPTS, "arms": ARMS, **settings})


def test_bad_steps(env):
    with pytest.raises(BlockPilotError, match="call reset"):
        env.step(np.int64(0))
    env.reset()
    with pytest.raises(BlockPilotError, match="action 4"):
        env.step(np.int64(4))
    with pytest.raises(BlockPilotError, match="row 9"):
        env.reset(options={"row": 9})
