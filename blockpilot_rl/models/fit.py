"""Checks that a target can forget rejected drafts and that a drafter fits it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.drafter import DFlashDraftModel


def check_architecture(folder: Path, config: Any) -> None:
    """Refuse targets whose caches cannot forget rejected drafts, before any weight is read.

    Args:
        folder: The target's checkpoint, named in errors.
        config: The target's config.

    Raises:
        BlockPilotError: If the target is an encoder-decoder, a multimodal model, or a model with a
            recurrent state.
    """
    if getattr(config, "is_encoder_decoder", False):
        raise BlockPilotError(f"target {folder} is an encoder-decoder; give a decoder-only model")
    if config.get_text_config(decoder=True) is not config:
        raise BlockPilotError(
            f"target {folder} is a multimodal {config.model_type} model; give a text-only model"
        )
    kinds = set(getattr(config, "layer_types", None) or [])
    recurrent = sorted(kinds - {"full_attention", "sliding_attention"})
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    if recurrent or getattr(model_class, "_is_stateful", False):
        what = f"layers of kind {recurrent}" if recurrent else f"a {config.model_type} state"
        raise BlockPilotError(
            f"target {folder} has {what}: rejected drafts would stay in it; give a model with "
            "attention layers only"
        )


def check_fit(
    target: PreTrainedModel,
    drafter: DFlashDraftModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> None:
    """Check that a drafter fits a target.

    Args:
        target: The target.
        drafter: The drafter.
        tokenizer: The target's tokenizer; None if prompts are tokens.

    Raises:
        BlockPilotError: If hidden size, depth, layers, mask token or vocabulary do not fit.
    """
    mine, theirs = drafter.config, target.config
    if mine.hidden_size != theirs.hidden_size:
        raise BlockPilotError(
            f"drafter and target do not fit: hidden size {mine.hidden_size} against "
            f"{theirs.hidden_size}"
        )
    if mine.num_target_layers not in (None, theirs.num_hidden_layers):
        raise BlockPilotError(
            f"drafter and target do not fit: drafter made for {mine.num_target_layers} target "
            f"layers, target has {theirs.num_hidden_layers}"
        )
    check_layer_ids(target, mine.target_layer_ids)
    check_mask_token(target, mine.mask_token_id, tokenizer)
    vocabulary = vocabulary_size(target)
    if mine.vocab_size != vocabulary:
        raise BlockPilotError(
            f"drafter and target do not fit: vocabulary {mine.vocab_size} against {vocabulary}"
        )
    ids = drafter.draft_token_ids
    if ids is not None and not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary:
        raise BlockPilotError(
            f"drafter proposes tokens {int(ids.min())} to {int(ids.max())}, outside the target's "
            f"vocabulary of {vocabulary}"
        )


def share_modules(target: PreTrainedModel, drafter: DFlashDraftModel) -> None:
    """Drop a drafter's copies of the target's embeddings and head; modules that differ stay.

    Args:
        target: The target.
        drafter: A drafter that fits it; changed in place.
    """
    embedding: Any = target.get_input_embeddings()
    own = drafter.own("embed_tokens")
    table = getattr(embedding, "weight", None)
    if own is not None and table is not None and _same(own, table):
        drafter.release("embed_tokens")
    head: Any = target.get_output_embeddings()
    own, ids = drafter.own("lm_head"), drafter.draft_token_ids
    # The bias of the target's head is not part of a drafter's own head.
    has_bias = getattr(head, "bias", None) is not None
    if own is None or has_bias:
        return
    if _same(own, head.weight if ids is None else head.weight[ids]):
        drafter.release("lm_head")


def _same(module: Any, weight: torch.Tensor) -> bool:
    """Whether a module has this weight, up to the rounding of bfloat16 files."""
    return torch.equal(module.weight.bfloat16(), weight.bfloat16())


def check_layer_ids(target: PreTrainedModel, layer_ids: Sequence[int]) -> None:
    """Check that a drafter can read these 0-based decoder layers of a target.

    Raises:
        BlockPilotError: If a layer does not exist, or is the last one, whose output is normalised.
    """
    usable = range(target.config.num_hidden_layers - 1)
    outside = [index for index in layer_ids if index not in usable]
    if outside:
        raise BlockPilotError(
            f"drafter reads target layers {outside}, but the target's usable layers are "
            f"0..{usable.stop - 1}"
        )


def check_mask_token(
    target: PreTrainedModel, token: int, tokenizer: PreTrainedTokenizerBase | None = None
) -> None:
    """Check that a token can stand for a mask.

    Args:
        target: The target.
        token: The token's id.
        tokenizer: The target's tokenizer, which may name special tokens that the configs do not.

    Raises:
        BlockPilotError: If the token is outside the target's vocabulary or occurs in text.
    """
    vocabulary = vocabulary_size(target)
    if not 0 <= token < vocabulary:
        raise BlockPilotError(
            f"drafter's mask token {token} is outside the target's vocabulary of {vocabulary}"
        )
    for name in ("pad_token_id", "eos_token_id"):
        if token in token_ids(name, target.config, target.generation_config, tokenizer):
            raise BlockPilotError(
                f"drafter's mask token {token} is the target's {name}; a mask must be a token that "
                "never occurs in text"
            )


def max_positions(config: Any) -> int:
    """Number of positions that a model can address without encoding earlier ones differently.

    A `longrope` model changes its frequencies at its original length, so a block that crosses this
    length would change them too early. Models without positions (ALiBi) have no limit.

    Args:
        config: The config of a target or a drafter.
    """
    limits = [getattr(config, name, None) for name in ("max_position_embeddings", "max_seq_len")]
    rope = getattr(config, "rope_parameters", None) or {}
    for part in (rope, *rope.values()):
        if isinstance(part, dict) and part.get("rope_type") == "longrope":
            limits.append(part["original_max_position_embeddings"])
    return min((int(limit) for limit in limits if limit is not None), default=sys.maxsize)


def vocabulary_size(target: PreTrainedModel) -> int:
    """Number of tokens that the target's head scores."""
    head: Any = target.get_output_embeddings()
    return int(head.weight.shape[0])


def embedding_scale(target: PreTrainedModel) -> float:
    """Factor that the target's embedding module applies to its table; 1 for most models."""
    return float(getattr(target.get_input_embeddings(), "embed_scale", 1.0))


def token_ids(name: str, *sources: Any) -> set[int]:
    """Collect the ids of a special token; a source may have none, one or a list of them.

    Args:
        name: Name of the token, such as `eos_token_id`.
        *sources: Configs or tokenizers.
    """
    found: set[int] = set()
    for source in sources:
        ids = getattr(source, name, None)
        found.update(ids if isinstance(ids, list) else [] if ids is None else [ids])
    return found
