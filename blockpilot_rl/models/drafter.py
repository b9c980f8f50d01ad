"""The DFlash draft model: one bidirectional pass proposes a whole block of tokens.

A few Qwen3-style layers read the target's hidden states as extra keys and values and turn
`[anchor, mask, mask, …]` into one guess per position (Chen et al., "DFlash: Block Diffusion for
Flash Speculative Decoding", 2026). Tensor names and config follow the z-lab checkpoints, and
`forward` follows the interface of transformers' own DFlash generation.

Layers of kind `sliding_attention` see less than `sliding_window` positions back and, unless
`is_causal` is false, nothing ahead, as in z-lab's reference since the summer of 2026 and in vLLM.
The reference's first releases ignored both under SDPA.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn
from transformers import initialization as init
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

from blockpilot_rl.models.correction import CorrectionHead
from blockpilot_rl.models.drafter_config import (
    DFlashConfig,
    default_target_layer_ids,
    validate_drafter_config,
)

__all__ = ["DFlashConfig", "DFlashDraftModel", "default_target_layer_ids", "visible"]


def visible(
    queries: torch.Tensor, keys: torch.Tensor, window: int | None, causal: bool
) -> torch.Tensor | None:
    """Tell which keys a drafter's layer lets each query see.

    Args:
        queries: Position of each query, `[..., n]`.
        keys: Position of each key, `[..., length]`.
        window: Positions less than this far away are seen; None for all.
        causal: Whether later positions are not seen.

    Returns:
        Boolean `[..., n, length]`, or None if all are seen.
    """
    if window is None and not causal:
        return None
    distance = queries[..., None] - keys[..., None, :]
    near = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    return near if window is None else near & (distance.abs() < window)


class DFlashAttention(Qwen3Attention):
    """Attention of the block over the target's context and over itself."""

    def __init__(self, config: DFlashConfig, layer_idx: int) -> None:
        """Build the projections of `Qwen3Attention`, with causality as the config has it."""
        super().__init__(config, layer_idx)
        sliding = (config.layer_types or [])[layer_idx] == "sliding_attention"
        self.is_causal = sliding if config.causal is None else config.causal

    def forward(
        self,
        hidden_states: torch.Tensor,
        context: torch.Tensor,
        positions: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        attention_mask: torch.Tensor | None,
        cache: Cache | None = None,
    ) -> torch.Tensor:
        """Attend from the block's positions.

        Args:
            hidden_states: `[batch, block, hidden]`.
            context: Projected target features, `[batch, new, hidden]`.
            positions: Position of every key, `[batch, cached + new + block]`.
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
        attention_mask = self._masked(attention_mask, block, positions, key.shape[2])
        output = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, scale=self.scaling, enable_gqa=True
        )
        projected: torch.Tensor = self.o_proj(output.transpose(1, 2).reshape(batch, block, -1))
        return projected

    def _masked(
        self, mask: torch.Tensor | None, block: int, positions: torch.Tensor, length: int
    ) -> torch.Tensor | None:
        """Restrict a mask to what this layer sees of the last `length` keys.

        Caches with a window hand out fewer keys than there are positions.
        """
        mask = None if mask is None else mask[..., -length:]
        seen = visible(
            positions[:, -block:], positions[:, -length:], self.sliding_window, self.is_causal
        )
        if seen is None:
            return mask
        seen = seen[:, None]
        if mask is None:
            return seen
        return seen & mask if mask.dtype == torch.bool else mask.masked_fill(~seen, float("-inf"))


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
        positions: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        attention_mask: torch.Tensor | None,
        cache: Cache | None,
    ) -> torch.Tensor:
        """Run the layer; shapes as in `DFlashAttention.forward`."""
        hidden_states = hidden_states + self.self_attn(
            self.input_layernorm(hidden_states),
            context,
            positions,
            position_embeddings,
            attention_mask,
            cache,
        )
        mixed: torch.Tensor = self.mlp(self.post_attention_layernorm(hidden_states))
        return hidden_states + mixed


class DFlashDraftModel(Qwen3PreTrainedModel):
    """DFlash drafter: embeddings and head are the target's, unless its config says otherwise.

    transformers' own DFlash generation always reads the target's, and the whole of its vocabulary.
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
        if config.owns("embed_tokens"):
            self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        if config.owns("lm_head"):
            rows = config.draft_vocab_size or config.vocab_size
            self.lm_head = nn.Linear(config.hidden_size, rows, bias=False)
        self.correction: CorrectionHead | None = None
        self.post_init()  # type: ignore[no-untyped-call]
        if config.correction_rank is not None:
            self.add_correction(config.correction_rank)

    def add_correction(self, rank: int) -> None:
        """Give the drafter an untrained `CorrectionHead`."""
        self.config.dflash_config["correction_rank"] = rank
        self.correction = CorrectionHead(self.config.hidden_size, rank).to(self.fc.weight)

    def _init_weights(self, module: nn.Module) -> None:
        """Initialise what a checkpoint lacks; a head that it lacks corrects nothing."""
        if self.correction is not None and module is self.correction.output:
            init.zeros_(module.weight)
        else:
            super()._init_weights(module)  # type: ignore[no-untyped-call]

    def own(self, module: str) -> Any:
        """Give this one of `OWN_MODULES`, or None if the target's serves."""
        return getattr(self, module) if self.config.owns(module) else None

    def release(self, module: str) -> None:
        """Drop this one of `OWN_MODULES`, so that the target's serves."""
        delattr(self, module)
        self.config.dflash_config.pop(f"has_own_{module}")

    def draft_head(self, target_head: torch.Tensor) -> torch.Tensor:
        """Rows that score the draft vocabulary, `[draft_vocab, hidden]`.

        Args:
            target_head: The target's, `[vocab, hidden]`.
        """
        own = self.own("lm_head")
        if own is not None:
            weight: torch.Tensor = own.weight.detach()
            return weight
        ids = self.draft_token_ids
        return target_head if ids is None else target_head[ids].contiguous()

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
        past = cache.get_seq_length() if cache is not None else 0
        if position_ids is None:
            length = context_hidden_states.shape[1] + noise_embeds.shape[1]
            position_ids = torch.arange(past, past + length, device=noise_embeds.device)[None]
        if attention_mask is not None and attention_mask.dim() == 2:
            attention_mask = (
                None if bool(attention_mask.all()) else attention_mask.bool()[:, None, None]
            )
        context = self.project(context_hidden_states)
        hidden_states = noise_embeds
        position_embeddings = self.rotary_emb(hidden_states, position_ids)
        cached = position_ids[:, :1] + torch.arange(-past, 0, device=position_ids.device)
        positions = torch.cat([cached, position_ids], dim=1)
        for layer in self.layers:
            hidden_states = layer(
                hidden_states, context, positions, position_embeddings, attention_mask, cache
            )
        return BaseModelOutputWithPast(last_hidden_state=self.norm(hidden_states), cache=cache)
