from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from blockpilot_rl.decoding import measuring
from blockpilot_rl.decoding.calibration import (
    Calibration,
    CalibrationConfig,
    Check,
    Decoded,
    _choose_decodes,
    calibrate,
    describe_device,
    measure_and_check,
)
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.latency import SamplingCost
from blockpilot_rl.decoding.measuring import time_steps
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.progress import no_progress
from tests.tiny_pair import PROMPTS, encode

SIZES = (1, 2, 8)


@pytest.fixture(scope="module")
def decoder(trained):
    return Decoder(trained)


@pytest.fixture(scope="module")
def profile(decoder):
    return time_steps(decoder, SIZES, contexts=(16, 48), repeats=2).profile()


def test_a_calibration_survives_its_file(decoder, profile, tmp_path):
    made = Check((Decoded(2, 10, 20, 0.9, 1.0, 1.0), Decoded(8, 10, 20, 1.05, 1.0, 1.0)), 1)
    saved = Calibration.from_decoder(decoder, profile, made)
    saved.save(tmp_path / "profile.json")
    loaded = Calibration.load(tmp_path / "profile.json")
    assert loaded.latency == profile
    assert loaded.fingerprint == decoder.pair.fingerprint
    assert (loaded.dtype, loaded.device) == ("float32", describe_device(torch.device("cpu")))
    assert loaded.provenance["cpus"] >= 1
    assert loaded.check is not None
    assert loaded.check["pairs"] == 2
    assert loaded.check["untimed"] == 1
    assert loaded.check["decodes"][0]["predicted"] == 0.9


def test_errors_of_predictions():
    """Ratios 0.9, 1.05, 1.1 and 1.0: errors 10, 5, 10 and 0 percent."""
    decodes = [(2, 0.9), (2, 1.05), (8, 1.1), (8, 1.0)]
    made = Check(tuple(Decoded(size, 10, 20, ratio, 2.0, 2.0) for size, ratio in decodes))
    assert made.median_error == pytest.approx(0.075)
    low, high = made.interval()
    assert 0 <= low < 0.075 < high <= 0.1 + 1e-9
    assert made.unadjusted_error == pytest.approx(0.4875)
    values = made.to_dict()
    assert values["bias"] == pytest.approx(0.025)
    assert values["by_block_size"] == pytest.approx({2: -0.025, 8: 0.05})
    assert np.isnan(Check(made.decodes[:1]).interval()).all()


def check(decoder, prompts, pairs, **settings):
    progress = settings.pop("progress", no_progress)
    quick = {"contexts": (16, 48), "repeats": 3, "max_new_tokens": 12, "check": pairs}
    config = CalibrationConfig(arms=SIZES, **{**quick, **settings})
    return measure_and_check(decoder, prompts, config, progress)


def test_real_decodes_are_checked(decoder):
    prompts = [encode(decoder.pair, text) for text in PROMPTS[1:]]
    seen = []
    profile, found = check(decoder, prompts, 7, progress=lambda *at: seen.append(at))
    assert seen == [("decodes", done, 7) for done in range(8)]
    assert profile.medians["repeats"] == 3
    assert (len(found.decodes), found.untimed) == (7, 0)
    counts = np.unique([item.block_size for item in found.decodes], return_counts=True)
    assert counts[0].tolist() == list(SIZES)
    assert set(counts[1].tolist()) == {2, 3}
    for item in found.decodes:
        assert item.tokens == 11
        assert item.measured > 0
        prompt = next(ids for ids in prompts if ids.shape[1] == item.prompt_tokens)
        accepted = decoder.generate(prompt, item.block_size, 12).accepted[1:]
        predicted = profile.decode_seconds(
            item.block_size, item.prompt_tokens, accepted, max_new_tokens=12
        )
        assert item.predicted == pytest.approx(predicted)


def test_decodes_come_between_the_timed_steps(decoder, monkeypatch):
    """So that decodes and steps see the machine at the same speed."""
    events, decode, time_step = [], decoder.decode, measuring._time_step
    monkeypatch.setattr(decoder, "decode", lambda *at: events.append("decode") or decode(*at))
    monkeypatch.setattr(
        measuring, "_time_step", lambda *at: events.append("step") or time_step(*at)
    )
    check(decoder, [encode(decoder.pair, text) for text in PROMPTS[1:]], 9)
    assert events == (["step"] * 3 + ["decode"]) * 9


def test_predictions_are_adjusted_for_drift(decoder, monkeypatch):
    """Steps and decodes get up to four times slower, because the machine does."""
    speed = SimpleNamespace(now=1.0)

    def time_step(decoder, prefill, size):
        steps.append(size)
        speed.now = 1 + len(steps) / 45
        return 0.0, speed.now * (1 + size)

    def decode(prefill, size):
        generation = real_decode(prefill, size)
        seconds = speed.now * (1 + size)
        passes = [dataclasses.replace(each, seconds=seconds) for each in generation.passes]
        return dataclasses.replace(generation, passes=passes)

    steps, real_decode = [], decoder.decode
    monkeypatch.setattr(measuring, "_time_step", time_step)
    monkeypatch.setattr(decoder, "decode", decode)
    found = check(decoder, [encode(decoder.pair, text) for text in PROMPTS[1:]], 9, repeats=15)[1]
    assert found.median_error < 0.05
    assert found.unadjusted_error > 0.2


def test_sampled_decodes_are_checked(decoder, profile, monkeypatch):
    """Each prompt with each seed is a separate text, and sampling adds seconds."""
    prompts = [encode(decoder.pair, text) for text in PROMPTS[1:3]]
    dear = dataclasses.replace(profile, sampling=SamplingCost((1.0, 0.0), (2.0, 0.5), 0.25))
    monkeypatch.setattr(measuring.StepTimes, "profile", lambda self: dear)
    used, found = check(decoder, prompts, 12, temperature=1.0, seeds=(3, 5))
    assert used is dear
    assert len(found.decodes) + found.untimed == 12
    assert found.to_dict()["temperature"] == 1.0
    expected = []
    for prompt in prompts:
        for seed in (3, 5):
            for size in SIZES:
                sampling = Sampling(1.0, seed=seed)
                accepted = decoder.generate(prompt, size, 12, sampling).accepted[1:]
                length = prompt.shape[1]
                expected.append(dear.decode_seconds(size, length, accepted, True, 12))
    assert sorted(item.predicted for item in found.decodes) == pytest.approx(
        sorted(seconds for seconds in expected if seconds > 0)
    )
    assert found.decodes[0].predicted > 3


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_checked_decodes_were_warmed_up(decoder, warmed, temperature):
    prompt = encode(decoder.pair, PROMPTS[1])
    check(decoder, [prompt], 3, max_new_tokens=4, temperature=temperature)
    assert warmed == [True] * 3


def test_texts_without_a_decode_are_counted(trained):
    """A text that ends with its first token has nothing to time."""
    first = int(Decoder(trained).prefill(encode(trained, PROMPTS[0]), 2).first_token)
    stopping = Decoder(dataclasses.replace(trained, stop_token_ids=(first,)))
    with pytest.raises(BlockPilotError, match="every text of the check ended"):
        check(stopping, [encode(trained, PROMPTS[0])], 2, max_new_tokens=4)


@pytest.mark.parametrize("prompts", [0, 1])
def test_too_few_prompts_for_the_check(decoder, prompts):
    with pytest.raises(BlockPilotError, match="texts and 3 block sizes make 1 to"):
        check(decoder, [encode(decoder.pair, "a b")] * prompts, 4)


@pytest.mark.parametrize(("prompts", "sizes", "count"), [(5, 3, 15), (3, 7, 20), (100, 10, 100)])
def test_pairs_differ_and_take_turns(prompts, sizes, count):
    pairs = _choose_decodes(prompts, sizes, count, np.random.default_rng(0))
    assert len({tuple(pair) for pair in pairs.tolist()}) == count
    for column, kinds in zip(pairs.T, (prompts, sizes), strict=True):
        uses = np.bincount(column, minlength=kinds)
        assert len(uses) == kinds
        assert uses.max() - uses.min() <= max(1, count // kinds // 2)


def test_invalid_calibrations_are_refused(tmp_path):
    path = tmp_path / "profile.json"
    with pytest.raises(BlockPilotError, match=r"make one with `blockpilot calibrate"):
        Calibration.load(path)
    for text, message in (("{", "cannot be read as JSON"), ("[]", "is not a calibration")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(BlockPilotError, match=message):
            Calibration.load(path)
    names = [field.name for field in dataclasses.fields(Calibration)]
    path.write_text(json.dumps({**dict.fromkeys(names, ""), "latency": {}}), encoding="utf-8")
    with pytest.raises(BlockPilotError, match=r"profile\.json: not a latency profile"):
        Calibration.load(path)


DECODE = dataclasses.asdict(Decoded(2, 10, 20, 0.9, 1.0, 1.0))
CHECK = Check((Decoded(2, 10, 20, 0.9, 1.0, 1.0),)).to_dict() | {"interval": [None, None]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"latency": {"medians": None}}, "medians must be an object"),
        ({"latency": {"medians": {"repeats": 3}}}, "medians needs contexts"),
        ({"latency": {"medians": {"contexts": []}}}, "medians needs contexts"),
        ({"latency": {"medians": {"contexts": [8]}}}, r"medians.draft .* shape \[1, 3\]"),
        ({"latency": {"verify": [[0, 0]] * 3}}, "verify has a pass that takes no time"),
        ({"latency": {"verify": [[math.inf, 0]] * 3}}, "negative, not finite or too large"),
        ({"latency": {"verify": [[-1.0, 0]] * 3}}, "negative, not finite or too large"),
        ({"latency": {"verify": [[1e-320, 0]] * 3}}, "verify has a pass that takes no time"),
        ({"latency": {"verify": [[math.nan, 0]] * 3}}, "negative, not finite or too large"),
        ({"latency": {"draft": [[0, 0], [1e300, 0], [1, 0]]}}, "negative, not finite or too large"),
        ({"latency": {"read_prompt": [math.nan, 0]}}, "read_prompt has a number"),
        ({"medians": {"verify": math.nan}}, "medians.verify has a number that is not a time"),
        ({"medians": {"verify": 1e-320}}, "medians.verify has a number that is not a time"),
        ({"medians": {"verify": -1.0}}, "medians.verify has a number that is not a time"),
        ({"medians": {"draft": math.inf}}, "medians.draft has a number that is not a time"),
        ({"latency": {"medians": {"contexts": [0, 8]}}}, "medians needs contexts"),
        ({"check": CHECK | {"median_error": math.nan}}, "median_error: NaN is not a finite number"),
        ({"check": CHECK | {"bias": math.inf}}, "bias: Infinity is not a finite number"),
        ({"check": CHECK | {"decodes": [{**DECODE, "tokens": 0}]}}, "decode 0 has no tokens"),
        ({"check": CHECK | {"decodes": [{**DECODE, "measured": 0.0}]}}, "an impossible time"),
        ({"check": CHECK | {"decodes": [{**DECODE, "predicted": 1e-320}]}}, "an impossible time"),
        ({"check": "x"}, "check is not the check of a profile: TypeError"),
        ({"check": {}}, "check is not the check of a profile: KeyError: 'interval'"),
        ({"provenance": None}, "provenance must be an object, not null"),
        ({"dtype": 3}, "dtype must be text, not 3"),
    ],
)
def test_a_damaged_calibration_names_its_file(decoder, profile, tmp_path, changes, message):
    path = tmp_path / "profile.json"
    Calibration.from_decoder(decoder, profile, None).save(path)
    values = json.loads(path.read_text(encoding="utf-8"))
    changes = {**changes, "latency": {**values["latency"], **changes.get("latency", {})}}
    for name, value in changes.pop("medians", {}).items():
        changes["latency"]["medians"][name][0][1] = value
    path.write_text(json.dumps({**values, **changes}), encoding="utf-8")
    with pytest.raises(BlockPilotError, match=rf"profile\.json: .*{message}.*; make a new one"):
        Calibration.load(path)


def test_a_check_of_a_single_decode_survives_its_file(decoder, profile, tmp_path):
    """It has no interval, for which JSON has no number."""
    made = Check((Decoded(2, 10, 20, 0.9, 1.0, 1.0),))
    Calibration.from_decoder(decoder, profile, made).save(tmp_path / "profile.json")
    loaded = Calibration.load(tmp_path / "profile.json").check
    assert loaded is not None
    assert np.isnan(loaded["interval"]).all()
    assert loaded["median_error"] == pytest.approx(0.1)


def test_a_check_of_an_earlier_version_is_read(decoder, profile, tmp_path):
    """As earlier versions wrote them."""
    path = tmp_path / "profile.json"
    Calibration.from_decoder(decoder, profile, Check((Decoded(2, 10, 20, 0.9, 1.0, 1.0),))).save(
        path
    )
    values = json.loads(path.read_text(encoding="utf-8"))
    del values["check"]["unadjusted_error"]
    path.write_text(json.dumps(values), encoding="utf-8")
    loaded = Calibration.load(path)
    assert loaded.latency == profile
    assert "unadjusted_error" not in loaded.check


def test_a_pair_is_calibrated_without_a_check(trained, tmp_path):
    seen = []
    config = CalibrationConfig(arms=SIZES, contexts=(16, 48), repeats=2)
    made = calibrate(trained, config, progress=lambda *at: seen.append(at))
    assert (made.latency.block_sizes, made.check) == (SIZES, None)
    assert made.latency.medians["repeats"] == 2
    assert [at[0] for at in seen] == ["steps"] * len(seen)
    assert (seen[0][1], seen[-1][1]) == (0, seen[-1][2])
    made.save(tmp_path / "profile.json")
    assert Calibration.load(tmp_path / "profile.json").latency == made.latency


def test_a_calibration_with_a_check_reports_real_decodes(decoder):
    config = CalibrationConfig(arms=SIZES, contexts=(16, 48), repeats=3, check=4, max_new_tokens=9)
    made = calibrate(decoder, config, prompts=[encode(decoder.pair, text) for text in PROMPTS[1:]])
    assert made.check is not None
    assert made.check["pairs"] + made.check["untimed"] == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"arms": (2, 4)}, "begin with 1"),
        ({"repeats": 0}, "repeats must be at least 1"),
        ({"check": -1}, "check must be at least 0"),
        ({"check": 3, "repeats": 2}, "check needs repeats of at least 3"),
        ({"contexts": (8,)}, "contexts needs two lengths"),
        ({"contexts": (1, 8)}, "contexts must be at least 2 each"),
        ({"seeds": (0, 1)}, "need a temperature"),
        ({"temperature": -1.0}, "temperature must be at least 0"),
        ({"max_new_tokens": 1}, "max_new_tokens must be at least 2"),
    ],
)
def test_bad_configs(settings, message):
    with pytest.raises(BlockPilotError, match=message):
        CalibrationConfig(**settings)
