from __future__ import annotations

import json
import math
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.checkpoints import check_finite, load_drafter, resolve_checkpoint
from blockpilot_rl.models.pairs import load_pair
from tests.tiny_pair import MASK, PROMPTS, encode, tiny_drafter, variant

IDS = {"mask_token_id": MASK, "target_layer_ids": [0, 2]}


def rewritten(folder, copy, change):
    """A copy of a checkpoint whose tensors went through `change`."""
    shutil.copytree(folder, copy)
    tensors = load_file(copy / "model.safetensors")
    change(tensors)
    save_file(tensors, copy / "model.safetensors")
    return copy


def test_a_saved_drafter_loads_unchanged(tiny):
    original, loaded = tiny_drafter().state_dict(), load_drafter(tiny[1]).state_dict()
    assert original.keys() == loaded.keys()
    assert all(torch.equal(original[name], loaded[name]) for name in original)
    assert not load_drafter(tiny[1]).training


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_dtype_is_kept_unless_one_is_given(tmp_path, dtype):
    """A wrong cast silently makes acceptance zero (bstnxbt/dflash-mlx#60)."""
    drafter = tiny_drafter(draft_vocab_size=3)
    drafter.d2t.copy_(torch.tensor([300, 400, 500]))
    drafter.to(dtype).save_pretrained(tmp_path)
    kept = load_drafter(tmp_path)
    assert {p.dtype for p in kept.parameters()} == {dtype}
    assert {p.dtype for p in load_drafter(tmp_path, torch.float32).parameters()} == {torch.float32}
    # Token ids are whole numbers in any dtype; float16 could not hold them.
    assert kept.draft_token_ids.tolist() == [300, 401, 502]


def test_tensors_in_several_files(tiny, tmp_path):
    folder = shutil.copytree(tiny[1], tmp_path / "drafter")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    save_file({n: tensors[n] for n in names[:5]}, folder / "model-00001-of-00002.safetensors")
    save_file({n: tensors[n] for n in names[5:]}, folder / "model-00002-of-00002.safetensors")
    loaded = load_drafter(folder).state_dict()
    assert all(torch.equal(tensors[name], loaded[name]) for name in names)


@pytest.mark.parametrize("architectures", [["DFlash3DraftModel"], ["Qwen3ForCausalLM"], ["A", "B"]])
def test_other_architectures_are_refused_by_name(tiny, tmp_path, architectures):
    folder = variant(tiny[1], tmp_path / "drafter", architectures=architectures)
    with pytest.raises(BlockPilotError) as refused:
        load_drafter(folder)
    assert f"has architecture {architectures}, not DFlashDraftModel or" in str(refused.value)


def test_missing_and_unclaimed_tensors_are_named(tiny, tmp_path):
    folder = rewritten(
        tiny[1],
        tmp_path / "drafter",
        lambda tensors: tensors.update(extra=tensors.pop("layers.1.self_attn.q_norm.weight")),
    )
    with pytest.raises(BlockPilotError) as refused:
        load_drafter(folder)
    assert "missing tensors ['layers.1.self_attn.q_norm.weight']" in str(refused.value)
    assert "unclaimed tensors ['extra'] (1 and 1 in total)" in str(refused.value)


def test_a_tensor_of_another_shape_is_named(tiny, tmp_path):
    folder = variant(tiny[1], tmp_path / "drafter", intermediate_size=40)
    with pytest.raises(BlockPilotError, match=r"mlp.gate_proj.weight has shape \(48, 32\)"):
        load_drafter(folder)


def test_a_reduced_vocabulary_needs_its_map(tiny, tmp_path):
    folder = variant(tiny[1], tmp_path / "drafter", draft_vocab_size=8)
    with pytest.raises(BlockPilotError, match=r"missing tensors \['d2t'\]"):
        load_drafter(folder)


def test_settings_of_plain_dflash_can_be_stated(tiny, tmp_path):
    plain = {"causal": None, "use_aux_hidden_state": True, "output_multiplier": 1.0}
    folder = variant(
        tiny[1], tmp_path / "drafter", sample_from_anchor=False, dflash_config={**IDS, **plain}
    )
    original, loaded = load_drafter(tiny[1]), load_drafter(folder)
    assert loaded.config.target_layer_ids == original.config.target_layer_ids
    assert [layer.self_attn.is_causal for layer in loaded.layers] == [False, False]


@pytest.mark.parametrize("module", ["embed_tokens", "lm_head"])
def test_own_modules_are_found_by_their_tensors(tiny, tmp_path, module):
    """vllm-project/vllm#53662: checkpoints have embeddings, a head, both or neither."""
    table = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))
    folder = rewritten(
        tiny[1],
        tmp_path / "drafter",
        lambda tensors: tensors.update({f"{module}.weight": table}),
    )
    drafter = load_drafter(folder)
    assert torch.equal(drafter.own(module).weight, table)
    drafter.save_pretrained(tmp_path / "again")
    again = load_drafter(tmp_path / "again")
    assert torch.equal(again.own(module).weight, table)
    again.release(module)
    assert again.own(module) is None
    assert again.state_dict().keys() == load_drafter(tiny[1]).state_dict().keys()
    assert again.config.dflash_config == load_drafter(tiny[1]).config.dflash_config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("\ufeff{}", "cannot be read as JSON"),
        ("[1]", "holds no JSON object"),
    ],
)
def test_broken_config_file(tiny, tmp_path, text, message):
    folder = shutil.copytree(tiny[1], tmp_path / "drafter")
    (folder / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(BlockPilotError, match=message):
        load_drafter(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": "abc"}, "is invalid: .*'hidden_size'"),
        ({"num_hidden_layers": 3}, "the config has 3 layers, the weights have 2"),
        ({"dflash_config": [1]}, "is invalid"),
        ({"num_attention_heads": 0}, "describes no model that can be built"),
        ({"rope_parameters": {"rope_type": "spiral"}}, "rope_type 'spiral' is not one of default"),
        ({"rope_theta": 5e5}, "is invalid: .*rope_theta is 500000.0 in one place and 10000.0"),
        ({"block_size": 16, "dflash_config": {**IDS, "block_size": 8}}, "block_size is 16 in one"),
        (
            {"is_causal": True, "dflash_config": {**IDS, "causal": False}},
            "is_causal is True in one",
        ),
        (
            {"dflash_config": {**IDS, "selector_rank": 8}},
            "of DFlash2 has no conv_kernel_size, conv_group_size, selector_top_k",
        ),
        ({"attention_sink_bias": True}, "has attention_sink_bias True, which is neither"),
        (
            {"dflash_config": {**IDS, "output_multiplier": 0.0}},
            "output_multiplier 0.0 must be a positive number",
        ),
        ({"dflash_config": {"mask_token_id": MASK, "target_layer_ids": ["a"]}}, "are outside 0..2"),
        ({"block_size": 1}, "block_size 1 must be at least 2"),
    ],
)
def test_unusable_config_values(tiny, tmp_path, changes, message):
    folder = variant(tiny[1], tmp_path / "drafter", **changes)
    with pytest.raises(BlockPilotError, match=message) as refused:
        load_drafter(folder)
    assert str(folder) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_corrupt_and_missing_weights(tiny, tmp_path):
    folder = shutil.copytree(tiny[1], tmp_path / "drafter")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(BlockPilotError, match=r"model\.safetensors are corrupt"):
        load_drafter(folder)
    weights.unlink()
    with pytest.raises(BlockPilotError, match=r"has no \*\.safetensors or pytorch_model"):
        load_drafter(folder)


def test_a_folder_without_a_config(tmp_path):
    with pytest.raises(BlockPilotError, match=r"drafter .* has no config\.json"):
        resolve_checkpoint(tmp_path, "drafter")


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere", "a/b/c", "weights.bin"])
def test_a_name_that_is_neither_a_folder_nor_a_hub_id(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"a file")
    with pytest.raises(BlockPilotError, match=f"drafter '{name}' is neither a folder nor a hub id"):
        resolve_checkpoint(name, "drafter")


def test_a_name_that_cannot_be_a_hub_id():
    with pytest.raises(BlockPilotError, match="'owner/na me' is not a hub id"):
        resolve_checkpoint("owner/na me", "target")


@pytest.mark.parametrize("name", ["owner/name", "nowhere"])
def test_no_network_and_nothing_cached(tmp_path, monkeypatch, name):
    cached(monkeypatch, tmp_path)
    with pytest.raises(BlockPilotError) as refused:
        resolve_checkpoint(name, "target")
    assert f"'{name}' is not a local folder and could not be fetched" in str(refused.value)
    assert "check the name and the network, or give a local folder" in str(refused.value)


def cached(monkeypatch, cache, **checkpoints):
    """Lay checkpoints out as snapshots of `owner/NAME` in a hub cache that has no network."""
    for name, folder in checkpoints.items():
        snapshot(cache / f"models--owner--{name}", folder)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))


def snapshot(repository, folder):
    """Lay a checkpoint out as the only snapshot of a cached repository."""
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    return shutil.copytree(folder, repository / "snapshots" / "abc")


def test_a_cached_hub_snapshot_needs_no_network(tiny, tmp_path, monkeypatch):
    cached(monkeypatch, tmp_path, name=tiny[1])
    assert load_drafter("owner/name").config.block_size == 8


def test_a_pair_by_its_hub_ids(tiny, tmp_path, monkeypatch):
    """Model, tokenizer and chat template of the target come from the hub's snapshot too."""
    cached(monkeypatch, tmp_path, target=tiny[0], drafter=tiny[1])
    ours, theirs = load_pair("owner/target", "owner/drafter"), load_pair(*tiny)
    assert (ours.target_name, ours.drafter_name) == ("owner/target", "owner/drafter")
    assert ours.fingerprint == theirs.fingerprint
    assert ours.stop_token_ids == theirs.stop_token_ids
    assert torch.equal(encode(ours, PROMPTS[0]), encode(theirs, PROMPTS[0]))
    with pytest.raises(BlockPilotError, match="target 'owner/other' is not a local folder and"):
        load_pair("owner/other", "owner/drafter")


def test_a_target_without_an_owner_and_without_safetensors(tiny, tmp_path, monkeypatch):
    """As in old repositories: an id like `gpt2`, and all weights in `pytorch_model.bin`."""
    cached(monkeypatch, tmp_path, drafter=tiny[1])
    weights = snapshot(tmp_path / "models--old", tiny[0]) / "model.safetensors"
    torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
    weights.unlink()
    pair = load_pair("old", "owner/drafter")
    assert pair.target_name == "old"
    assert pair.fingerprint == load_pair(*tiny).fingerprint


@pytest.mark.parametrize(
    ("kind", "weights", "file", "wanted"),
    [
        ("target", None, "pytorch_model.bin", True),
        ("target", None, "pytorch_model-00001-of-00002.bin", True),
        ("target", None, "pytorch_model.bin.index.json", True),
        ("target", None, "optimizer.bin", False),
        ("target", "model.safetensors", "pytorch_model.bin", False),
        ("target", "model-00001-of-00002.safetensors", "pytorch_model.bin", False),
        ("drafter", None, "pytorch_model.bin", True),
        ("target", "model.safetensors", "qwen.tiktoken", True),
        ("target", "model.safetensors", "vocab.bpe", True),
        ("target", "model.safetensors", "merges.txt", True),
        ("target", "model.safetensors", "tokenizer.model", True),
    ],
)
def test_which_files_of_a_repository_are_downloaded(
    tmp_path, monkeypatch, kind, weights, file, wanted
):
    """The cache has the list of files; a file that is wanted is missing there."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ["config.json"] + ([] if weights is None else [weights]):
        (folder / name).write_text("{}")
    cached(monkeypatch, tmp_path / "cache", name=folder)
    listing = {file: {"size": 1, "blob_id": "0" * 40}}
    trees = tmp_path / "cache" / "models--owner--name" / "trees"
    trees.mkdir()
    (trees / "abc.json").write_text(json.dumps({"format_version": 1, "files": listing}))
    if wanted:
        with pytest.raises(BlockPilotError, match=r"could not be fetched .*IncompleteSnapshot"):
            resolve_checkpoint("owner/name", kind)
    else:
        assert (resolve_checkpoint("owner/name", kind) / "config.json").is_file()


# A config.json in the form that z-lab publishes, with smaller sizes.
Z_LAB = """{
  "architectures": ["DFlashDraftModel"],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
  "block_size": 16,
  "bos_token_id": 1,
  "dflash_config": {"mask_token_id": 63, "target_layer_ids": [0, 2]},
  "dtype": "bfloat16",
  "eos_token_id": 2,
  "head_dim": 8,
  "hidden_act": "silu",
  "hidden_size": 32,
  "initializer_range": 0.02,
  "intermediate_size": 48,
  "layer_types": ["full_attention", "full_attention"],
  "max_position_embeddings": 256,
  "max_window_layers": 2,
  "model_type": "qwen3",
  "num_attention_heads": 4,
  "num_hidden_layers": 2,
  "num_key_value_heads": 2,
  "num_target_layers": 4,
  "rms_norm_eps": 1e-06,
  "rope_scaling": null,
  "rope_theta": 1000000,
  "sliding_window": null,
  "tie_word_embeddings": true,
  "transformers_version": "4.57.3",
  "use_cache": true,
  "use_sliding_window": false,
  "vocab_size": 64
}"""
LLAMA3 = {
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 64,
}


def frequencies(theta):
    return torch.tensor([theta ** (-i / 4) for i in range(4)])


def llama3_frequencies(theta):
    """The formula of Llama 3.1, for `LLAMA3`."""
    plain = frequencies(theta)
    turns = 64 * plain / (2 * math.pi)
    smooth = ((turns - 1.0) / (4.0 - 1.0)).clamp(0, 1)
    return (1 - smooth) * plain / 8.0 + smooth * plain


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        ({}, frequencies(1e6)),
        (
            {"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2.0}},
            frequencies(1e4) / 2,
        ),
        (
            {"rope_theta": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
            frequencies(1e4) / 2,
        ),
        (
            {
                "rope_theta": None,
                "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
            },
            frequencies(1e4) / 2,
        ),
        (
            {"rope_theta": 1e4, "rope_scaling": {"type": "llama3", **LLAMA3}},
            llama3_frequencies(1e4),
        ),
        (
            {"rope_theta": 1e4, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
            llama3_frequencies(1e4),
        ),
    ],
)
def test_a_config_as_z_lab_writes_it(tiny, tmp_path, spelled, expected):
    """With the tensors of a drafter."""
    folder = shutil.copytree(tiny[1], tmp_path / "drafter")
    (folder / "config.json").write_text(json.dumps(json.loads(Z_LAB) | spelled), encoding="utf-8")
    drafter = load_drafter(folder)
    config = drafter.config
    assert (config.block_size, config.mask_token_id, config.target_layer_ids) == (16, MASK, [0, 2])
    assert [layer.self_attn.is_causal for layer in drafter.layers] == [False, False]
    assert (drafter.own("embed_tokens"), drafter.own("lm_head")) == (None, None)
    torch.testing.assert_close(drafter.rotary_emb.inv_freq, expected)
    saved = load_file(tiny[1] / "model.safetensors")
    assert all(torch.equal(saved[name], value) for name, value in drafter.state_dict().items())
    pair = load_pair(tiny[0], folder)
    decoder, ids = Decoder(pair), encode(pair, PROMPTS[3])
    plain, blocks = (decoder.generate(ids, size, 20).tokens for size in (1, 16))
    assert blocks == plain


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "name",
    [
        "fc.weight",
        "norm.weight",
        "layers.1.mlp.down_proj.weight",
        "layers.0.self_attn.q_norm.weight",
    ],
)
def test_nan_and_infinite_weights_of_a_drafter_are_named(tiny, tmp_path, name, value):
    def change(tensors):
        tensors[name].flatten()[-1] = value

    folder = rewritten(tiny[1], tmp_path / "drafter", change)
    with pytest.raises(BlockPilotError, match=f"tensor {name} holds 1 values that are NaN or"):
        load_drafter(folder)


@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.2.self_attn.v_proj.weight"])
def test_nan_weights_of_a_target_are_named(tiny, tmp_path, name):
    folder = rewritten(tiny[0], tmp_path / "target", lambda tensors: tensors[name].fill_(math.nan))
    with pytest.raises(BlockPilotError, match=f"target .*tensor {name} holds .* NaN or infinite"):
        load_pair(folder, tiny[1])


def test_weights_that_overflow_in_half_precision_are_named(tiny, tmp_path):
    folder = rewritten(tiny[1], tmp_path / "drafter", lambda t: t["fc.weight"].mul_(1e9))
    assert load_drafter(folder).dtype == torch.float32
    with pytest.raises(BlockPilotError, match="load it as bfloat16 or float32"):
        load_drafter(folder, torch.float16)


def test_large_finite_weights_are_numbers():
    """Their sum is infinite."""
    check_finite([("a", torch.full((4,), 3e38)), ("b", torch.arange(3))], "here")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 2**24}, "has shape"),
        ({"intermediate_size": 2**40}, "mlp.gate_proj.weight has shape|mlp.down_proj.weight has"),
        ({"num_hidden_layers": 10**9}, "the config has 1000000000 layers, the weights have 2"),
        ({"num_attention_heads": 2**30}, "has shape"),
        ({"head_dim": 2**32}, "has shape"),
        ({"draft_vocab_size": 2**40}, r"missing tensors \['d2t'\]"),
        ({"dflash_config": {**IDS, "correction_rank": 2**40}}, "missing tensors"),
        (
            {
                "dflash_config": {
                    **IDS,
                    "conv_kernel_size": 2**30,
                    "conv_group_size": 16,
                    "selector_rank": 2**40,
                    "selector_top_k": 4,
                }
            },
            "missing tensors",
        ),
    ],
)
def test_sizes_in_a_config_are_compared_before_anything_is_allocated(
    tiny, tmp_path, changes, message
):
    """Each would take more memory than the machine has."""
    folder = variant(tiny[1], tmp_path / "drafter", layer_types=None, **changes)
    with pytest.raises(BlockPilotError, match=message) as refused:
        load_drafter(folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "how", ["prefix", "pytorch", "old pytorch", "no architectures", "everything"]
)
def test_checkpoints_of_other_tools_are_read(tiny, tmp_path, how):
    """A prefix of all tensors, PyTorch's own files, and configs without an architecture."""
    changes = {"architectures": None} if how in ("no architectures", "everything") else {}
    folder = variant(tiny[1], tmp_path / "drafter", **changes)
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    if how in ("prefix", "everything"):
        tensors = {f"model.{name}": tensor for name, tensor in tensors.items()}
        save_file(tensors, weights)
    if how in ("pytorch", "old pytorch", "everything"):
        weights.unlink()
        new = how != "old pytorch"
        torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=new)
    ours, theirs = load_drafter(folder), load_drafter(tiny[1])
    assert all(torch.equal(ours.state_dict()[k], v) for k, v in theirs.state_dict().items())


@pytest.mark.parametrize("name", ["fc.weight", "norm.weight", "layers.1.mlp.up_proj.weight"])
@pytest.mark.parametrize("new", [True, False])
def test_tensors_that_are_larger_than_their_data_are_refused(tiny, tmp_path, name, new):
    """Copying one, with a config that states the same size, would fill the memory."""
    folder = shutil.copytree(tiny[1], tmp_path / "drafter")
    tensors = load_file(folder / "model.safetensors")
    tensors[name] = torch.zeros(1).expand(tensors[name].shape)
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=new)
    with pytest.raises(BlockPilotError, match=f"tensor {name} is larger than its data"):
        load_drafter(folder)


class _Evil:
    def __reduce__(self):
        return (os.mkdir, ("evil",))


def test_pytorch_files_run_no_code(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(tiny[1], tmp_path / "drafter")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save({**tensors, "extra": _Evil()}, folder / "pytorch_model.bin")
    with pytest.raises(BlockPilotError, match=r"pytorch_model.bin are corrupt"):
        load_drafter(folder)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("outer", "inner", "causal"),
    [
        ({"is_causal": True}, {}, True),
        ({}, {"is_causal": True}, True),
        ({}, {"causal": False}, False),
        ({"is_causal": False}, {"is_causal": False, "causal": False}, False),
    ],
)
def test_causality_can_be_stated_at_every_place(tiny, tmp_path, outer, inner, causal):
    folder = variant(tiny[1], tmp_path / "drafter", dflash_config={**IDS, **inner}, **outer)
    drafter = load_drafter(folder)
    assert [layer.self_attn.is_causal for layer in drafter.layers] == [causal, causal]


@pytest.mark.parametrize(
    "stated",
    [
        {"final_logit_softcapping": 0.0},
        {"output_multiplier": 1},
        {"final_logit_softcapping": 0, "output_multiplier": 1.0, "input_embedding_scale": 1},
    ],
)
def test_scales_without_effect_can_be_stated(tiny, tmp_path, stated):
    folder = variant(tiny[1], tmp_path / "drafter", dflash_config={**IDS, **stated})
    logits = torch.randn(2, 64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(load_drafter(folder).scale_logits(logits), logits)
