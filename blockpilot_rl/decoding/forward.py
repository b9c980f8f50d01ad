"""Forward passes of target and drafter over a preallocated cache.

On small models and short steps the overhead of modules costs more than the arithmetic. For the
common dense families (RMSNorm, grouped-query attention, RoPE, SwiGLU) the passes here read the
same weights with a few fused calls per layer; other targets run through their own modules behind
the same interface. Plain and speculative decoding use the same pass, so ratios are fair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import nn
from transformers import DynamicCache, PreTrainedModel

from blockpilot_rl.models.drafter import DFlashDraftModel

LEAN_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
_STATIC_ROPES = ("default", "linear", "llama3", "yarn")


@dataclass
class KVCache:
    """Preallocated keys and values of every layer.

    Attributes:
        keys: `[layers, batch, kv_heads, max_length, head_dim]`.
        values: Same shape.
        length: Positions in use; entries beyond it are stale and never read.
    """

    keys: torch.Tensor
    values: torch.Tensor
    length: int = 0

    @property
    def max_length(self) -> int:
        """Positions that fit."""
        return self.keys.shape[3]

    def crop(self, length: int) -> None:
        """Forget every position from `length` on."""
        self.length = min(self.length, length)

    def select(self, rows: torch.Tensor) -> None:
        """Keep only these rows of the batch, in this order."""
        self.keys, self.values = self.keys[:, rows], self.values[:, rows]


@dataclass(frozen=True)
class Hidden:
    """Result of a target pass.

    Attributes:
        last: Final-norm hidden states, `[batch, n, hidden]`.
        features: Outputs of the drafter's feature layers, concatenated,
            `[batch, n, layers * hidden]`.
    """

    last: torch.Tensor
    features: torch.Tensor


class TargetForward(Protocol):
    """A target's pass over new tokens, appended to a cache."""

    vocab_size: int

    def new_cache(self, batch: int, max_length: int) -> Any:
        """Make an empty cache for `batch` rows of at most `max_length` positions."""

    def embed(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Embed tokens, `[batch, n]` to `[batch, n, hidden]`."""

    def __call__(
        self, input_ids: torch.Tensor, cache: Any, padding: torch.Tensor | None = None
    ) -> Hidden:
        """Append tokens to the cache and return their hidden states.

        Args:
            input_ids: New tokens, `[batch, n]`.
            cache: Extended in place by `n` positions.
            padding: Number of padding slots at the left of each row, `[batch]`; those slots are
                never attended to and positions count from behind them.
        """

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Read `[..., hidden]` final-norm states with the target's head."""


def _fuse(*linears: nn.Linear) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Stack the weights of linears that read the same input, without holding them twice.

    The modules keep working: their parameters become views of the stacked tensor.
    """
    rows = [linear.weight.shape[0] for linear in linears]
    storages = {linear.weight.untyped_storage().data_ptr() for linear in linears}
    if len(storages) == 1 and len(linears) > 1:
        first = linears[0].weight
        weight = first.as_strided((sum(rows), first.shape[1]), first.stride())
    else:
        weight = torch.cat([linear.weight.data for linear in linears])
        for linear, part in zip(linears, weight.split(rows), strict=True):
            linear.weight.data = part
    biases = [linear.bias for linear in linears]
    present = [bias.data for bias in biases if bias is not None]
    if not present:
        return weight.detach(), None
    if len(present) != len(biases):
        raise NotImplementedError("some of the fused projections have a bias and others do not")
    return weight.detach(), torch.cat(present)


class LeanLayer:
    """One decoder layer as a handful of fused calls over a module's own weights."""

    def __init__(self, layer: nn.Module, heads: int, kv_heads: int, head_dim: int) -> None:
        """Read the weights of a Llama-like decoder layer (or a drafter's)."""
        attention: Any = layer.self_attn
        mlp: Any = layer.mlp
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.qkv, self.qkv_bias = _fuse(attention.q_proj, attention.k_proj, attention.v_proj)
        self.output, self.output_bias = _fuse(attention.o_proj)
        self.gate_up, self.gate_up_bias = _fuse(mlp.gate_proj, mlp.up_proj)
        self.down, self.down_bias = _fuse(mlp.down_proj)
        self.input_norm = _norm_of(layer.input_layernorm)
        self.post_norm = _norm_of(layer.post_attention_layernorm)
        self.qk_norm: tuple[torch.Tensor, torch.Tensor, float] | None = None
        if hasattr(attention, "q_norm"):
            query_norm, eps = _norm_of(attention.q_norm)
            self.qk_norm = (query_norm, _norm_of(attention.k_norm)[0], eps)

    def project(
        self, hidden: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Compute rotated queries and keys, and values, each `[batch, heads, n, head_dim]`."""
        batch, n, width = hidden.shape
        normed = F.rms_norm(hidden, (width,), *self.input_norm)
        qkv = F.linear(normed, self.qkv, self.qkv_bias)
        return self._split(qkv.view(batch, n, -1, self.head_dim), self.heads, cos, sin)

    def project_context(
        self, context: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute rotated keys, and values, of a drafter's context `[batch, n, hidden]`."""
        skip = self.heads * self.head_dim
        bias = None if self.qkv_bias is None else self.qkv_bias[skip:]
        kv = F.linear(context, self.qkv[skip:], bias)
        kv = kv.view(*context.shape[:2], -1, self.head_dim)
        _, key, value = self._split(kv, 0, cos, sin)
        return key, value

    def _split(
        self, states: torch.Tensor, heads: int, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rotated = heads + self.kv_heads
        qk, value = states[:, :, :rotated], states[:, :, rotated:]
        if self.qk_norm is not None:
            query_norm, key_norm, eps = self.qk_norm
            shape = (self.head_dim,)
            key = F.rms_norm(qk[:, :, heads:], shape, key_norm, eps)
            qk = key if heads == 0 else torch.cat(
                [F.rms_norm(qk[:, :, :heads], shape, query_norm, eps), key], dim=2
            )
        half = self.head_dim // 2
        turned = torch.cat([-qk[..., half:], qk[..., :half]], dim=-1)
        qk = (qk * cos + turned * sin).transpose(1, 2)
        return qk[:, :heads], qk[:, heads:], value.transpose(1, 2)

    def finish(
        self,
        hidden: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Attend, project and run the feed-forward part, residuals included.

        The query heads that share a key head become further rows of that head, so grouped-query
        attention needs no copies of keys and values.

        Args:
            hidden: Residual stream, `[batch, n, hidden]`.
            query: `[batch, heads, n, head_dim]`.
            key: `[batch, kv_heads, length, head_dim]`.
            value: Same shape as `key`.
            mask: Boolean `[batch or 1, 1, groups * n, length]`, or None to attend everywhere.
        """
        batch, n, width = hidden.shape
        rows = query.reshape(batch, self.kv_heads, -1, self.head_dim)
        mixed = F.scaled_dot_product_attention(rows, key, value, attn_mask=mask)
        mixed = mixed.view(batch, self.heads, n, self.head_dim).transpose(1, 2).reshape(batch, n, -1)
        hidden = hidden + F.linear(mixed, self.output, self.output_bias)
        normed = F.rms_norm(hidden, (width,), *self.post_norm)
        gate, up = F.linear(normed, self.gate_up, self.gate_up_bias).chunk(2, dim=-1)
        return hidden + F.linear(F.silu(gate) * up, self.down, self.down_bias)


def _norm_of(module: Any) -> tuple[torch.Tensor, float]:
    return module.weight.detach(), float(module.variance_epsilon)


def rope_table(
    rotary: nn.Module, length: int, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tabulate a model's own rotary embedding for positions `0 … length - 1`.

    Returns:
        Cosine and sine, each `[length, head_dim]`, in the dtype and on the device of `like`.
    """
    positions = torch.arange(length, device=like.device)[None]
    cos, sin = rotary(like, positions)
    return cos[0], sin[0]


def causal_mask(n: int, length: int, groups: int, device: torch.device) -> torch.Tensor | None:
    """Mask for `n` new positions at the end of `length`, repeated for each query group.

    Returns:
        Boolean `[1, 1, groups * n, length]`, or None for a single new position.
    """
    if n == 1:
        return None
    mask = torch.ones(n, length, dtype=torch.bool, device=device).tril(length - n)
    return mask.repeat(groups, 1)[None, None]


class LeanForward:
    """Lean pass of a Llama-like target; equal to its modules' up to rounding."""

    def __init__(self, model: PreTrainedModel, layer_ids: list[int]) -> None:
        """Read the weights of `model` (see `is_lean`) and note its feature layers."""
        config = model.config
        self.model: Any = model
        base: Any = model.base_model
        head_dim = getattr(config, "head_dim", None) or (
            config.hidden_size // config.num_attention_heads
        )
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim, self.groups = head_dim, self.heads // self.kv_heads
        self.layers = [LeanLayer(x, self.heads, self.kv_heads, head_dim) for x in base.layers]
        self.layer_ids = layer_ids
        self.norm = _norm_of(base.norm)
        self.embedding = base.embed_tokens.weight.detach()
        self.head = model.get_output_embeddings().weight.detach()
        self.vocab_size = self.head.shape[0]
        self._rotary = base.rotary_emb
        self._rope = rope_table(self._rotary, 512, self.embedding)

    def new_cache(self, batch: int, max_length: int) -> KVCache:
        """Make an empty cache for `batch` rows of at most `max_length` positions."""
        shape = (len(self.layers), batch, self.kv_heads, max_length, self.head_dim)
        if max_length > self._rope[0].shape[0]:
            self._rope = rope_table(self._rotary, 2 * max_length, self.embedding)
        return KVCache(self.embedding.new_empty(shape), self.embedding.new_empty(shape))

    def embed(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Embed tokens, `[batch, n]` to `[batch, n, hidden]`."""
        return F.embedding(input_ids, self.embedding)

    def __call__(
        self,
        input_ids: torch.Tensor,
        cache: KVCache,
        padding: torch.Tensor | None = None,
    ) -> Hidden:
        """Append tokens to the cache; see `TargetForward`."""
        batch, n = input_ids.shape
        start, end = cache.length, cache.length + n
        mask = causal_mask(n, end, self.groups, input_ids.device)
        if padding is None:
            cos, sin = (part[start:end, None] for part in self._rope)
        else:
            slots = torch.arange(end, device=input_ids.device)
            positions = (slots[start:] - padding[:, None]).clamp(min=0)
            cos, sin = (part[positions].unsqueeze(2) for part in self._rope)
            real = (slots >= padding[:, None])[:, None, None]
            # A padding slot sees itself, since a row of the mask must keep something.
            itself = slots[start:, None] == slots
            mask = real if mask is None else (real & mask) | itself.repeat(self.groups, 1)
        hidden = self.embed(input_ids)
        features = []
        for index, layer in enumerate(self.layers):
            query, key, value = layer.project(hidden, cos, sin)
            cache.keys[index, :, :, start:end] = key
            cache.values[index, :, :, start:end] = value
            hidden = layer.finish(
                hidden,
                query,
                cache.keys[index, :, :, :end],
                cache.values[index, :, :, :end],
                mask,
            )
            if index in self.layer_ids:
                features.append(hidden)
        cache.length = end
        last = F.rms_norm(hidden, (hidden.shape[-1],), *self.norm)
        return Hidden(last, torch.cat(features, dim=-1) if features else hidden[..., :0])

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Read `[..., hidden]` final-norm states with the target's head."""
        flat = F.linear(hidden.reshape(-1, hidden.shape[-1]), self.head)
        return flat.view(*hidden.shape[:-1], self.vocab_size)


class ModuleCache(DynamicCache):
    """transformers' cache with `length` and an absolute `crop`."""

    @property
    def length(self) -> int:
        """Positions in use."""
        return self.get_seq_length()

    def crop(self, length: int) -> None:  # type: ignore[override]
        """Forget every position from `length` on.

        `DynamicCache.crop` has meant different things across releases (a positive count raises
        since 5.20), so the tensors are cut here.
        """
        if length >= self.length:
            return
        for layer in self.layers:
            layer.keys = layer.keys[..., :length, :]
            layer.values = layer.values[..., :length, :]

    def select(self, rows: torch.Tensor) -> None:
        """Keep only these rows of the batch, in this order."""
        self.batch_select_indices(rows)


class ModuleForward:
    """Pass of any dense decoder-only target through its own modules."""

    def __init__(self, model: PreTrainedModel, layer_ids: list[int]) -> None:
        """Wrap `model` and note its feature layers."""
        self.model: Any = model
        self.layer_ids = layer_ids
        self.vocab_size = model.get_output_embeddings().weight.shape[0]

    def new_cache(self, batch: int, max_length: int) -> ModuleCache:
        """Make an empty cache; it grows as needed."""
        return ModuleCache(config=self.model.config)

    def embed(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Embed tokens, `[batch, n]` to `[batch, n, hidden]`."""
        return self.model.get_input_embeddings()(input_ids)

    def __call__(
        self, input_ids: torch.Tensor, cache: ModuleCache, padding: torch.Tensor | None = None
    ) -> Hidden:
        """Append tokens to the cache; see `TargetForward`."""
        extra = {}
        if padding is not None:
            slots = torch.arange(cache.length + input_ids.shape[1], device=input_ids.device)
            positions = (slots - padding[:, None]).clamp(min=0)
            extra["position_ids"] = positions[:, cache.length :]
            extra["attention_mask"] = (slots >= padding[:, None]).long()
        output = self.model.base_model(
            input_ids=input_ids,
            cache=cache,
            use_cache=True,
            output_hidden_states=[index + 1 for index in self.layer_ids],
            **extra,
        )
        features = [output.hidden_states[index + 1] for index in self.layer_ids]
        last = output.last_hidden_state
        return Hidden(last, torch.cat(features, dim=-1) if features else last[..., :0])

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Read `[..., hidden]` final-norm states with the target's head."""
        return self.model.get_output_embeddings()(hidden)


def is_lean(model: PreTrainedModel) -> bool:
    """Whether `LeanForward` computes what `model`'s modules compute."""
    config = model.config
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    return (
        config.model_type in LEAN_FAMILIES
        and rope in _STATIC_ROPES
        and getattr(config, "hidden_act", "silu") == "silu"
        and set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
        and (config.model_type != "mistral" or getattr(config, "sliding_window", None) is None)
        and model.get_output_embeddings().bias is None
    )


def target_forward(model: PreTrainedModel, layer_ids: list[int]) -> LeanForward | ModuleForward:
    """Choose the lean pass where it applies, else the model's modules."""
    return LeanForward(model, layer_ids) if is_lean(model) else ModuleForward(model, layer_ids)


class LeanDrafter:
    """Lean pass of a DFlash drafter: grow its context, then draft blocks of any size."""

    def __init__(self, drafter: DFlashDraftModel, target: TargetForward) -> None:
        """Read the drafter's weights and the rows of the target's head that it may propose."""
        config = drafter.config
        self.drafter = drafter
        self.target = target
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.head_dim
        self.layers = [
            LeanLayer(x, self.heads, self.kv_heads, self.head_dim) for x in drafter.layers
        ]
        self.norm = _norm_of(drafter.norm)
        self.token_ids = drafter.draft_token_ids
        head: torch.Tensor = target.model.get_output_embeddings().weight.detach()  # type: ignore[attr-defined]
        self.head = head if self.token_ids is None else head[self.token_ids].contiguous()
        like = drafter.fc.weight
        block = torch.full((1, config.block_size), config.mask_token_id, device=like.device)
        self.mask_embedding = target.embed(block[:, :1])
        self._rope = rope_table(drafter.rotary_emb, 512, like)

    def new_cache(self, batch: int, max_length: int) -> KVCache:
        """Make an empty cache for `batch` rows of at most `max_length` positions."""
        like = self.drafter.fc.weight.detach()
        shape = (len(self.layers), batch, self.kv_heads, max_length, self.head_dim)
        if max_length > self._rope[0].shape[0]:
            self._rope = rope_table(self.drafter.rotary_emb, 2 * max_length, like)
        return KVCache(like.new_empty(shape), like.new_empty(shape))

    def extend(self, features: torch.Tensor, cache: KVCache) -> None:
        """Append the features of accepted tokens, `[batch, n, layers * hidden]`, to the context."""
        start, end = cache.length, cache.length + features.shape[1]
        cos, sin = (part[start:end, None] for part in self._rope)
        context = self.drafter.project(features)
        for index, layer in enumerate(self.layers):
            key, value = layer.project_context(context, cos, sin)
            cache.keys[index, :, :, start:end] = key
            cache.values[index, :, :, start:end] = value
        cache.length = end

    def draft(self, anchor: torch.Tensor, block_size: int, cache: KVCache) -> torch.Tensor:
        """Read the draft logits of one block behind the cached context.

        The block's own keys and values are written beyond `cache.length` and left stale.

        Args:
            anchor: The last emitted token of each row, `[batch, 1]`.
            block_size: Anchor and masks together, at least 2.
            cache: Context of the tokens before the anchor.

        Returns:
            Logits over the draft vocabulary, `[batch, block_size - 1, draft_vocab]`.
        """
        start, end = cache.length, cache.length + block_size
        cos, sin = (part[start:end, None] for part in self._rope)
        masks = self.mask_embedding.expand(anchor.shape[0], block_size - 1, -1)
        hidden = torch.cat([self.target.embed(anchor), masks], dim=1)
        for index, layer in enumerate(self.layers):
            query, key, value = layer.project(hidden, cos, sin)
            cache.keys[index, :, :, start:end] = key
            cache.values[index, :, :, start:end] = value
            hidden = layer.finish(
                hidden,
                query,
                cache.keys[index, :, :, :end],
                cache.values[index, :, :, :end],
                None,
            )
        last = F.rms_norm(hidden[:, 1:], (hidden.shape[-1],), *self.norm)
        flat = F.linear(last.reshape(-1, last.shape[-1]), self.head)
        return flat.view(*last.shape[:2], -1)

    def to_target_ids(self, draft_ids: torch.Tensor) -> torch.Tensor:
        """Map ids of the draft vocabulary to the target's."""
        return draft_ids if self.token_ids is None else self.token_ids[draft_ids]
