from __future__ import annotations

import dataclasses

import pandas as pd
import pytest
from rich.console import Console

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.prompts import Prompt
from blockpilot_rl.training.acceptance import (
    acceptance_markdown,
    acceptance_report,
    acceptance_table,
    measure_acceptance,
    summarise_acceptance,
)
from tests.tiny_pair import PROMPTS, encode

SUITE = [Prompt.from_text(text, family=text[0]) for text in PROMPTS]
FRAME = pd.DataFrame(
    {
        "id": ["a", "b", "c"],
        "family": ["x", "x", "y"],
        "emitted": [10, 90, 6],
        "passes": [10, 10, 3],
        "acceptance_length": [1.0, 9.0, 2.0],
        "repetitive": [False, True, False],
    }
)


def test_acceptance_is_measured_in_real_decoding(trained):
    """Training accuracy can be good and acceptance poor (sgl-project/SpecForge#533)."""
    decoder, seen = Decoder(trained), []
    frame = measure_acceptance(decoder, SUITE, 8, 30, lambda *at: seen.append(at))
    assert seen == [("acceptance", done, 4) for done in (1, 2, 3, 4)]
    assert frame["id"].tolist() == [prompt.id for prompt in SUITE]
    for text, row in zip(PROMPTS, frame.itertuples(), strict=True):
        ids = encode(trained, text)
        real = decoder.generate(ids, 8, 30)
        assert (row.emitted, row.passes) == (29, len(real.passes) - 1)
        assert row.acceptance_length == pytest.approx(real.acceptance_length)
        assert row.prompt_tokens == ids.shape[1]


def test_every_prompt_has_a_seed_of_its_own(trained):
    decoder, sampling = Decoder(trained), Sampling(0.6, seed=5, draft="argmax")
    frame = measure_acceptance(decoder, [SUITE[0], SUITE[2]], 8, 30, sampling=sampling)
    own = dataclasses.replace(sampling, seed=6)
    real = decoder.generate(encode(trained, PROMPTS[2]), 8, 30, own)
    assert frame["passes"][1] == len(real.passes) - 1


def test_texts_that_need_no_pass_are_left_out(trained):
    decoder = Decoder(dataclasses.replace(trained, stop_token_ids=(2,)))
    frame = measure_acceptance(decoder, SUITE, 8, 30)
    assert SUITE[1].id not in set(frame["id"])
    assert len(frame) == 3
    with pytest.raises(BlockPilotError, match="every text ends with its first token"):
        measure_acceptance(decoder, SUITE[1:2], 8, 30)


def test_both_averages_are_given():
    """4.74 pooled and 5.45 per request are the same data (vllm-project/vllm#52816)."""
    summary = summarise_acceptance(FRAME)
    assert summary["x"] == {"prompts": 2, "pooled": 5.0, "per_prompt": 5.0}
    assert summary["y"] == {"prompts": 1, "pooled": 2.0, "per_prompt": 2.0}
    assert summary["all"]["pooled"] == pytest.approx(106 / 23)
    assert summary["all"]["per_prompt"] == pytest.approx(4.0)


def test_a_report_groups_by_family_length_and_language(trained):
    long = Prompt.from_text("so many words " * 6, family="a", language="de")
    prompts = [*SUITE, long]
    report = acceptance_report(Decoder(trained), prompts, 8, 30)
    by_length, by_language = report["by_prompt_tokens"], report["by_language"]
    assert {name: group["prompts"] for name, group in by_length.items()} == {
        "0 to 63": 4,
        "64 to 127": 1,
    }
    assert {name: group["prompts"] for name, group in by_language.items()} == {"en": 4, "de": 1}
    assert by_length["64 to 127"] == by_language["de"]
    assert set(report["acceptance_length"]) == {"a", "h", "o", "l", "all"}
    assert report["acceptance_length"]["a"]["prompts"] == 2
    assert report["acceptance_length"]["all"]["pooled"] > 1.5
    console = Console(width=100)
    with console.capture() as capture:
        console.print(acceptance_table(report))
    assert "rough estimates, fewer than 10 prompts: a, h, l, o, 0 to 63 tokens" in " ".join(
        capture.get().split()
    )


def test_a_report_compares_seen_with_unseen_families_and_temperatures(trained):
    decoder = Decoder(trained)
    report = acceptance_report(
        decoder, SUITE, 8, 30, unseen=("h", "nowhere"), temperatures=(0.0, 1.0)
    )
    by_source = report["by_source"]
    assert {name: group["prompts"] for name, group in by_source.items()} == {"seen": 3, "unseen": 1}
    assert by_source["unseen"] == report["acceptance_length"]["h"]
    assert report["unseen_families"] == ["h"]
    sampled = measure_acceptance(decoder, SUITE, 8, 30, sampling=Sampling(1.0))
    assert report["by_temperature"] == {
        "0": report["acceptance_length"]["all"],
        "1": summarise_acceptance(sampled)["all"],
    }
    table = acceptance_markdown(report)
    for label in ("h (unseen)", "seen families", "unseen families", "T = 1", "en", "all"):
        assert f"\n| {label} |" in table
    plain = acceptance_markdown(acceptance_report(decoder, SUITE, 8, 30))
    assert "unseen" not in plain
    assert "T =" not in plain


def test_a_report_warns(tiny):
    """Acceptance near 1 is how a wrong theta or layer id shows (vllm-project/vllm#54373)."""
    pair = dataclasses.replace(load_pair(*tiny), stop_token_ids=())
    lines = acceptance_report(Decoder(pair), SUITE, 8, 30)["warnings"]
    assert [line for line in lines if "at block size 8 is near 1" in line]
