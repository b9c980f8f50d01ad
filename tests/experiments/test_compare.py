from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from blockpilot_rl.agents import AGENTS
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.experiments.compare import CompareConfig, compare
from blockpilot_rl.experiments.seeds import Trainer
from tests.synthetic import synthetic_table

QUICK = CompareConfig(algos=("reward-regression",), seeds=1, jobs=1)
GUARD = "if __name__ == '__main__':"
SCRIPT = """
import sys
from blockpilot_rl.experiments.compare import CompareConfig, compare
{guard}
    found = compare(sys.argv[1], CompareConfig(algos=("reward-regression",), seeds=2, jobs=2))
    print(len(found.agents["reward-regression"].gain_by_seed))
"""


@pytest.fixture(scope="module")
def table():
    return synthetic_table(n=400)


def test_a_comparison_of_a_sweep_in_memory(table, tmp_path):
    calls = []
    found = compare(table, QUICK, progress=lambda *call: calls.append(call))
    assert list(found.agents) == ["reward-regression"]
    assert calls == [("reward-regression", 0, 1), ("reward-regression", 1, 1)]
    assert found.settings["sweep"] is None
    assert found.settings["algos"] == "reward-regression"
    table.save(tmp_path / "sweep")
    again = compare(tmp_path / "sweep", QUICK)
    assert again.settings["sweep"] == str(tmp_path / "sweep")
    assert again.agents["reward-regression"].arms == found.agents["reward-regression"].arms
    assert again.best_fixed == found.best_fixed


def test_hyperparameters_of_an_agent(table):
    strong = compare(table, QUICK, hyperparams={"reward-regression": {"alphas": [1e9]}})
    assert strong.settings["hyperparams"]["reward-regression"]["alphas"] == [1e9]
    assert max(strong.agents["reward-regression"].arms.values()) == 1
    with pytest.raises(BlockPilotError, match="values for ppo, which is not trained"):
        compare(table, QUICK, hyperparams={"ppo": {"n_steps": 8}})


def test_finished_views_are_passed_on_before_further_ones(table, monkeypatch):
    """So that an interrupt does not lose them."""
    views = dataclasses.replace(QUICK, leave_family_out=True, ablation="reward-regression")
    kept = []
    train = Trainer.train

    def interrupted(self, algorithm, splits, *, label="", **options):
        if label.startswith("sees"):
            raise KeyboardInterrupt
        return train(self, algorithm, splits, label=label, **options)

    monkeypatch.setattr(Trainer, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compare(table, views, on_result=kept.append)
    main, last = kept
    assert main.left_out is None
    assert main.notes[-1] == "incomplete, without: families left out, ablation"
    assert last.left_out is not None
    assert last.notes[-1] == "incomplete, without: ablation"
    assert last.agents == main.agents


def test_the_complete_comparison_has_no_note_of_what_is_missing(table):
    found = compare(table, dataclasses.replace(QUICK, learning_curve=True), on_result=lambda _: ...)
    assert found.learning_curve
    assert not any("incomplete" in note for note in found.notes)


def test_all_agents_that_learn():
    everything = CompareConfig(algos=("all",)).learners()
    assert CompareConfig(algos=("ppo", "all")).learners() == everything
    assert "fixed" not in everything
    assert len(everything) == len(AGENTS) - 2
    assert CompareConfig(algos=("ppo", "fixed", "ppo")).learners() == ["ppo"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"algos": ("fixed",), "shuffle_states": True}, "shuffle_states has no effect"),
        ({"algos": ("oracle",), "family_margin": 0.1}, "family_margin has no effect"),
        ({"algos": ("random",), "state_groups": ("prompt",)}, "state_groups has no effect"),
        ({"algos": ("fixed",), "seeds": 3}, "seeds has no effect"),
        ({"algos": ("ppo",), "paper_window": 8}, "paper_window has no effect .* supervised"),
        ({"algos": ("fixed",), "paper_window": 8}, "paper_window has no effect .* supervised"),
    ],
)
def test_values_without_effect_are_refused(values, message):
    with pytest.raises(BlockPilotError, match=message):
        CompareConfig(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"algos": ("fixed",), "learning_curve": True, "seeds": 3},
        {"algos": ("fixed",), "ablation": "ppo", "shuffle_states": True, "seeds": 3},
        {"algos": ("supervised",), "paper_window": 8},
        {"algos": ["ppo", "supervised"], "paper_window": 8, "arms": [1, 4]},
    ],
)
def test_values_with_an_effect_are_taken(values):
    config = CompareConfig(**values)
    assert isinstance(config.algos, tuple)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"algos": "ppo"}, "algos must be a tuple such as"),
        ({"algos": ()}, "algos names no agent"),
        ({"algos": ("pppo",)}, "Did you mean 'ppo'"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"seed": 2**32}, "passes the largest seed"),
        ({"confidence": float("nan")}, "confidence must be above 0"),
        ({"temperature": -1.0}, "temperature must be 0 or more"),
        ({"jobs": 0}, "jobs must be at least 1"),
        ({"ablation": "random"}, "ablation must be one of"),
    ],
)
def test_invalid_values_are_refused(values, message):
    with pytest.raises(BlockPilotError, match=message):
        CompareConfig(**values)


def test_the_papers_table_says_what_it_leaves_out(table):
    config = CompareConfig(algos=("supervised",), seeds=1, jobs=1, arms=(1, 2, 4))
    quick = {"supervised": {"epochs": 1}}
    notes = compare(table, config, hyperparams=quick).notes
    assert any("no classifier within the window" in note for note in notes)
    rows = table.rows.assign(temperature=np.where(table.rows["split"] == "train", 0.0, 1.0))
    mixed = dataclasses.replace(table, rows=rows)
    config = dataclasses.replace(config, arms=None, temperature="all")
    found = compare(mixed, config, hyperparams=quick)
    assert found.paper_table == {}
    left_out = [note for note in found.notes if "leaves out temperature" in note]
    assert len(left_out) == 2


@pytest.mark.slow
@pytest.mark.parametrize("guard", [GUARD, "if True:"])
def test_a_script_trains_in_several_processes(table, tmp_path, guard):
    """A script needs the guard, and an error says so."""
    table.save(tmp_path / "sweep")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(guard=guard), encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, script, tmp_path / "sweep"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path / "sweep")},
    )
    if guard == GUARD:
        assert (ended.returncode, ended.stdout) == (0, "2\n"), ended.stderr
    else:
        assert ended.returncode == 1
        assert ended.stderr.splitlines()[-1].endswith(f"`{GUARD}`)")
    assert not list((tmp_path / "sweep").glob("blockpilot-*"))


@pytest.mark.slow
def test_a_notebook_trains_in_several_processes(table, tmp_path):
    """Its main module has no file, so that processes cannot run it again."""
    table.save(tmp_path / "sweep")
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(guard="if True:"), tmp_path / "sweep"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "2\n"), ended.stderr


def test_the_settings_can_be_written_as_json(table):
    assert json.loads(json.dumps(compare(table, QUICK).settings))["seeds"] == 1
    assert Path(compare(table, QUICK).provenance["command"][0]).name
