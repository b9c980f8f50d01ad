from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from blockpilot_rl.agents import ALGORITHMS, load_agent
from blockpilot_rl.agents.fixed import FixedAgent
from blockpilot_rl.cli.train_agent import main
from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.provenance import sha256_file
from blockpilot_rl.sweeps.table import Sweep
from tests.agents.quick import BRIEF
from tests.evaluation.replicates import joined, replicated
from tests.synthetic import ARMS, synthetic_table

SCRIPT = Path(__file__).parents[2] / "scripts" / "train_agent.py"


def brief(algorithm):
    """Words that keep the training short."""
    pairs = [f"{name}:{value}" for name, value in BRIEF[algorithm].items()]
    return ["-params", *pairs] if pairs else []


QUICK_PPO = ["-params", "n_timesteps:8192", "n_envs:128", "batch_size:128", "eval_freq:2048"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "sweep"
    synthetic_table(500).save(folder)
    return folder


@pytest.fixture
def train(sweep, tmp_path):
    """Train with `main`; returns the exit code. Runs go below `logs`."""

    def call(*words):
        return main(["--sweep", str(sweep), "-f", str(tmp_path / "logs"), *map(str, words)])

    return call


def folder(tmp_path, algorithm, number=1):
    return tmp_path / "logs" / algorithm / f"BlockSize-v0_{number}"


def curves(path):
    return EventAccumulator(str(path)).Reload().Tags()["scalars"]


def test_leaves_a_complete_run(train, tmp_path, sweep, capsys):
    assert train("--algo", "ppo", "--seed", 3, *QUICK_PPO) == 0
    run = folder(tmp_path, "ppo")
    assert {path.name for path in run.iterdir() if "tfevents" not in path.name} == {
        "agent.json",
        "args.yml",
        "best_model.zip",
        "command.txt",
        "config.yml",
        "decisions.parquet",
        "evaluations.json",
        "last_model.zip",
        "model",
        "provenance.json",
        "training.pt",
    }
    arguments = yaml.safe_load((run / "args.yml").read_text(encoding="utf-8"))
    assert (arguments["algo"], arguments["seed"], arguments["sweep"]) == ("ppo", 3, str(sweep))
    config = yaml.safe_load((run / "config.yml").read_text(encoding="utf-8"))
    assert (config["n_timesteps"], config["n_envs"]) == (8192, 128)
    origin = json.loads((run / "provenance.json").read_text(encoding="utf-8"))
    assert origin["sweep"]["sha256"] == sha256_file(sweep / "sweep.parquet")
    assert origin["sweep"]["train_prompts"] == len(Sweep.load(sweep).split("train"))
    assert {"validation/reward", "validation/regret", "train/loss"} <= set(curves(run))
    evaluations = json.loads((run / "evaluations.json").read_text(encoding="utf-8"))
    assert len(evaluations["history"]) == 4
    best = max(entry["reward"] for entry in evaluations["history"])
    assert evaluations["result"]["reward"] == best
    printed = capsys.readouterr().out
    for part in (f"{best:.3f}×", "best fixed size (", "oracle", f"export-policy {run} --out"):
        assert part in printed


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_leaves_a_run(algorithm, train, tmp_path, sweep):
    assert train("--algo", algorithm, *brief(algorithm)) == 0
    run = folder(tmp_path, algorithm)
    assert "validation/gap_closed" in curves(run)
    test = Sweep.load(sweep).split("test")
    assert len(load_agent(run).choose(test)) == len(test)


def test_same_seed_same_policy(train, tmp_path):
    for seed in (0, 0, 1):
        assert train("--algo", "ppo", "--seed", seed, "--verbose", 0, *QUICK_PPO) == 0
    first, second, other = (
        load_agent(folder(tmp_path, "ppo", number)).to_policy().state_dict() for number in (1, 2, 3)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["net.0.weight"], other["net.0.weight"])


def test_numbers_count_up_and_nothing_is_overwritten(train, tmp_path):
    assert train("--algo", "fixed") == 0
    before = (folder(tmp_path, "fixed") / "agent.json").stat()
    folder(tmp_path, "fixed", 7).mkdir()
    (tmp_path / "logs" / "fixed" / "BlockSize-v0_9x").mkdir()
    assert train("--algo", "fixed") == 0
    assert (folder(tmp_path, "fixed", 8) / "agent.json").is_file()
    assert (folder(tmp_path, "fixed") / "agent.json").stat() == before


def test_hyperparameters_come_from_file_pairs_and_flags(train, tmp_path):
    """A separate flag wins over the pair, the pair over the file, the file over the defaults."""
    file = tmp_path / "mine.yml"
    file.write_text("n_envs: 64\nn_steps: 2\nbatch_size: 64\nent_coef: 0.5\n", encoding="utf-8")
    pairs = ["-params", "n_steps:4", "n_timesteps:9999", "hidden:[8]", "learning_rate:1e-3"]
    assert train("-conf", file, *pairs, "-n", 512, "--eval-freq", 256) == 0
    settings = load_agent(folder(tmp_path, "ppo")).hyperparams
    assert (settings.n_envs, settings.n_steps, settings.ent_coef) == (64, 4, 0.5)
    assert (settings.n_timesteps, settings.eval_freq) == (512, 256)
    assert (settings.hidden, settings.learning_rate) == ((8,), 0.001)


def test_the_window_around_the_training_size(train, tmp_path):
    """The recorded sizes within B-k..B+k, and plain decoding, which rewards refer to."""
    assert train("--algo", "fixed", "--window", 8) == 0
    assert load_agent(folder(tmp_path, "fixed")).problem.arms == (1, 8, 16)
    assert train("--algo", "fixed", "--window", 0) == 0
    assert load_agent(folder(tmp_path, "fixed", 2)).problem.arms == (1, 16)
    assert train("--algo", "fixed", "--window", 15) == 0
    assert load_agent(folder(tmp_path, "fixed", 3)).problem.arms == ARMS


def test_the_confidence_of_the_first_block_is_a_state_group(tmp_path):
    """The group `draft`, if the sweep has it."""
    table = synthetic_table(300)
    groups = (*table.metadata.state.groups, ("draft", 15))
    confidence = np.random.default_rng(0).uniform(size=(300, 15)).astype(np.float32)
    dataclasses.replace(
        table,
        metadata=dataclasses.replace(table.metadata, state=StateLayout(groups)),
        states=np.concatenate([table.states, confidence], axis=1),
    ).save(tmp_path / "sweep")
    words = ["--sweep", str(tmp_path / "sweep"), "-f", str(tmp_path / "logs")]
    assert main([*words, "--algo", "reward-regression", "--features", "draft,prompt"]) == 0
    agent = load_agent(folder(tmp_path, "reward-regression"))
    assert agent.problem.state.groups == (("draft", 15), ("prompt", 1))
    assert agent.policy.net[0].weight[:, :15].abs().sum() > 0


@pytest.mark.parametrize("algorithm", ["linucb", "a2c"])
def test_a_finished_run_can_be_continued(algorithm, train, tmp_path):
    """As in rl-zoo, `-i RUN`; two halves are as good as the whole."""
    words = ["--algo", algorithm, "--seed", 4, "--arms", "1,4,16", *brief(algorithm)]
    assert train(*words) == 0
    assert train(*words, "-n", 640) == 0
    half = folder(tmp_path, algorithm, 2)
    logs = str(tmp_path / "logs")
    assert main(["--algo", algorithm, "-i", str(half), "-n", "640", "-f", logs]) == 0
    whole, resumed = (load_agent(folder(tmp_path, algorithm, number)) for number in (1, 3))
    assert (resumed.seed, resumed.problem.arms) == (4, (1, 4, 16))
    assert resumed.num_timesteps == whole.num_timesteps == 1280
    ours, theirs = resumed.to_policy().state_dict(), whole.to_policy().state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_run_keeps_its_settings(train, tmp_path, capsys):
    assert train("--algo", "linucb", *brief("linucb")) == 0
    run = folder(tmp_path, "linucb")
    for words, message in (
        (["--algo", "lints"], "holds a linucb, not a lints; give --algo linucb"),
        (["--algo", "linucb", "--arms", "1,4"], "--arms cannot be given"),
        (["--algo", "linucb", "-params", "width:2"], "--hyperparams cannot be given"),
        (["--algo", "linucb", "--state-groups", "prompt"], "--state-groups cannot be given"),
        (["--algo", "linucb", "-conf", "x.yml"], "--conf-file cannot be given"),
        (["--algo", "linucb", "-optimize"], "--optimize-hyperparameters cannot be given"),
    ):
        assert train("-i", run, *words) == 2
        assert message in capsys.readouterr().err
    assert train("-i", tmp_path / "nowhere", "--algo", "linucb") == 2
    assert "no run at" in capsys.readouterr().err


def test_arms_and_state_groups(train, tmp_path):
    assert train("--algo", "fixed", "--arms", "1,4,16", "--features", "prompt,next_token") == 0
    problem = load_agent(folder(tmp_path, "fixed")).problem
    assert problem.arms == (1, 4, 16)
    assert problem.state.names == ("prompt", "next_token")


def test_optimize_leaves_the_best_hyperparameters(train, tmp_path, capsys):
    """And `--conf-file` takes them; what was given is not searched."""
    words = ["-optimize", "--n-trials", 4, "--n-startup-trials", 2, "-params", "n_timesteps:640"]
    assert train("--algo", "linucb", "--seed", 2, *words, "eval_freq:320") == 0
    found = tmp_path / "logs" / "linucb" / "optimize_1"
    assert {path.name for path in found.iterdir()} == {
        "args.yml",
        "best.yml",
        "command.txt",
        "trials.csv",
    }
    trials = pd.read_csv(found / "trials.csv")
    assert len(trials) == 4
    best = yaml.safe_load((found / "best.yml").read_text(encoding="utf-8"))
    row = trials.loc[trials["value"].idxmax()]
    assert best["alpha"] == pytest.approx(row["params_alpha"])
    assert (best["n_timesteps"], best["eval_freq"]) == (640, 320)
    printed = capsys.readouterr().out
    assert f"{row['value']:.3f}×" in printed
    assert f"--conf-file {found / 'best.yml'}" in printed
    assert train("--algo", "linucb", "--seed", 2, "-conf", found / "best.yml") == 0
    run = folder(tmp_path, "linucb")
    evaluations = json.loads((run / "evaluations.json").read_text(encoding="utf-8"))
    assert evaluations["result"]["reward"] == pytest.approx(row["value"])


def test_events_elsewhere(train, tmp_path):
    assert train("--algo", "fixed", "-tb", tmp_path / "events") == 0
    assert "validation/reward" in curves(tmp_path / "events" / "fixed" / "BlockSize-v0_1")
    assert not list(folder(tmp_path, "fixed").glob("*tfevents*"))


def test_saved_arguments_train_the_same_again(train, tmp_path):
    assert train("--algo", "reward-regression", "--seed", 5) == 0
    run = folder(tmp_path, "reward-regression")
    assert main(["--config", str(run / "args.yml")]) == 0
    again = load_agent(folder(tmp_path, "reward-regression", 2))
    assert again.seed == 5
    ours, theirs = again.policy.state_dict(), load_agent(run).policy.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_quiet(train, capsys):
    assert train("--algo", "fixed", "--verbose", 0) == 0
    assert capsys.readouterr() == ("", "")


def test_progress_goes_to_standard_error(train, capsys, monkeypatch):
    monkeypatch.setattr("blockpilot_rl.cli.console._SILENCE_SECONDS", 0)
    assert train("--algo", "supervised", "-P", "-params", "epochs:3") == 0
    captured = capsys.readouterr()
    assert "supervised: 3 of 3" in captured.err
    assert "3 of 3" not in captured.out


def test_too_few_validation_prompts_are_noted(tmp_path, caplog):
    table = synthetic_table(60)
    table.select_rows((table.rows["split"] != "validation").to_numpy()).save(tmp_path / "sweep")
    words = ["--algo", "fixed", "--sweep", str(tmp_path / "sweep"), "-f", str(tmp_path / "logs")]
    assert main(words) == 0
    saved = (folder(tmp_path, "fixed") / "evaluations.json").read_text(encoding="utf-8")
    assert "held-out training prompts" in json.loads(saved)["notes"][0]
    assert "held-out training prompts" in caplog.text


def test_prompts_are_counted_once(tmp_path):
    """Even if the sweep has several answers to each."""
    table = synthetic_table(100)
    replicated(table, 2).save(tmp_path / "sweep")
    words = ["--algo", "fixed", "--sweep", str(tmp_path / "sweep"), "-f", str(tmp_path / "logs")]
    assert main(words) == 0
    saved = (folder(tmp_path, "fixed") / "provenance.json").read_text(encoding="utf-8")
    sweep = json.loads(saved)["sweep"]
    assert sweep["train_prompts"] == len(table.split("train"))
    assert sweep["validation_prompts"] == len(table.split("validation"))


def test_the_temperature_to_learn_from(tmp_path, capsys):
    """Greedy rows by default; a continued run keeps its own."""
    table = synthetic_table(250)
    warm = dataclasses.replace(table, seconds=table.seconds * [1, 1, 1, 2, 4])
    joined(table, replicated(warm, 2)).save(tmp_path / "sweep")
    sweep = ["--sweep", str(tmp_path / "sweep")]
    words = ["--algo", "linucb", *brief("linucb"), "-f", str(tmp_path / "logs")]
    for number, (flag, size, temperatures) in enumerate(
        (
            ([], 8, [0.0]),
            (["--temperature", "1"], 4, [1.0]),
            (["--temperature", "all"], 4, [0.0, 1.0]),
        ),
        start=1,
    ):
        assert main([*words, *sweep, *flag]) == 0
        assert capsys.readouterr().out.count("its 250 greedy rows of 750 are used") == (not flag)
        run = folder(tmp_path, "linucb", number)
        assert load_agent(run).problem.best_fixed == size
        origin = json.loads((run / "provenance.json").read_text(encoding="utf-8"))["sweep"]
        assert origin["temperatures"] == temperatures
        assert origin["train_prompts"] == len(table.split("train"))
    further = ["--algo", "linucb", "-n", "640", "-f", str(tmp_path / "logs")]
    for number in (4, 5):
        # The second continues the first, which named neither sweep nor temperature.
        before = folder(tmp_path, "linucb", 2 if number == 4 else 4)
        assert main([*further, "-i", str(before)]) == 0
        saved = folder(tmp_path, "linucb", number) / "provenance.json"
        origin = json.loads(saved.read_text(encoding="utf-8"))["sweep"]
        assert (origin["name"], origin["temperatures"]) == ("sweep", [1.0])


def test_an_interrupted_run_does_not_look_complete(train, tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(FixedAgent, "_fit", interrupted)
        assert train("--algo", "fixed") == 130
    with pytest.raises(BlockPilotError, match="training did not finish"):
        load_agent(folder(tmp_path, "fixed"))
    assert train("--algo", "fixed") == 0
    assert load_agent(folder(tmp_path, "fixed", 2)).algorithm == "fixed"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algo", "pppo"], "Did you mean 'ppo'"),
        (["--algos", "ppo"], "Did you mean '--algo'"),
        (["--state-groups", "last_hiden"], "Did you mean 'last_hidden'"),
        (["--state-groups", "draft"], "not recorded"),
        (["--arms", "1,three"], "--arms must be whole numbers"),
        (["--arms", "1,3"], "block size 3 is not an arm"),
        (["--arms", "4,8"], "begin with 1"),
        (["--arms", "1,4", "--window", "8"], "arms and window"),
        (["--window", "-1"], "window -1"),
        (["--temperature", "1"], "temperature 1 was not recorded; the sweep has 0"),
        (["--temperature", "hot"], "temperature must be 0 or more, or all, got 'hot'"),
        (["-optimize", "--sampler", "grid"], "--sampler"),
        (["-optimize", "--pruner", "hard"], "--pruner"),
        (["-optimize", "--n-trials", "0"], "--n-trials must be at least 1"),
        (["-optimize", "--algo", "fixed"], "fixed has no hyperparameters to optimize"),
        (["-optimize", "-params", "lr:1"], "ppo has no hyperparameter 'lr'"),
        (["-params", "lr:1"], "ppo has no hyperparameter 'lr'"),
        (["-params", "learning_rate"], "--hyperparams must be KEY:VALUE"),
        (["-params", "hidden:[8"], "--hyperparams hidden:[8: the value is not YAML"),
        (["-conf", "nowhere.yml"], "cannot read hyperparameters nowhere.yml"),
        (["--algo", "fixed", "-n", "100"], "fixed has no hyperparameter 'n_timesteps'"),
        (["--sweep", "nowhere"], "no sweep at nowhere"),
        (["--seed", "-1"], "seed must be 0 or more"),
        (["--seed", "one"], "--seed"),
        (["--seed", "4294967296"], "at most 4294967295"),
        (["--device", "gpu7"], "models cannot run on gpu7"),
        (["--device", "meta"], "models cannot run on meta"),
        (["-params", "learning_rate:inf"], "learning_rate must be a finite number"),
        (["-params", "n_steps:.inf"], "has no JSON counterpart"),
        (["-params", "hidden:1000000000000"], "at most 65536"),
        (["-params", "learning_rate:2020-13-45"], "the value is not YAML"),
        (["-tb", f"{__file__}/events"], "cannot create the folder"),
        (["--verbose", "7"], "--verbose"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(train, tmp_path, capsys, words, message):
    assert train(*words) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not (tmp_path / "logs").exists()


def test_corrupt_sweep(train, sweep, tmp_path, capsys):
    broken = shutil.copytree(sweep, tmp_path / "broken")
    (broken / "sweep.parquet").write_bytes(b"PAR1 nonsense")
    assert train("--sweep", broken) == 2
    assert "is corrupt" in capsys.readouterr().err


def test_log_folder_is_a_file(train, tmp_path, capsys):
    (tmp_path / "logs").write_text("", encoding="utf-8")
    assert train("--algo", "fixed") == 2
    assert "cannot create a run folder" in capsys.readouterr().err


@pytest.mark.slow
def test_script(sweep, tmp_path):
    result = subprocess.run(
        [sys.executable, SCRIPT, "--algo", "reward-regression", "--sweep", sweep],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "saved: logs/reward-regression/BlockSize-v0_1" in result.stdout
    command = (folder(tmp_path, "reward-regression") / "command.txt").read_text(encoding="utf-8")
    assert "train_agent.py --algo reward-regression" in command
    assert np.isfinite(load_agent(folder(tmp_path, "reward-regression")).problem.best_fixed)
