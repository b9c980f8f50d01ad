from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.latency import LatencyProfile, default_contexts, measure_latency
from blockpilot_rl.errors import BlockPilotError

PROFILE = LatencyProfile(
    block_sizes=(1, 4),
    draft=((0.0, 0.0), (0.01, 0.0001)),
    verify=((0.03, 0.0002), (0.05, 0.0003)),
    read_prompt=(0.004, 0.00001),
    medians={"contexts": [10, 20]},
)


@pytest.fixture(scope="module")
def decoder(trained):
    return Decoder(trained)


@pytest.fixture(scope="module")
def measured(decoder):
    return measure_latency(decoder, (1, 2, 8), contexts=(16, 48), repeats=3)


def test_every_pass_costs_what_its_context_costs():
    """Contexts 20, 23 and 24: a context grows by what was emitted."""
    blocks = 3 * (0.01 + 0.05) + (20 + 23 + 24) * (0.0001 + 0.0003)
    reading = 0.004 + 20 * 0.00001
    assert PROFILE.decode_seconds(4, 20, [3, 1, 2]) == pytest.approx(blocks + reading)
    plain = 2 * 0.03 + (20 + 21) * 0.0002
    assert PROFILE.decode_seconds(1, 20, np.array([1, 1])) == pytest.approx(plain)
    assert PROFILE.decode_seconds(4, 20, []) == 0.0


def test_acceptance_and_time_may_disagree():
    """vllm-project/vllm#26504: time decides, so that a longer acceptance may be the slower one."""
    slow = dataclasses.replace(PROFILE, verify=((0.03, 0.0), (0.2, 0.0)))
    plain = slow.decode_seconds(1, 20, [1] * 6)
    blocks = slow.decode_seconds(4, 20, [2, 2, 2])
    assert blocks > plain


def test_a_size_that_was_not_measured():
    with pytest.raises(BlockPilotError, match=r"block size 3 is not in the latency profile \(1, 4"):
        PROFILE.decode_seconds(3, 20, [1])


def test_survives_json(measured):
    for profile in (PROFILE, measured):
        assert LatencyProfile.from_dict(json.loads(json.dumps(profile.to_dict()))) == profile


def test_what_is_measured(measured):
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


def test_one_round_has_no_interval(decoder):
    profile = measure_latency(decoder, (1, 4), contexts=(8, 16), repeats=1)
    assert "verify_intervals" not in profile.medians
    assert LatencyProfile.from_dict(json.loads(json.dumps(profile.to_dict()))) == profile


def test_a_pass_between_two_measured_sizes():
    """Verifying 2 and 3 tokens lies on the way from 1 to 4; a draft has no such sizes."""
    np.testing.assert_allclose(
        PROFILE.verify_lines((1, 2, 4)),
        [(0.03, 0.0002), (0.03 + 0.02 / 3, 0.0002 + 0.0001 / 3), (0.05, 0.0003)],
    )
    np.testing.assert_allclose(PROFILE.step_lines((4,)), [(0.06, 0.0004)])
    with pytest.raises(BlockPilotError, match="a pass of 5 tokens is outside"):
        PROFILE.verify_lines((5,))
    with pytest.raises(BlockPilotError, match="block size 2 is not in the latency profile"):
        PROFILE.draft_lines((2,))


def test_another_cost_of_further_tokens():
    flat, steep = PROFILE.scaled(0.0), PROFILE.scaled(3.0)
    assert flat.verify == (PROFILE.verify[0],) * 2
    np.testing.assert_allclose(steep.verify[1], (0.03 + 3 * 0.02, 0.0002 + 3 * 0.0001))
    assert steep.verify[0] == PROFILE.verify[0]
    # The shortest draft is what it is here, as there is none without it.
    assert flat.draft == steep.draft == PROFILE.draft
    np.testing.assert_allclose(PROFILE.scaled(1.0).verify, PROFILE.verify)
    assert flat.token_cost(100) == 0.0
    assert PROFILE.token_cost(0) == pytest.approx((0.05 / 0.03 - 1) / 3)
    assert steep.token_cost(100) == pytest.approx(3 * PROFILE.token_cost(100))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"read_prompt": None}, "not a latency profile: TypeError"),
        ({"verify": [["a", 0.0]]}, "not a latency profile: ValueError"),
        ({"draft": []}, "needs a line for every block size"),
        ({"verify": [[0.0, 0.0], [0.1, 0.0]]}, "verify has a pass that takes no time"),
        ({"verify": [[0.1, 0.0], [math.inf, 0.0]]}, "verify has a number that is negative or not"),
        ({"verify": [[0.1, 0.0], [math.nan, 0.0]]}, "verify has a number that is negative or not"),
        ({"draft": [[0.0, 0.0], [-0.1, 0.0]]}, "draft has a number that is negative or not"),
        ({"read_prompt": [10**400, 0.0]}, "not a latency profile: OverflowError"),
        ({"block_sizes": [4, 1]}, r"block sizes \[4, 1\] must increase from 1"),
        ({"medians": None}, "medians must be an object"),
    ],
)
def test_what_is_no_profile(change, message):
    with pytest.raises(BlockPilotError, match=message):
        LatencyProfile.from_dict({**PROFILE.to_dict(), **change})
    with pytest.raises(BlockPilotError, match="not a latency profile: KeyError: 'draft'"):
        LatencyProfile.from_dict({})


def test_progress_and_no_cuda_call_on_a_cpu(decoder, monkeypatch):
    """An unconditional synchronisation fails without a GPU."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: pytest.fail("a CUDA call"))
    seen = []
    measure_latency(
        decoder, (1, 4), contexts=(8, 16), repeats=2, progress=lambda *at: seen.append(at)
    )
    assert seen == [(1, 2), (2, 2)]


def test_every_size_is_warmed_up_first(decoder, monkeypatch):
    """z-lab/dflash#135: 43 tokens per second cold, 69 warm."""
    sizes = []
    warm_up = decoder.warm_up
    monkeypatch.setattr(decoder, "warm_up", lambda s: sizes.append(tuple(s)) or warm_up(s))
    measure_latency(decoder, (1, 16), contexts=(8, 16), repeats=1)
    assert sizes == [(1, 16)]


def test_measuring_leaves_no_trace(decoder, trained):
    ids = torch.arange(3, 12)[None]
    before = Decoder(trained).generate(ids, 8, 30)
    measure_latency(decoder, (1, 8), contexts=(8, 16), repeats=1)
    after = decoder.generate(ids, 8, 30)
    assert (after.tokens, after.accepted) == (before.tokens, before.accepted)


def test_contexts_fit_the_model(decoder):
    assert default_contexts(10_000) == (96, 192, 288, 384)
    assert default_contexts(232) == (58, 116, 174, 232)
    assert measure_latency(decoder, (1, 16), repeats=1).medians["contexts"] == [58, 116, 174, 232]


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
        measure_latency(decoder, **{"block_sizes": (1, 4), "contexts": (8, 16), **settings})


def test_a_target_alone(trained):
    alone = Decoder(dataclasses.replace(trained, drafter=None))
    profile = measure_latency(alone, (1,), contexts=(8, 16), repeats=1)
    assert profile.read_prompt == (0.0, 0.0)
    with pytest.raises(BlockPilotError, match="need a drafter"):
        measure_latency(alone, (1, 2), contexts=(8, 16), repeats=1)
