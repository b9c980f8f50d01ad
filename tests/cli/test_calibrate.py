from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from blockpilot_rl.cli import calibrate as command
from blockpilot_rl.cli.calibrate import CHECK_FLAGS, MEASURING_FLAGS, CalibrateConfig, main
from blockpilot_rl.cli.generate import main as generate
from blockpilot_rl.decoding import calibration as module
from blockpilot_rl.decoding.calibration import Calibration
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.sweeps.table import Sweep
from tests.policies.test_pricing import policy_of
from tests.synthetic import synthetic_table
from tests.tiny_pair import PROMPTS, save_tiny_pair

QUICK = ["--repeats", "3", "--contexts", "12,40", "--dtype", "float32"]


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    """A pair, prompts, and a sweep that claims to be of that pair."""
    folder = tmp_path_factory.mktemp("calibrate")
    save_tiny_pair(folder)
    trained.drafter.save_pretrained(folder / "drafter")
    (folder / "prompts.txt").write_text("\n".join(PROMPTS), encoding="utf-8")
    table = synthetic_table(30).select_arms((1, 2, 8))
    metadata = dataclasses.replace(table.metadata, fingerprint=trained.fingerprint)
    dataclasses.replace(table, metadata=metadata).save(folder / "sweep")
    return folder


@pytest.fixture
def call(folder):
    pair = ["--target", folder / "target", "--drafter", folder / "drafter"]
    return lambda *more: main([str(word) for word in (*pair, *QUICK, *more)])


def test_a_profile_with_a_check(call, folder, tmp_path, capsys):
    out = tmp_path / "profile.json"
    words = ("--arms", "1,2,8", "--check", 6, "--prompts", folder / "prompts.txt")
    assert call("--out", out, *words, "--max-new-tokens", 9) == 0
    saved = Calibration.load(out)
    assert saved.latency.block_sizes == (1, 2, 8)
    assert saved.latency.medians["contexts"] == [12, 40]
    assert np.array(saved.latency.medians["verify_intervals"]).shape == (2, 3, 2)
    assert saved.check is not None
    assert saved.check["pairs"] + saved.check["untimed"] == 6
    assert saved.provenance["cpu"]
    text = capsys.readouterr().out
    assert "Time of a pass after 40 tokens of context, float32" in text
    assert f"target with drafter on {saved.device}: a further token" in text
    assert f"in the median of {saved.check['pairs']} real decodes" in text


def test_the_profile_is_kept_for_policies(call, folder, tmp_path, capsys, caplog, monkeypatch):
    """`generate` finds it by itself and says so; another file or none can be named."""
    monkeypatch.setenv("BLOCKPILOT_CALIBRATIONS", str(tmp_path / "kept"))
    pair = load_pair(folder / "target", folder / "drafter", "float32")
    policy_of(pair).save_pretrained(tmp_path / "policy")
    words = ["--target", folder / "target", "--drafter", folder / "drafter"]
    words += ["--prompt", "a b c d", "--policy", tmp_path / "policy", "--json"]

    def generated(*more):
        assert generate([str(word) for word in (*words, *more)]) == 0
        (line,) = [item.getMessage() for item in caplog.records if "policies" in item.name]
        caplog.clear()
        return json.loads(capsys.readouterr().out), line

    record, line = generated()
    assert "prices that it was exported with" in line
    assert record["confidence"] == pytest.approx(1.0)
    assert call("--arms", "1,4,8") == 0
    (kept,) = (tmp_path / "kept").iterdir()
    assert f"kept for policies in {kept}" in capsys.readouterr().out
    assert Calibration.load(kept).fingerprint == pair.fingerprint
    assert f"in float32 from {kept}" in generated()[1]
    assert "prices that it was exported with" in generated("--calibration", "none")[1]
    assert "uses the calibration of" in generated("--calibration", kept)[1]
    assert str(kept) not in generated("--calibration", kept)[1]
    assert generate([str(word) for word in (*words[:6], "--calibration", kept)]) == 2
    assert "name one with --policy" in capsys.readouterr().err


def test_a_repriced_sweep_needs_a_folder(call, folder, capsys):
    assert call("--sweep", folder / "sweep") == 2
    assert "name its folder with --out" in capsys.readouterr().err


def test_a_check_at_a_temperature_over_groups(call, tmp_path, capsys):
    """Short prompts of the built-in suite; the tiny pair has few positions."""
    out = tmp_path / "profile.json"
    words = ("--groups", "short", "--limit", 4, "--temperature", 1, "--seeds", "3,4")
    assert call("--out", out, "--arms", "1,2,8", "--check", 24, *words, "--max-new-tokens", 9) == 0
    saved = Calibration.load(out)
    assert saved.latency.sampling is not None
    assert saved.latency.sampling.noise > 0
    assert saved.check is not None
    assert saved.check["pairs"] + saved.check["untimed"] == 24
    assert saved.check["temperature"] == 1.0
    text = capsys.readouterr().out
    assert f"in the median of {saved.check['pairs']} real decodes at temperature 1 (95%" in text
    assert "A temperature adds" in text
    assert call("--out", out, "--arms", "1,2,8", "--check", 25, *words, "--max-new-tokens", 9) == 2
    assert "25 pairs asked for; 8 texts and 3 block sizes make 1 to 24" in capsys.readouterr().err


def test_bad_prompts_of_the_check_are_left_out(call, tmp_path, capsys):
    """A prompt needs room for its text and one block after it."""
    path = tmp_path / "prompts.txt"
    path.write_text("one two\n" + "a" * 240, encoding="utf-8")
    words = ("--arms", "1,2,8", "--check", 2, "--prompts", path, "--max-new-tokens", 9)
    assert call("--out", tmp_path / "profile.json", *words) == 2
    assert "line 2: has 241 tokens; at most 239 fit" in capsys.readouterr().err
    assert call("--out", tmp_path / "profile.json", *words, "--skip-bad") == 0
    assert "skipped " in capsys.readouterr().err


def test_a_sweep_is_repriced_for_this_device(call, folder, tmp_path, capsys):
    assert call("--sweep", folder / "sweep", "--out", tmp_path / "repriced") == 0
    assert "30 rows of" in capsys.readouterr().out
    old, new = Sweep.load(folder / "sweep"), Sweep.load(tmp_path / "repriced")
    assert new.metadata.latency["block_sizes"] == [1, 2, 8]
    assert new.metadata.latency_dtype == "float32"
    assert "threads" in new.metadata.device
    assert new.rows.equals(old.rows)
    assert not np.allclose(new.seconds, old.seconds)


def test_a_saved_profile_reprices_without_a_model(call, folder, tmp_path, capsys):
    assert call("--arms", "1,2,8", "--out", tmp_path / "profile.json") == 0
    saved = Calibration.load(tmp_path / "profile.json")
    words = ["--sweep", str(folder / "sweep"), "--profile", str(tmp_path / "profile.json")]
    for name in ("first", "second"):
        assert main([*words, "--out", str(tmp_path / name)]) == 0
    first, second = (Sweep.load(tmp_path / name) for name in ("first", "second"))
    np.testing.assert_array_equal(first.seconds, second.seconds)
    assert first.metadata.latency == json.loads(json.dumps(saved.latency.to_dict()))
    expected = saved.latency.decode_seconds(8, 20, first.accepted[0][2])
    assert first.seconds[0, 2] == pytest.approx(expected)


def test_a_saved_profile_without_measurements(call, folder, tmp_path, capsys):
    path = tmp_path / "profile.json"
    assert call("--arms", "1,2,8", "--out", path) == 0
    capsys.readouterr()
    values = json.loads(path.read_text(encoding="utf-8"))
    values["latency"]["medians"] = {}
    path.write_text(json.dumps(values), encoding="utf-8")
    words = ["--sweep", str(folder / "sweep"), "--profile", str(path)]
    assert main([*words, "--out", str(tmp_path / "priced")]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {path}: latency.medians is empty")
    assert err.count("\n") == 1
    assert not (tmp_path / "priced").exists()


@pytest.mark.parametrize(("share", "busy"), [(0.1, False), (0.2, True)])
def test_wide_intervals_say_that_the_machine_was_busy(call, folder, tmp_path, capsys, share, busy):
    path = tmp_path / "profile.json"
    assert call("--arms", "1,2,8", "--out", path) == 0
    values = json.loads(path.read_text(encoding="utf-8"))
    medians = values["latency"]["medians"]
    for name in ("draft", "verify"):
        around = np.multiply.outer(medians[name], [1 - share, 1 + share])
        medians[f"{name}_intervals"] = around.tolist()
    path.write_text(json.dumps(values), encoding="utf-8")
    capsys.readouterr()
    words = ["--sweep", str(folder / "sweep"), "--profile", str(path)]
    assert main([*words, "--out", str(tmp_path / "priced")]) == 0
    assert ("intervals are 40% of the medians wide" in capsys.readouterr().out) == busy


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "{tmp}/file/profile.json"], "cannot create the folder"),
        (["--sweep", "{folder}/sweep", "--arms", "1,8"], "--arms lacks 2 of the sweep's block"),
        (["--prompts", "{tmp}/nowhere.txt", "--check", "2"], "cannot read prompts from"),
        (["--prompts", "{tmp}/bad.txt", "--check", "2"], "bad.txt, line 2: "),
        (["--prompts", "{folder}/prompts.txt", "--check", "13"], "4 texts and 3 block sizes"),
        (["--groups", "short", "--limit", "2", "--check", "7"], "2 texts and 3 block sizes"),
        (["--check", "2", "--max-new-tokens", "250"], "exceed the models' 256 positions"),
    ],
)
def test_bad_input_is_refused_before_measuring(
    call, folder, tmp_path, monkeypatch, capsys, words, message
):
    monkeypatch.setattr(module, "time_steps", lambda *_, **__: pytest.fail("measured"))
    (tmp_path / "file").touch()
    (tmp_path / "bad.txt").write_text("one\n\n", encoding="utf-8")
    budget = ("--max-new-tokens", 9) if "--check" in words else ()
    usual = ("--arms", "1,2,8", *budget, "--out", tmp_path / "new")
    assert call(*usual, *[word.format(tmp=tmp_path, folder=folder) for word in words]) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert (out, err.count("\n")) == ("", 1)
    assert not (tmp_path / "new").exists()


def test_a_limit_on_prompts_of_the_check(call, folder, tmp_path, capsys):
    out = tmp_path / "profile.json"
    words = ("--arms", "1,2", "--prompts", folder / "prompts.txt", "--limit", 1, "--check", 2)
    assert call("--out", out, *words, "--max-new-tokens", 9) == 0
    assert "--limit takes the first prompts; taken: 1, left out: 3" in capsys.readouterr().err
    assert call("--out", out, *words, "--max-new-tokens", 9, "--check", 3) == 2
    assert "3 pairs asked for; 1 texts and 2 block sizes" in capsys.readouterr().err


def test_a_sweep_of_another_pair_is_refused(call, tmp_path, capsys):
    synthetic_table(10).save(tmp_path / "foreign")
    assert call("--sweep", tmp_path / "foreign", "--out", tmp_path / "new") == 2
    assert "name the sweep's pair with --target and --drafter" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--profile", "p.json"], "name one with --sweep"),
        (["--profile", "p.json", "--sweep", "s", "--check", "3"], "drop --profile"),
        (["--prompts", "p.txt"], "--prompts only affects the check; add --check N"),
        (["--groups", "long"], "--groups only affects the check; add --check N"),
        (["--max-new-tokens", "9"], "--max-new-tokens only affects the check; add --check N"),
        (["--limit", "9"], "--limit only affects the check; add --check N"),
        *(
            (
                ["--profile", "p.json", "--sweep", "s", *flag],
                f"{flag[0]} only affects a measurement",
            )
            for flag in (
                *(["--arms", "1,2"], ["--contexts", "8,16"], ["--repeats", "4"], ["--seed", "1"]),
                *(["--target", "t"], ["--drafter", "d"], ["--dtype", "float16"]),
                ["--device", "cuda"],
            )
        ),
        (["--temperature", "1"], "--temperature only affects the check; add --check N"),
        (["--seeds", "1", "--check", "2"], "seeds [1] need a temperature"),
        (["--temperature", "-1", "--check", "2"], "--temperature must be at least 0"),
        (["--groups", "lnog", "--check", "2"], "unknown group 'lnog'"),
        (["--repeats", "0"], "--repeats must be at least 1"),
        (["--repeats", "2", "--check", "3"], "--check needs repeats of at least 3"),
        (["--contexts", "32"], "--contexts needs two lengths, got 32"),
        (["--contexts", "0,32"], "--contexts must be at least 2 each, not 0, 32"),
        (["--check", "-1"], "--check must be at least 0"),
        (["--max-new-tokens", "1"], "--max-new-tokens must be at least 2"),
        (["--arms", "2,4"], "must be two or more increasing block sizes that begin with 1"),
        (["--arms", "x"], "--arms must be whole numbers"),
        (["--dtype", "float7"], "unknown dtype 'float7'"),
        (["--out", "."], "--out . is a folder"),
        (["--sweep", "s", "--out", "."], ". exists; name a new folder"),
    ],
)
def test_bad_input_is_one_line(words, message, capsys):
    assert main(["--out", "never-written.json", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_every_flag_has_an_effect_or_is_refused():
    """The three ways to use the command; each flag is read or refused in each of them."""
    read = {"out", "sweep", "profile", "check"}
    flags = {field.name for field in dataclasses.fields(CalibrateConfig)} - read
    assert flags == {*CHECK_FLAGS, *MEASURING_FLAGS}


def test_results_are_saved_before_they_are_printed(call, tmp_path, monkeypatch):
    def fail(*_):
        raise BrokenPipeError

    monkeypatch.setattr(command, "render", fail)
    assert call("--arms", "1,2", "--out", tmp_path / "profile.json") == 141
    assert Calibration.load(tmp_path / "profile.json").latency.block_sizes == (1, 2)
