"""DFlash and DFlash2 checkpoints of vllm-project/speculators, translated to the z-lab layout.

The format nests the config of the draft layers, counts feature layers from the embeddings (layer
0), keeps copies of the target's embeddings and head, and may draft from a reduced vocabulary. The
layers are those of Qwen3 for every kind of config. Sliding windows end a few
positions earlier in its training masks than here and in vLLM, which count them from each position
of the block, not from its anchor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PreTrainedConfig

from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.models.drafter_config import PLAIN

_LAYER_FIELDS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "max_position_embeddings",
    "rms_norm_eps",
    "attention_bias",
)
_KINDS = ("dflash", "dflash2")
_DFLASH2_DEFAULTS = {
    "conv_kernel_size": 2,
    "conv_group_size": 16,
    "selector_rank": 256,
    "selector_top_k": 16,
}
_TRANSLATED = (
    *_DFLASH2_DEFAULTS,
    "aux_hidden_state_layer_ids",
    "block_size",
    "draft_vocab_size",
    "mask_token_id",
    "sliding_window_non_causal",
    "target_hidden_size",
    "transformer_layer_config",
)
# Settings that do not affect decoding: notes about the checkpoint, training settings, and sizes of
# a projector, whose type is checked.
_UNREAD = (
    *PreTrainedConfig().to_dict(),
    "auto_map",
    "emb_dim",
    "gru_hidden_dim",
    "lambda_base_decay_steps",
    "lambda_base_start",
    "max_anchors",
    "pure_draft_prefix_len",
    "speculators_config",
    "speculators_model_type",
    "speculators_version",
    "tie_word_embeddings",
    "torch_dtype",
)
# Copies of parts of the target that only training uses.
_TRAINING_TENSORS = ("verifier_norm.weight", "verifier_lm_head.weight")


def is_speculators(raw: Mapping[str, Any]) -> bool:
    """Whether a `config.json` is of this format."""
    return "speculators_model_type" in raw


def translate_config(raw: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Translate a config to the arguments of `DFlashConfig`.

    Args:
        raw: The values of `config.json`.
        source: Where they are from, named in errors.

    Raises:
        BlockPilotError: If they describe another kind of speculator, or a DFlash variant that
            `DFlashDraftModel` does not support.
    """
    kind = raw["speculators_model_type"]
    if kind not in _KINDS:
        raise BlockPilotError(
            f"drafter {source} is a {kind!r} speculator, not {' or '.join(map(repr, _KINDS))}"
        )
    layers = _layers_config(raw.get("transformer_layer_config"), source)
    _check_settings(raw, layers, source)
    if raw.get("target_hidden_size") not in (None, layers.hidden_size):
        raise BlockPilotError(
            f"drafter {source} reads features of width {raw['target_hidden_size']} with layers of "
            f"width {layers.hidden_size}; both must be the same"
        )
    draft_vocabulary = raw.get("draft_vocab_size", 32000)
    bidirectional = bool(raw.get("sliding_window_non_causal", kind == "dflash2"))
    parts = {name: raw.get(name, default) for name, default in _DFLASH2_DEFAULTS.items()}
    return {
        **{name: getattr(layers, name) for name in _LAYER_FIELDS},
        **_attention_kinds(layers),
        "block_size": raw.get("block_size", 8),
        "draft_vocab_size": None if draft_vocabulary == layers.vocab_size else draft_vocabulary,
        "dflash_config": {
            "mask_token_id": raw.get("mask_token_id"),
            "target_layer_ids": _feature_layers(raw.get("aux_hidden_state_layer_ids"), source),
            # By default, layers with a window see nothing ahead.
            "causal": False if bidirectional else None,
            **(parts if kind == "dflash2" else {}),
        },
    }


def _check_settings(raw: Mapping[str, Any], layers: PreTrainedConfig, source: str) -> None:
    """Refuse settings that the translation would lose, unless they have no effect."""
    for name, value in raw.items():
        harmless = (None, PLAIN.get(name, False), getattr(layers, name, None))
        if name not in (*_TRANSLATED, *_UNREAD) and value not in harmless:
            raise BlockPilotError(
                f"drafter {source} has {name} {value!r}, which is neither DFlash nor DFlash2 and "
                "cannot be read"
            )


def _layers_config(values: Any, source: str) -> PreTrainedConfig:
    """Read the config of the draft layers, which leaves out the defaults of its class."""
    if not isinstance(values, dict):
        raise BlockPilotError(f"drafter {source} has no transformer_layer_config")
    settings = {name: value for name, value in values.items() if name != "model_type"}
    rope = settings.get("rope_parameters") or {}
    # All layers share one rotary embedding; the format uses that of the sliding layers.
    if "sliding_attention" in rope:
        settings["rope_parameters"] = rope["sliding_attention"]
    kind = values.get("model_type", "qwen3")
    try:
        config = AutoConfig.for_model(kind, **settings)
    except (TypeError, ValueError, StrictDataclassError) as error:
        raise BlockPilotError(
            f"drafter {source}: transformer_layer_config is invalid: {one_line(error)}"
        ) from error
    missing = [name for name in _LAYER_FIELDS if not hasattr(config, name)]
    if missing:
        raise BlockPilotError(
            f"drafter {source}: a transformer_layer_config of kind {kind!r} has no {missing[0]}; "
            "the layers must be described like those of 'qwen3' or 'llama'"
        )
    return config


def _attention_kinds(layers: PreTrainedConfig) -> dict[str, Any]:
    """The rotary embedding, and the kind and window of the attention of each layer."""
    kinds = getattr(layers, "layer_types", None)
    window = getattr(layers, "sliding_window", None)
    return {
        "rope_parameters": layers.rope_parameters,
        "layer_types": kinds,
        "sliding_window": window,
        "use_sliding_window": window is not None and "sliding_attention" in (kinds or ()),
    }


def _feature_layers(ids: Any, source: str) -> list[int]:
    """Convert ids that count from the embeddings to ids that count from the decoder layers."""
    if not isinstance(ids, list) or not all(isinstance(index, int) for index in ids):
        raise BlockPilotError(f"drafter {source} names no aux_hidden_state_layer_ids")
    if 0 in ids:
        raise BlockPilotError(
            f"drafter {source} reads the target's embeddings (aux_hidden_state_layer_ids 0); "
            "features must be outputs of decoder layers"
        )
    return [index - 1 for index in ids]


def translate_tensors(
    tensors: Mapping[str, torch.Tensor], draft_vocabulary: int | None, source: str
) -> dict[str, torch.Tensor]:
    """Keep the tensors that decoding needs and check that both vocabulary maps agree.

    A checkpoint in z-lab's layout has only tensors that decoding needs.

    Args:
        tensors: The tensors of the checkpoint, possibly without data.
        draft_vocabulary: Size of the reduced draft vocabulary, or None without one.
        source: Where they are from, named in errors.

    Raises:
        BlockPilotError: If `t2d` and `d2t` name different tokens.
    """
    kept = {name: value for name, value in tensors.items() if name not in _TRAINING_TENSORS}
    used = kept.pop("t2d", None)
    if draft_vocabulary is None:
        # A map of the whole vocabulary to itself is not needed.
        kept.pop("d2t", None)
    elif used is not None and "d2t" in kept and not used.is_meta:
        ids = kept["d2t"] + torch.arange(len(kept["d2t"]))
        if not torch.equal(used.nonzero().flatten(), ids):
            raise BlockPilotError(f"drafter {source}: t2d and d2t name different tokens")
    return kept
