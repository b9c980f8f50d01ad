from __future__ import annotations

import dataclasses
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import load_pair, parse_dtype
from tests.tiny_pair import MASK, STOP, encode, tiny_drafter, tiny_pair, tiny_target, variant

IDS = {"mask_token_id": MASK, "target_layer_ids": [0, 2]}


def test_a_pair_knows_itself(tiny):
    pair = load_pair(*tiny)
    assert (pair.target_name, pair.drafter_name) == ("target", "drafter")
    assert (pair.dtype, pair.device.type, pair.block_size) == (torch.float32, "cpu", 8)
    assert pair.stop_token_ids == (STOP,)
    assert not pair.target.training


def test_a_target_alone(tiny):
    pair = load_pair(tiny[0], with_drafter=False)
    assert (pair.drafter, pair.drafter_name, pair.block_size) == (None, None, 1)
    assert pair.fingerprint == pair.target_fingerprint == load_pair(*tiny).target_fingerprint


def test_another_target_has_no_default_drafter(tiny):
    with pytest.raises(BlockPilotError, match="has no default drafter; name one with --drafter"):
        load_pair(tiny[0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_both_models_run_in_the_same_dtype(tiny, dtype):
    """bstnxbt/dflash-mlx#60: a wrong cast made acceptance zero."""
    pair = load_pair(*tiny, dtype)
    wanted = {getattr(torch, dtype)}
    assert {p.dtype for p in pair.target.parameters()} == wanted
    assert {p.dtype for p in pair.drafter.parameters()} == wanted
    assert pair.dtype in wanted


def test_dtype_names():
    assert parse_dtype("bf16") is parse_dtype("bfloat16") is torch.bfloat16
    assert (parse_dtype("fp32"), parse_dtype("fp16")) == (torch.float32, torch.float16)
    with pytest.raises(BlockPilotError, match=r"unknown dtype 'bfloat15'. Did you mean 'bfloat16'"):
        parse_dtype("bfloat15")


def test_the_shorter_model_sets_the_length(tiny, tmp_path):
    short = variant(tiny[1], tmp_path / "short", max_position_embeddings=100)
    assert load_pair(tiny[0], short).max_length == 100
    assert load_pair(*tiny).max_length == 256


def test_fingerprint_is_the_same_in_bfloat16(tiny):
    assert load_pair(*tiny, "bfloat16").fingerprint == load_pair(*tiny).fingerprint


def test_fingerprint_tells_pairs_apart(tiny, tmp_path):
    pair = load_pair(*tiny)
    assert pair.fingerprint == load_pair(*tiny).fingerprint
    weights, theta = tiny_drafter(seed=9), tiny_drafter()
    theta.config.rope_parameters["rope_theta"] = 500_000.0
    others = [dataclasses.replace(pair, drafter=other) for other in (weights, theta)]
    others.append(dataclasses.replace(pair, target=tiny_target(seed=9)))
    assert len({other.fingerprint for other in (pair, *others)}) == 4
    assert others[0].target_fingerprint == pair.target_fingerprint
    nested = variant(
        tiny[1], tmp_path / "nested", block_size=None, dflash_config={**IDS, "block_size": 8}
    )
    assert load_pair(tiny[0], nested).fingerprint == pair.fingerprint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "nonsense"}, "config that cannot be read: .*nonsense"),
        ({"model_type": None}, "config that cannot be read: .*model_type"),
        ({"hidden_size": "x"}, "config that cannot be read: .*'hidden_size'"),
        ({"hidden_size": 40}, "cannot load target"),
    ],
)
def test_unusable_target_config(tiny, tmp_path, changes, message):
    folder = variant(tiny[0], tmp_path / "target", **changes)
    with pytest.raises(BlockPilotError, match=message) as refused:
        load_pair(folder, tiny[1])
    assert "\n" not in str(refused.value)


def test_broken_target_files(tiny, tmp_path):
    folder = shutil.copytree(tiny[0], tmp_path / "target")
    weights, tokenizer = folder / "model.safetensors", folder / "tokenizer.json"
    kept = weights.read_bytes()
    weights.write_bytes(kept[:500])
    with pytest.raises(BlockPilotError, match="cannot load target"):
        load_pair(folder, tiny[1])
    weights.unlink()
    with pytest.raises(BlockPilotError, match=r"no file named model\.safetensors"):
        load_pair(folder, tiny[1])
    weights.write_bytes(kept)
    tokenizer.write_text("{}", encoding="utf-8")
    with pytest.raises(BlockPilotError, match="no tokenizer that can be read"):
        load_pair(folder, tiny[1])
    (folder / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(BlockPilotError, match="config that cannot be read"):
        load_pair(folder, tiny[1])


def test_a_target_that_lacks_tensors_is_not_filled_with_noise(tiny, tmp_path):
    folder = shutil.copytree(tiny[0], tmp_path / "target")
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"], tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(BlockPilotError, match=r"lacks 2 tensors, such as model\.layers\.1\.mlp"):
        load_pair(folder, tiny[1])


@pytest.mark.parametrize("device", ["gpu7", "cuda:99"])
def test_a_device_that_is_not_there(tiny, device):
    with pytest.raises(BlockPilotError, match=f"cannot load target .* on {device}"):
        load_pair(*tiny, device=device)


def test_gguf_files_that_are_missing_or_broken(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("BLOCKPILOT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(BlockPilotError, match=r"nowhere\.gguf does not exist"):
        load_pair(tmp_path / "nowhere.gguf", tiny[1])
    broken = tmp_path / "Broken.gguf"
    broken.write_bytes(b"GGUF nonsense")
    with pytest.raises(BlockPilotError, match=r"cannot read .*Broken\.gguf as a GGUF model"):
        load_pair(broken, tiny[1])
    assert list((tmp_path / "cache").iterdir()) == []


def test_stop_tokens_come_from_every_source(tiny, tmp_path):
    folder = shutil.copytree(tiny[0], tmp_path / "target")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 9]}))
    assert load_pair(folder, tiny[1]).stop_token_ids == (2, 5, 9)


def test_prompts_are_rendered_with_the_template(tmp_path):
    pair = tiny_pair(tmp_path)
    ids = encode(pair, "ab")
    assert pair.tokenizer.decode(ids[0]) == "ab|"
    pair.tokenizer.chat_template = "{{ messages[0]['content'] }}{% if loud %}!a{% endif %}"
    messages = [{"role": "user", "content": "ab"}]
    assert pair.encode(messages).shape == (1, 2)
    assert pair.encode(messages, loud=True).shape == (1, 4)


def test_prompts_that_cannot_be_rendered(tmp_path):
    pair = tiny_pair(tmp_path)
    for messages in ([], [{"role": "user", "content": " \n"}]):
        with pytest.raises(BlockPilotError, match="the prompt is empty"):
            pair.encode(messages)
    pair.tokenizer.chat_template = None
    with pytest.raises(BlockPilotError, match="target target has no chat template"):
        encode(pair, "a")
