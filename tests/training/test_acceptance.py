from __future__ import annotations

import dataclasses

import pandas as pd
import pytest

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.sweeps.prompts import Prompt
from blockpilot_rl.training.acceptance import measure_acceptance, summarise_acceptance
from tests.tiny_pair import PROMPTS, encode

SUITE = [Prompt.from_text(text, family=text[0]) for text in PROMPTS]


def test_it_is_what_real_decoding_accepts(trained):
    """Good training accuracy can go with poor acceptance (sgl-project/SpecForge#533)."""
    decoder, seen = Decoder(trained), []
    frame = measure_acceptance(decoder, SUITE, 8, 30, lambda *at: seen.append(at))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert frame["id"].tolist() == [prompt.id for prompt in SUITE]
    for text, row in zip(PROMPTS, frame.itertuples(), strict=True):
        real = decoder.generate(encode(trained, text), 8, 30)
        assert (row.emitted, row.passes) == (29, len(real.passes) - 1)
        assert row.acceptance_length == pytest.approx(real.acceptance_length)


def test_texts_that_need_no_pass_are_left_out(trained):
    decoder = Decoder(dataclasses.replace(trained, stop_token_ids=(2,)))
    frame = measure_acceptance(decoder, SUITE, 8, 30)
    assert SUITE[1].id not in set(frame["id"])
    assert len(frame) == 3
    with pytest.raises(BlockPilotError, match="every prompt ended with its first token"):
        measure_acceptance(decoder, SUITE[1:2], 8, 30)


def test_both_averages_are_given():
    """4.74 pooled and 5.45 per request are the same data (vllm-project/vllm#52816)."""
    frame = pd.DataFrame(
        {
            "id": ["a", "b", "c"],
            "family": ["x", "x", "y"],
            "emitted": [10, 90, 6],
            "passes": [10, 10, 3],
            "acceptance_length": [1.0, 9.0, 2.0],
        }
    )
    summary = summarise_acceptance(frame)
    assert summary["x"] == {"prompts": 2, "pooled": 5.0, "per_prompt": 5.0}
    assert summary["y"] == {"prompts": 1, "pooled": 2.0, "per_prompt": 2.0}
    assert summary["all"]["pooled"] == pytest.approx(106 / 23)
    assert summary["all"]["per_prompt"] == pytest.approx(4.0)
