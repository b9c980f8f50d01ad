from __future__ import annotations

import json

import numpy as np
import pytest

from blockpilot_rl.cli.console import run
from tests import benchmark_scripts
from tests.synthetic import synthetic_table

SCRIPT = benchmark_scripts.load("training")
WAYS = {"native", "DummyVecEnv", "make_vec", "SyncVectorEnv"}


@pytest.fixture(scope="module")
def table():
    return synthetic_table(n=60)


def test_every_way_takes_the_actions_that_it_is_given(table):
    """All of them, and gets the recorded rewards of these arms."""
    ways = SCRIPT.make_ways(table, 3)
    assert set(ways) == WAYS
    train = table.split("train")
    actions = np.array([0, 2, 4])
    for step in ways.values():
        _, rewards, *_ = step(actions)
        assert rewards.shape == (3,)
        for arm, reward in zip(actions, rewards, strict=True):
            assert np.isclose(train.speedups[:, arm], reward).any()
        assert len({round(float(reward), 4) for reward in rewards}) == 3


def test_all_batches_are_taken_in_order_and_timed():
    seen = []
    seconds = SCRIPT.take(lambda batch: seen.append(batch.tolist()), np.arange(6).reshape(3, 2))
    assert seen == [[0, 1], [2, 3], [4, 5]]
    assert 0 < seconds < 10


def test_ppo_is_timed_over_its_own_decisions(table):
    ppo = SCRIPT.time_ppo(table, SCRIPT.TrainingBenchmark(ppo_decisions=64))
    assert ppo["decisions"] >= 64
    assert ppo["decisions_per_second"] == pytest.approx(ppo["decisions"] / ppo["seconds"])


def test_the_record(table, tmp_path, capsys):
    table.save(tmp_path / "sweep")
    words = ["--sweep", tmp_path / "sweep", "--envs", 2, "--steps", 3, "--rounds", 2]
    words += ["--ppo-decisions", 0, "--json", tmp_path / "out.json"]
    assert run(SCRIPT.main, SCRIPT.TrainingBenchmark, [str(word) for word in words]) == 0
    record = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert set(record["steps_per_second"]) == WAYS
    assert set(record["ratios"]) == {"native / DummyVecEnv", "make_vec / SyncVectorEnv"}
    for value, low, high in record["ratios"].values():
        assert 0 < low <= value <= high
    assert record["ppo"] is None
    assert (record["config"]["envs"], record["config"]["rounds"]) == (2, 2)
    assert "steps/s" in capsys.readouterr().out


def test_the_time_of_ppo_in_the_environment_is_reported(capsys):
    speed = {name: 100.0 * (1 + index) for index, name in enumerate(sorted(WAYS))}
    ratio = SCRIPT.Interval(2.0, 1.5, 2.5)
    ppo = {"decisions": 1000.0, "seconds": 12.5, "decisions_per_second": 80.0}
    SCRIPT.report(SCRIPT.TrainingBenchmark(), speed, dict.fromkeys(SCRIPT.RATIOS, ratio), ppo)
    out = " ".join(capsys.readouterr().out.split())
    assert "2.0 [1.5, 2.5]" in out
    assert "PPO: 1,000 decisions in 12.5 s" in out
    assert f"native environment takes {1000 / speed['native']:.1f} s" in out
    assert f"would take {1000 / speed['DummyVecEnv']:.1f} s" in out


@pytest.mark.parametrize(
    "words", [["--envs", "0"], ["--steps", "0"], ["--rounds", "1"], ["--ppo-decisions", "-1"]]
)
def test_bad_flags(capsys, words):
    assert run(SCRIPT.main, SCRIPT.TrainingBenchmark, words) == 2
    assert "--envs and --steps must be at least 1, --rounds 2" in capsys.readouterr().err
