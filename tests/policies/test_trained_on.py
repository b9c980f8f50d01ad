"""Policies record what they were trained on and warn once about other requests."""

from __future__ import annotations

import dataclasses
import json
import warnings

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from blockpilot_rl.agents import make_agent
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.policies.config import TrainedOn
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep
from tests.evaluation.replicates import joined, replicated
from tests.synthetic import synthetic_table

TRAINED_ON = TrainedOn((0.0, 0.7), ("de", "en"), (31, 895))


@pytest.fixture
def policy():
    agent = make_agent("fixed", state_groups=["prompt"]).learn(synthetic_table(60).split("train"))
    policy = agent.to_policy()
    policy.config = dataclasses.replace(policy.config, trained_on=TRAINED_ON)
    return policy


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"temperature": 1.0}, "at temperature 0, 0.7, not 1"),
        ({"prompt_tokens": 896}, "on prompts of 31 to 895 tokens, not 896"),
        ({"prompt_tokens": 5}, "on prompts of 31 to 895 tokens, not 5"),
        ({"language": "zh"}, "on the languages de, en, not zh"),
    ],
)
def test_requests_unlike_the_training_are_warned_about_once(policy, request_, message):
    usual = {"temperature": 0.0, "prompt_tokens": 100, "language": "en"}
    with pytest.warns(UserWarning, match=message):
        policy.check_request(**{**usual, **request_})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.check_request(**{**usual, **request_})


@pytest.mark.parametrize(
    "request_",
    [
        {"temperature": 0.0, "prompt_tokens": 31},
        {"temperature": 0.7, "prompt_tokens": 895},
        {"temperature": 0.3, "prompt_tokens": 100, "language": "de"},
    ],
)
def test_requests_like_the_training_are_not(policy, request_):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.check_request(**request_)


def test_the_record_is_that_of_the_training_rows_and_is_saved(tmp_path):
    table = synthetic_table(80)
    sampled = replicated(table, 1)
    sampled.rows["temperature"] = 1.0
    both = joined(table, sampled)
    both.rows["prompt_tokens"] = np.arange(len(both)) + 7
    agent = make_agent("fixed").learn(both.split("train"))
    found = agent.to_policy().config.trained_on
    tokens = both.split("train").rows["prompt_tokens"]
    assert found.temperatures == tuple(np.unique(both.temperatures))
    assert found == TrainedOn(found.temperatures, ("en",), (tokens.min(), tokens.max()))
    agent.save(tmp_path)
    assert type(agent).load(tmp_path).problem == agent.problem
    agent.to_policy().save_pretrained(tmp_path / "policy")
    assert BlockSizePolicy.from_pretrained(tmp_path / "policy").config.trained_on == found
    assert "on prompts of" in (tmp_path / "policy" / "README.md").read_text(encoding="utf-8")


def test_policies_of_the_first_release_load_without_warnings(policy, tmp_path):
    policy.save_pretrained(tmp_path / "policy")
    file = tmp_path / "policy" / "config.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    del values["trained_on"]
    file.write_text(json.dumps(values), encoding="utf-8")
    old = BlockSizePolicy.from_pretrained(tmp_path / "policy")
    assert "trained_on" not in old.config.to_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        old.check_request(temperature=9.0, prompt_tokens=10**6, language="tlh")


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"temperatures": [0], "languages": [], "prompt_tokens": [5]},
        {"temperatures": ["x"], "languages": [], "prompt_tokens": [5, 6]},
        {"temperatures": [-1], "languages": [], "prompt_tokens": [5, 6]},
        {"temperatures": [float("nan")], "languages": [], "prompt_tokens": [5, 6]},
        {"temperatures": [0], "languages": [], "prompt_tokens": [6, 5]},
    ],
)
def test_a_record_that_is_damaged_is_refused(policy, value):
    with pytest.raises(BlockPilotError, match="value of a wrong type"):
        type(policy.config).from_dict({**policy.config.to_dict(), "trained_on": value})


def test_the_bundled_policy_records_the_bundled_sweep():
    train = Sweep.load().default_rows().split("train")
    trained_on = BlockSizePolicy.from_pretrained("bundled").config.trained_on
    tokens = train.rows["prompt_tokens"]
    assert trained_on.temperatures == (0.0,)
    assert trained_on.languages == tuple(sorted(set(train.rows["language"])))
    assert trained_on.prompt_tokens == (tokens.min(), tokens.max())


@pytest.mark.parametrize("name", ["mean", "scale", "net.0.weight", "net.0.bias"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_neither_saved_nor_loaded(policy, name, value, tmp_path):
    policy.save_pretrained(tmp_path / "good")
    file = tmp_path / "good" / "model.safetensors"
    weights = load_file(file)
    weights[name].view(-1)[0] = value
    save_file(weights, file)
    with pytest.raises(BlockPilotError, match=f"are corrupt: {name} holds a number that is not"):
        BlockSizePolicy.from_pretrained(tmp_path / "good")
    policy.state_dict()[name].view(-1)[0] = value
    with pytest.raises(BlockPilotError, match=f"not saved: {name} holds a number"):
        policy.save_pretrained(tmp_path / "bad")
    assert not (tmp_path / "bad").exists()


@pytest.mark.parametrize(
    ("hidden", "arms"),
    [([65536, 65536], None), ([60000], None), ([], list(range(1, 60000))), ([8], None)],
)
def test_sizes_in_a_config_are_compared_with_the_weights_first(policy, tmp_path, hidden, arms):
    resource = pytest.importorskip("resource")
    policy.save_pretrained(tmp_path / "policy")
    file = tmp_path / "policy" / "config.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    values["hidden"] = hidden
    values["arms"] = arms or values["arms"]
    file.write_text(json.dumps(values), encoding="utf-8")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BlockPilotError, match=r"are corrupt: config\.json gives net\.0\..* shape"):
        BlockSizePolicy.from_pretrained(tmp_path / "policy")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18
