from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from blockpilot_rl.agents import load_agent
from blockpilot_rl.cli.console import run
from tests import benchmark_scripts
from tests.synthetic import ARMS, synthetic_table

SCRIPT = benchmark_scripts.load("agents")
WIDTH = 4096


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "sweep"
    synthetic_table(n=200).save(folder)
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"), [("linucb", 64), ("reward-regression", None), ("dqn", 4800)]
)
def test_learning_on_wide_states_takes_little_memory(sweep, tmp_path, name, steps):
    """Inverses took 134 MB per arm in fidelity/mabwiser#95; a copy of 4,800 states takes 79 MB."""
    config = SCRIPT.AgentsBenchmark(width=WIDTH, steps=steps, decisions=20, sweep=sweep)
    found = SCRIPT._in_own_process(config, name, tmp_path / name)
    assert 0 < found["learning_bytes"] < 64 * SCRIPT.MEBIBYTE
    assert found["steps"] == (steps or 0)


def test_decisions_on_wide_states(sweep, tmp_path):
    """They took milliseconds in fidelity/mabwiser#95."""
    config = SCRIPT.AgentsBenchmark(width=WIDTH, steps=64, decisions=20, sweep=sweep)
    policies = {}
    for name in ("fixed", "linucb"):
        found = SCRIPT.learn(config, name, tmp_path / name)
        policies[name] = load_agent(tmp_path / name).to_policy()
        assert policies[name].config.state.width == WIDTH + 4
        # The weights of every arm on every number, at the least.
        assert len(ARMS) * WIDTH * 4 < found["saved_bytes"] < 4e6
    seconds = SCRIPT.time_policies(policies, config)
    assert seconds["linucb"].shape == (20,)
    # As fast as a policy of the same shape that has learned nothing, but for a busy machine.
    assert SCRIPT.ratio(seconds["linucb"], seconds["fixed"])[0] < 3
    assert np.median(seconds["linucb"]) < 5e-3


def test_ratios_are_paired():
    """What slows both down at once does not count."""
    below = np.array([1.0, 2.0, 100.0, 4.0])
    median, low, high = SCRIPT.ratio(3 * below, below)
    assert (median, low, high) == (3, 3, 3)
    median, low, high = SCRIPT.ratio(np.array([2.0, 2.0, 400.0, 20.0]), below)
    assert median == pytest.approx(3)
    assert 1 <= low < median < high <= 5


@pytest.mark.slow
def test_the_record(sweep, tmp_path):
    words = ["--width", "64", "--steps", "64", "--decisions", "20", "--algos", "squarecb"]
    words += ["--sweep", sweep, "--json", str(tmp_path / "out.json")]
    script = benchmark_scripts.FOLDER / "agents.py"
    subprocess.run([sys.executable, script, *words], check=True, capture_output=True)
    record = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    median, low, high = record["ratios"]["squarecb / fixed"]
    assert 0 < low <= median <= high
    assert list(record["agents"]) == ["fixed", "squarecb"]
    for values in record["agents"].values():
        assert values["policy_bytes"] > 64 * 4
        assert values["decision_microseconds"] > 0
    assert record["settings"]["width"] == 64
    assert record["machine"]["versions"]["python"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--width", "0"], "--width must be positive"),
        (["--decisions", "1"], "--decisions at least 2"),
        (["--algos", "oracle"], "'oracle' is not an agent that can be deployed"),
    ],
)
def test_bad_flags(capsys, words, message):
    assert run(SCRIPT.main, SCRIPT.AgentsBenchmark, words) == 2
    assert message in capsys.readouterr().err
