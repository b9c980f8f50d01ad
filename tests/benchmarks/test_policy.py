from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from blockpilot_rl.cli.console import run
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.policies.config import PolicyConfig
from blockpilot_rl.policies.policy import BlockSizePolicy
from tests import benchmark_scripts
from tests.tiny_pair import save_roomy_pair

SCRIPT = benchmark_scripts.load("policy")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A pair with room for the prompts of the built-in suite and no stop tokens, and a policy."""
    folder = save_roomy_pair(tmp_path_factory.mktemp("pair"), stops=False)
    pair = load_pair(folder / "target", folder / "drafter")
    config = PolicyConfig(
        arms=(1, 4),
        state=Decoder(pair).state_layout(("prompt",)),
        hidden=(),
        activation="tanh",
        fallback=4,
        fingerprint=pair.fingerprint,
        target=pair.target_name,
        drafter=pair.drafter_name,
    )
    layers = [(torch.zeros(2, 1), torch.tensor([0.0, 1.0]))]
    policy = BlockSizePolicy.from_layers(config, layers, torch.zeros(1), torch.ones(1))
    policy.save_pretrained(folder / "policy")
    return folder


def benchmark(files, *argv: str) -> int:
    pair = ["--target", str(files / "target"), "--drafter", str(files / "drafter")]
    given = [] if "--policy" in argv else ["--policy", str(files / "policy")]
    return run(SCRIPT.main, SCRIPT.PolicyBenchmark, [*pair, *given, *argv])


@pytest.mark.parametrize("temperature", ["0", "1"])
def test_the_policy_is_compared_with_every_fixed_size(files, tmp_path, temperature):
    out = tmp_path / "out.json"
    options = ["--prompts", "3", "--max-new-tokens", "6", "--dtype", "float32", "--json", str(out)]
    options += ["--block-sizes", "2", "--temperature", temperature]
    assert benchmark(files, *options) == 0
    report = json.loads(out.read_text(encoding="utf-8"))
    fixed = ["plain", "block 2", "block 8", "best fixed"]
    assert report["prompts"] == 3
    assert report["chosen"] == [4, 4, 4]
    assert report["best_fixed"] == 4
    assert list(report["gains"]) == fixed
    speedups = report["mean_speedup"]
    assert speedups["plain"] == 1
    for name, (value, low, high) in report["gains"].items():
        np.testing.assert_allclose(value, speedups["policy"] / speedups[name] - 1)
        assert low <= value <= high
    lengths = report["acceptance_length"]
    assert lengths["plain"] == 1
    assert lengths["policy"] == lengths["best fixed"]


@pytest.mark.parametrize("temperature", ["0", "1"])
def test_every_way_is_warmed_up(files, warmed, temperature):
    options = ["--prompts", "2", "--max-new-tokens", "4", "--block-sizes", "2"]
    assert benchmark(files, *options, "--temperature", temperature) == 0
    assert warmed == [True] * 2 * 5


def test_ways_share_a_prefill_and_take_turns(files):
    config = SCRIPT.PolicyBenchmark(
        policy=str(files / "policy"), max_new_tokens=9, dtype="float32", temperature=1.0
    )
    decoder = Decoder(load_pair(files / "target", files / "drafter"))
    policy = BlockSizePolicy.from_pretrained(files / "policy")
    ways = {"plain": 1, "block 8": 8, "policy": policy}
    rng = np.random.default_rng(0)
    orders = set()
    for prompt in SCRIPT.builtin_suite(6, splits=["test"]):
        texts = SCRIPT.decode(decoder, prompt, ways, config, rng)
        assert len({tuple(text.tokens) for text in texts.values()}) == 1
        assert len({text.prefill_seconds for text in texts.values()}) == 1
        assert texts["policy"].policy_seconds > 0
        orders.add(tuple(texts))
    assert len(orders) > 1


def test_texts_that_end_with_their_first_token_cannot_be_timed(files, capsys, monkeypatch):
    decode = SCRIPT.decode

    def stopped(*arguments):
        texts = decode(*arguments)
        for text in texts.values():
            del text.tokens[1:]
        return texts

    monkeypatch.setattr(SCRIPT, "decode", stopped)
    assert benchmark(files, "--prompts", "2", "--max-new-tokens", "4") == 2
    assert "fewer than two texts have more" in capsys.readouterr().err


def test_bad_arguments(files, capsys):
    for words, message in (
        (("--block-sizes", "4,1"), "--block-sizes must be at least 2 each"),
        (("--prompts", "1"), "--prompts and --max-new-tokens must be at least 2"),
        (("--temperature", "-1"), "temperature"),
        (("--groups", "latin"), "latin"),
        (("--policy", "nowhere"), "nowhere"),
    ):
        assert benchmark(files, *words) == 2
        assert message in capsys.readouterr().err
