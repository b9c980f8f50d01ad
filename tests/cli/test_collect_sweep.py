from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from blockpilot_rl.cli.collect_sweep import main
from blockpilot_rl.decoding.calibration import Calibration
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.prompts import Prompt
from blockpilot_rl.sweeps import recording as module
from blockpilot_rl.sweeps.table import BUNDLED_SWEEP, Sweep
from blockpilot_rl.sweeps.traces import TRACE_FILE, load_traces
from tests.tiny_pair import PROMPTS, encode, save_roomy_pair, save_tiny_pair, tiny_drafter

TEXTS = [*PROMPTS[:1], *PROMPTS[2:], *(f"ab{'e' * (i % 5)} {i}" for i in range(70))]
QUICK = ["--arms", "1,2,8,16", "--max-new-tokens", "9"]


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("collect")
    save_tiny_pair(folder)
    trained.drafter.save_pretrained(folder / "drafter")
    (folder / "prompts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    return folder


@pytest.fixture
def words(folder, tmp_path):
    """Arguments that record the pair and prompts of `folder` in `sweep`."""
    words = ["--target", folder / "target", "--drafter", folder / "drafter", *QUICK]
    words += ["--prompts", folder / "prompts.txt", "--out", tmp_path / "sweep"]
    return [str(word) for word in words]


@pytest.fixture
def call(words):
    """Run the command with further arguments; a profile is measured in one round or given."""

    def run(*more):
        timed = {"--profile", "--repeats"} & set(more)
        return main([*words, *([] if timed else ["--repeats", "1"]), *map(str, more)])

    return run


@pytest.fixture(scope="module")
def profile(folder):
    """A saved latency profile of the pair."""
    sizes = (1, 2, 4, 8, 16)
    lines = tuple((0.01 + 0.001 * size, 1e-6) for size in sizes)
    latency = LatencyProfile(sizes, ((0.0, 0.0), *lines[1:]), lines, (0.001, 1e-6), {})
    pair = load_pair(folder / "target", folder / "drafter")
    Calibration.from_decoder(Decoder(pair), latency).save(folder / "profile.json")
    return folder / "profile.json"


PROGRAM = """
import time
from blockpilot_rl.cli import collect_sweep
from blockpilot_rl.sweeps import recording
# Removing gigabytes takes long, so there is a moment before it.
recording.remove_unfinished = lambda *_: time.sleep(600)
raise SystemExit(collect_sweep.main())
"""


def kill_at(command: list[str], folder: Path, moment: str) -> None:
    """Run a command and kill it, by SIGKILL, as soon as the folder holds such a file."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not list(folder.rglob(moment)):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        _, err = process.communicate()
    assert process.returncode == -signal.SIGKILL, err


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def assert_same_rows(ours: Sweep, theirs: Sweep) -> None:
    """Equal but for measured times, and for hidden states up to rounding."""
    assert ours.rows.equals(theirs.rows)
    np.testing.assert_allclose(ours.states, theirs.states, atol=1e-4, rtol=1e-4)
    assert [t.tolist() for t in ours.output_tokens] == [t.tolist() for t in theirs.output_tokens]
    for mine, other in zip(ours.accepted, theirs.accepted, strict=True):
        assert [arm.tolist() for arm in mine] == [arm.tolist() for arm in other]


def test_a_sweep_of_your_own_prompts(call, folder, tmp_path, capsys):
    assert call("--measure", 2) == 0
    assert names(tmp_path) == {"sweep"}
    table = Sweep.load(tmp_path / "sweep")
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{len(table)} rows recorded in" in err
    pair = load_pair(folder / "target", folder / "drafter")
    metadata = table.metadata
    assert metadata.fingerprint == pair.fingerprint
    assert (metadata.arms, metadata.max_new_tokens) == ((1, 2, 8, 16), 9)
    assert (metadata.dtype, metadata.latency_dtype) == ("float32", "bfloat16")
    assert "threads" in metadata.device
    assert metadata.latency["block_sizes"] == [1, 2, 8, 16]
    assert metadata.latency["medians"]["repeats"] == 1
    left_out = metadata.provenance["ended_with_first_token"]
    ids = [Prompt.from_text(text).id for text in TEXTS]
    assert table.rows["id"].tolist() == [key for key in ids if key not in left_out]
    # In bfloat16 some decodes may give a different text.
    counts, timed = metadata.provenance["measured"], np.isfinite(table.measured_seconds)
    assert counts["decodes"] == 2 * len(table.arms)
    assert timed.sum() == counts["decodes"] - counts["other_texts"]
    assert ("gave a different text" in err) == (counts["other_texts"] > 0)
    real = Decoder(pair).generate(encode(pair, TEXTS[0]), 8, 9)
    assert table.accepted[0][2].tolist() == real.accepted[1:]


def test_parts_and_then_the_whole(call, tmp_path, capsys):
    assert call("--part", "2/2") == 0
    assert names(tmp_path) == {"sweep.partial"}
    assert "part 2/2 is answered; run without --part to finish" in capsys.readouterr().err
    assert call("--part", "1/2") == 0
    assert call() == 0
    assert names(tmp_path) == {"sweep"}
    assert call("--out", tmp_path / "again") == 0
    assert_same_rows(Sweep.load(tmp_path / "sweep"), Sweep.load(tmp_path / "again"))


def test_bad_prompts_are_skipped_by_line_and_kept_in_the_metadata(call, tmp_path, capsys):
    """Also when the same command resumes unfinished work."""
    path = tmp_path / "mixed.txt"
    path.write_text("\n".join(["a b", "[red]", "", "a b", "c" * 300, "d"]), encoding="utf-8")
    words = ["--prompts", path, "--skip-bad"]
    reasons = {3: "the user message is empty", 4: "the same prompt as line 1", 5: "has 301 tokens"}
    for more in (["--part", "1/2"], []):
        assert call(*words, *more) == 0
        err = capsys.readouterr().err
        lines = [line for line in err.splitlines() if line.startswith(f"skipped {path}, line ")]
        for line, (number, reason) in zip(lines, reasons.items(), strict=True):
            assert f"line {number}: " in line
            assert reason in line
    assert "3 bad prompts were skipped" in err
    table = Sweep.load(tmp_path / "sweep")
    skipped = table.metadata.provenance["skipped_prompts"]
    assert [(item["number"], item["unit"]) for item in skipped] == [(n, "line") for n in reasons]
    assert all(reasons[item["number"]] in item["reason"] for item in skipped)
    left_out = table.metadata.provenance["ended_with_first_token"]
    assert {*table.rows["id"], *left_out} == {
        Prompt.from_text(text).id for text in ("a b", "[red]", "d")
    }


def test_an_occupied_folder_is_not_used_for_unfinished_work(words, profile, tmp_path, capsys):
    """Otherwise it would be removed at the end."""
    (tmp_path / "sweep.partial").mkdir()
    (tmp_path / "sweep.partial" / "mine.txt").write_text("precious", encoding="utf-8")
    assert main([*words, "--profile", str(profile)]) == 2
    assert "sweep.partial is needed for unfinished work" in capsys.readouterr().err
    assert (tmp_path / "sweep.partial" / "mine.txt").read_text(encoding="utf-8") == "precious"


def test_a_run_that_was_killed_resumes(call, tmp_path, monkeypatch):
    """Finished answers, replays and times are not computed again."""

    def kill(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Sweep, "write", kill)
        assert call() == 130
    assert names(tmp_path) == {"sweep.partial"}
    calibration = json.loads((tmp_path / "sweep.partial" / "latency-bfloat16.json").read_text())
    with monkeypatch.context() as patched:
        patched.setattr(module, "time_steps", lambda *_, **__: pytest.fail("timed again"))
        assert call() == 0
    assert names(tmp_path) == {"sweep"}
    table = Sweep.load(tmp_path / "sweep")
    assert table.metadata.latency == calibration["latency"]
    assert table.metadata.provenance["calibration"]["date"] == calibration["provenance"]["date"]
    assert call("--out", tmp_path / "again") == 0
    assert_same_rows(table, Sweep.load(tmp_path / "again"))


def test_a_finished_sweep_whose_unfinished_work_remains(
    call, profile, tmp_path, monkeypatch, capsys
):
    """The same command removes it, even if much of it is gone; another one refuses the folder."""

    def kill(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "remove_unfinished", kill)
        assert call("--profile", profile) == 130
    assert names(tmp_path) == {"sweep", "sweep.partial"}
    written = (tmp_path / "sweep" / "sweep.parquet").read_bytes()
    whole = Calibration.load(profile)
    dearer = dataclasses.replace(whole.latency, read_prompt=(0.5, 0.0))
    dataclasses.replace(whole, latency=dearer).save(tmp_path / "dearer.json")
    for more in (
        ["--profile", profile, "--max-new-tokens", 8],
        ["--profile", tmp_path / "dearer.json"],
        ["--profile", profile, "--part", "1/2"],
    ):
        capsys.readouterr()
        assert call(*more) == 2
        assert "sweep exists; name a new folder or remove it first" in capsys.readouterr().err
    for path in (tmp_path / "sweep.partial").iterdir():
        if path.name != "description.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert call("--profile", profile) == 0
    assert "rows recorded in" in capsys.readouterr().err
    assert names(tmp_path) == {"sweep", "dearer.json"}
    assert (tmp_path / "sweep" / "sweep.parquet").read_bytes() == written
    assert call("--profile", profile) == 2


def test_another_sweep_in_place_of_the_finished_one(call, profile, tmp_path, monkeypatch, capsys):
    """Its unfinished work is not removed."""

    def kill(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "save_sweep", kill)
        assert call("--profile", profile) == 130
    shutil.copytree(BUNDLED_SWEEP, tmp_path / "sweep")
    assert call("--profile", profile) == 2
    assert "sweep exists; name a new folder" in capsys.readouterr().err
    assert names(tmp_path) == {"sweep", "sweep.partial"}


def test_later_turns_are_reported_and_counted_in_the_metadata(call, profile, tmp_path, capsys):
    path = tmp_path / "turns.jsonl"
    rows = [{"turns": turns} for turns in (["a b", "c"], ["a b", "d"], ["d"], ["e", "f"])]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert call("--prompts", path, "--profile", profile) == 0
    assert f"{path}: a prompt ends with the first of `turns`" in capsys.readouterr().err
    provenance = Sweep.load(tmp_path / "sweep").metadata.provenance
    assert provenance["unused_turns"] == {"source": str(path), "rows": 2, "repeats": 1}
    assert provenance["skipped_prompts"] == []


def test_corrupt_times_of_a_run_that_was_killed(call, tmp_path, monkeypatch, capsys):
    def kill(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Sweep, "write", kill)
        assert call() == 130
    path = tmp_path / "sweep.partial" / "latency-bfloat16.json"
    for text in ("", "[]", '{"draft": 1}'):
        path.write_text(text)
        capsys.readouterr()
        assert call() == 2
        err = capsys.readouterr().err
        assert f"{path} is corrupt" in err
        assert err.endswith("remove the file and run the same command again\n")
    path.unlink()
    assert call() == 0


def test_times_of_another_dtype_are_measured_again(call, tmp_path, monkeypatch):
    def kill(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Sweep, "write", kill)
        assert call() == 130
    assert call("--latency-dtype", "float32") == 0
    assert Sweep.load(tmp_path / "sweep").metadata.latency_dtype == "float32"


def test_times_of_another_device_or_of_other_repeats_are_measured_again(
    call, tmp_path, monkeypatch, caplog
):
    def kill(*_):
        raise KeyboardInterrupt

    path = tmp_path / "sweep.partial" / "latency-bfloat16.json"
    with monkeypatch.context() as patched:
        patched.setattr(Sweep, "write", kill)
        assert call() == 130
        first = Calibration.load(path)
        dataclasses.replace(first, device="another machine, 64 threads").save(path)
        assert call() == 130
        (notice,) = caplog.messages
        assert f"{path} was measured in 1 rounds on another machine, 64 threads" in notice
        assert notice.endswith("; measuring again")
        second = Calibration.load(path)
        assert second.device == first.device
        assert second.latency != first.latency
    assert call("--repeats", 2) == 0
    assert "measured in 1 rounds on" in caplog.messages[1]
    assert Sweep.load(tmp_path / "sweep").metadata.latency["medians"]["repeats"] == 2


def test_an_unfinished_sweep_with_other_options_is_refused(call, tmp_path, capsys):
    assert call("--part", "1/2") == 0
    capsys.readouterr()
    assert call("--max-new-tokens", 8) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "holds unfinished work with other max_new_tokens" in err
    assert names(tmp_path) == {"sweep.partial"}


def test_answers_can_be_kept_for_another_drafter(call, tmp_path, capsys):
    answers = tmp_path / "answers"
    assert call("--continuations", answers) == 0
    said = [capsys.readouterr().err]
    kept = {path.name: path.stat().st_mtime_ns for path in answers.iterdir()}
    tiny_drafter(seed=5).save_pretrained(tmp_path / "other")
    words = ["--drafter", tmp_path / "other", "--continuations", answers]
    assert call(*words, "--out", tmp_path / "second") == 0
    said.append(capsys.readouterr().err)
    assert {path.name: path.stat().st_mtime_ns for path in answers.iterdir()} == kept
    first, second = (Sweep.load(tmp_path / name) for name in ("sweep", "second"))
    for table, text in zip((first, second), said, strict=True):
        pooled = table.emitted.sum() / table.passes[:, 2].sum()
        warning = f"warning: acceptance length {pooled:.2f} at block size 8 is near 1"
        assert (warning in text) == (pooled < 1.2)
    assert "is near 1" in said[1]  # an untrained drafter
    assert first.metadata.fingerprint != second.metadata.fingerprint
    tokens = [t.tolist() for t in first.output_tokens]
    assert tokens == [t.tolist() for t in second.output_tokens]
    assert first.passes.sum() < second.passes.sum()


def test_sampled_and_traced_sweeps_merge_with_greedy_ones(call, folder, profile, tmp_path, capsys):
    greedy, warm, both = (str(tmp_path / name) for name in ("greedy", "warm", "both"))
    assert call("--out", greedy, "--profile", profile) == 0
    sampled = ["--temperature", "0.8", "--top-k", "30", "--top-p", "0.95", "--seeds", "4,2"]
    assert call("--out", warm, "--profile", profile, *sampled, "--trace", 3) == 0
    capsys.readouterr()
    assert main(["--merge", greedy, warm, "--out", both]) == 0
    table = Sweep.load(both)
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{len(table)} rows merged in" in err
    assert len(table) == len(Sweep.load(greedy)) + len(Sweep.load(warm))
    assert {key[1:] for key in table.keys} == {(0.0, 0), (0.8, 4), (0.8, 2)}
    assert (table.metadata.top_k, table.metadata.top_p) == (30, 0.95)
    traces = load_traces(both, table)
    assert 6 <= len(traces) <= 18
    assert {table.keys[row][1] for row in traces} == {0.8}
    decoder = Decoder(load_pair(folder / "target", folder / "drafter"))
    for row in (0, len(table) - 1):
        text = next(text for text in TEXTS if Prompt.from_text(text).id == table.keys[row][0])
        _, temperature, seed = table.keys[row]
        sampling = Sampling(temperature, 30, 0.95, seed)
        real = decoder.generate(encode(decoder.pair, text), 8, 9, sampling)
        assert table.output_tokens[row].tolist() == real.tokens
        assert table.accepted[row][2].tolist() == real.accepted[1:]


def test_sweeps_that_do_not_fit_are_not_merged(call, profile, tmp_path, capsys):
    assert call("--out", tmp_path / "a", "--profile", profile) == 0
    assert call("--out", tmp_path / "b", "--temperature", 1) == 0
    capsys.readouterr()
    for folders, message in (
        (["a", "b"], "another latency than the first"),
        (["a", "a"], "repeats an id with the same temperature and seed"),
        (["a", "c"], "no sweep at"),
    ):
        paths = [str(tmp_path / name) for name in folders]
        assert main(["--merge", *paths, "--out", str(tmp_path / "both")]) == 2
        out, err = capsys.readouterr()
        assert message in err
        assert (out, err.count("\n")) == ("", 1)
    assert names(tmp_path) == {"a", "b"}


def test_a_trace_of_all_rows(call, profile, tmp_path):
    assert call("--profile", profile, "--trace") == 0
    table = Sweep.load(tmp_path / "sweep")
    assert sorted(load_traces(tmp_path / "sweep", table)) == list(range(len(table)))
    assert call("--profile", profile, "--out", tmp_path / "bare") == 0
    assert names(tmp_path / "bare") == names(tmp_path / "sweep") - {TRACE_FILE}
    assert_same_rows(table, Sweep.load(tmp_path / "bare"))


def test_template_options_are_recorded(call, tmp_path, capsys):
    """They change acceptance (z-lab/dflash#133, #60); one that does nothing is refused."""
    assert call("--template", "enable_thinking:false") == 2
    assert "without the option 'enable_thinking'" in capsys.readouterr().err
    assert names(tmp_path) == set()


def test_completions_are_recorded(call, profile, tmp_path, capsys):
    """A sweep of completions says so, and does not mix with a sweep of chats."""
    assert call("--completion", "--limit", 5, "--profile", profile) == 0
    (tmp_path / "sweep").rename(tmp_path / "texts")
    assert call("--limit", 5, "--profile", profile) == 0
    texts, chats = (Sweep.load(tmp_path / name) for name in ("texts", "sweep"))
    assert (texts.metadata.template, chats.metadata.template) == ({"completion": True}, {})
    longer, shorter = (
        sweep.rows.set_index("id")["prompt_tokens"].to_dict() for sweep in (chats, texts)
    )
    assert {longer[key] - shorter[key] for key in longer.keys() & shorter.keys()} == {1}
    capsys.readouterr()
    merged = ["--merge", tmp_path / "texts", tmp_path / "sweep", "--out", tmp_path / "both"]
    assert main([str(word) for word in merged]) == 2
    assert "another template" in capsys.readouterr().err


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("continuations.json", marks=pytest.mark.slow),
        pytest.param("shard-00000.safetensors", marks=pytest.mark.slow),
        "trace-00000.parquet",
        pytest.param("shard-00001.parquet", marks=pytest.mark.slow),
        pytest.param("sweep/sweep.parquet", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_is_killed_at_any_moment_ends_in_the_same_bytes(
    words, profile, tmp_path, moment
):
    """By SIGKILL, which nothing can catch, and again while it resumes."""
    words += ["--profile", str(profile), "--temperature", "1", "--seeds", "0,1", "--trace", "5"]
    left = {"sweep.partial", *Path(moment).parts[:-1]}
    for _ in range(2):
        kill_at([sys.executable, "-c", PROGRAM, *words], tmp_path, moment)
        assert names(tmp_path) - {".sweep.lock"} == left
    assert main(words) == 0
    assert main([*words, "--out", str(tmp_path / "unbroken")]) == 0
    for name in ("sweep.parquet", TRACE_FILE):
        ours, theirs = (tmp_path / run / name for run in ("sweep", "unbroken"))
        assert ours.read_bytes() == theirs.read_bytes()
    ours, theirs = (Sweep.load(tmp_path / run).metadata for run in ("sweep", "unbroken"))
    left_out = [item.provenance["ended_with_first_token"] for item in (ours, theirs)]
    assert left_out[0] == left_out[1]
    assert dataclasses.replace(ours, provenance={}) == dataclasses.replace(theirs, provenance={})
    assert names(tmp_path) == {"sweep", "unbroken"}


@pytest.mark.slow
def test_a_run_on_a_cluster_that_is_killed_resumes_in_one_process(words, profile, tmp_path):
    """On a cluster of its own, which ends with it. And the other way round; in the same bytes."""
    pytest.importorskip("ray")
    words += ["--profile", str(profile), "--temperature", "1", "--seeds", "0,1", "--trace", "5"]
    cluster = ["--engine", "ray", "--ray-address", "local", "--workers", "2"]
    kill_at([sys.executable, "-c", PROGRAM, *words, *cluster], tmp_path, "shard-*.safetensors")
    assert names(tmp_path) - {".sweep.lock"} == {"sweep.partial"}
    assert main(words) == 0
    local, other = (str(tmp_path / name) for name in ("local", "other"))
    assert main([*words, "--out", local]) == 0
    assert main([*words, "--out", other, "--part", "3/3"]) == 0
    assert main([*words, "--out", other, *cluster]) == 0
    for name in ("sweep.parquet", TRACE_FILE):
        found = {(tmp_path / run / name).read_bytes() for run in ("sweep", "local", "other")}
        assert len(found) == 1
    assert names(tmp_path) == {"sweep", "local", "other"}


def test_the_builtin_suite_is_the_default(tmp_path):
    save_roomy_pair(tmp_path, stops=True)
    words = ["--target", tmp_path / "target", "--drafter", tmp_path / "drafter", *QUICK]
    words += ["--limit", 6, "--out", tmp_path / "sweep"]
    words += ["--groups", "english,languages", "--families", "story", "--languages", "en,de,fr"]
    assert main([str(word) for word in words]) == 0
    table = Sweep.load(tmp_path / "sweep")
    assert len(table) + len(table.metadata.provenance["ended_with_first_token"]) == 6
    assert table.metadata.provenance["skipped_prompts"] == []
    assert set(table.rows["family"]) == {"story"}
    assert set(table.rows["suite"]) == {"builtin"}
    assert {"en"} < set(table.rows["language"]) <= {"en", "de", "fr"}
    assert "drafter" not in set(table.rows["split"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--arms", "2,4"], "begin with 1"),
        (["--arms", "1,b"], "--arms must be whole numbers"),
        (["--arms", ""], "--arms must be whole numbers"),
        (["--temperature", "-1"], "--temperature must be at least 0"),
        (["--temperature", "1", "--top-p", "0"], "--top-p must be in"),
        (["--temperature", "1", "--seeds", "0,x"], "--seeds must be whole numbers"),
        (["--temperature", "1", "--seeds", "3,3"], "each once"),
        (["--seeds", "0,1"], "need a temperature"),
        (["--trace", "some"], "--trace must be a number of prompts or all, not 'some'"),
        (["--template", "thinking"], "--template must be KEY:VALUE"),
        (["--profile", "{tmp}/nowhere.json"], "no calibration at"),
        (["--profile", "{tmp}/foreign.json"], "the latency profile is of"),
        (["--profile", "{tmp}/short.json"], "block size 8 is not in the latency profile"),
        (["--max-new-tokens", "1"], "--max-new-tokens must be at least 2"),
        (["--max-new-tokens", "300"], "leaves no room for a prompt"),
        (["--limit", "0"], "--limit must be at least 1"),
        (["--repeats", "0"], "--repeats must be at least 1"),
        (["--measure", "-1"], "--measure must be at least 0"),
        (["--part", "3/2"], "--part must be I/N"),
        (["--families", "code"], "drop --prompts"),
        (["--prompts", "{tmp}/nowhere.txt"], "cannot read prompts from"),
        (["--prompts", "{tmp}/latin.txt"], "line 1: not UTF-8"),
        (["--prompts", "{tmp}/twice.txt"], "the same prompt as line 1"),
        (["--prompts", "{tmp}/long.txt"], "long.txt, line 1: has 301 tokens; at most 247 fit"),
        (["--groups", "short"], "--groups chooses from the built-in suite; drop --prompts"),
        (["--engine", "spark"], "'spark' is not one of local, ray"),
        (["--workers", "2"], "--workers needs engine ray"),
        (["--ray-address", "auto"], "--ray-address needs engine ray"),
        (["--engine", "ray", "--workers", "0"], "--workers must be at least 1"),
        (["--engine", "ray", "--part", "1/2"], "distributes the work itself; drop --part"),
        (["--engine", "ray", "--device", "cuda:1"], "device is cpu or cuda, not cuda:1"),
        (["--out", "{tmp}/full"], "exists; name a new folder or remove it first"),
        (["--out", "{tmp}/latin.txt"], "exists; name a new folder or remove it first"),
        (["--drafter", "{tmp}/nowhere"], "is neither a folder nor a hub id"),
        (["--dtype", "fp31"], "unknown dtype"),
        (["--latency-dtype", "fp31"], "unknown dtype"),
        (["--max-new-token", "9"], "Did you mean '--max-new-tokens'?"),
        (["--device", "gpu7"], "models cannot run on gpu7"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(call, tmp_path, capsys, profile, more, message):
    whole = Calibration.load(profile)
    dataclasses.replace(whole, fingerprint="feed").save(tmp_path / "foreign.json")
    latency = LatencyProfile((1, 2), whole.latency.draft[:2], whole.latency.verify[:2], (0, 0), {})
    dataclasses.replace(whole, latency=latency).save(tmp_path / "short.json")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "twice.txt").write_text("a\na\n", encoding="utf-8")
    (tmp_path / "long.txt").write_text("a" * 300, encoding="utf-8")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("precious", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    assert call(*[word.format(tmp=tmp_path) for word in more]) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert (out, err[:7], err.count("\n")) == ("", "error: ", 1)
    assert sorted(tmp_path.rglob("*")) == before
