"""Decoder layers as a handful of fused calls, and the preallocated cache they write to.

On small models and short steps the overhead of modules costs more than the arithmetic. `LeanLayer`
reads a module's own weights (Llama-like: RMSNorm, grouped-query attention, RoPE, SwiGLU) and
computes what the module computes, up to rounding.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers.activations import SiLUActivation


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

    def join(self, others: Sequence[KVCache], max_length: int) -> KVCache:
        """Stack the rows of `others` below these, each padded on the left to the longest.

        Args:
            others: Caches of the same model.
            max_length: Positions that fit into the new cache.
        """
        caches = [self, *others]
        length = max(cache.length for cache in caches)
        layers, _, kv_heads, _, head_dim = self.keys.shape
        batch = sum(cache.keys.shape[1] for cache in caches)
        # Padding is masked, but a stale NaN times zero would still be NaN.
        keys = self.keys.new_zeros(layers, batch, kv_heads, max_length, head_dim)
        values = torch.zeros_like(keys)
        end = 0
        for cache in caches:
            start, end = end, end + cache.keys.shape[1]
            slots = slice(length - cache.length, length)
            keys[:, start:end, :, slots] = cache.keys[:, :, :, : cache.length]
            values[:, start:end, :, slots] = cache.values[:, :, :, : cache.length]
        return KVCache(keys, values, length)


def _fuse(*linears: nn.Linear) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Stack the weights of linears that read the same input, without holding them twice.

    The modules keep working: their parameters become views of the stacked tensor.
    """
    rows = [linear.weight.shape[0] for linear in linears]
    if _are_stacked([linear.weight for linear in linears]):
        first = linears[0].weight
        weight = first.as_strided((sum(rows), first.shape[1]), first.stride())
    else:
        weight = torch.cat([linear.weight.data for linear in linears])
        for linear, part in zip(linears, weight.split(rows), strict=True):
            linear.weight.data = part
    biases: list[torch.Tensor | None] = [linear.bias for linear in linears]
    present = [bias.data for bias in biases if bias is not None]
    if not present:
        return weight.detach(), None
    if len(present) != len(biases):
        raise NotImplementedError("some of the fused projections have a bias and others do not")
    return weight.detach(), torch.cat(present)


def _are_stacked(weights: Sequence[torch.Tensor]) -> bool:
    """Whether contiguous weights follow each other in one storage, as `_fuse` leaves them."""
    return len({weight.untyped_storage().data_ptr() for weight in weights}) == 1 and all(
        above.is_contiguous() and above.data_ptr() + above.nbytes == below.data_ptr()
        for above, below in itertools.pairwise(weights)
    )


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
        self.activation = F.silu if isinstance(mlp.act_fn, SiLUActivation) else mlp.act_fn
        self.rotates = bool(getattr(attention, "use_rope", True))
        self.input_norm = norm_of(layer.input_layernorm)
        self.post_norm = norm_of(layer.post_attention_layernorm)
        self.qk_norm: tuple[torch.Tensor, torch.Tensor, float] | None = None
        if hasattr(attention, "q_norm"):
            query_norm, eps = norm_of(attention.q_norm)
            self.qk_norm = (query_norm, norm_of(attention.k_norm)[0], eps)

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
            qk = (
                key
                if heads == 0
                else torch.cat([F.rms_norm(qk[:, :, :heads], shape, query_norm, eps), key], dim=2)
            )
        if self.rotates:
            half = self.head_dim // 2
            turned = torch.cat([-qk[..., half:], qk[..., :half]], dim=-1)
            qk = qk * cos + turned * sin
        qk = qk.transpose(1, 2)
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

        Args:
            hidden: Residual stream, `[batch, n, hidden]`.
            query: As `attend` takes it, like the other arguments.
            key: See there.
            value: See there.
            mask: See there.
        """
        return self.feed_forward(hidden, self.attend(query, key, value, mask))

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Mix the values that each query looks at.

        The query heads that share a key head become further rows of that head, so grouped-query
        attention needs no copies of keys and values.

        Args:
            query: `[batch, heads, n, head_dim]`.
            key: `[batch, kv_heads, length, head_dim]`.
            value: Same shape as `key`.
            mask: Boolean or additive `[batch or 1, 1, groups * n, length]`, or None to attend
                everywhere.

        Returns:
            `[batch, n, heads * head_dim]`.
        """
        batch, _, n, _ = query.shape
        rows = query.reshape(batch, self.kv_heads, -1, self.head_dim)
        mixed = F.scaled_dot_product_attention(rows, key, value, attn_mask=mask)
        mixed = mixed.view(batch, self.heads, n, self.head_dim)
        return mixed.transpose(1, 2).reshape(batch, n, -1)

    def feed_forward(self, hidden: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        """Add what attention has mixed, then the feed-forward part, to `[batch, n, hidden]`."""
        hidden = hidden + F.linear(mixed, self.output, self.output_bias)
        normed = F.rms_norm(hidden, (hidden.shape[-1],), *self.post_norm)
        gate, up = F.linear(normed, self.gate_up, self.gate_up_bias).chunk(2, dim=-1)
        return hidden + F.linear(self.activation(gate) * up, self.down, self.down_bias)


def norm_of(module: Any) -> tuple[torch.Tensor, float]:
    """Weight and epsilon of an RMSNorm module."""
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


class RopeTable:
    """A `rope_table` that grows as texts do.

    Attributes:
        parts: Cosine and sine, each `[positions, head_dim]`.
    """

    def __init__(self, rotary: nn.Module, like: torch.Tensor) -> None:
        """Tabulate the first positions; arguments as for `rope_table`."""
        self._rotary, self._like = rotary, like
        self.parts = rope_table(rotary, 512, like)

    def reach(self, length: int) -> None:
        """Cover at least so many positions."""
        if length > self.parts[0].shape[0]:
            self.parts = rope_table(self._rotary, 2 * length, self._like)


def causal_mask(n: int, length: int, groups: int, device: torch.device) -> torch.Tensor | None:
    """Mask for `n` new positions at the end of `length`, repeated for each query group.

    Returns:
        Boolean `[1, 1, groups * n, length]`, or None for a single new position.
    """
    if n == 1:
        return None
    mask = torch.ones(n, length, dtype=torch.bool, device=device).tril(length - n)
    return mask.repeat(groups, 1)[None, None]
