"""The log of decisions and its use in off-policy evaluation."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from blockpilot_rl.agents import make_agent
from blockpilot_rl.agents.exploring import DECISIONS_FILE, LOGGED, DecisionLog
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.off_policy import LoggedDecisions, evaluate_off_policy
from blockpilot_rl.sweeps.parquet import KEY
from blockpilot_rl.sweeps.table import Sweep
from tests.agents.quick import BRIEF
from tests.evaluation.replicates import mixed
from tests.synthetic import ARMS, synthetic_table

SETTINGS = {"epsilon-greedy": {**BRIEF["epsilon-greedy"], "epsilon": 0.5}, "ppo": BRIEF["ppo"]}
GUIDE = Path(__file__).parents[2] / "docs" / "agents.md"


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    """Greedy and sampled rows, whose states and seconds differ within a prompt."""
    table = mixed(synthetic_table(400), 200, noise=0.3)
    states = table.states.copy()
    states[:, 1] += table.temperatures + table.rows["seed"]
    return dataclasses.replace(table, states=states)


def by_state(states: np.ndarray) -> np.ndarray:
    """A hand-written policy: long blocks for states with high acceptance, `[n, arms]`."""
    return np.eye(len(ARMS))[np.where(states[:, 0] > 2.5, ARMS.index(8), ARMS.index(2))]


@pytest.mark.parametrize("algorithm", SETTINGS)
def test_a_saved_log_estimates_another_policy(algorithm, sweep, tmp_path):
    train = sweep.split("train")
    make_agent(algorithm, hyperparams=SETTINGS[algorithm]).learn(train).save(tmp_path)
    log = pd.read_parquet(tmp_path / DECISIONS_FILE)
    assert tuple(log.columns) == LOGGED
    logged = LoggedDecisions.from_frame(log, sweep)
    keys = log[["prompt_id", "temperature", "seed"]].set_axis(KEY, axis=1)
    known = pd.MultiIndex.from_frame(sweep.rows[KEY])
    rows = known.get_indexer(pd.MultiIndex.from_frame(keys))
    np.testing.assert_array_equal(logged.states, sweep.states[rows])
    np.testing.assert_array_equal(logged.rewards, sweep.speedups[rows, logged.arms])
    # Few prompts are held out to select by; the others' rows come equally often.
    seen, times = np.unique(rows, return_counts=True)
    assert times.max() - times.min() <= 1
    truth = sweep.speedups[seen][by_state(sweep.states[seen]) == 1].mean()
    found = evaluate_off_policy(logged, by_state(logged.states), confidence=0.99)
    for name, error in (("IPS", 0.5), ("DR", 0.15)):
        value, low, high = found[name].reward
        assert low < truth < high
        assert value == pytest.approx(truth, abs=error)


def test_the_guide_reads_a_log(sweep, tmp_path, monkeypatch, capsys):
    """The example of docs/agents.md, unchanged."""
    monkeypatch.chdir(tmp_path)
    sweep.save("my-sweep")
    train = sweep.split("train")
    agent = make_agent("epsilon-greedy", hyperparams=SETTINGS["epsilon-greedy"]).learn(train)
    agent.save("logs/epsilon-greedy/BlockSize-v0_1")
    fixed = make_agent("fixed", state_groups=("prompt",)).learn(train)
    fixed.to_policy().save_pretrained("my-policy")
    (example,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    exec(example, {})
    low, high = map(float, re.findall(r"(?:low|high)=([\d.]+)", capsys.readouterr().out))
    assert low < train.speedups[:, fixed.problem.best_fixed_arm].mean() < high


def test_a_log_that_cannot_distinguish_rows_is_refused(tmp_path):
    columns = [name for name in LOGGED if name not in ("temperature", "seed")]
    path = tmp_path / DECISIONS_FILE
    pd.DataFrame(columns=columns).to_parquet(path)
    with pytest.raises(BlockPilotError, match=f"{DECISIONS_FILE} .* train the agent again"):
        DecisionLog.load(path)
