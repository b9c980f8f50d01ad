from __future__ import annotations

import dataclasses
import json
import time

import numpy as np
import pytest
import torch

from blockpilot_rl.decoding import sampling
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.latency import LatencyProfile, SamplingCost, noise_positions
from blockpilot_rl.decoding.measuring import StepTimes, _sampling_cost, default_contexts, time_steps
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.prompts import builtin_suite
from tests.tiny_pair import encode


@pytest.fixture(scope="module")
def decoder(trained):
    return Decoder(trained)


@pytest.fixture(scope="module")
def measured(decoder):
    return time_steps(decoder, (1, 2, 8), contexts=(16, 48), repeats=3).profile()


def test_the_measurement_is_complete(measured):
    assert measured.block_sizes == (1, 2, 8)
    medians = measured.medians
    assert (medians["contexts"], medians["repeats"]) == ([16, 48], 3)
    draft, verify = np.array(medians["draft"]), np.array(medians["verify"])
    assert draft.shape == verify.shape == (2, 3)
    assert (verify > 0).all()
    assert (draft[:, 1:] > 0).all()
    assert (draft[:, 0] == 0).all()
    assert measured.draft[0] == (0.0, 0.0)
    for intercept, slope in (*measured.draft[1:], *measured.verify, measured.read_prompt):
        assert slope >= 0
        assert intercept + slope * 32 > 0


def test_medians_come_with_intervals(measured):
    for name in ("draft", "verify"):
        middle = np.array(measured.medians[name])
        low, high = np.moveaxis(np.array(measured.medians[f"{name}_intervals"]), -1, 0)
        assert (low <= middle).all()
        assert (middle <= high).all()
        assert (low[:, 1:] < high[:, 1:]).all()


def test_the_cost_of_a_temperature_is_measured(decoder, monkeypatch):
    """Choosing takes 4 ms a token, proposing 2 ms, noise 3 ms a position, or more: it sleeps."""
    gumbel = sampling.gumbel

    def slowly(seconds, action):
        def slow(self, logits, noise):
            time.sleep(0.0 if self.is_greedy else seconds * len(logits))
            return action(self, logits, noise)

        return slow

    monkeypatch.setattr(Sampling, "choose", slowly(0.004, Sampling.choose))
    monkeypatch.setattr(Sampling, "propose", slowly(0.002, Sampling.propose))

    def slow_noise(seeds, positions, tokens):
        time.sleep(0.003 * len(positions))
        return gumbel(seeds, positions, tokens)

    monkeypatch.setattr(sampling, "gumbel", slow_noise)
    profile = time_steps(decoder, (1, 2, 8), contexts=(16, 48), repeats=5).profile()
    assert profile.sampling is not None
    draft, verify = profile.sampling.lines((8,))
    assert verify[0] > 0.75 * 8 * 0.004
    assert draft[0] > 0.75 * 7 * 0.002
    assert profile.sampling.noise >= 0.003
    assert np.shape(profile.medians["sampling"]["draft"]) == (3,)
    assert LatencyProfile.from_dict(json.loads(json.dumps(profile.to_dict()))) == profile


def test_the_cost_of_a_temperature_is_fitted():
    sizes = (1, 2, 8)
    cost = SamplingCost(draft=(0.001, 0.002), verify=(0.003, 0.004), noise=0.005)
    noise = np.array([[0.005, 0.1], [0.005, 0.001], [0.005, 0.005]])
    fitted = _sampling_cost(sizes, np.stack(cost.lines(sizes)), noise)
    assert fitted.draft == pytest.approx(cost.draft)
    assert fitted.verify == pytest.approx(cost.verify)
    assert fitted.noise == 0.005
    alone = _sampling_cost((1,), np.array([[0.0], [0.003]]), noise[:1])
    assert (alone.draft, alone.verify) == ((0.0, 0.0), (pytest.approx(0.003), 0.0))


def test_noise_is_made_for_the_positions_that_are_priced(decoder, monkeypatch):
    """Once for each, also if the prompt was decoded before."""
    made = []
    gumbel = sampling.gumbel

    def watch(seeds, positions, tokens):
        made.extend(positions.tolist())
        return gumbel(seeds, positions, tokens)

    monkeypatch.setattr(sampling, "gumbel", watch)
    ids, warm = encode(decoder.pair, "a b c d"), Sampling(1.0, seed=7)
    prefill = decoder.prefill(ids, 20, 8, warm)
    for size in (1, 4, 8, 4):
        made.clear()
        generation = decoder.decode(prefill, size)
        assert len(made) == noise_positions(size, generation.accepted[1:], 20)
        assert len(set(made)) == len(made)


def test_how_slow_the_machine_was():
    """All steps take three times as long from the middle of the third of five rounds on."""
    times = StepTimes.empty((1, 8), (16, 48), 5, np.random.default_rng(0))
    usual = np.random.default_rng(1).uniform(0.01, 0.1, size=(3, 2, 2))
    for turn, cell in enumerate(times.order.ravel()):
        (c, b), repeat = divmod(int(cell), 2), turn // 6
        step = times.sampled[:, b] if c == 2 else times.steps[:, c, b]
        step[:, repeat] = usual[c, b] * (3 if turn >= 15 else 1)
    found = np.array([times.slowness(step, around=3) for step in range(31)])
    fast, slow = found[:14], found[18:]
    assert fast.max() <= 1
    assert slow.min() >= 1
    assert slow.mean() > 1.5 * fast.mean()
    assert times.slowness(0, around=3) / times.slowness(30, around=3) == pytest.approx(1 / 3)


def test_one_round_has_no_interval(decoder):
    profile = time_steps(decoder, (1, 4), contexts=(8, 16), repeats=1).profile()
    assert "verify_intervals" not in profile.medians
    assert LatencyProfile.from_dict(json.loads(json.dumps(profile.to_dict()))) == profile


def test_progress_and_no_cuda_call_on_a_cpu(decoder, monkeypatch):
    """An unconditional synchronisation fails without a GPU."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: pytest.fail("a CUDA call"))
    seen = []
    time_steps(decoder, (1, 4), contexts=(8, 16), repeats=2, after_step=lambda *at: seen.append(at))
    assert seen == [(done, 12) for done in range(1, 13)]


def test_every_size_is_warmed_up_first(decoder, monkeypatch):
    """z-lab/dflash#135: 43 tokens per second cold, 69 warm."""
    sizes = []
    warm_up = decoder.warm_up
    monkeypatch.setattr(decoder, "warm_up", lambda s: sizes.append(tuple(s)) or warm_up(s))
    time_steps(decoder, (1, 16), contexts=(8, 16), repeats=1)
    assert sizes == [(1, 16)]


def test_measuring_leaves_no_trace(decoder, trained):
    ids = torch.arange(3, 12)[None]
    before = Decoder(trained).generate(ids, 8, 30)
    time_steps(decoder, (1, 8), contexts=(8, 16), repeats=1)
    after = decoder.generate(ids, 8, 30)
    assert (after.tokens, after.accepted) == (before.tokens, before.accepted)


def test_contexts_fit_the_model(decoder):
    assert default_contexts(10_000) == (128, 256, 512, 1024)
    assert default_contexts(232) == (29, 58, 116, 232)
    assert time_steps(decoder, (1, 16), repeats=1).contexts == (29, 58, 116, 232)


def test_contexts_cover_the_builtin_suite():
    """The groups `long` and `multi-turn` have the longest prompts; about 4 characters a token."""
    suite = builtin_suite(60, groups=("long", "multi-turn"))
    longest = max(sum(len(message.content) for message in prompt.messages) for prompt in suite)
    assert longest / 4 < default_contexts(10_000)[-1] < longest


@pytest.mark.parametrize(
    "settings",
    [
        {"contexts": (8, 8)},
        {"contexts": (8,)},
        {"contexts": (1, 8)},
        {"repeats": 0},
        {"block_sizes": ()},
        {"block_sizes": (), "contexts": None},
    ],
)
def test_an_empty_grid(decoder, settings):
    with pytest.raises(BlockPilotError, match="two contexts of two or more tokens and one repeat"):
        time_steps(decoder, **{"block_sizes": (1, 4), "contexts": (8, 16), **settings})


def test_a_target_alone(trained):
    alone = Decoder(dataclasses.replace(trained, drafter=None))
    profile = time_steps(alone, (1,), contexts=(8, 16), repeats=1).profile()
    assert profile.read_prompt == (0.0, 0.0)
    with pytest.raises(BlockPilotError, match="need a drafter"):
        time_steps(alone, (1, 2), contexts=(8, 16), repeats=1)
