"""Policies that exist, judged on any sweep."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from blockpilot_rl import evaluate as public_name
from blockpilot_rl.cli.evaluate import main
from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.evaluate import EvaluateConfig, evaluate
from blockpilot_rl.evaluation.oracle import best_fixed_by_mean
from blockpilot_rl.policies.config import PolicyConfig, TrainedOn
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep
from tests.synthetic import HIDDEN, synthetic_table


def ridge(table: Sweep, **changes) -> BlockSizePolicy:
    """A linear policy that predicts the speedups from the hidden state."""
    states = table.states[:, :HIDDEN].astype(np.float64)
    mean, scale = states.mean(axis=0), states.std(axis=0)
    inputs = np.column_stack([(states - mean) / scale, np.ones(len(states))])
    weights = np.linalg.solve(
        inputs.T @ inputs + 10 * np.eye(HIDDEN + 1), inputs.T @ table.speedups
    )
    values = {
        "arms": table.arms,
        "state": StateLayout((("last_hidden", HIDDEN),)),
        "hidden": (),
        "activation": "tanh",
        "fallback": 4,
        "fingerprint": table.metadata.fingerprint,
        "target": table.metadata.target,
        "drafter": table.metadata.drafter,
        "algorithm": "ridge",
    }
    layer = (torch.tensor(weights[:-1].T).float(), torch.tensor(weights[-1]).float())
    tensors = [torch.tensor(value).float() for value in (mean, scale)]
    return BlockSizePolicy.from_layers(PolicyConfig(**{**values, **changes}), [layer], *tensors)


@pytest.fixture(scope="module")
def table() -> Sweep:
    return synthetic_table(2000)


@pytest.fixture(scope="module")
def policy(table) -> BlockSizePolicy:
    return ridge(table.split("train"))


def test_a_good_policy_ships_on_prompts_that_it_has_not_seen(table, policy):
    found = public_name(policy, table, EvaluateConfig(family_margin=0.1))
    agent = found.agents["ridge"]
    assert (found.verdict.ship, found.verdict.code) == ("ridge", "ships")
    assert found.best_fixed.block_size == table.arms[best_fixed_by_mean(table.split("train"))]
    assert agent.gain.low > 0
    assert agent.rows == len(table.split("test"))
    assert found.split["train_prompts"] == len(table.split("train"))
    assert found.sources["seen sources"].agents["ridge"].gain == agent.gain
    assert set(found.families["ridge"].families) == {"easy", "hard"}
    json.dumps(found.to_dict())


def test_a_policy_chooses_by_its_own_arms(table):
    """Its block sizes are a part of the sweep's, in other places."""
    policy = ridge(table.split("train").select_arms((1, 4, 16)))
    chosen = evaluate(policy, table).agents["ridge"].arms
    assert chosen[2] == chosen[8] == 0
    assert chosen[4] + chosen[16] + chosen[1] == pytest.approx(1)
    assert chosen[16] > 0


@pytest.mark.parametrize(
    ("changes", "size", "note"),
    [
        ({"fixed": 2}, 2, "compared with block size 2, as asked"),
        ({"fixed": "policy"}, 4, "compared with block size 4, the policy's fallback"),
        ({"split": "train"}, 4, "the policy's fallback"),
        ({"split": "all"}, 4, "judged on split all, which the policy may have been trained on"),
    ],
)
def test_what_it_is_compared_with(table, policy, changes, size, note):
    found = evaluate(policy, table, EvaluateConfig(**changes))
    assert found.best_fixed.block_size == found.best_fixed_total.block_size == size
    assert any(note in line for line in found.notes)
    split = changes.get("split", "test")
    rows = len(table) if split == "all" else len(table.split(split))
    assert found.agents["ridge"].rows == rows


def test_a_sweep_of_test_prompts_alone_is_judged(table, policy):
    found = evaluate(policy, table.split("test"))
    assert found.best_fixed.block_size == 4
    assert found.split["train_prompts"] == 0


def test_unseen_sources_are_judged_separately(table, policy):
    keep = (table.rows["family"] != "hard") | (table.rows["split"] == "test")
    part = table.select_rows(keep.to_numpy())
    metadata = dataclasses.replace(part.metadata, unseen_families=("hard",))
    found = evaluate(policy, dataclasses.replace(part, metadata=metadata))
    assert list(found.sources) == ["seen sources", "unseen sources"]
    assert found.sources["unseen sources"].families == ["hard"]


def test_rows_unlike_the_training_are_noted(table):
    trained_on = TrainedOn((0.0,), ("de",), (30, 40))
    notes = evaluate(ridge(table.split("train"), trained_on=trained_on), table).notes
    assert sum("rows are unlike the policy's training" in note for note in notes) == 2
    assert any("on the languages de, not en" in note for note in notes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: dataclasses.replace(t, metadata=dataclasses.replace(
            t.metadata, fingerprint="0" * 16)), "policy was trained on the pair"),
        (lambda t: t.select_arms((1, 2, 4, 8)), "chooses block size 16, which the sweep lacks"),
        (lambda t: t.split("train"), "sweep has no 'test' rows"),
        (lambda t: t.select_rows(np.flatnonzero(t.rows["split"] == "test")[:1]), "single prompt"),
    ],
)  # fmt: skip
def test_a_sweep_that_does_not_fit_is_refused(table, policy, change, message):
    with pytest.raises(BlockPilotError, match=message):
        evaluate(policy, change(table))


@pytest.mark.parametrize("value", ["best", "4.5", True, ""])
def test_an_impossible_fixed_size_is_refused(value):
    with pytest.raises(BlockPilotError, match="fixed must be a block size or policy"):
        EvaluateConfig(fixed=value)


def test_a_fixed_size_that_was_not_recorded_is_refused(table, policy):
    with pytest.raises(BlockPilotError, match="block size 5 is not an arm"):
        evaluate(policy, table, EvaluateConfig(fixed=5))


def test_the_command_writes_json_and_a_report(table, policy, tmp_path, capsys):
    table.save(tmp_path / "sweep")
    policy.save_pretrained(tmp_path / "policy")
    words = ["--policy", tmp_path / "policy", "--sweep", tmp_path / "sweep"]
    words += ["--json", tmp_path / "a.json", "--report", tmp_path / "report", "--fixed", "policy"]
    assert main([str(word) for word in words]) == 0
    values = json.loads((tmp_path / "a.json").read_text())
    assert list(values["agents"]) == ["ridge"]
    assert values["settings"]["fixed"] == "policy"
    assert values["settings"]["policy"] == str(tmp_path / "policy")
    assert values["verdict"]["reason"]
    report = (tmp_path / "report/report.md").read_text()
    assert "Seen and unseen sources" in report
    assert "Families estimated together" in report
    assert "Verdict: ship" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policy", "no-such-policy"], "no policy at"),
        (["--sweep", "no-such-sweep"], "no sweep at"),
        (["--fixed", "some"], "fixed must be a block size or policy"),
        (["--split", "tests"], "split"),
    ],
)
def test_bad_input_is_one_clear_line(words, message, capsys):
    assert main(words) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
