"""Run folders: interrupted trainings are finished, and folders from others run no code."""

from __future__ import annotations

import base64
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from blockpilot_rl.agents import load_agent
from blockpilot_rl.agents.training_loop import TRAINING_FILE
from blockpilot_rl.agents.tuning import TuningConfig
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.experiments import training
from blockpilot_rl.experiments.export import export_policy
from blockpilot_rl.experiments.run_folder import (
    CHECKPOINT_FOLDER,
    PROGRESS_FILE,
    remove_checkpoint,
)
from blockpilot_rl.experiments.training import TrainAgentConfig, train_agent
from blockpilot_rl.files import read_json
from tests.agents.quick import BRIEF
from tests.synthetic import synthetic_table

STEPWISE = ("ppo", "dqn", "lints", "neural-linear", "supervised")
SB3 = ("ppo", "a2c", "dqn")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "sweep"
    synthetic_table(400).save(folder)
    return folder


def config(folder, algorithm, **changes):
    return TrainAgentConfig(
        algo=algorithm,
        log_folder=str(folder),
        **{"hyperparams": BRIEF[algorithm], "save_freq": 64, **changes},
    )


def same_policy(left, right):
    ours, theirs = (load_agent(run).to_policy().state_dict() for run in (left, right))
    return all(torch.equal(ours[name], theirs[name]) for name in theirs)


class Stopped(BaseException):
    """Ends a training as a signal does."""


def interrupt(sweep, folder, algorithm, after, **changes):
    """Train until the progress was reported `after` times; returns the run folder."""
    reports = []

    def stop(task, done, total):
        reports.append(done)
        if len(reports) == after:
            raise Stopped

    with pytest.raises(Stopped):
        train_agent(sweep, config(folder, algorithm, **changes), progress=stop)
    return folder / algorithm / "BlockSize-v0_1"


@pytest.mark.parametrize("after", [1, 2])
@pytest.mark.parametrize("algorithm", STEPWISE)
def test_an_interrupted_run_ends_as_if_it_had_not_been(algorithm, after, sweep, tmp_path):
    save_freq = 1 if algorithm == "supervised" else 64
    whole = train_agent(sweep, config(tmp_path / "a", algorithm, save_freq=save_freq))
    run = interrupt(sweep, tmp_path / "b", algorithm, after, save_freq=save_freq)
    with pytest.raises(BlockPilotError, match="finish it with `blockpilot train-agent -i"):
        load_agent(run)
    finished = train_agent(config=TrainAgentConfig(algo=algorithm, trained_agent=str(run)))
    assert finished.folder == run
    assert same_policy(run, whole.folder)
    for name in ("evaluations.json", "config.yml"):
        assert (run / name).read_bytes() == (whole.folder / name).read_bytes()
    ours, theirs = load_agent(run), load_agent(whole.folder)
    if ours.decisions is not None:
        assert ours.decisions.frame().equals(theirs.decisions.frame())
    assert not (run / "checkpoint").exists()


@pytest.mark.parametrize("algorithm", ["ridge-regression", "fixed", "oracle", "linucb"])
def test_a_run_without_a_checkpoint_starts_again(algorithm, sweep, tmp_path):
    whole = train_agent(sweep, config(tmp_path, algorithm))
    run = tmp_path / algorithm / "BlockSize-v0_2"
    shutil.copytree(whole.folder, run)
    for name in ("agent.json", "evaluations.json", TRAINING_FILE):
        (run / name).unlink(missing_ok=True)
    finished = train_agent(config=TrainAgentConfig(algo=algorithm, trained_agent=str(run)))
    assert finished.score == whole.score


def test_an_unfinished_run_checks_what_it_resumes(sweep, tmp_path):
    run = interrupt(sweep, tmp_path, "lints", 1)
    name = str(run)
    for changes, message in (
        ({"algo": "linucb"}, "holds a lints, not a linucb"),
        ({"n_timesteps": 64}, "n_timesteps cannot be given"),
        ({"log_folder": "elsewhere"}, "log_folder cannot be given"),
        ({"temperature": 0}, "temperature cannot be given"),
        ({"save_freq": 1}, "save_freq cannot be given"),
        ({"seed": 1}, "seed cannot be given"),
    ):
        with pytest.raises(BlockPilotError, match=message):
            train_agent(
                config=TrainAgentConfig(**{"algo": "lints", "trained_agent": name, **changes})
            )
    other = tmp_path / "other"
    synthetic_table(400, seed=1).save(other)
    with pytest.raises(BlockPilotError, match="was started on another sweep"):
        train_agent(other, TrainAgentConfig(algo="lints", trained_agent=name))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"until": "x"}'])
def test_a_damaged_checkpoint_is_named(content, sweep, tmp_path):
    run = interrupt(sweep, tmp_path, "lints", 1)
    (run / "checkpoint" / "progress.json").write_bytes(content)
    with pytest.raises(BlockPilotError, match=r"progress\.json"):
        train_agent(config=TrainAgentConfig(algo="lints", trained_agent=str(run)))


def test_a_sweep_in_memory_must_be_given_again(tmp_path):
    table = synthetic_table(300)
    run = interrupt(table, tmp_path, "linucb", 1)
    with pytest.raises(BlockPilotError, match="sweep in memory"):
        train_agent(config=TrainAgentConfig(algo="linucb", trained_agent=str(run)))
    finished = train_agent(table, TrainAgentConfig(algo="linucb", trained_agent=str(run)))
    assert finished.agent.num_timesteps == BRIEF["linucb"]["n_timesteps"]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "lints", "supervised"])
def test_a_killed_command_ends_as_if_it_had_not_been(algorithm, sweep, tmp_path):
    """SIGKILL at random moments, three times."""
    hyperparams = dict(BRIEF[algorithm])
    hyperparams.update({"epochs": 60} if algorithm == "supervised" else {"n_timesteps": 20480})
    whole = train_agent(sweep, config(tmp_path / "a", algorithm, hyperparams=hyperparams))
    program = "import sys; from blockpilot_rl.cli.train_agent import main; sys.exit(main())"
    words = [sys.executable, "-c", program, "--algo", algorithm]
    pairs = [f"{name}:{json.dumps(value)}" for name, value in hyperparams.items()]
    start = [
        "--sweep",
        str(sweep),
        "-f",
        str(tmp_path / "b"),
        "--save-freq",
        "64",
        "-params",
        *pairs,
    ]
    run = tmp_path / "b" / algorithm / "BlockSize-v0_1"
    moments = random.Random(algorithm)
    arguments = start
    for _ in range(3):
        process = subprocess.Popen([*words, *arguments], stderr=subprocess.DEVNULL)
        while not (run / "args.yml").exists():
            time.sleep(0.01)
            assert process.poll() is None
        time.sleep(moments.uniform(0, 3))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        arguments = ["-i", str(run)]
        if (run / "agent.json").exists():
            break
    else:
        subprocess.run([*words, *arguments], check=True)
    assert same_policy(run, whole.folder)
    assert read_json(run / "evaluations.json") == read_json(whole.folder / "evaluations.json")


class Malicious:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


def replace_entry(archive, name, content):
    with zipfile.ZipFile(archive) as old:
        entries = {entry: old.read(entry) for entry in old.namelist()}
    with zipfile.ZipFile(archive, "w") as new:
        for entry, data in {**entries, name: content}.items():
            new.writestr(entry, data)


def poison(run, algorithm, trap):
    """Put pickles that create `trap` into every file that Stable-Baselines3 or torch reads."""
    for archive in (run / "last_model.zip", run / "best_model.zip"):
        with zipfile.ZipFile(archive) as old:
            data = json.loads(old.read("data"))
        code = base64.b64encode(pickle.dumps(Malicious(trap))).decode()
        for entry in data.values():
            if isinstance(entry, dict) and ":serialized:" in entry:
                entry[":serialized:"] = code
        data["extra"] = {":type:": "x", ":serialized:": code}
        replace_entry(archive, "data", json.dumps(data).encode())
    (run / "replay_buffer.pkl").write_bytes(pickle.dumps(Malicious(trap)))


@pytest.mark.parametrize("algorithm", SB3)
def test_a_run_folder_runs_no_code(algorithm, sweep, tmp_path):
    """Neither export nor resuming unpickles what Stable-Baselines3 would, and both work."""
    run = train_agent(sweep, config(tmp_path, algorithm, n_timesteps=640)).folder
    whole = train_agent(sweep, config(tmp_path, algorithm)).folder
    trap = tmp_path / "trap"
    poison(run, algorithm, trap)
    export_policy(run, tmp_path / "policy")
    again = TrainAgentConfig(
        algo=algorithm, trained_agent=str(run), n_timesteps=640, log_folder=str(tmp_path)
    )
    # Of the same length, exploration of dqn falls over fewer planned decisions.
    resumed = train_agent(config=again).folder
    assert algorithm == "dqn" or same_policy(resumed, whole)
    assert not trap.exists()


@pytest.mark.parametrize("name", ["policy.pth", "policy.optimizer.pth"])
@pytest.mark.parametrize("algorithm", SB3)
def test_pickles_in_the_place_of_tensors_are_refused(algorithm, name, sweep, tmp_path):
    run = train_agent(sweep, config(tmp_path, algorithm, n_timesteps=64)).folder
    trap = tmp_path / "trap"
    file = tmp_path / "poisoned"
    torch.save({"weights": Malicious(trap)}, file)
    replace_entry(run / "last_model.zip", name, file.read_bytes())
    with pytest.raises(BlockPilotError, match=r"last_model\.zip is missing or corrupt"):
        load_agent(run)
    assert not trap.exists()


@pytest.mark.parametrize("algorithm", ["lints", "neural-linear", "supervised", "dqn"])
def test_pickles_in_the_place_of_training_states_are_refused(algorithm, sweep, tmp_path):
    run = train_agent(sweep, config(tmp_path, algorithm)).folder
    trap = tmp_path / "trap"
    names = [TRAINING_FILE, *(["replay_buffer.pt"] if algorithm == "dqn" else [])]
    for name in names:
        whole = (run / name).read_bytes()
        torch.save({"best": Malicious(trap)}, run / name)
        with pytest.raises(BlockPilotError, match=f"{name} is missing or corrupt"):
            load_agent(run)
        (run / name).write_bytes(whole)
    assert not trap.exists()


def test_a_pickled_replay_buffer_of_an_earlier_release_is_not_read(sweep, tmp_path):
    run = train_agent(sweep, config(tmp_path, "dqn", n_timesteps=640)).folder
    (run / "replay_buffer.pt").unlink()
    (run / "replay_buffer.pkl").write_bytes(pickle.dumps(Malicious(tmp_path / "trap")))
    export_policy(run, tmp_path / "policy")
    with pytest.raises(BlockPilotError, match=r"cannot be|not trained further"):
        train_agent(config=TrainAgentConfig(algo="dqn", trained_agent=str(run), n_timesteps=64))
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        ("supervised", {"hidden": [65536, 65536]}),
        ("ppo", {"hidden": [65536, 65536]}),
        ("neural-linear", {"hidden": [65536]}),
        ("bootstrapped", {"n_heads": 10**7}),
    ],
)
def test_sizes_in_an_agent_file_are_compared_before_memory_is_allocated(
    algorithm, changes, sweep, tmp_path
):
    run = train_agent(sweep, config(tmp_path, algorithm)).folder
    saved = read_json(run / "agent.json")
    saved["hyperparams"].update(changes)
    (run / "agent.json").write_text(json.dumps(saved), encoding="utf-8")
    before = peak_bytes()
    with pytest.raises(BlockPilotError, match=r"does not fit the policy|is missing or corrupt"):
        load_agent(run)
    assert peak_bytes() - before < 2**29


def peak_bytes():
    resource = pytest.importorskip("resource")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize(
    "algorithm", ["ppo", "a2c", "dqn", "supervised", "expected-reward", "network-regression"]
)
def test_training_that_diverges_keeps_its_best_candidate(algorithm, sweep, tmp_path, monkeypatch):
    """From some step on the learning rate is far too high."""
    from blockpilot_rl.agents import AGENTS

    kind = AGENTS[algorithm]
    advance = kind.advance
    calls = []

    def explode(self, until, monitor):
        calls.append(until)
        if len(calls) == 2:
            optimizer = self.model.policy.optimizer if hasattr(self, "model") else self.optimizer
            for group in optimizer.param_groups:
                group["lr"] = 1e30
            if hasattr(self, "model"):
                self.model.lr_schedule = lambda _: 1e30
        advance(self, until, monitor)

    healthy = train_agent(sweep, config(tmp_path / "a", algorithm, save_freq=-1))
    monkeypatch.setattr(kind, "advance", explode)
    run = train_agent(sweep, config(tmp_path / "b", algorithm, save_freq=-1))
    (note,) = [note for note in run.notes if "diverged" in note]
    assert "\n" not in note
    assert "best candidate" in note
    assert run.agent.diverged
    history = read_json(run.folder / "evaluations.json")["history"]
    first = read_json(healthy.folder / "evaluations.json")["history"][: len(history)]
    assert history == first
    for path in run.folder.rglob("*.pt"):
        assert all_finite(torch.load(path, weights_only=True))
    export_policy(run.folder, tmp_path / "policy")
    loaded = load_agent(run.folder)
    with pytest.raises(BlockPilotError, match=r"diverged after .* cannot be resumed"):
        train_agent(
            config=TrainAgentConfig(algo=algorithm, trained_agent=str(run.folder), n_timesteps=64)
        )
    assert np.isfinite(loaded.action_probabilities(synthetic_table(9).states)).all()


def all_finite(value):
    if isinstance(value, torch.Tensor):
        return not value.is_floating_point() or bool(value.isfinite().all())
    if isinstance(value, dict):
        return all(map(all_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(all_finite, value))


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "dqn", "supervised", "neural-linear"])
def test_training_that_diverges_at_once_is_one_line(algorithm, sweep, tmp_path):
    hyperparams = {**BRIEF[algorithm], "learning_rate": 1e30}
    with pytest.raises(BlockPilotError, match=r"diverged after .* lower learning rate") as refused:
        train_agent(sweep, config(tmp_path, algorithm, hyperparams=hyperparams))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["best_model.zip", "last_model.zip", "training.pt"])
def test_a_file_of_a_run_given_for_its_folder_is_one_helpful_line(name, sweep, tmp_path):
    run = train_agent(sweep, config(tmp_path, "ppo", n_timesteps=64)).folder
    for call in (
        lambda: export_policy(run / name, tmp_path / "policy"),
        lambda: train_agent(config=TrainAgentConfig(trained_agent=str(run / name))),
        lambda: load_agent(run / name),
    ):
        with pytest.raises(BlockPilotError, match=f"is a file; name its run folder, {run}"):
            call()


@pytest.mark.parametrize("foreign", ["mine.txt", "model/mine.txt", "mine/a.txt"])
def test_files_of_others_in_a_checkpoint_stay(foreign, tmp_path):
    for name in ("agent.json", "model/config.json"):
        for folder in (tmp_path, tmp_path / CHECKPOINT_FOLDER):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("{}", encoding="utf-8")
    checkpoint = tmp_path / CHECKPOINT_FOLDER
    (checkpoint / PROGRESS_FILE).write_text("{}", encoding="utf-8")
    (checkpoint / foreign).parent.mkdir(exist_ok=True)
    (checkpoint / foreign).write_text("mine", encoding="utf-8")
    remove_checkpoint(tmp_path)
    assert [path for path in checkpoint.rglob("*") if path.is_file()] == [checkpoint / foreign]
    (checkpoint / foreign).unlink()
    remove_checkpoint(tmp_path)
    assert not list(checkpoint.rglob("*.txt"))
    assert (tmp_path / "model/config.json").exists()


@pytest.mark.parametrize("blocked", ["logs", "logs/supervised", "above/logs"])
def test_a_search_checks_its_output_before_the_work(blocked, sweep, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "tune", lambda *_, **__: pytest.fail("searched"))
    file = tmp_path / (blocked if blocked != "above/logs" else "above")
    file.parent.mkdir(exist_ok=True)
    file.write_text("", encoding="utf-8")
    logs = tmp_path / ("above/logs" if blocked.startswith("above") else "logs")
    config = TrainAgentConfig(algo="supervised", log_folder=str(logs))
    with pytest.raises(BlockPilotError, match="cannot"):
        training.tune_agent(sweep, config, TuningConfig(n_trials=1))
