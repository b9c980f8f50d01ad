from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from blockpilot_rl.agents import make_agent
from blockpilot_rl.cli.compare import main
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.experiments.curves import MIN_COUNT
from blockpilot_rl.experiments.seeds import Trainer
from blockpilot_rl.files import locked
from tests.evaluation.replicates import joined, mixed, replicated
from tests.synthetic import ARMS, synthetic_table

REGRESSION = ["--algos", "reward-regression", "--jobs", "1"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("data") / "sweep"
    synthetic_table(n=1500).save(folder)
    return str(folder)


@pytest.fixture(scope="module")
def one_family(tmp_path_factory) -> str:
    table = synthetic_table(n=300)
    folder = tmp_path_factory.mktemp("data") / "one-family"
    table.select_rows((table.rows["family"] == table.rows["family"][0]).to_numpy()).save(folder)
    return str(folder)


def test_a_single_family_cannot_be_left_out(one_family, capsys, monkeypatch):
    """The error comes before minutes of training."""
    monkeypatch.setattr(Trainer, "train", lambda *_: pytest.fail("agents were trained"))
    assert main(["--sweep", one_family, "--leave-family-out"]) == 2
    assert "cannot be left out" in capsys.readouterr().err


def numbers(capsys, *argv: str) -> dict:
    """What the command writes to standard output with --json and nothing else."""
    assert main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def complaint(capsys, *argv: str) -> str:
    assert main(list(argv)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def test_the_tables_and_the_verdict(sweep, capsys):
    assert main(["--sweep", sweep, *REGRESSION, "--seeds", "2"]) == 0
    out = capsys.readouterr().out
    for word in ("default size (16)", "best fixed (8)", "random", "reward-regression", "oracle"):
        assert word in out
    assert "Block sizes chosen" in out
    assert "Mean speedup by family" in out
    assert "Verdict: ship reward-regression: reward-regression gains +" in out
    assert "decision time included" in out


def test_standard_output_holds_only_the_json(sweep, capsys):
    assert main(["--sweep", sweep, *REGRESSION, "--seeds", "2", "--json"]) == 0
    out, err = capsys.readouterr()
    values = json.loads(out)
    assert "Verdict: ship reward-regression" in err
    agent = values["agents"]["reward-regression"]
    assert list(values["agents"]) == ["reward-regression"]
    assert agent["gain"][1] > 0
    assert agent["policy_microseconds"] > 0
    assert len(agent["gain_by_seed"]) == 2
    assert values["verdict"]["ship"] == "reward-regression"
    assert values["settings"]["seeds"] == 2
    assert values["provenance"]["versions"]["python"]


def test_json_to_a_file_and_a_report(sweep, capsys, tmp_path):
    file, report = tmp_path / "out" / "c.json", tmp_path / "report"
    argv = ["--sweep", sweep, *REGRESSION, "--seeds", "1", "--json", str(file)]
    assert main([*argv, "--report", str(report)]) == 0
    assert "Verdict: ship reward-regression" in capsys.readouterr().out
    values = json.loads(file.read_text(encoding="utf-8"))
    text = (report / "report.md").read_text(encoding="utf-8")
    assert values["verdict"]["reason"] in text
    assert values["verdict"]["ship"] == "reward-regression"


@pytest.mark.parametrize("seed", ["0", "10"])
def test_shuffled_states_give_a_fixed_size(sweep, capsys, seed):
    """An adaptive choice without signal must not be shipped (vllm-project/vllm#52362)."""
    argv = ["--sweep", sweep, *REGRESSION, "--seeds", "3", "--seed", seed, "--shuffle-states"]
    assert main([*argv, "--json"]) == 0
    out, err = capsys.readouterr()
    verdict = json.loads(out)["verdict"]
    assert (verdict["ship"], verdict["block_size"]) == ("fixed", 8)
    assert "shuffled states" in err


def test_the_same_seed_gives_the_same_choices(capsys, tmp_path):
    synthetic_table(n=200).save(tmp_path / "s")
    argv = ["--sweep", str(tmp_path / "s"), "--algos", "supervised", "--seeds", "1"]
    arms = [
        numbers(capsys, *argv, "--shuffle-states", "--seed", seed)["agents"]["supervised"]["arms"]
        for seed in ("3", "3", "4")
    ]
    assert arms[0] == arms[1] != arms[2]


def test_arms_and_state_groups_are_used(sweep, capsys, tmp_path):
    # With pooled targets the verdict on these three sizes is a fixed size.
    file = tmp_path / "conf.yml"
    file.write_text("reward-regression:\n  target: recorded\n", encoding="utf-8")
    argv = ["--sweep", sweep, *REGRESSION, "--seeds", "1", "--conf-file", str(file)]
    values = numbers(capsys, *argv, "--arms", "1,2,4", "--state-groups", "next_token,prompt")
    agent = values["agents"]["reward-regression"]
    assert list(agent["arms"]) == ["1", "2", "4"]
    assert values["best_fixed"]["block_size"] == 4
    assert values["default"] is None
    # Only the hidden state predicts the speedups of this sweep.
    assert values["verdict"]["ship"] == "fixed"
    hidden = numbers(capsys, *argv, "--arms", "1,2,4", "--state-groups", "last_hidden")
    assert hidden["verdict"]["ship"] == "reward-regression"


def test_a_lower_confidence_narrows_the_interval(sweep, capsys):
    argv = ["--sweep", sweep, *REGRESSION, "--seeds", "1", "--confidence"]
    _, wide_low, wide_high = numbers(capsys, *argv, "0.99")["best_fixed_total"]["gain"]
    _, low, high = numbers(capsys, *argv, "0.5")["best_fixed_total"]["gain"]
    assert wide_low < low < high < wide_high


def test_hyperparameters_from_a_file(sweep, capsys, tmp_path):
    """A penalty so strong that nothing but the best fixed size is left."""
    file = tmp_path / "conf.yml"
    file.write_text("reward-regression:\n  alphas: [1.0e+9]\n", encoding="utf-8")
    argv = ["--sweep", sweep, *REGRESSION, "--seeds", "1"]
    plain, strong = numbers(capsys, *argv), numbers(capsys, *argv, "--conf-file", str(file))
    assert plain["verdict"]["ship"] == "reward-regression"
    assert strong["agents"]["reward-regression"]["arms"]["8"] == 1
    assert strong["settings"]["conf_file"] == str(file)
    before, after = (found["settings"]["hyperparams"] for found in (plain, strong))
    expected = {**before["reward-regression"], "alphas": [1e9]}
    assert after["reward-regression"] == expected != before["reward-regression"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reward-regresion:\n  alphas: [1]\n", "Did you mean 'reward-regression'?"),
        ("reward-regression:\n  alpha: 1\n", "Did you mean 'alphas'?"),
        ("reward-regression:\n  folds: many\n", "folds must be a whole number"),
        ("reward-regression: 5\n", "reward-regression must hold `key: value` lines"),
        ("reward-regression:\n", "reward-regression must hold `key: value` lines"),
        ("linucb:\n  width: 1\n", "has values for linucb, which is not trained"),
        ("- 1\n", "must hold `key: value` lines"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_bad_file_of_hyperparameters(sweep, capsys, tmp_path, text, message):
    file = tmp_path / "conf.yml"
    file.write_text(text, encoding="utf-8")
    assert message in complaint(capsys, "--sweep", sweep, *REGRESSION, "--conf-file", str(file))


def test_the_yardsticks_need_no_training(sweep, capsys):
    values = numbers(capsys, "--sweep", sweep, "--algos", "fixed,random,oracle")
    assert values["agents"] == {}
    assert values["verdict"]["ship"] == "fixed"


def test_a_sweep_without_validation_prompts(capsys, tmp_path):
    table = synthetic_table(n=200)
    table.select_rows((table.rows["split"] != "validation").to_numpy()).save(tmp_path / "s")
    values = numbers(capsys, "--sweep", str(tmp_path / "s"), *REGRESSION, "--seeds", "1")
    assert values["split"]["validation_prompts"] == 0


def test_leaked_test_prompts_are_refused(capsys, tmp_path):
    table = synthetic_table(n=200)
    split = table.rows["split"].to_numpy()
    table.states[np.flatnonzero(split == "test")[0]] = table.states[
        np.flatnonzero(split == "train")[0]
    ]
    table.save(tmp_path / "s")
    message = complaint(capsys, "--sweep", str(tmp_path / "s"), *REGRESSION, "--seeds", "1")
    assert "leakage: 1 test states are also in the training or validation split" in message


def test_the_window_is_centred_on_the_drafters_size(sweep, capsys):
    values = numbers(capsys, "--sweep", sweep, *REGRESSION, "--seeds", "1", "--window", "8")
    assert list(values["agents"]["reward-regression"]["arms"]) == ["1", "8", "16"]
    assert values["default"]["block_size"] == 16


def test_all_further_views(capsys, tmp_path):
    synthetic_table(n=400).save(tmp_path / "s")
    argv = ["--sweep", str(tmp_path / "s"), *REGRESSION, "--seeds", "2"]
    views = ["--leave-family-out", "--budget-curve", "--ablation"]
    views += ["--report", str(tmp_path / "report")]
    assert main([*argv, *views, "--json", str(tmp_path / "c.json")]) == 0
    out = capsys.readouterr().out
    values = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    prompts = values["split"]["train_prompts"]
    assert set(values["left_out"]["best_fixed"]) == {"easy", "hard"}
    assert set(values["left_out"]["agents"]) == {"reward-regression"}
    for name in ("fixed", "reward-regression"):
        curve = values["learning_curve"][name]
        counts = [point["prompts"] for point in curve]
        assert counts == sorted(counts)
        assert counts[-1] == prompts == 2 * counts[-2] + prompts % 2
        assert curve[-1]["decodes"] is None
        paid = {
            price: [point["decodes"] for point in values["budget_curves"][price][name]]
            for price in ("decode", "replay")
        }
        answers = counts
        if name == "reward-regression":
            share = values["split"]["validation_prompts"] / prompts
            answers = [count + round(count * share) for count in counts]
        assert paid == {"decode": [5 * answer for answer in answers], "replay": answers}
    assert values["learning_curve"]["fixed"][-1]["gain"] == [0, 0, 0]
    agent = values["agents"]["reward-regression"]
    last = values["learning_curve"]["reward-regression"][-1]
    assert last["mean_speedup"] == pytest.approx(agent["mean_speedup"])
    assert last["gain"] == pytest.approx(agent["gain"])
    assert values["off_policy"]["estimators"]["DR"]["effective_sample_size"] > 1
    assert values["ablation"]["algorithm"] == "reward-regression"
    groups = values["ablation"]["rows"]
    assert len(groups) == 7
    # The default features are all groups here, so this is the agent that was compared.
    assert groups["all groups"]["gain"] == pytest.approx(agent["gain"])
    assert groups["all groups"]["change"] == [0, 0, 0]
    assert groups["prompt alone"] | {"groups": ["prompt"], "width": 1} == groups["prompt alone"]
    titles = ("Gain by state groups", "left out of training", "Learning curve", "decodes paid")
    for title in (*titles, "cross-fitted"):
        assert title in out
    text = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert values["verdict"]["reason"] in text
    assert "At equal decode budget" in text
    assert "all but last_hidden" in text


@pytest.mark.slow
def test_a_bandit_pays_for_every_decision(capsys, tmp_path):
    synthetic_table(n=250).save(tmp_path / "s")
    argv = ["--sweep", str(tmp_path / "s"), "--algos", "linucb", "--seeds", "1", "--budget-curve"]
    values = numbers(capsys, *argv)
    prompts = values["split"]["train_prompts"]
    decode, replay = (values["budget_curves"][price]["linucb"] for price in ("decode", "replay"))
    planned = make_agent("linucb").planned_timesteps
    # A decode with the chosen size and one with the best fixed size per decision, and all sizes of
    # every training prompt to find the best fixed one.
    assert decode[-1]["decodes"] == 2 * planned + len(ARMS) * prompts
    decodes = [point["decodes"] for point in decode]
    assert decodes == sorted(decodes)
    assert decodes[-2] == pytest.approx(planned / 2 + len(ARMS) * MIN_COUNT, rel=0.01)
    assert all(point["prompts"] <= min(prompts, point["decodes"] / 2) for point in decode)
    assert replay[-1]["decodes"] == prompts
    assert replay[-1]["gain"] == decode[-1]["gain"]


def test_the_papers_table_at_every_temperature(capsys, tmp_path):
    """The policies learn from rows of one temperature at a time."""
    table = synthetic_table(n=250)
    warm = dataclasses.replace(table, seconds=table.seconds * [1, 1, 1, 2, 4])
    joined(table, replicated(warm, 2)).save(tmp_path / "s")
    argv = ["--sweep", str(tmp_path / "s"), "--algos", "supervised", "--seeds", "1"]
    values = numbers(capsys, *argv, "--temperature", "all")
    cold, hot = values["paper_table"]["0"], values["paper_table"]["1"]
    greedy = numbers(capsys, *argv)
    assert greedy["split"]["test_rows"] == greedy["split"]["test_prompts"]
    for temperature in ("0", "1"):
        one, other = greedy["paper_table"][temperature], values["paper_table"][temperature]
        assert list(one) == list(other)
        assert one["oracle"] == other["oracle"]
    names = [
        "plain decoding",
        "drafter's training size",
        "best fixed",
        "paper's classifier, window",
        "paper's classifier, all sizes",
        "best policy, supervised",
        "oracle",
    ]
    assert list(cold) == names
    assert list(hot) == [*names, "oracle, by other samples"]
    assert (cold["best fixed"]["block_sizes"], hot["best fixed"]["block_sizes"]) == ("8", "4")
    assert cold["paper's classifier, window"]["block_sizes"] == "1, 16"
    test = table.split("test")
    assert cold["oracle"]["mean_speedup"] == pytest.approx(test.speedups.max(axis=1).mean())
    fast = warm.split("test").speedups.max(axis=1).mean()
    assert hot["oracle"]["mean_speedup"] == pytest.approx(fast)
    assert values["oracle"]["crossfit"] == pytest.approx(fast)
    assert values["split"]["test_rows"] == 3 * values["split"]["test_prompts"]
    only = numbers(
        capsys, "--sweep", str(tmp_path / "s"), *REGRESSION, "--seeds", "1", "--temperature", "1"
    )
    assert only["best_fixed"]["block_size"] == 4
    assert only["split"]["test_rows"] == 2 * only["split"]["test_prompts"]


def test_a_mixed_sweep_is_compared_on_its_greedy_rows(capsys, tmp_path):
    table, folder = synthetic_table(n=400), tmp_path / "s"
    mixed(table, 100, noise=0.2).save(folder)
    table.save(tmp_path / "greedy")
    argv = ["--sweep", str(folder), *REGRESSION, "--seeds", "1"]
    report = ["--report", str(tmp_path / "report"), "--json", str(tmp_path / "c.json")]
    assert main([*argv, *report]) == 0
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if line.startswith("Note: the sweep has")]
    assert "its 400 greedy rows of 600 are used" in line
    assert "Mean speedup by temperature" not in out
    for title in ("Mean speedup by block size", "Off-policy estimates from 20 logs"):
        assert title in out
    values = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    assert values["split"]["test_rows"] == values["split"]["test_prompts"]
    assert line.removeprefix("Note: ") in (tmp_path / "report" / "report.md").read_text("utf-8")
    alone = numbers(capsys, "--sweep", str(tmp_path / "greedy"), *argv[2:])
    assert alone["notes"] == values["notes"][1:]
    assert alone["oracle"] == values["oracle"]
    assert main([*argv, "--temperature", "all", "--json"]) == 0
    out, err = capsys.readouterr()
    split = json.loads(out)["split"]
    assert split["test_rows"] > split["test_prompts"]
    assert "Mean speedup by temperature" in err
    assert "greedy rows of" not in err
    assert f"{split['test_prompts']} test prompts ({split['test_rows']} rows)" in err


def test_notes_of_the_agents_are_printed_once(capsys, tmp_path):
    synthetic_table(n=200).save(tmp_path / "s")
    argv = ["--sweep", str(tmp_path / "s"), *REGRESSION, "--seeds", "3", "--json"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    (note,) = json.loads(out)["notes"]
    assert "learns from all training and validation prompts" in note
    assert err.count(note) == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--algos", "suprvised,all"], "--algos must be one of all, ppo, a2c"),
        (["--algos", "suprvised"], "Did you mean 'supervised'?"),
        (["--arms", "1,3"], "block size 3 is not an arm"),
        (["--arms", "2,4"], "begin with 1"),
        (["--arms", "1,b"], "--arms must be whole numbers"),
        (["--state-groups", "last_hiden"], "Did you mean 'last_hidden'?"),
        (["--state-groups", "draft"], "were not recorded"),
        (["--state-groups", ""], "no state group given"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--seed", "-1"], "--seed must be at least 0"),
        (["--seed", "4294967290"], "passes the largest seed, 4294967295"),
        (["--algos", ""], "--algos names no agent"),
        (["--family-margin", "nan"], "--family-margin must be at least 0 and below inf, got nan"),
        (["--family-margin", "inf"], "--family-margin must be at least 0 and below inf, got inf"),
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["--ablation", "suprvised"], "Did you mean 'supervised'?"),
        (["--ablation", "oracle"], "'oracle'"),
        (["--arms", "1,2", "--window", "4"], "arms and window both choose"),
        (["--window", "-1"], "--window must be at least 0"),
        (["--paper-window", "-1"], "--paper-window must be at least 0"),
        (["--family-margin", "-0.1"], "--family-margin must be at least 0"),
        (["--temperature", "-1"], "temperature must be 0 or more, or all"),
        (["--temperature", "0.7"], "temperature 0.7 was not recorded; the sweep has 0"),
        (["--temperature", "warm"], "--temperature must be a number or all, got 'warm'"),
        (["--confidence", "95"], "--confidence must be above 0 and below 1"),
        (["--shufle-states"], "Did you mean '--shuffle-states'?"),
        (["--json", "{folder}"], "is a folder"),
        (["--report", "{file}"], "is a file"),
        (["--json", "{folder}/x", "--report", "{folder}/x"], "json and report both name"),
        (["--sweep", "{folder}/nowhere"], "no sweep at"),
        (["--conf-file", "{folder}/nowhere.yml"], "cannot read hyperparameters"),
    ],
)
def test_bad_input_is_one_clear_line(sweep, capsys, tmp_path, argv, message):
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    filled = [word.format(folder=tmp_path, file=file) for word in argv]
    assert message in complaint(capsys, "--sweep", sweep, *filled)
    assert list(tmp_path.iterdir()) == [file]


def test_the_script_runs_the_command(sweep, capsys, monkeypatch):
    script = Path(__file__).parents[2] / "scripts" / "compare.py"
    monkeypatch.setattr("sys.argv", [str(script), "--sweep", sweep, "--algos", "oracle"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(script), run_name="__main__")
    assert stopped.value.code == 0
    assert "Verdict: ship fixed block size 8" in capsys.readouterr().out


def command_line(sweep: str, *argv: str) -> list[str]:
    program = "import sys; from blockpilot_rl.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-c", program, "compare", "--sweep", sweep, *argv]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("closed", "extra"),
    [
        ("stdout", ["--json", "{folder}/c.json", "--report", "{folder}/report"]),
        ("stdout", ["--json", "--report", "{folder}/report"]),
        ("stderr", ["--json", "{folder}/c.json", "--report", "{folder}/report"]),
        ("stderr", ["--json", "--report", "{folder}/report"]),
    ],
)
def test_a_closed_pipe_loses_no_results(sweep, tmp_path, closed, extra):
    """The files are complete when printing begins."""
    words = [word.format(folder=tmp_path) for word in extra]
    with tempfile.TemporaryFile() as other:
        streams = {"stdout": other, "stderr": other, closed: subprocess.PIPE}
        running = subprocess.Popen(command_line(sweep, "--algos", "fixed", *words), **streams)
        getattr(running, closed).close()
        code = running.wait()
        other.seek(0)
        text = other.read().decode()
    if closed == "stdout":
        assert code == 141
        assert text == "" or "--json" in words[:1]
    assert "Traceback" not in text
    assert (tmp_path / "report" / "report.html").is_file()
    if words[1].endswith("c.json"):
        values = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
        assert values["verdict"]["ship"] == "fixed"


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "latin-1"])
def test_a_stream_that_cannot_encode_loses_no_results(sweep, tmp_path, encoding):
    file, report = tmp_path / "c.json", tmp_path / "report"
    argv = ["--algos", "fixed", "--json", str(file), "--report", str(report)]
    ended = subprocess.run(
        command_line(sweep, *argv),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"Verdict: ship fixed block size 8" in ended.stdout
    assert json.loads(file.read_text(encoding="utf-8"))["verdict"]["ship"] == "fixed"
    assert (report / "report.md").is_file()


def processes_with(value: str) -> list[int]:
    """Processes that have a value in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if value.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_signal_leaves_no_processes_and_no_files(sweep, tmp_path, number, code, jobs):
    temporary, out = tmp_path / "temporary", tmp_path / "out"
    temporary.mkdir()
    out.mkdir()
    argv = ["--algos", "ppo", "--seeds", "2", "--jobs", jobs]
    argv += ["--json", str(out / "c.json"), "--report", str(out / "report")]
    running = subprocess.Popen(
        command_line(sweep, *argv),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    deadline = time.monotonic() + 60
    while len(processes_with(str(temporary))) < (1 if jobs == "1" else 4):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(8 if jobs == "1" else 1)
    running.send_signal(number)
    _, err = running.communicate(timeout=60)
    assert running.returncode == code
    assert "Traceback" not in err
    while processes_with(str(temporary)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    left = {path.name for path in out.rglob("*.*")}
    if number == signal.SIGKILL:
        assert left <= {".report.html.lock"}  # it locks nothing once its process has ended
    else:
        assert not left
        assert not list(temporary.glob("blockpilot-*"))


QUICK = ("--algos", "ridge-regression", "--seeds", "1", "--jobs", "1")


def test_json_on_standard_output_comes_before_tables_that_cannot_be_printed(
    sweep, capsys, monkeypatch
):
    def fail(*_):
        raise BrokenPipeError

    monkeypatch.setattr("blockpilot_rl.cli.comparisons.print_comparison", fail)
    assert main(["--sweep", sweep, *QUICK, "--json"]) == 141
    assert "agents" in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("blocked", ["json", "report", "both"])
def test_results_that_cannot_be_saved_are_printed(blocked, sweep, capsys, tmp_path, monkeypatch):
    """As when the disk fills up while agents are trained."""

    def fail(*_):
        raise BlockPilotError("cannot write it: No space left on device")

    if blocked != "report":
        monkeypatch.setattr("blockpilot_rl.cli.comparisons.write_json", fail)
    if blocked != "json":
        monkeypatch.setattr("blockpilot_rl.reports.report.write_report", fail)
    paths = ["--json", str(tmp_path / "a.json"), "--report", str(tmp_path / "report")]
    assert main(["--sweep", sweep, *QUICK, *paths]) == 2
    out, err = capsys.readouterr()
    assert "Verdict" in out
    assert err.splitlines()[-1] == "error: cannot write it: No space left on device"


def test_of_two_comparisons_with_one_report_the_second_is_refused(sweep, capsys, tmp_path):
    report = tmp_path / "report"
    with locked(report / "report.html"):
        assert main(["--sweep", sweep, *QUICK, "--report", str(report)]) == 2
    assert "another process is writing" in capsys.readouterr().err
