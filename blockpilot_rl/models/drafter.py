"""The DFlash draft model: one pass proposes a whole block of tokens.

A few Qwen3-style layers read the target's hidden states as extra keys and values and turn
`[anchor, mask, mask, …]` into one guess per position (Chen et al., "DFlash: Block Diffusion for
Flash Speculative Decoding", 2026). DFlash2 adds the parts of `dflash2.py`. Tensor names and config
follow the z-lab checkpoints; `forward` follows the interface of DFlash generation in transformers.

Layers of kind `sliding_attention` see fewer than `sliding_window` positions back and, unless
`is_causal` is false, nothing ahead. z-lab's reference (since the summer of 2026) and vLLM do the
same; the first releases of the reference ignored both with SDPA.
"""

from __future__ import annotations

from collections.abc import Callable
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
from blockpilot_rl.models.dflash2 import CandidateSelector, GroupedDynamicConv
from blockpilot_rl.models.drafter_config import (
    SCALES,
    DFlashConfig,
    default_target_layer_ids,
    validate_drafter_config,
)

__all__ = ["DFlashConfig", "DFlashDraftModel", "default_target_layer_ids", "visible"]


def visible(
    queries: torch.Tensor, keys: torch.Tensor, window: int | None, causal: bool
) -> torch.Tensor | None:
    """Compute which keys each query of a drafter's layer sees.

    Args:
        queries: Position of each query, `[..., n]`.
        keys: Position of each key, `[..., length]`.
        window: A query sees only positions less than this far away; None for all.
        causal: Whether later positions are hidden.

    Returns:
        Boolean `[..., n, length]`, or None if every query sees every key.
    """
    if window is None and not causal:
        return None
    distance = queries[..., None] - keys[..., None, :]
    near = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    return near if window is None else near & (distance.abs() < window)


class DFlashAttention(Qwen3Attention):
    """Attention of the block over the target's context and over itself."""

    def __init__(self, config: DFlashConfig, layer_idx: int) -> None:
        """Build the projections of `Qwen3Attention` and read the causality from the config."""
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
        """Compute the attention of the block's positions.

        Args:
            hidden_states: `[batch, block, hidden]`.
            context: Projected target features, `[batch, new, hidden]`.
            positions: Position of every key, `[batch, cached + new + block]`.
            position_embeddings: Cosine and sine, `[batch, new + block, head_dim]`.
            attention_mask: Boolean or additive, broadcastable to
                `[batch, heads, block, cached + new + block]`; None to attend everywhere.
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
        """Restrict a mask to the keys that this layer sees among the last `length` ones.

        A cache with a window returns fewer keys than there are positions.
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
        """Build attention, MLP, norms and, for DFlash2, convolutions, named as in checkpoints."""
        super().__init__()
        self.self_attn = DFlashAttention(config, layer_idx)
        self.mlp = Qwen3MLP(config)
        self.input_layernorm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.attention_conv: GroupedDynamicConv | None = None
        self.mlp_conv: GroupedDynamicConv | None = None
        if config.is_dflash2:
            sizes = (config.setting("conv_kernel_size"), config.setting("conv_group_size"))
            self.attention_conv = GroupedDynamicConv(config.hidden_size, *sizes)
            self.mlp_conv = GroupedDynamicConv(config.hidden_size, *sizes)

    def forward(
        self,
        hidden_states: torch.Tensor,
        context: torch.Tensor,
        positions: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        attention_mask: torch.Tensor | None,
        cache: Cache | None,
        offsets: torch.Tensor,
    ) -> torch.Tensor:
        """Run the layer; shapes as in `DFlashAttention.forward` and `GroupedDynamicConv`."""

        def attend(states: torch.Tensor) -> torch.Tensor:
            attended: torch.Tensor = self.self_attn(
                states, context, positions, position_embeddings, attention_mask, cache
            )
            return attended

        normed = self.input_layernorm(hidden_states)
        hidden_states = hidden_states + around(self.attention_conv, attend, normed, offsets)
        normed = self.post_attention_layernorm(hidden_states)
        return hidden_states + around(self.mlp_conv, self.mlp, normed, offsets)


class DFlashDraftModel(Qwen3PreTrainedModel):
    """A DFlash or DFlash2 drafter.

    It uses the embeddings and the head of the target, unless its config says that it has its own.
    (DFlash generation in transformers always uses the target's, with the whole vocabulary.) With a
    reduced draft vocabulary, the buffer `d2t` maps draft id `i` to target id `i + d2t[i]`, as in
    vllm-project/speculators.
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
        self.candidate_selector: CandidateSelector | None = None
        if config.is_dflash2:
            sizes = (config.setting("selector_rank"), config.setting("selector_top_k"))
            self.candidate_selector = CandidateSelector(
                config.hidden_size, config.vocab_size, *sizes, config.draft_vocab_size
            )
        self.correction: CorrectionHead | None = None
        self.post_init()  # type: ignore[no-untyped-call]
        if config.correction_rank is not None:
            self.add_correction(config.correction_rank)

    def add_correction(self, rank: int) -> None:
        """Add an untrained `CorrectionHead`."""
        self.config.dflash_config["correction_rank"] = rank
        self.correction = CorrectionHead(self.config.hidden_size, rank).to(self.fc.weight)

    def _init_weights(self, module: nn.Module) -> None:
        """Initialise a module that a checkpoint lacks; such a correction head corrects nothing."""
        if self.correction is not None and module is self.correction.output:
            init.zeros_(module.weight)
        else:
            super()._init_weights(module)  # type: ignore[no-untyped-call]

    def own(self, module: str) -> Any:
        """The drafter's own module of this name, one of `OWN_MODULES`; None if it has none."""
        return getattr(self, module) if self.config.owns(module) else None

    def release(self, module: str) -> None:
        """Drop the drafter's own module of this name, so that the target's is used."""
        delattr(self, module)
        self.config.dflash_config.pop(f"has_own_{module}")

    def embed(self, tokens: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """Embed tokens as the drafter reads them, `[...]` to `[..., hidden]`.

        Args:
            tokens: Token ids.
            table: The target's embedding table, `[vocab, hidden]`, used if the drafter has none.
        """
        own = self.own("embed_tokens")
        embedded = nn.functional.embedding(tokens, table if own is None else own.weight.detach())
        scale = self.config.setting(SCALES[0])
        return embedded if scale in (None, 1) else embedded * float(scale)

    def draft_head(self, target_head: torch.Tensor) -> torch.Tensor:
        """Rows of the head that score the draft vocabulary, `[draft_vocab, hidden]`.

        Args:
            target_head: The target's head, `[vocab, hidden]`, used if the drafter has none.
        """
        own = self.own("lm_head")
        if own is not None:
            weight: torch.Tensor = own.weight.detach()
            return weight
        ids = self.draft_token_ids
        return target_head if ids is None else target_head[ids].contiguous()

    def draft_bias(self, target_bias: torch.Tensor | None) -> torch.Tensor | None:
        """Biases of `draft_head`, `[draft_vocab]`, or None.

        Args:
            target_bias: The bias of the target's head, `[vocab]`, or None.
        """
        if target_bias is None or self.own("lm_head") is not None:
            return None
        ids = self.draft_token_ids
        return target_bias.detach() if ids is None else target_bias.detach()[ids]

    def scale_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Apply the factor and the soft cap of the config to logits of the head."""
        multiplier, cap = (self.config.setting(name) for name in SCALES[1:])
        if multiplier not in (None, 1):
            logits = logits * float(multiplier)
        return torch.tanh(logits / float(cap)) * float(cap) if cap else logits

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
            attention_mask: None if every row is one block that sees everything; a 2-D padding mask
                over all keys (nonzero is kept); or a 4-D boolean mask
                `[batch, 1, block, cached + new + block]`, with which a row holds several blocks.
            position_ids: Absolute positions of context and block, `[batch, new + block]`.
            cache: Holds the context of earlier calls. The caller crops the block's own entries.
            **kwargs: Ignored; callers may pass generation arguments.

        Returns:
            The final hidden states, `[batch, block, hidden]`, which the target's head reads.
        """
        offsets = _offsets(noise_embeds, attention_mask)
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
                hidden_states,
                context,
                positions,
                position_embeddings,
                attention_mask,
                cache,
                offsets,
            )
        return BaseModelOutputWithPast(last_hidden_state=self.norm(hidden_states), cache=cache)


class DFlash2DraftModel(DFlashDraftModel):
    """A DFlash2 drafter; it differs in its config, and is saved as this architecture."""


def around(
    conv: GroupedDynamicConv | None,
    part: Callable[[torch.Tensor], torch.Tensor],
    hidden: torch.Tensor,
    offsets: torch.Tensor,
) -> torch.Tensor:
    """Run a part of a layer between its two convolutions, or alone if there are none."""
    if conv is None:
        return part(hidden)
    hidden, kernels = conv.prepare(hidden, offsets)
    return conv.finish(part(hidden), kernels, offsets)


def _offsets(noise_embeds: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Position of each token in its block, `[block]` or `[batch, block]`.

    With a 4-D mask, a block begins at each token that does not see the token before it.
    """
    block = noise_embeds.shape[1]
    indices = torch.arange(block, device=noise_embeds.device)
    if mask is None or mask.dim() != 4:
        return indices
    own = mask[:, 0, :, -block:]
    sees = own if own.dtype == torch.bool else own == 0
    begins = torch.ones_like(sees[:, 0])
    begins[:, 1:] = ~sees.diagonal(-1, dim1=1, dim2=2)
    return indices - (indices * begins).cummax(dim=1).values
