from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from blockpilot_rl.decoding.control import StepPolicy
from blockpilot_rl.decoding.sampling import GREEDY, Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.policies.rate_prior import RatePrior
from blockpilot_rl.policies.rules import EntropyRule, FixedRule, PrefixRule, RateRule
from blockpilot_rl.policies.step_policy import RulePolicy
from tests.control.traced import PROFILE, SIZES

WEIGHTS = np.array([1.0, -2.0, 0.5])


def policy(rule=None, prior=None) -> RulePolicy:
    prior = prior or RatePrior(np.zeros(3), np.ones(3), WEIGHTS, 0.2)
    return RulePolicy(rule or RateRule(), prior, PROFILE, SIZES, ("next_token",), "abc", {"x": 1})


@pytest.mark.parametrize(
    "rule", [FixedRule(4), PrefixRule(4, 0.3, True), RateRule(0.8, 2.0, 0.1), EntropyRule(2)]
)
def test_a_saved_policy_decides_alike(rule, tmp_path):
    first = policy(rule)
    first.save_pretrained(tmp_path / "policy")
    second = RulePolicy.from_pretrained(tmp_path / "policy")
    assert isinstance(second, StepPolicy)
    assert second.rule == rule
    assert (second.arms, second.state_groups) == (SIZES, ("next_token",))
    rng = np.random.default_rng(0)
    for sampling in (GREEDY, Sampling(1.0)):
        state = torch.tensor(rng.normal(size=3))
        one, other = first.start(state, sampling), second.start(state, sampling)
        for context in range(20):
            length = one.draft_length(context)
            assert length == other.draft_length(context)
            confidences = rng.uniform(size=length - 1).tolist()
            if confidences:
                assert one.verify_length(confidences) == other.verify_length(confidences)
            for each in (one, other):
                each.observe(length, length, 1)


def test_the_prior_reads_the_state():
    """A state that promises acceptance is drafted for, and one that does not is decoded plainly."""
    found = policy(RateRule(threshold=0.0))
    assert found.start(torch.tensor([5.0, -5.0, 0.0]), GREEDY).draft_length(9) == 4
    assert found.start(torch.tensor([-5.0, 5.0, 0.0]), GREEDY).draft_length(9) == 1


def test_another_device_has_its_own_prices():
    """Where drafts cost nothing, more is drafted."""
    cheap = dataclasses.replace(
        PROFILE, draft=((0.0, 0.0),) * 3, verify=((1.0, 0.0),) * 3, read_prompt=(0.0, 0.0)
    )
    state = torch.tensor([-0.5, 0.5, 0.0])
    rule = RateRule(threshold=0.0)
    assert policy(rule).start(state, GREEDY).draft_length(9) < 4
    assert policy(rule).for_device(cheap).start(state, GREEDY).draft_length(9) == 4


def test_another_pair_or_template_is_refused():
    with pytest.raises(BlockPilotError, match="tuned on the pair with fingerprint abc"):
        policy().check_pair("def", {"x": 1})
    with pytest.raises(BlockPilotError, match="chat-template options"):
        policy().check_pair("abc", {"x": 2})
    policy().check_pair("abc", None)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "request"},
        {"version": 9},
        {"rule": "magic"},
        {"settings": {"speed": 3}},
        {"arms": [2, 4]},
        {"arms": [1, 99]},
        {"log_odds": "nan"},
        {"latency": {}},
    ],
    ids=str,
)
def test_corrupt_configs_are_one_line(change, tmp_path):
    policy().save_pretrained(tmp_path / "policy")
    path = tmp_path / "policy" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(BlockPilotError) as caught:
        RulePolicy.from_pretrained(tmp_path / "policy")
    assert "\n" not in str(caught.value)


def test_corrupt_weights_are_one_line(tmp_path):
    policy().save_pretrained(tmp_path / "policy")
    (tmp_path / "policy" / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(BlockPilotError, match="is corrupt"):
        RulePolicy.from_pretrained(tmp_path / "policy")
