"""Which prices a policy chooses by: kept calibrations, given ones, and those of the export."""

from __future__ import annotations

import dataclasses
import json
import logging
import warnings

import pytest
import torch
from safetensors.torch import save_file

from blockpilot_rl.decoding.calibration import Calibration, find_calibration
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.policies.config import PolicyConfig, Prices, TrainedOn
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.policies.pricing import price_policy
from tests.tiny_pair import encode

SIZES = (1, 4, 8)


def profile(further: float, sizes=SIZES) -> LatencyProfile:
    return LatencyProfile(
        block_sizes=sizes,
        draft=((0.0, 0.0),) * len(sizes),
        verify=tuple((1 + further * (size - 1), 0.0) for size in sizes),
        read_prompt=(0.0, 0.0),
        medians={},
    )


def policy_of(pair, head="acceptance", device="another device") -> BlockSizePolicy:
    config = PolicyConfig(
        arms=SIZES,
        state=StateLayout((("prompt", 1),)),
        hidden=(1,) if head == "acceptance" else (),
        activation="relu",
        fallback=4,
        fingerprint=pair.fingerprint,
        target=pair.target_name,
        drafter=str(pair.drafter_name),
        template=dict(pair.template or {}),
        trained_on=TrainedOn((0.0,), ("en",), (1, 100)),
        head=head,
        prices=Prices(device, "float32", profile(0.0)),
    )
    if head == "reward":
        return BlockSizePolicy(config)
    values = {
        "projection": torch.ones(1, 1),
        "intercept": torch.full((7,), 2.0),
        "weights": torch.zeros(3, 1),
        "offsets": torch.zeros(3),
        "average": torch.zeros(3, 7),
        "spread": torch.ones(1, 1),
        "residual_variance": torch.tensor(1.0),
        "variance_limit": torch.tensor(1e6),
        "answer_tokens": torch.tensor(50.0),
        "prompt_tokens": torch.tensor(10.0),
    }
    return BlockSizePolicy.from_acceptance(config, values, torch.zeros(1), torch.ones(1))


def calibration_of(pair, further: float, sizes=SIZES) -> Calibration:
    return Calibration.from_decoder(Decoder(pair), profile(further, sizes))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BLOCKPILOT_CALIBRATIONS", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "blockpilot_rl.policies")
    return lambda: [record.getMessage() for record in caplog.records]


def choice(policy, pair) -> int:
    return Decoder(pair).generate(encode(pair, "a b c d"), policy, 8).block_size


def test_a_kept_calibration_is_found_by_itself(trained, cache, lines):
    policy = policy_of(trained)
    assert find_calibration(trained) is None
    assert choice(price_policy(policy, trained), trained) == 8
    (line,) = lines()
    assert "prices that it was exported with, of another device in float32" in line
    path = calibration_of(trained, 10.0).keep()
    assert path.parent == cache
    found = find_calibration(trained)
    assert found is not None
    assert found[0] == path
    priced = price_policy(policy, trained)
    assert choice(priced, trained) == 1
    assert f"uses the calibration of {found[1].device} in float32 from {path}" in lines()[1]
    assert len(lines()) == 2
    assert choice(price_policy(policy, trained, None), trained) == 8


@pytest.mark.parametrize(
    "change",
    [{"fingerprint": "0" * 16}, {"dtype": "bfloat16"}, {"device": "another, 3 threads"}],
)
def test_calibrations_of_other_pairs_dtypes_and_devices_are_not_used(trained, cache, change):
    dataclasses.replace(calibration_of(trained, 10.0), **change).keep()
    assert find_calibration(trained) is None
    assert choice(price_policy(policy_of(trained), trained), trained) == 8


@pytest.mark.parametrize("damage", ["{", '{"latency": 1}', "", "sizes"])
def test_a_kept_calibration_that_cannot_be_used_is_named(trained, cache, lines, damage):
    path = calibration_of(trained, 10.0, (1, 8) if damage == "sizes" else SIZES).keep()
    if damage != "sizes":
        path.write_text(damage)
    assert choice(price_policy(policy_of(trained), trained), trained) == 8
    assert lines()[0].startswith("the kept calibration is not used: ")


def test_a_calibration_can_be_named(trained, cache, tmp_path):
    calibration_of(trained, 0.0).keep()
    given = calibration_of(trained, 10.0)
    given.save(tmp_path / "given.json")
    for named in (given, tmp_path / "given.json", str(tmp_path / "given.json")):
        assert choice(price_policy(policy_of(trained), trained, named), trained) == 1
    with pytest.raises(BlockPilotError, match="no calibration at"):
        price_policy(policy_of(trained), trained, tmp_path / "missing.json")


def test_a_reward_policy_on_another_device_warns_once_and_names_the_cure(trained, cache):
    policy = policy_of(trained, "reward")
    with pytest.warns(UserWarning, match=r"for another device .* calibrate --sweep.*acceptance"):
        assert price_policy(policy, trained) is policy
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        price_policy(policy, trained)
        here = calibration_of(trained, 0.0)
        price_policy(policy_of(trained, "reward", here.device), trained)
    with pytest.raises(BlockPilotError, match="a reward policy is tied to the device"):
        price_policy(policy, trained, here)


def test_the_record_holds_the_confidence(trained, cache):
    policy = policy_of(trained)
    ids = encode(trained, "a b c d")
    assert Decoder(trained).generate(ids, policy, 8).confidence == pytest.approx(1.0)
    assert Decoder(trained).generate(ids, policy_of(trained, "reward"), 8).confidence is None
    assert Decoder(trained).generate(ids, 4, 8).confidence is None


def test_the_hook_prices_the_policy(trained, cache, lines):
    from blockpilot_rl.integrations.transformers import block_pilot

    calibration_of(trained, 10.0).keep()
    for calibration, size in (("auto", 1), (None, 8)):
        hook = block_pilot(trained, policy=policy_of(trained), calibration=calibration)
        for _ in range(2):
            output = trained.target.generate(
                encode(trained, "a b c d"),
                custom_generate=hook,
                max_new_tokens=20,
                do_sample=False,
                return_dict_in_generate=True,
            )
        assert max(output.generation.block_sizes) == size
        assert output.generation.confidence == pytest.approx(1.0)
    assert len(lines()) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head": "acceptence"}, "unknown head 'acceptence'. Did you mean 'acceptance'"),
        ({"head": 3}, "value of a wrong type"),
        ({"head": "reward"}, "are corrupt"),
        ({"hidden": []}, "number of components"),
        ({"hidden": [2]}, "are corrupt"),
        ({"prices": None}, "needs `prices` and `trained_on`"),
        ({"prices": {"device": "x"}}, "value of a wrong type"),
        ({"trained_on": None}, "needs `prices` and `trained_on`"),
        ({"arms": [4, 8]}, "arms that begin with 1"),
        ({"arms": [1, 4, 6]}, "block size 6 is not in the latency profile"),
    ],
)
def test_a_damaged_config_is_named(trained, tmp_path, changes, message):
    policy_of(trained).save_pretrained(tmp_path / "policy")
    file = tmp_path / "policy" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(BlockPilotError, match=message) as refused:
        BlockSizePolicy.from_pretrained(tmp_path / "policy")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("average", 1.5, "no probability"),
        ("average", -0.1, "no probability"),
        ("variance_limit", 0.0, "not positive"),
        ("answer_tokens", -1.0, "not positive"),
        ("intercept", float("nan"), "not finite"),
        ("spread", float("inf"), "not finite"),
    ],
)
def test_impossible_weights_are_neither_saved_nor_read(trained, tmp_path, name, value, message):
    policy = policy_of(trained)
    policy.save_pretrained(tmp_path / "policy")
    getattr(policy.acceptance, name).fill_(value)
    with pytest.raises(BlockPilotError, match=message):
        policy.save_pretrained(tmp_path / "other")
    weights = {key: tensor.contiguous() for key, tensor in policy.state_dict().items()}
    save_file(weights, tmp_path / "policy" / "model.safetensors")
    with pytest.raises(BlockPilotError, match=message):
        BlockSizePolicy.from_pretrained(tmp_path / "policy")
