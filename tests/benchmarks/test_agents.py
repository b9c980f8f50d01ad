from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from blockpilot_rl.agents import load_agent
from blockpilot_rl.cli.parsing import run
from tests import benchmark_scripts
from tests.synthetic import synthetic_table

SCRIPT = benchmark_scripts.load("agents")
WIDTH = 4096


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "sweep"
    synthetic_table(n=200).save(folder)
    return str(folder)


def test_memory_and_latency_on_wide_states(sweep, tmp_path):
    """Inverses took 134 MB per arm and milliseconds per decision in fidelity/mabwiser#95."""
    config = SCRIPT.AgentsBenchmark(width=WIDTH, steps=64, decisions=20, sweep=sweep)
    policies = {}
    for name in ("fixed", "linucb"):
        found = SCRIPT.learn(config, name, tmp_path / name)
        policies[name] = load_agent(tmp_path / name).to_policy()
        assert policies[name].config.state.width == WIDTH + 4
        assert 0 < found["saved_bytes"] < 4e6
        assert found["learning_bytes"] >= 0
    assert found["steps"] == 64
    seconds = SCRIPT.time_policies(policies, config)
    for name in policies:
        assert seconds[name].shape == (20,)
        assert (seconds[name] > 0).all()
    median, low, high = SCRIPT.ratio(2 * seconds["fixed"], seconds["fixed"])
    assert (median, low, high) == (2, 2, 2)
    assert SCRIPT.ratio(seconds["linucb"], seconds["fixed"])[0] == np.median(
        seconds["linucb"] / seconds["fixed"]
    )


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
        (["--algos", "oracle"], "'oracle' is no agent that can be deployed"),
    ],
)
def test_bad_flags(capsys, words, message):
    assert run(SCRIPT.main, SCRIPT.AgentsBenchmark, words) == 2
    assert message in capsys.readouterr().err
