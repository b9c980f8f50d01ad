from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.latency import LatencyProfile, _lines, default_contexts, measure_latency
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


def test_lines_have_no_negative_part():
    """A rising line goes through the medians; a falling or too steep one could only be noise."""
    rising, falling, steep = _lines((10, 30), np.array([[3.0, 4.0, 1.0], [5.0, 2.0, 9.0]]))
    np.testing.assert_allclose(rising, (2.0, 0.1))
    np.testing.assert_allclose(falling, (3.0, 0.0), atol=1e-12)
    assert steep[0] == 0.0
    assert steep[1] == pytest.approx((10 * 1 + 30 * 9) / (10**2 + 30**2))


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
    "settings", [{"contexts": (8, 8)}, {"contexts": (8,)}, {"repeats": 0}, {"block_sizes": ()}]
)
def test_an_empty_grid(decoder, settings):
    with pytest.raises(BlockPilotError, match="two contexts and one repeat"):
        measure_latency(decoder, **{"block_sizes": (1, 4), "contexts": (8, 16), **settings})


def test_a_target_alone(trained):
    alone = Decoder(dataclasses.replace(trained, drafter=None))
    profile = measure_latency(alone, (1,), contexts=(8, 16), repeats=1)
    assert profile.read_prompt == (0.0, 0.0)
    with pytest.raises(BlockPilotError, match="need a drafter"):
        measure_latency(alone, (1, 2), contexts=(8, 16), repeats=1)
