"""The DFlash draft model: one bidirectional pass proposes a whole block of tokens.

A few Qwen3-style layers read the target's hidden states as extra keys and values and turn
`[anchor, mask, mask, …]` into one guess per position (Chen et al., "DFlash: Block Diffusion for
Flash Speculative Decoding", 2026). Tensor names and config follow the z-lab checkpoints, and
`forward` follows the interface of transformers' own DFlash generation.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from transformers import Qwen3Config
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3Attention,
    Qwen3MLP,
    Qwen3PreTrainedModel,
    Qwen3RMSNorm,
    Qwen3RotaryEmbedding,
    rotate_half,
)

from blockpilot_rl.errors import BlockPilotError


def default_target_layer_ids(num_target_layers: int, num_draft_layers: int) -> list[int]:
    """Spread the feature layers evenly over the target, as DFlash does when a config names none.

    Python's `round` (half to even) is part of the format: 30 target layers and 5 draft layers give
    `[1, 8, 14, 20, 27]`.

    Args:
        num_target_layers: Decoder layers of the target.
        num_draft_layers: Layers of the drafter, one feature layer for each.

    Returns:
        0-based decoder layer ids, increasing.
    """
    if num_draft_layers == 1:
        return [num_target_layers // 2]
    first, last = 1, num_target_layers - 3
    step = (last - first) / (num_draft_layers - 1)
    return [round(first + i * step) for i in range(num_draft_layers)]


@strict
class DFlashConfig(Qwen3Config):
    """Configuration of a DFlash drafter, in the shape of the z-lab checkpoints.

    `block_size` may stand at the top level or inside `dflash_config`; both load to the same model.

    Attributes:
        block_size: Tokens per block the drafter was trained for, the anchor included.
        num_target_layers: Decoder layers of the target.
        dflash_config: `mask_token_id` (a token of the target's vocabulary) and, optionally,
            `target_layer_ids` (0-based decoder layers whose outputs are the features).
        draft_vocab_size: Size of the reduced draft vocabulary, or None for the target's own.
    """

    model_type = "dflash"

    block_size: int | None = None
    num_target_layers: int | None = None
    dflash_config: dict[str, Any] | None = None
    draft_vocab_size: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Normalise both config shapes to one and check what generation depends on."""
        inner = dict(self.dflash_config or {})
        self.block_size = self.block_size or inner.pop("block_size", None) or 16
        if inner.get("target_layer_ids") is None and self.num_target_layers is not None:
            inner["target_layer_ids"] = default_target_layer_ids(
                self.num_target_layers, self.num_hidden_layers
            )
        self.dflash_config = inner
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]

    @property
    def mask_token_id(self) -> int | None:
        """Token whose embedding fills the positions to be drafted."""
        return (self.dflash_config or {}).get("mask_token_id")

    @property
    def target_layer_ids(self) -> list[int] | None:
        """0-based decoder layers of the target whose outputs are the features, in order."""
        return (self.dflash_config or {}).get("target_layer_ids")


def validate_drafter_config(config: DFlashConfig) -> None:
    """Check what drafting depends on and a bare config may leave out.

    Raises:
        BlockPilotError: If the mask token or the feature layers are missing or unusable.
    """
    if config.mask_token_id is None:
        raise BlockPilotError(
            "drafter config has no mask_token_id: add dflash_config.mask_token_id"
        )
    for name in ("pad_token_id", "eos_token_id"):
        special = getattr(config, name)
        if config.mask_token_id in (special if isinstance(special, list) else [special]):
            raise BlockPilotError(
                f"drafter config: mask_token_id {config.mask_token_id} is also the {name}; "
                "a mask must be a token that never occurs in text"
            )
    if not config.target_layer_ids:
        raise BlockPilotError(
            "drafter config names no target_layer_ids and no num_target_layers to derive them from"
        )
    for name in ("mask_token_id", "block_size"):
        if not isinstance(getattr(config, name), int):
            raise BlockPilotError(
                f"drafter config: {name} {getattr(config, name)!r} must be a whole number"
            )
    if config.num_target_layers is not None:
        allowed = range(config.num_target_layers - 1)
        outside = [i for i in config.target_layer_ids if i not in allowed]
        if outside:
            raise BlockPilotError(
                f"drafter config: target_layer_ids {outside} are outside 0..{allowed.stop - 1} "
                "(0-based decoder layers; the last layer's output is normalised and not a feature)"
            )
    if config.block_size is None or config.block_size < 2:
        raise BlockPilotError(f"drafter config: block_size {config.block_size} must be at least 2")


class DFlashAttention(Qwen3Attention):
    """Attention of the block over the target's context and over itself, in both directions."""

    def __init__(self, config: DFlashConfig, layer_idx: int) -> None:
        """Build the projections of `Qwen3Attention` and drop its causality."""
        super().__init__(config, layer_idx)
        self.is_causal = False

    def forward(
        self,
        hidden_states: torch.Tensor,
        context: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        attention_mask: torch.Tensor | None,
        cache: Cache | None = None,
    ) -> torch.Tensor:
        """Attend from the block's positions.

        Args:
            hidden_states: `[batch, block, hidden]`.
            context: Projected target features, `[batch, new, hidden]`.
            position_embeddings: Cosine and sine, `[batch, new + block, head_dim]`.
            attention_mask: Boolean or additive, broadcastable to
                `[batch, heads, block, cached + new + block]`, or None to attend everywhere.
            cache: Keys and values of earlier context; extended by `new + block` entries.

        Returns:
            `[batch, block, hidden]`.
        """
        batch, block = hidden_states.shape[:2]
        both = torch.cat([context, hidden_states], dim=1)
        kv_shape = (batch, both.shape[1], -1, self.head_dim)
        query = self.q_norm(self.q_proj(hidden_states).view(batch, block, -1, self.head_dim))
        query = query.transpose(1, 2)
        key = self.k_norm(self.k_proj(both).view(kv_shape)).transpose(1, 2)
        value = self.v_proj(both).view(kv_shape).transpose(1, 2)
        cos, sin = (part.unsqueeze(1) for part in position_embeddings)
        query = query * cos[..., -block:, :] + rotate_half(query) * sin[..., -block:, :]
        key = key * cos + rotate_half(key) * sin
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
        if self.sliding_window is not None:
            attention_mask = self._windowed(attention_mask, block, key.shape[2], query.device)
        output = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, scale=self.scaling, enable_gqa=True
        )
        projected: torch.Tensor = self.o_proj(output.transpose(1, 2).reshape(batch, block, -1))
        return projected

    def _windowed(
        self, mask: torch.Tensor | None, block: int, length: int, device: torch.device
    ) -> torch.Tensor:
        """Restrict a mask to keys less than `sliding_window` positions away (contiguous keys)."""
        if mask is not None and mask.shape[-1] != length:
            raise BlockPilotError("sliding-window drafters need masks over all cached keys")
        keys = torch.arange(length, device=device)
        distance = (keys[-block:, None] - keys[None, :]).abs()
        assert self.sliding_window is not None
        near = (distance < self.sliding_window)[None, None]
        if mask is None:
            return near
        return near & mask if mask.dtype == torch.bool else mask.masked_fill(~near, float("-inf"))


class DFlashLayer(nn.Module):
    """One decoder layer of the drafter."""

    def __init__(self, config: DFlashConfig, layer_idx: int) -> None:
        """Build attention, feed-forward and the two norms, named as in the checkpoints."""
        super().__init__()
        self.self_attn = DFlashAttention(config, layer_idx)
        self.mlp = Qwen3MLP(config)
        self.input_layernorm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(
        self,
        hidden_states: torch.Tensor,
        context: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        attention_mask: torch.Tensor | None,
        cache: Cache | None,
    ) -> torch.Tensor:
        """Run the layer; shapes as in `DFlashAttention.forward`."""
        hidden_states = hidden_states + self.self_attn(
            self.input_layernorm(hidden_states), context, position_embeddings, attention_mask, cache
        )
        mixed: torch.Tensor = self.mlp(self.post_attention_layernorm(hidden_states))
        return hidden_states + mixed


class DFlashDraftModel(Qwen3PreTrainedModel):
    """DFlash drafter without embeddings or head: both are the target's own.

    With a reduced draft vocabulary, the buffer `d2t` maps draft id `i` to target id `i + d2t[i]`
    (the convention of vllm-project/speculators).
    """

    config_class = DFlashConfig
    main_input_name = "noise_embeds"
    d2t: torch.Tensor
    _no_split_modules: ClassVar[list[str]] = ["DFlashLayer"]  # type: ignore[misc]

    def __init__(self, config: DFlashConfig) -> None:
        """Build the layers.

        Raises:
            BlockPilotError: If the config lacks what drafting needs.
        """
        validate_drafter_config(config)
        super().__init__(config)
        assert config.target_layer_ids is not None
        width = len(config.target_layer_ids) * config.hidden_size
        self.fc = nn.Linear(width, config.hidden_size, bias=False)
        self.hidden_norm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.layers = nn.ModuleList(
            DFlashLayer(config, index) for index in range(config.num_hidden_layers)
        )
        self.norm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = Qwen3RotaryEmbedding(config)
        if config.draft_vocab_size is not None:
            self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.long))
        self.post_init()  # type: ignore[no-untyped-call]

    @property
    def draft_token_ids(self) -> torch.Tensor | None:
        """Target id of each draft id, `[draft_vocab_size]`, or None for the whole vocabulary."""
        if self.config.draft_vocab_size is None:
            return None
        return self.d2t + torch.arange(self.d2t.shape[0], device=self.d2t.device)

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """Project the target's features to context states.

        Args:
            features: Outputs of `target_layer_ids`, concatenated, `[batch, n, layers * hidden]`.

        Returns:
            `[batch, n, hidden]`.
        """
        context: torch.Tensor = self.hidden_norm(self.fc(features))
        return context

    def forward(
        self,
        noise_embeds: torch.Tensor,
        context_hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        cache: Cache | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """Denoise blocks given the target's features.

        Args:
            noise_embeds: Target embeddings of the anchor and the masks, `[batch, block, hidden]`.
            context_hidden_states: Features that are new to the cache,
                `[batch, new, layers * hidden]`.
            attention_mask: None to attend to everything (one block per row); a 2-D padding mask
                over all keys (nonzero is kept); or a 4-D boolean mask
                `[batch, 1, block, cached + new + block]`, by which several blocks share a row.
            position_ids: Absolute positions of context and block, `[batch, new + block]`.
            cache: Holds the context of earlier calls. The caller crops the block's own entries.
            **kwargs: Ignored, for callers that pass generation arguments along.

        Returns:
            The final hidden states, `[batch, block, hidden]`, to be read by the target's head.
        """
        if position_ids is None:
            past = cache.get_seq_length() if cache is not None else 0
            length = context_hidden_states.shape[1] + noise_embeds.shape[1]
            position_ids = torch.arange(past, past + length, device=noise_embeds.device)[None]
        if attention_mask is not None and attention_mask.dim() == 2:
            attention_mask = (
                None if bool(attention_mask.all()) else attention_mask.bool()[:, None, None]
            )
        context = self.project(context_hidden_states)
        hidden_states = noise_embeds
        position_embeddings = self.rotary_emb(hidden_states, position_ids)
        for layer in self.layers:
            hidden_states = layer(
                hidden_states, context, position_embeddings, attention_mask, cache
            )
        return BaseModelOutputWithPast(last_hidden_state=self.norm(hidden_states), cache=cache)
