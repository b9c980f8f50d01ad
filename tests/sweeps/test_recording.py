from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from blockpilot_rl import record_sweep as public_name
from blockpilot_rl.cli.collect_sweep import main
from blockpilot_rl.decoding.calibration import Calibration
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import locked
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.prompts import Prompt, policy_split
from blockpilot_rl.sweeps import recording as module
from blockpilot_rl.sweeps.recording import (
    RecordingConfig,
    answer_prompts,
    record_sweep,
    remove_unfinished,
)
from blockpilot_rl.sweeps.table import Sweep
from blockpilot_rl.sweeps.traces import load_traces
from tests.tiny_pair import encode, save_tiny_pair

TEXTS = ["a b c d", "one two", "long prompt with words"]
QUICK = RecordingConfig(arms=(1, 2, 8), max_new_tokens=9, repeats=1)


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    """A pair, prompts and a latency profile."""
    folder = tmp_path_factory.mktemp("recording")
    save_tiny_pair(folder)
    trained.drafter.save_pretrained(folder / "drafter")
    (folder / "prompts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    lines = tuple((0.01 + 0.001 * size, 1e-6) for size in (1, 2, 8))
    profile = LatencyProfile((1, 2, 8), ((0.0, 0.0), *lines[1:]), lines, (0.001, 1e-6), {})
    pair = load_pair(folder / "target", folder / "drafter")
    Calibration.from_decoder(Decoder(pair), profile).save(folder / "profile.json")
    return folder


@pytest.fixture(scope="module")
def pair(folder):
    return load_pair(folder / "target", folder / "drafter")


@pytest.fixture(scope="module")
def priced(folder):
    """A config that needs no measurement."""
    return dataclasses.replace(QUICK, repeats=None, profile=str(folder / "profile.json"))


@pytest.fixture
def words(folder, tmp_path):
    """Arguments of `collect-sweep` that record the prompts with the profile in `sweep`."""
    words = ["--target", folder / "target", "--drafter", folder / "drafter"]
    words += ["--prompts", folder / "prompts.txt", "--profile", folder / "profile.json"]
    words += ["--arms", "1,2,8", "--max-new-tokens", 9, "--out", tmp_path / "sweep"]
    return [str(word) for word in words]


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_own_prompts_with_a_loaded_pair(pair, tmp_path):
    assert public_name is record_sweep
    sweep = record_sweep(tmp_path / "sweep", QUICK, prompts=TEXTS, pair=pair)
    assert sweep.rows["id"].tolist() == [Prompt.from_text(text).id for text in TEXTS]
    assert (sweep.metadata.dtype, sweep.metadata.latency_dtype) == ("float32", "float32")
    real = Decoder(pair).generate(encode(pair, TEXTS[1]), 8, 9)
    assert sweep.output_tokens[1].tolist() == real.tokens
    assert sweep.accepted[1][2].tolist() == real.accepted[1:]
    assert Sweep.load(tmp_path / "sweep").keys == sweep.keys
    assert names(tmp_path) == {"sweep"}


def test_a_pair_that_is_loaded_as_needed(folder, tmp_path):
    """Answers in float32, timed passes in bfloat16; prompts are read for the loaded pair."""
    load = partial(load_pair, folder / "target", folder / "drafter")
    asked = []

    def prompts(pair):
        asked.append(pair.dtype)
        return [Prompt.from_text(text, family="greetings") for text in TEXTS]

    config = dataclasses.replace(QUICK, trace=1, measure=2)
    sweep = record_sweep(
        tmp_path / "sweep", config, prompts=prompts, pair=load, origin={"purpose": "a test"}
    )
    assert [str(dtype) for dtype in asked] == ["torch.float32"]
    assert (sweep.metadata.dtype, sweep.metadata.latency_dtype) == ("float32", "bfloat16")
    assert set(sweep.rows["family"]) == {"greetings"}
    assert sweep.metadata.provenance["purpose"] == "a test"
    assert sweep.metadata.provenance["measured"]["decodes"] == 6
    assert load_traces(tmp_path / "sweep", sweep)


def test_parts_are_answered_separately(pair, priced, tmp_path):
    for part in ((1, 2), (0, 2)):
        answer_prompts(tmp_path / "sweep", part, priced, prompts=TEXTS, pair=pair)
    assert names(tmp_path) == {"sweep.partial"}
    fewer = dataclasses.replace(priced, arms=(1, 2))
    with pytest.raises(BlockPilotError, match="unfinished work with other arms"):
        answer_prompts(tmp_path / "sweep", (0, 2), fewer, prompts=TEXTS, pair=pair)
    assert len(record_sweep(tmp_path / "sweep", priced, prompts=TEXTS, pair=pair)) == 3


def test_progress_starts_at_once(pair, tmp_path):
    """The first report comes before any work, and every task begins with 0."""
    seen = []
    record_sweep(
        tmp_path / "sweep",
        dataclasses.replace(QUICK, measure=1),
        prompts=TEXTS,
        pair=pair,
        progress=lambda *at: seen.append(at),
    )
    assert seen[0] == ("load the pair", 0, None)
    tasks = list(dict.fromkeys(task for task, *_ in seen))
    assert tasks == ["load the pair", "read the prompts", "answer", "replay", "latency", "measure"]
    for task in tasks:
        assert next(done for name, done, _ in seen if name == task) == 0
    for task in tasks[2:]:
        done, total = [(done, total) for name, done, total in seen if name == task][-1]
        assert done == total > 0


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], "there are no prompts to record"),
        (["a", "b", "a"], r"prompt 2 repeats prompt 0 \(counted from 0\)"),
        ([Prompt.from_text("a"), "a"], "prompt 1 repeats prompt 0"),
        ([" "], "the user message is empty"),
        (["a" * 300], "has 301 tokens; with 9 new"),
    ],
)
def test_prompts_that_cannot_be_recorded(pair, priced, tmp_path, prompts, message):
    with pytest.raises(BlockPilotError, match=message):
        record_sweep(tmp_path / "sweep", priced, prompts=prompts, pair=pair)
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "bfloat16"}, "dtype is bfloat16, but the pair is loaded in float32"),
        ({"latency_dtype": "bf16"}, "latency_dtype is bf16, but the pair is loaded in float32"),
        ({"device": "cuda"}, "device is cuda, but the pair is loaded on cpu"),
        ({"engine": "ray"}, "engine ray loads the pair in each worker; pass a function"),
    ],
)
def test_options_that_contradict_a_loaded_pair_are_refused(pair, tmp_path, settings, message):
    config = dataclasses.replace(QUICK, **settings)
    with pytest.raises(BlockPilotError, match=message):
        record_sweep(tmp_path / "sweep", config, prompts=TEXTS, pair=pair)
    assert names(tmp_path) == set()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"profile": "p", "repeats": 5}, "repeats is for measuring a latency profile"),
        ({"profile": "p", "latency_dtype": "float32"}, "latency_dtype is for measuring"),
        ({"profile": "p", "seed": 3}, "with profile none are timed"),
        ({"top_k": 5}, "top_k and top_p have no effect on greedy answers"),
        ({"top_p": 0.5}, "top_k and top_p have no effect on greedy answers"),
        ({"seeds": (1,)}, "need a temperature"),
        ({"workers": 2}, "workers needs engine ray"),
        ({"ray_address": "auto"}, "ray_address needs engine ray"),
        ({"engine": "ray", "device": "cuda:1"}, "device is cpu or cuda, not cuda:1"),
    ],
)
def test_options_without_effect_are_refused(settings, message):
    with pytest.raises(BlockPilotError, match=message):
        RecordingConfig(**settings)


@pytest.mark.parametrize(
    "flags", [["--profile", "p", "--measure", "2", "--seed", "3"], ["--seed=3"]]
)
def test_the_seed_of_timed_passes_is_used(flags, tmp_path, capsys):
    assert main(["--out", str(tmp_path / "sweep"), "--target", "nowhere", *flags]) == 2
    assert "seed" not in capsys.readouterr().err


GIVEN = {
    "arms": "1,2", "max_new_tokens": "9", "state_groups": "prompt", "trace": "3",
    "temperature": "1", "seeds": "1", "dtype": "bfloat16", "latency_dtype": "float32",
    "device": "cuda", "profile": "p", "repeats": "3", "measure": "2", "seed": "1",
    "continuations": "c", "engine": "ray", "prompts": "p.txt", "limit": "3", "groups": "short",
    "families": "story", "languages": "en", "template": "a:b", "target": "t", "drafter": "d",
    "part": "1/2", "top_k": "3", "top_p": "0.5", "workers": "2", "ray_address": "auto",
    "skip_bad": None, "suite": "s", "family": "f", "language": "de", "unseen_families": "f",
}  # fmt: skip


def test_every_flag_with_merge_is_refused(tmp_path, capsys):
    """Merging records nothing, so no flag that describes a recording has an effect."""
    fields = {field.name for field in dataclasses.fields(module.RecordingConfig)}
    assert fields <= set(GIVEN)
    for name, value in GIVEN.items():
        flag = f"--{name.replace('_', '-')}"
        words = [flag] if value is None else [flag, value]
        assert main(["--merge", "a", "b", "--out", str(tmp_path / "c"), *words]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "no sweep at" not in err, name
    assert main(["--merge", "a", "b", "--out", str(tmp_path / "c")]) == 2
    assert "no sweep at a" in capsys.readouterr().err


@pytest.mark.parametrize(
    "settings", [{"repeats": 2}, {"latency_dtype": "float32"}, {"measure": 2}, {"trace": 1}]
)
def test_a_finished_sweep_with_other_options_is_not_reused(folder, tmp_path, monkeypatch, settings):
    """Its unfinished work is still there, since the recording was killed at that moment."""
    load = partial(load_pair, folder / "target", folder / "drafter")
    with monkeypatch.context() as patched:
        patched.setattr(module, "remove_unfinished", lambda _: None)
        record_sweep(tmp_path / "sweep", QUICK, prompts=TEXTS, pair=load)
    other = dataclasses.replace(QUICK, **settings)
    with pytest.raises(BlockPilotError, match="sweep exists; name a new folder"):
        record_sweep(tmp_path / "sweep", other, prompts=TEXTS, pair=load)
    assert names(tmp_path) == {"sweep", "sweep.partial"}
    record_sweep(tmp_path / "sweep", QUICK, prompts=TEXTS, pair=load)
    assert names(tmp_path) == {"sweep"}


@pytest.mark.parametrize(
    "name",
    ["mine.txt", "notes/mine.txt", "continuations/mine.txt", "shard-1.parquet", "latency.txt"],
)
def test_other_files_in_the_unfinished_folder_stay(words, tmp_path, capsys, name):
    assert main([*words, "--part", "1/2"]) == 0
    foreign = tmp_path / "sweep.partial" / name
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("precious", encoding="utf-8")
    assert main(words) == 0
    assert "sweep.partial holds files that are not part of this recording" in (
        capsys.readouterr().err
    )
    left = [path for path in (tmp_path / "sweep.partial").rglob("*") if path.is_file()]
    assert left == [foreign]
    assert foreign.read_text(encoding="utf-8") == "precious"
    assert len(Sweep.load(tmp_path / "sweep")) == 3


def test_everything_of_a_recording_is_removed(pair, priced, tmp_path):
    """Also answers from before `continuations` was given, and temporary files of killed writes."""
    answer_prompts(tmp_path / "sweep", (0, 2), priced, prompts=TEXTS, pair=pair)
    unfinished = tmp_path / "sweep.partial"
    for name in (".0123abcd-shard-00000.parquet", ".0123abcd-description.json", "latency-x.json"):
        (unfinished / name).touch()
    kept = dataclasses.replace(priced, continuations=str(tmp_path / "answers"))
    record_sweep(tmp_path / "sweep", kept, prompts=TEXTS, pair=pair)
    assert names(tmp_path) == {"sweep", "answers"}
    remove_unfinished(unfinished)


SECOND = """
import sys
from pathlib import Path
from blockpilot_rl.files import locked
with locked(sys.argv[1]):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def hold():
    """Lock a path in another process."""
    processes = []

    def start(path):
        command = [sys.executable, "-c", SECOND, str(path)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen(command, **pipes))
        assert processes[-1].stdout.readline() == "locked\n"
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_a_second_recording_of_an_output_is_refused_and_changes_nothing(
    words, tmp_path, capsys, hold
):
    holder = hold(tmp_path / "sweep")
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert f"another process is writing {tmp_path / 'sweep'}; wait until it is done" in err
    assert (out, err.count("\n")) == ("", 1)
    assert names(tmp_path) == {".sweep.lock"}
    holder.kill()
    holder.wait()
    assert main(words) == 0
    assert names(tmp_path) == {"sweep"}


def test_two_processes_that_answer_the_same_part(words, tmp_path, capsys, hold):
    hold(tmp_path / "sweep.part-1-of-2")
    assert main([*words, "--part", "1/2"]) == 2
    assert "another process is writing" in capsys.readouterr().err
    assert main([*words, "--part", "2/2"]) == 0


def test_two_recordings_of_shared_answers(words, tmp_path, capsys, hold):
    """Of two drafters, with one folder of answers."""
    (tmp_path / "answers").mkdir()
    hold(tmp_path / "answers" / "shards-1-of-1")
    assert main([*words, "--continuations", str(tmp_path / "answers")]) == 2
    assert "another process is writing" in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()


def test_the_lock_of_a_recording_ends_with_it(pair, priced, tmp_path):
    with pytest.raises(BlockPilotError, match="no prompts"):
        record_sweep(tmp_path / "sweep", priced, prompts=[], pair=pair)
    with locked(tmp_path / "sweep"):
        pass


@pytest.mark.parametrize("room", [2_000, 12_000, 25_000, 40_000])
def test_a_full_disk_is_one_line_and_the_work_resumes(words, full_disk, capsys, room):
    """Nothing half-written is left, and the same command resumes once there is room."""
    words[-1] = str(full_disk / "sweep")
    filler = full_disk / "filler"
    filler.write_bytes(bytes(196_000 - room))
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"error: cannot write {full_disk}" in err
    assert "No space left" in err
    assert not [path for path in full_disk.rglob("*") if path.name.startswith(".")]
    filler.unlink()
    assert main(words) == 0
    assert len(Sweep.load(full_disk / "sweep")) == 3
    assert names(full_disk) == {"sweep"}


@pytest.mark.parametrize("more", [[], ["--part", "1/2"]])
def test_a_read_only_disk_is_one_line(words, read_only_disk, capsys, more):
    words[-1] = str(read_only_disk / "sweep")
    assert main([*words, *more]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"cannot write {read_only_disk}" in err


@pytest.mark.parametrize("damage", ["seconds", "nan", "zero"])
def test_a_damaged_profile_is_refused_before_the_work(words, folder, tmp_path, capsys, damage):
    values = json.loads((folder / "profile.json").read_text(encoding="utf-8"))
    value = {"seconds": 1e-320, "nan": float("nan"), "zero": 0.0}[damage]
    values["latency"]["verify"][1] = [value, 0.0]
    (tmp_path / "damaged.json").write_text(json.dumps(values), encoding="utf-8")
    assert main([*words, "--profile", str(tmp_path / "damaged.json")]) == 2
    assert f"{tmp_path / 'damaged.json'}: not a latency profile: verify" in capsys.readouterr().err
    assert names(tmp_path) == {"damaged.json"}


def test_predicted_seconds_are_those_of_the_profile(pair, priced, folder, tmp_path):
    sweep = record_sweep(tmp_path / "sweep", priced, prompts=TEXTS, pair=pair)
    latency = Calibration.load(folder / "profile.json").latency
    length = int(sweep.rows["prompt_tokens"][0])
    budget = sweep.metadata.max_new_tokens
    predicted = latency.decode_seconds(8, length, sweep.accepted[0][2], max_new_tokens=budget)
    assert sweep.seconds[0, 2] == predicted
    assert np.isnan(sweep.measured_seconds).all()


def test_prompts_of_unseen_families_are_test_prompts(pair, priced, tmp_path):
    prompts = [Prompt.from_text(f"one {i}", family="math" if i % 2 else "chat") for i in range(12)]
    config = dataclasses.replace(priced, unseen_families=("math",), trace=1)
    sweep = record_sweep(tmp_path / "sweep", config, prompts=prompts, pair=pair)
    assert sweep.metadata.unseen_families == ("math",)
    splits = sweep.rows.groupby("family")["split"].agg(set)
    assert splits["math"] == {"test"}
    assert splits["chat"] == {policy_split(prompt) for prompt in prompts[::2]} - {"drafter"}
    assert Sweep.load(tmp_path / "sweep").metadata.unseen_families == ("math",)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("maths", r"unseen family 'maths' has no prompts\. Did you mean 'math'\?"),
        ("chta", "Did you mean 'chat'"),
        ("mat", "Did you mean 'math'"),
        ("weather", "They are chat, math"),
    ],
)
def test_an_unseen_family_without_prompts_is_refused(pair, priced, tmp_path, name, message):
    prompts = [Prompt.from_text(f"one {i}", family=("math", "chat")[i % 2]) for i in range(4)]
    config = dataclasses.replace(priced, unseen_families=("math", name))
    with pytest.raises(BlockPilotError, match=message):
        record_sweep(tmp_path / "sweep", config, prompts=prompts, pair=pair)


def test_a_recording_with_other_unseen_families_is_not_resumed(pair, priced, tmp_path):
    prompts = [Prompt.from_text(f"one {i}", family=("math", "chat")[i % 2]) for i in range(4)]
    answer_prompts(tmp_path / "sweep", (0, 2), priced, prompts=prompts, pair=pair)
    config = dataclasses.replace(priced, unseen_families=("math",))
    with pytest.raises(BlockPilotError, match=r"another|other"):
        record_sweep(tmp_path / "sweep", config, prompts=prompts, pair=pair)
