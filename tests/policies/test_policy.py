from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.policies.config import PolicyConfig
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep

CONFIG = PolicyConfig(
    arms=(1, 4, 16),
    state=StateLayout((("next_token", 3), ("prompt", 1))),
    hidden=(5,),
    activation="tanh",
    fallback=4,
    fingerprint="0123456789abcdef",
    target="a-target",
    drafter="a-drafter",
    template={"enable_thinking": False},
    algorithm="ppo",
    provenance={"git_sha": "abc"},
)


def random_policy(config: PolicyConfig = CONFIG) -> BlockSizePolicy:
    generator = torch.Generator().manual_seed(0)
    widths = [config.state.width, *config.hidden, len(config.arms)]
    linears = [
        (torch.randn(n, m, generator=generator), torch.randn(n, generator=generator))
        for m, n in itertools.pairwise(widths)
    ]
    mean = torch.randn(config.state.width, generator=generator)
    scale = torch.rand(config.state.width, generator=generator) + 0.5
    return BlockSizePolicy.from_layers(config, linears, mean, scale)


@pytest.fixture(scope="module")
def states() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)


@pytest.fixture
def saved(tmp_path):
    random_policy().save_pretrained(tmp_path / "policy")
    return tmp_path / "policy"


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden", [(), (5,), (6, 3)])
def test_scores_by_hand(states, activation, hidden):
    policy = random_policy(dataclasses.replace(CONFIG, activation=activation, hidden=hidden))
    weights = policy.state_dict()
    values = (states - weights["mean"].numpy()) / weights["scale"].numpy()
    layers = [i for i in range(9) if f"net.{i}.weight" in weights]
    for i in layers:
        values = values @ weights[f"net.{i}.weight"].numpy().T + weights[f"net.{i}.bias"].numpy()
        if i != layers[-1]:
            values = np.tanh(values) if activation == "tanh" else np.maximum(values, 0)
    with torch.inference_mode():
        scores = policy(torch.from_numpy(states)).numpy()
    np.testing.assert_allclose(scores, values, atol=1e-5, rtol=1e-5)
    np.testing.assert_array_equal(policy.predict(states), values.argmax(1))


def test_one_request_and_many_choose_alike(states):
    policy = random_policy()
    chosen = [policy.select(torch.from_numpy(state)) for state in states]
    assert chosen == [CONFIG.arms[i] for i in policy.predict(states)]
    assert len(set(chosen)) > 1
    assert policy.select(torch.from_numpy(states[0]).bfloat16()) in CONFIG.arms


def test_a_new_policy_is_blank_and_draws_nothing(states):
    before = torch.get_rng_state()
    policy = BlockSizePolicy(CONFIG)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(policy.mean, torch.zeros(4))
    assert torch.equal(policy.scale, torch.ones(4))
    with torch.inference_mode():
        assert torch.equal(policy(torch.from_numpy(states)), torch.zeros(200, 3))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden", [(), (5,)])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_state_that_is_not_finite_falls_back(value, hidden, activation):
    """Also where a saturated hidden layer would turn infinity into finite scores."""
    config = dataclasses.replace(CONFIG, hidden=hidden, activation=activation, fallback=16)
    policy = random_policy(config)
    with pytest.warns(RuntimeWarning, match="1 of 1 states are not finite.* size 16 is used"):
        assert policy.select(torch.tensor([0.0, value, 0.0, 0.0])) == 16


def test_many_states_fall_back_one_by_one(states):
    """The good ones are decided on as usual; a warning counts the others."""
    policy = random_policy(dataclasses.replace(CONFIG, fallback=16))
    expected = policy.predict(states)
    broken = states.copy()
    broken[[3, 50], [0, 2]] = np.nan, np.inf
    broken[7] = 3e38
    wanted = np.zeros(len(states), dtype=bool)
    wanted[[3, 7, 50]] = True
    np.testing.assert_array_equal(policy.usable(broken), ~wanted)
    with pytest.warns(RuntimeWarning, match="3 of 200 states"):
        choices = policy.predict(broken)
    np.testing.assert_array_equal(choices, np.where(wanted, 2, expected))
    assert choices.dtype == np.int64


def test_finite_states_give_no_warning(states):
    policy = random_policy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.predict(states)
        policy.select(torch.from_numpy(states[0]))
    assert policy.usable(states).all()


def test_what_it_reads_and_chooses_from():
    policy = random_policy()
    assert policy.state_groups == ("next_token", "prompt")
    assert policy.arms == (1, 4, 16)


def test_what_was_saved_is_loaded(saved, states):
    policy = BlockSizePolicy.from_pretrained(saved)
    assert policy.config == CONFIG
    assert not policy.training
    ours, theirs = policy.state_dict(), random_policy().state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    np.testing.assert_array_equal(policy.predict(states), random_policy().predict(states))
    card = (saved / "README.md").read_text(encoding="utf-8")
    assert "1, 4, 16" in card
    assert "a-target" in card
    assert CONFIG.fingerprint in card


def test_saving_is_atomic_and_does_not_overwrite(saved):
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    with pytest.raises(BlockPilotError, match="is not empty"):
        random_policy().save_pretrained(saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    other = random_policy(dataclasses.replace(CONFIG, algorithm="other"))
    other.save_pretrained(saved, overwrite=True)
    assert BlockSizePolicy.from_pretrained(saved).config.algorithm == "other"


def test_another_pair_is_refused():
    policy = random_policy()
    policy.check_pair(CONFIG.fingerprint)
    with pytest.raises(BlockPilotError) as refused:
        policy.check_pair("f" * 16)
    for part in ("a-target + a-drafter", CONFIG.fingerprint, "f" * 16, "train a policy"):
        assert part in str(refused.value)


def test_states_made_with_other_template_options_are_refused():
    """Thinking mode alone moves acceptance from 25% to 60% (z-lab/dflash#133, #60)."""
    policy = random_policy()
    policy.check_pair(CONFIG.fingerprint, {"enable_thinking": False})
    for template in ({}, {"enable_thinking": True}):
        with pytest.raises(BlockPilotError, match="trained with chat-template options"):
            policy.check_pair(CONFIG.fingerprint, template)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy_version": 3}, "version 3, this release reads 1 and 2; export it again"),
        ({"extra": 1}, r"unknown keys \['extra'\]"),
        ({"fingerprint": ...}, r"lacks \['fingerprint'\]"),
        ({"arms": ...}, r"lacks \['arms'\]"),
        ({"arms": []}, r"arms \[\] must be positive"),
        ({"arms": [0, 4]}, "must be positive block sizes"),
        ({"arms": [1, 1, 4, 16]}, r"arms \[1, 1, 4, 16\] must increase"),
        ({"arms": [4, 1, 16]}, "must increase"),
        ({"arms": "x"}, "value of a wrong type"),
        ({"fallback": 3}, r"fallback 3 is not one of its arms \[1, 4, 16\]"),
        ({"fallback": None}, "value of a wrong type"),
        ({"hidden": [0]}, r"hidden widths \[0\] must be positive"),
        ({"hidden": [10**13]}, "layer wider than 65536"),
        ({"hidden": [float("inf")]}, "value of a wrong type"),
        ({"state": [["prompt", 10**12]]}, "layer wider than 65536"),
        ({"fingerprint": None}, "wrong type: fingerprint is None"),
        ({"template": 5}, "wrong type: template is 5"),
        ({"hidden": 5}, "value of a wrong type"),
        ({"activation": "tahn"}, r"unknown activation 'tahn'. Did you mean 'tanh'\?"),
        ({"activation": 5}, "unknown activation '5'"),
        ({"state": [["promt", 1]]}, r"Did you mean 'prompt'\?"),
        ({"state": [["prompt"]]}, "value of a wrong type"),
        ({"arms": [1, 4]}, r"model\.safetensors are corrupt"),
        ({"state": [["prompt", 1]]}, r"model\.safetensors are corrupt"),
    ],
)
def test_broken_config(saved, changes, message):
    file = saved / "config.json"
    values = json.loads(file.read_text(encoding="utf-8")) | changes
    file.write_text(json.dumps({k: v for k, v in values.items() if v is not ...}))
    with pytest.raises(BlockPilotError, match=message) as refused:
        BlockSizePolicy.from_pretrained(saved)
    assert "\n" not in str(refused.value)
    assert str(saved) in str(refused.value)


def test_optional_keys_may_be_left_out(saved):
    file = saved / "config.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    for key in ("template", "algorithm", "provenance", "policy_version"):
        del values[key]
    file.write_text(json.dumps(values))
    assert BlockSizePolicy.from_pretrained(saved).config.template == {}


@pytest.mark.parametrize(
    ("text", "message"), [("{", "cannot be read as JSON"), ("[]", "holds no JSON object")]
)
def test_config_that_is_not_a_json_object_is_refused(saved, text, message):
    (saved / "config.json").write_text(text)
    with pytest.raises(BlockPilotError, match=message):
        BlockSizePolicy.from_pretrained(saved)


@pytest.mark.parametrize("keep", [0, 10, -4])
def test_truncated_weights(saved, keep):
    file = saved / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(BlockPilotError, match=r"model\.safetensors are corrupt"):
        BlockSizePolicy.from_pretrained(saved)


def test_missing_and_unclaimed_weights(saved):
    file = saved / "model.safetensors"
    weights = load_file(file)
    save_file({**weights, "extra": torch.zeros(1)}, file)
    with pytest.raises(BlockPilotError, match=r"are corrupt: .*extra"):
        BlockSizePolicy.from_pretrained(saved)
    del weights["scale"]
    save_file(weights, file)
    with pytest.raises(BlockPilotError, match=r"are corrupt: .*scale"):
        BlockSizePolicy.from_pretrained(saved)


def test_missing_files(saved, tmp_path):
    (saved / "model.safetensors").unlink()
    with pytest.raises(BlockPilotError, match=r"model\.safetensors are corrupt: No such file"):
        BlockSizePolicy.from_pretrained(saved)
    (saved / "config.json").unlink()
    with pytest.raises(BlockPilotError, match=r"holds no policy \(config\.json is missing\)"):
        BlockSizePolicy.from_pretrained(saved)
    with pytest.raises(BlockPilotError, match=r"README\.md' is a file; name the folder"):
        BlockSizePolicy.from_pretrained(saved / "README.md")
    for name in (tmp_path / "nowhere", "nowhere", "./nowhere", "a/b/c"):
        with pytest.raises(BlockPilotError, match=r"no policy at .*`blockpilot export-policy RUN"):
            BlockSizePolicy.from_pretrained(name)


def test_no_network_and_nothing_cached(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(BlockPilotError, match="'owner/name' is not a local folder and could not"):
        BlockSizePolicy.from_pretrained("owner/name")


def test_no_rl_library_is_needed(saved):
    program = f"""
import sys
for name in ("stable_baselines3", "gymnasium", "blockpilot_rl.agents", "blockpilot_rl.envs"):
    sys.modules[name] = None
import torch
from blockpilot_rl.policies.policy import BlockSizePolicy
print(BlockSizePolicy.from_pretrained({str(saved)!r}).select(torch.zeros(4)))
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(result.stdout) == random_policy().select(torch.zeros(4))


def test_the_bundled_policy_gains_on_prompts_that_it_did_not_learn_from():
    bundled = BlockSizePolicy.from_pretrained("bundled")
    test = Sweep.load().default_rows().split("test")
    assert bundled.arms == test.arms
    states = test.states[:, test.metadata.state.columns(bundled.state_groups)]
    earned = test.speedups[np.arange(len(test)), bundled.predict(states)].mean()
    fixed = test.speedups[:, test.arm_index(bundled.config.fallback)].mean()
    assert earned > 1.01 * fixed


def test_a_folder_named_bundled_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bundled").mkdir()
    with pytest.raises(BlockPilotError, match="config"):
        BlockSizePolicy.from_pretrained("bundled")
