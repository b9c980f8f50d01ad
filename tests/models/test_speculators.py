"""Checkpoints of vllm-project/speculators, written here tensor by tensor, as its trainer does."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import DynamicCache

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.checkpoints import load_drafter
from blockpilot_rl.models.pairs import load_pair
from tests.tiny_pair import MASK, PROMPTS, encode

HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INNER = 4, 2, 8, 32, 48
THETA = 50_000.0
LAYERS = {
    "model_type": "qwen3",
    "vocab_size": 64,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": 256,
    "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
    "layer_types": ["full_attention", "full_attention"],
    "rms_norm_eps": 1e-5,
}
WINDOW = {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 5,
    "use_sliding_window": True,
}
CONFIG = {
    "architectures": ["DFlashDraftModel"],
    "auto_map": {"": "config.DFlashSpeculatorConfig"},
    "aux_hidden_state_layer_ids": [1, 3],
    "block_size": 8,
    "draft_vocab_size": 64,
    "dtype": "float32",
    "mask_token_id": MASK,
    "sample_from_anchor": False,
    "sliding_window_non_causal": False,
    "speculators_config": {
        "algorithm": "dflash",
        "default_proposal_method": "greedy",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 7}],
        "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": "somewhere/else"},
    },
    "speculators_model_type": "dflash",
    "speculators_version": "0.7.0",
    "target_hidden_size": None,
    "tie_word_embeddings": False,
    "transformer_layer_config": LAYERS,
}
IDS = torch.tensor([2, 5, 6, 40, 63])


def random_tensors(bias: bool = False, rows: int = 64) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint, with the names of the format."""
    generator = torch.Generator().manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (64, HIDDEN),
        "lm_head.weight": (rows, HIDDEN),
        "fc.weight": (HIDDEN, 2 * HIDDEN),
        "hidden_norm.weight": (HIDDEN,),
        "norm.weight": (HIDDEN,),
        "verifier_norm.weight": (HIDDEN,),
    }
    for i in range(2):
        for name, out in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            shapes[f"layers.{i}.self_attn.{name}_proj.weight"] = (out * HEAD_DIM, HIDDEN)
            if bias:
                shapes[f"layers.{i}.self_attn.{name}_proj.bias"] = (out * HEAD_DIM,)
        shapes[f"layers.{i}.self_attn.o_proj.weight"] = (HIDDEN, HEADS * HEAD_DIM)
        if bias:
            shapes[f"layers.{i}.self_attn.o_proj.bias"] = (HIDDEN,)
        shapes[f"layers.{i}.self_attn.q_norm.weight"] = (HEAD_DIM,)
        shapes[f"layers.{i}.self_attn.k_norm.weight"] = (HEAD_DIM,)
        shapes[f"layers.{i}.mlp.gate_proj.weight"] = (INNER, HIDDEN)
        shapes[f"layers.{i}.mlp.up_proj.weight"] = (INNER, HIDDEN)
        shapes[f"layers.{i}.mlp.down_proj.weight"] = (HIDDEN, INNER)
        shapes[f"layers.{i}.input_layernorm.weight"] = (HIDDEN,)
        shapes[f"layers.{i}.post_attention_layernorm.weight"] = (HIDDEN,)
    return {
        name: (0.3 if len(shape) > 1 else 0.1) * torch.randn(shape, generator=generator)
        + ("norm" in name)
        for name, shape in shapes.items()
    }


def write(folder, tensors, layers=None, **changes):
    """Write a checkpoint; `layers` changes the nested config, None leaves a key out."""
    nested = {k: v for k, v in {**LAYERS, **(layers or {})}.items() if v is not None}
    config = {**CONFIG, "transformer_layer_config": nested, **changes}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, folder / "model.safetensors")
    return folder


def reference(tensors, config, features, anchor, block=8):
    """Draft logits of one block after its context, from the definition of the format."""
    kinds = config.get("layer_types") or ["full_attention"] * 2
    window = config.get("sliding_window")
    eps = config.get("rms_norm_eps", 1e-6)
    act = F.silu if config.get("hidden_act", "silu") == "silu" else F.gelu

    def norm(x, name):
        return tensors[name] * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()

    def linear(x, name):
        y = x @ tensors[f"{name}.weight"].T
        return y + tensors[f"{name}.bias"] if f"{name}.bias" in tensors else y

    n = len(features)
    angles = torch.arange(n + block)[:, None] * THETA ** -(torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    turn = torch.polar(torch.ones_like(angles), angles)

    def rotate(x, turns):
        half = HEAD_DIM // 2
        pairs = torch.complex(x[..., :half], x[..., half:]) * turns[:, None]
        return torch.cat([pairs.real, pairs.imag], dim=-1)

    context = norm(features @ tensors["fc.weight"].T, "hidden_norm.weight")
    hidden = tensors["embed_tokens.weight"][[anchor] + [MASK] * (block - 1)]
    position, places = torch.arange(n, n + block)[:, None], torch.arange(n + block)
    for i in range(2):
        base = f"layers.{i}.self_attn"
        normed = norm(hidden, f"layers.{i}.input_layernorm.weight")
        both = torch.cat([context, normed])
        query = linear(normed, f"{base}.q_proj").view(block, HEADS, HEAD_DIM)
        key = linear(both, f"{base}.k_proj").view(n + block, KV_HEADS, HEAD_DIM)
        value = linear(both, f"{base}.v_proj").view(n + block, KV_HEADS, HEAD_DIM)
        query = rotate(norm(query, f"{base}.q_norm.weight"), turn[n:])
        key = rotate(norm(key, f"{base}.k_norm.weight"), turn)
        seen = torch.ones(block, n + block, dtype=torch.bool)
        if kinds[i] == "sliding_attention":
            seen = (position - places).abs() < window
            if not config.get("sliding_window_non_causal", False):
                seen &= places <= position
        heads = []
        for h in range(HEADS):
            shared = h // (HEADS // KV_HEADS)
            scores = query[:, h] @ key[:, shared].T / math.sqrt(HEAD_DIM)
            weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
            heads.append(weights @ value[:, shared])
        hidden = hidden + linear(torch.cat(heads, dim=-1), f"{base}.o_proj")
        normed = norm(hidden, f"layers.{i}.post_attention_layernorm.weight")
        gate = act(linear(normed, f"layers.{i}.mlp.gate_proj"))
        up = linear(normed, f"layers.{i}.mlp.up_proj")
        hidden = hidden + linear(gate * up, f"layers.{i}.mlp.down_proj")
    return norm(hidden[1:], "norm.weight") @ tensors["lm_head.weight"].T


VARIANTS = {
    "plain": ({}, {}),
    "defaults-left-out": ({"model_type": None, "layer_types": None}, {}),
    "llama": ({"model_type": "llama"}, {}),
    "bias": ({"attention_bias": True}, {}),
    "gelu": ({"hidden_act": "gelu"}, {}),
    "window": (WINDOW, {}),
    "window-both-ways": (WINDOW, {"sliding_window_non_causal": True}),
    "window-llama": ({**WINDOW, "model_type": "llama"}, {}),
    "rope-per-kind": (
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 1.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": THETA},
            }
        },
        {},
    ),
    "reduced": ({}, {"draft_vocab_size": len(IDS)}),
}


@pytest.mark.parametrize("name", VARIANTS)
@torch.inference_mode()
def test_logits_follow_the_definition_of_the_format(tiny, tmp_path, name):
    """In the modules and in the lean pass, with its own embeddings and head."""
    layers, changes = VARIANTS[name]
    rows = changes.get("draft_vocab_size", 64)
    tensors = random_tensors("attention_bias" in layers, rows)
    maps = {}
    if rows < 64:
        maps = {"d2t": IDS - torch.arange(rows), "t2d": torch.zeros(64, dtype=torch.bool)}
        maps["t2d"][IDS] = True
    folder = write(tmp_path / "drafter", {**tensors, **maps}, layers, **changes)
    features = torch.randn(9, 2 * HIDDEN, generator=torch.Generator().manual_seed(1))
    expected = reference(tensors, {**LAYERS, **layers, **changes}, features, anchor=7)

    drafter = load_drafter(folder)
    hidden = drafter(
        noise_embeds=drafter.embed_tokens(torch.tensor([[7] + [MASK] * 7])),
        context_hidden_states=features[None],
        cache=DynamicCache(),
    ).last_hidden_state
    logits = drafter.lm_head(hidden[0, 1:])
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)

    lean = Decoder(load_pair(tiny[0], folder)).drafter
    cache = lean.new_cache(1, 20)
    lean.extend(features[None], cache)
    anchor = torch.tensor([[7]])
    logits = lean.greedy_logits(lean.draft(anchor, 8, cache), anchor[0])[0]
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    if rows < 64:
        assert lean.to_target_ids(torch.arange(rows)).tolist() == IDS.tolist()


@pytest.fixture
def translated(trained, tmp_path):
    """The trained drafter in this format, with copies of the target's embeddings and head."""
    drafter, target = trained.drafter, trained.target
    tensors = dict(drafter.state_dict())
    tensors.pop("d2t", None)
    tensors["embed_tokens.weight"] = target.get_input_embeddings().weight.detach()
    tensors["lm_head.weight"] = target.lm_head.weight.detach()
    tensors["verifier_norm.weight"] = target.model.norm.weight.detach()
    config = drafter.config
    names = (*LAYERS.keys() - {"model_type"}, "hidden_act", "attention_bias")
    return write(
        tmp_path / "translated",
        {name: value.clone() for name, value in tensors.items()},
        {name: getattr(config, name) for name in names},
        aux_hidden_state_layer_ids=[i + 1 for i in config.target_layer_ids],
        mask_token_id=config.mask_token_id,
        block_size=config.block_size,
    )


def test_decoding_accepts_as_much_as_in_the_other_layout(trained, translated, tiny):
    """Layer 1 of this format is the first decoder layer, layer 0 of z-lab's (vllm#40727)."""
    pair = dataclasses.replace(load_pair(tiny[0], translated), stop_token_ids=())
    assert pair.drafter.config.target_layer_ids == trained.drafter.config.target_layer_ids
    assert pair.drafter.own("embed_tokens") is None
    assert pair.drafter.own("lm_head") is None
    ours, theirs = Decoder(trained), Decoder(pair)
    for text in PROMPTS:
        ids = encode(trained, text)
        expected, generation = ours.generate(ids, 8, 40), theirs.generate(ids, 8, 40)
        assert (generation.tokens, generation.accepted) == (expected.tokens, expected.accepted)
    assert max(expected.accepted) > 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"speculators_model_type": "eagle3"}, "is a 'eagle3' speculator, not 'dflash'"),
        ({"speculators_model_type": "dspark"}, "is a 'dspark' speculator, not 'dflash'"),
        (
            {"speculators_model_type": "dflash3"},
            "is a 'dflash3' speculator",
        ),
        ({"sample_from_anchor": True}, "has sample_from_anchor True, which is neither"),
        ({"shift_label": True}, "has shift_label True, which is neither"),
        ({"projector_type": "domino"}, "has projector_type 'domino', which is neither"),
        (
            {"quantization_config": {"bits": 4}},
            "has quantization_config {'bits': 4}",
        ),
        ({"sliding_window": 5}, "has sliding_window 5, which is neither"),
        ({"new_setting": 0.5}, "has new_setting 0.5, which is neither"),
        ({"target_hidden_size": 48}, "features of width 48 with layers of width 32"),
        ({"aux_hidden_state_layer_ids": [0, 2]}, "reads the target's embeddings"),
        ({"aux_hidden_state_layer_ids": None}, "names no aux_hidden_state_layer_ids"),
        ({"mask_token_id": None}, "has no mask_token_id"),
        ({"transformer_layer_config": None}, "has no transformer_layer_config"),
        ({"transformer_layer_config": {"model_type": "gpt2"}}, "of kind 'gpt2' has no"),
        ({"transformer_layer_config": {"model_type": "nonsense"}}, "is invalid: .*nonsense"),
        (
            {"transformer_layer_config": {**LAYERS, "hidden_size": "wide"}},
            "transformer_layer_config is invalid: .*hidden_size",
        ),
        ({"draft_vocab_size": 5}, r"missing tensors \['d2t'\]"),
    ],
)
def test_unsupported_settings_are_refused_by_name(tmp_path, changes, message):
    folder = write(tmp_path / "drafter", random_tensors(), **changes)
    with pytest.raises(BlockPilotError, match=message) as refused:
        load_drafter(folder)
    assert "\n" not in str(refused.value)


def test_settings_without_effect_can_be_stated(tmp_path):
    """Notes, training settings, disabled options, and repetitions of the config of the layers."""
    notes = {"max_anchors": 256, "transformers_version": "5.10.2", "torch_dtype": "bfloat16"}
    plain = {"projector_type": "dflash", "shift_label": False, "gru_hidden_dim": 1024}
    others = {"has_no_defaults_at_init": False, "new_setting": None, "vocab_size": 64}
    folder = write(tmp_path / "drafter", random_tensors(), **notes, **plain, **others)
    plainly = write(tmp_path / "plain", random_tensors())
    assert load_drafter(folder).config.to_dict() == load_drafter(plainly).config.to_dict()


def test_vocabulary_maps_must_agree(tmp_path):
    maps = {"d2t": IDS - torch.arange(5), "t2d": torch.zeros(64, dtype=torch.bool)}
    maps["t2d"][IDS + 1 - (IDS == 63).long()] = True
    folder = write(tmp_path / "drafter", {**random_tensors(rows=5), **maps}, draft_vocab_size=5)
    with pytest.raises(BlockPilotError, match="t2d and d2t name different tokens"):
        load_drafter(folder)


def test_maps_of_the_whole_vocabulary_are_ignored(tmp_path):
    maps = {"d2t": torch.zeros(64, dtype=torch.long), "t2d": torch.ones(64, dtype=torch.bool)}
    drafter = load_drafter(write(tmp_path / "drafter", {**random_tensors(), **maps}))
    assert drafter.draft_token_ids is None


@pytest.mark.parametrize("module", ["embed_tokens", "lm_head"])
def test_modules_that_the_checkpoint_lacks_are_the_targets(tmp_path, module):
    tensors = random_tensors()
    del tensors[f"{module}.weight"]
    drafter = load_drafter(write(tmp_path / "drafter", tensors))
    assert drafter.own(module) is None


def test_parts_of_another_algorithm_are_unclaimed(tmp_path):
    tensors = {**random_tensors(), "aux_hidden_norms.0.weight": torch.ones(HIDDEN)}
    with pytest.raises(BlockPilotError, match=r"unclaimed tensors \['aux_hidden_norms.0.weight'\]"):
        load_drafter(write(tmp_path / "drafter", tensors))


def test_the_targets_last_layer_is_refused(tiny, tmp_path):
    """Its output is normalised there and not here (vllm-project/speculators#705)."""
    folder = write(tmp_path / "drafter", random_tensors(), aux_hidden_state_layer_ids=[1, 4])
    with pytest.raises(BlockPilotError, match=r"reads target layers \[3\]"):
        load_pair(tiny[0], folder)
