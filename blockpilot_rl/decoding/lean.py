"""Fused decoder layers over a model's own weights, and the caches that they write to.

On small models and short steps the overhead of modules costs more than the arithmetic.
`LeanForward` runs the layers of a Llama-like target (RMSNorm, grouped-query attention, RoPE, a
gated MLP; Gemma 3 included) as a handful of calls each and computes what the modules compute, up to
rounding. The drafter runs the same layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers.activations import SiLUActivation
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm, Gemma3RotaryEmbedding

from blockpilot_rl.decoding.fidelity import Snapshot, is_lean
from blockpilot_rl.decoding.products import product, stacked_product


@dataclass(frozen=True)
class Hidden:
    """Result of a target pass.

    Attributes:
        last: Final-norm hidden states, `[batch, n, hidden]`.
        features: Outputs of the drafter's feature layers, concatenated,
            `[batch, n, layers * hidden]`.
        logits: The target's logits, `[batch, n, vocab]`, where the pass computes them; None where
            `TargetForward.logits` does.
    """

    last: torch.Tensor
    features: torch.Tensor
    logits: torch.Tensor | None = None


class LayerCache(NamedTuple):
    """One layer's part of a cache, as a pass over new positions uses it.

    Attributes:
        new: Keys and values of the new positions, to be written, keys first,
            `[batch, 2 * kv_heads, n, head_dim]`.
        keys: Keys that the new positions attend to, their own included,
            `[batch, kv_heads, length, head_dim]`.
        values: The values that belong to them, same shape.
    """

    new: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor


def layer_caches(states: torch.Tensor, start: int, end: int, first: int = 0) -> list[LayerCache]:
    """Split a cache into its layers for a pass over the positions `start … end - 1`.

    Args:
        states: `[layers, batch, 2 * kv_heads, max_length, head_dim]`.
        start: First new position.
        end: Position after the last new one.
        first: First position that any of the new ones attends to.
    """
    keys, values = states[..., first:end, :].chunk(2, dim=2)
    parts = (states[..., start:end, :], keys, values)
    return list(map(LayerCache, *(part.unbind() for part in parts)))


class KVCache:
    """Preallocated keys and values of every layer.

    Attributes:
        states: `[layers, batch, 2 * kv_heads, max_length, head_dim]`, keys before values.
        length: Positions in use. Entries beyond it are stale and never read.
    """

    def __init__(self, states: torch.Tensor, length: int = 0) -> None:
        """Wrap keys and values `[layers, batch, 2 * kv_heads, max_length, head_dim]`."""
        self.states = states
        self.length = length

    @property
    def max_length(self) -> int:
        """Positions that fit."""
        return self.states.shape[3]

    def crop(self, length: int) -> None:
        """Forget every position from `length` on."""
        self.length = min(self.length, length)

    def select(self, rows: torch.Tensor) -> None:
        """Keep only these rows of the batch, in this order."""
        self.states = self.states[:, rows]

    def join(self, others: Sequence[KVCache], max_length: int) -> KVCache:
        """Stack the rows of `others` below these, each padded on the left to the longest.

        Args:
            others: Caches of the same model.
            max_length: Positions that fit into the new cache.
        """
        caches = [self, *others]
        length = max(cache.length for cache in caches)
        layers, _, heads, _, head_dim = self.states.shape
        batch = sum(cache.states.shape[1] for cache in caches)
        # Padding is masked, but a stale NaN times zero would still be NaN.
        states = self.states.new_zeros(layers, batch, heads, max_length, head_dim)
        end = 0
        for cache in caches:
            start, end = end, end + cache.states.shape[1]
            slots = slice(length - cache.length, length)
            states[:, start:end, :, slots] = cache.states[:, :, :, : cache.length]
        return KVCache(states, length)


class Norm:
    """RMSNorm, rounded as transformers' modules round it."""

    def __init__(self, module: Any) -> None:
        """Read weight and epsilon of an RMSNorm module."""
        self.weight: torch.Tensor = module.weight.detach()
        self.eps = float(module.variance_epsilon)
        self.shape = tuple(self.weight.shape)

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Normalize the last dimension."""
        return torch.rms_norm(states, self.shape, None, self.eps).mul_(self.weight)


class OffsetNorm:
    """RMSNorm of Gemma, whose weight is added to one, computed in float32."""

    def __init__(self, module: Any) -> None:
        """Read weight and epsilon of a Gemma RMSNorm module."""
        self.gain = 1.0 + module.weight.detach().float()
        self.eps = float(module.eps)

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Normalize the last dimension."""
        return F.rms_norm(states.float(), self.gain.shape, self.gain, self.eps).to(states.dtype)


def read_norm(module: Any) -> Norm | OffsetNorm:
    """Read an RMSNorm module."""
    return OffsetNorm(module) if isinstance(module, Gemma3RMSNorm) else Norm(module)


class RopeTable:
    """A model's own rotary embedding, tabulated for positions `0 … length - 1`.

    Attributes:
        cos: `[length, 1, head_dim]`.
        sin: Same shape. The first half is negated, as `rotate` expects it.
    """

    def __init__(self, rotary: nn.Module, like: torch.Tensor, *layer_type: str) -> None:
        """Tabulate the first positions.

        Args:
            rotary: The module.
            like: A tensor of the dtype and on the device of the states.
            *layer_type: Kind of the layers, if the module has different frequencies for each.
        """
        self._rotary, self._like, self._layer_type = rotary, like, layer_type
        self._length = 0
        self.reach(512)

    def reach(self, length: int) -> None:
        """Cover at least `length` positions."""
        if length <= self._length:
            return
        self._length = max(512, 2 * length)
        positions = torch.arange(self._length, device=self._like.device)[None]
        cos, sin = self._rotary(self._like, positions, *self._layer_type)
        half = sin.shape[-1] // 2
        self.cos = cos[0, :, None]
        self.sin = torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)[0, :, None]


def rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Apply rotary positions in place.

    Args:
        states: `[..., head_dim]`.
        cos: Rows of a `RopeTable`, broadcastable to `states`.
        sin: Likewise.
    """
    turned = torch.roll(states, states.shape[-1] // 2, -1)
    torch.add(states * cos, turned.mul_(sin), out=states)


class LeanLayer:
    """One decoder layer as a handful of fused calls over a module's own weights."""

    def __init__(self, layer: nn.Module, heads: int, kv_heads: int, head_dim: int) -> None:
        """Read the weights of a Llama-like decoder layer (or a drafter's)."""
        attention: Any = layer.self_attn
        mlp: Any = layer.mlp
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.qkv = stacked_product(attention.q_proj, attention.k_proj, attention.v_proj)
        self.output = stacked_product(attention.o_proj)
        self.gate_up = stacked_product(mlp.gate_proj, mlp.up_proj)
        self.down = stacked_product(mlp.down_proj)
        self.activation = F.silu if type(mlp.act_fn) is SiLUActivation else mlp.act_fn
        self.rotates = bool(getattr(attention, "use_rope", True))
        self.input_norm = read_norm(layer.input_layernorm)
        self.query_norm = self.key_norm = self.output_norm = self.down_norm = None
        if hasattr(attention, "q_norm"):
            self.query_norm, self.key_norm = map(read_norm, (attention.q_norm, attention.k_norm))
        if hasattr(layer, "pre_feedforward_layernorm"):
            self.output_norm = read_norm(layer.post_attention_layernorm)
            self.mlp_norm = read_norm(layer.pre_feedforward_layernorm)
            self.down_norm = read_norm(layer.post_feedforward_layernorm)
        else:
            self.mlp_norm = read_norm(layer.post_attention_layernorm)

    def project(self, hidden: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Compute rotated queries, rotated keys and values.

        Args:
            hidden: Residual stream, `[batch, n, hidden]`.
            cos: Rows of a `RopeTable`, `[n, 1, head_dim]` or `[batch, n, 1, head_dim]`.
            sin: Likewise.

        Returns:
            `[batch, heads + 2 * kv_heads, n, head_dim]`.
        """
        return self.split_heads(self.qkv(self.input_norm(hidden)), cos, sin)

    def split_heads(self, qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Normalise and rotate the result of `qkv`; other arguments and result as in `project`."""
        states = qkv.view(*qkv.shape[:2], -1, self.head_dim)
        heads, rotated = self.heads, self.heads + self.kv_heads
        if self.query_norm is not None and self.key_norm is not None:
            query = self.query_norm(states[:, :, :heads])
            key = self.key_norm(states[:, :, heads:rotated])
            states = torch.cat([query, key, states[:, :, rotated:]], dim=2)
        if self.rotates:
            rotate(states.narrow(2, 0, rotated), cos, sin)
        return states.transpose(1, 2)

    def attend(
        self, states: torch.Tensor, cache: LayerCache, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Write keys and values of new positions to a cache, and attend to it.

        The query heads that share a key head become further rows of that head, so grouped-query
        attention needs no copies of keys and values.

        Args:
            states: Result of `project`, `[batch, heads + 2 * kv_heads, n, head_dim]`.
            cache: This layer's part of the cache.
            mask: Boolean or additive `[batch or 1, 1, groups * n, length]`, or None to attend
                everywhere.

        Returns:
            `[batch, n, heads * head_dim]`.
        """
        query, new = states.split((self.heads, 2 * self.kv_heads), dim=1)
        cache.new.copy_(new)
        batch, heads, n, head_dim = query.shape
        rows = query.reshape(batch, self.kv_heads, -1, head_dim)
        mixed = F.scaled_dot_product_attention(rows, cache.keys, cache.values, attn_mask=mask)
        return mixed.view(batch, heads, n, head_dim).transpose(1, 2).reshape(batch, n, -1)

    def feed_forward(self, hidden: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        """Add the attention's output, then the feed-forward part, to `[batch, n, hidden]`."""
        mixed = self.output(mixed)
        if self.output_norm is not None:
            mixed = self.output_norm(mixed)
        hidden = mixed.add_(hidden)
        gate, up = self.gate_up(self.mlp_norm(hidden)).chunk(2, dim=-1)
        change = self.down(self.activation(gate).mul_(up))
        if self.down_norm is not None:
            change = self.down_norm(change)
        return change.add_(hidden)

    def __call__(
        self,
        hidden: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        cache: LayerCache,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Run the layer and write keys and values of the new positions to its cache.

        Args:
            hidden: Residual stream, `[batch, n, hidden]`.
            cos: As for `project`.
            sin: As for `project`.
            cache: As for `attend`.
            mask: As for `attend`.
        """
        states = self.project(hidden, cos, sin)
        return self.feed_forward(hidden, self.attend(states, cache, mask))


@dataclass(frozen=True, eq=False)
class LayerKind:
    """What layers of one kind share.

    Attributes:
        rope: Their rotary positions.
        window: Number of positions that a token sees, its own included; None for all.
    """

    rope: RopeTable
    window: int | None


def _layer_kinds(model: PreTrainedModel, like: torch.Tensor) -> list[LayerKind]:
    """Read the kind of each layer from the model's config; `like` is as in `RopeTable`."""
    config, base = model.config, cast(Any, model.base_model)
    window = getattr(config, "sliding_window", None)
    default = "full_attention" if window is None else "sliding_attention"
    types = getattr(config, "layer_types", None) or [default] * config.num_hidden_layers
    if isinstance(base.rotary_emb, Gemma3RotaryEmbedding):
        ropes = {name: RopeTable(base.rotary_emb, like, name) for name in set(types)}
    else:
        ropes = dict.fromkeys(types, RopeTable(base.rotary_emb, like))
    kinds = {
        name: LayerKind(rope, window if name == "sliding_attention" else None)
        for name, rope in ropes.items()
    }
    return [kinds[name] for name in types]


class LeanForward:
    """Lean pass of a Llama-like target; equal to its modules' up to rounding."""

    reads_blocks = True

    def __init__(self, model: PreTrainedModel, layer_ids: list[int]) -> None:
        """Read the weights of `model` (see `is_lean`) and note its feature layers."""
        config = model.config
        self.model: Any = model
        base: Any = model.base_model
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.layers = [LeanLayer(x, self.heads, self.kv_heads, self.head_dim) for x in base.layers]
        self.layer_ids = layer_ids
        self.norm = read_norm(base.norm)
        self.embedding: torch.Tensor = base.embed_tokens.weight.detach()
        self.head: torch.Tensor = model.get_output_embeddings().weight.detach()
        self.vocab_size = self.head.shape[0]
        self.read = product(self.head)
        scale = getattr(base.embed_tokens, "embed_scale", None)
        self._scale = None if scale is None else torch.as_tensor(scale).to(self.embedding)
        self._kinds = _layer_kinds(model, self.embedding)
        self._distinct_kinds = tuple(dict.fromkeys(self._kinds))
        self._snapshot = Snapshot(model)

    def is_current(self) -> bool:
        """Whether the model is unchanged since this pass was prepared."""
        return is_lean(self.model) and self._snapshot.is_current()

    def new_cache(self, batch: int, max_length: int) -> KVCache:
        """Make an empty cache for `batch` rows of at most `max_length` positions."""
        self._reach(max_length)
        shape = (len(self.layers), batch, 2 * self.kv_heads, max_length, self.head_dim)
        return KVCache(self.embedding.new_empty(shape))

    def embed(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Embed tokens, `[batch, n]` to `[batch, n, hidden]`."""
        embedded = F.embedding(input_ids, self.embedding)
        return embedded if self._scale is None else embedded.mul_(self._scale)

    def __call__(
        self,
        input_ids: torch.Tensor,
        cache: KVCache,
        padding: torch.Tensor | None = None,
    ) -> Hidden:
        """Append tokens to the cache; see `TargetForward`."""
        start, end = cache.length, cache.length + input_ids.shape[1]
        # A joined cache can be longer than those that were made here.
        self._reach(end)
        positions: slice | torch.Tensor = slice(start, end)
        if padding is not None:
            slots = torch.arange(start, end, device=input_ids.device)
            positions = (slots - padding[:, None]).clamp(min=0)
        views = {}
        for kind in self._distinct_kinds:
            first = 0 if kind.window is None else max(0, start + 1 - kind.window)
            views[kind] = (
                kind.rope.cos[positions],
                kind.rope.sin[positions],
                self._mask(start, end, padding, kind.window, first),
                layer_caches(cache.states, start, end, first),
            )
        hidden = self.embed(input_ids)
        outputs = {}
        for index, (layer, kind) in enumerate(zip(self.layers, self._kinds, strict=True)):
            cos, sin, mask, caches = views[kind]
            hidden = layer(hidden, cos, sin, caches[index], mask)
            if index in self.layer_ids:
                outputs[index] = hidden
        cache.length = end
        features = [outputs[index] for index in self.layer_ids]
        return Hidden(
            self.norm(hidden), torch.cat(features, dim=-1) if features else hidden[..., :0]
        )

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Read `[..., hidden]` final-norm states with the target's head."""
        flat = self.read(hidden.reshape(-1, hidden.shape[-1]))
        return flat.view(*hidden.shape[:-1], self.vocab_size)

    def _reach(self, length: int) -> None:
        for kind in self._distinct_kinds:
            kind.rope.reach(length)

    def _mask(
        self,
        start: int,
        end: int,
        padding: torch.Tensor | None,
        window: int | None,
        first: int,
    ) -> torch.Tensor | None:
        """Additive causal mask of new positions `start … end - 1`, repeated for each query group.

        Args:
            start: First new position.
            end: Position after the last new one.
            padding: As in a pass.
            window: Number of positions that a token sees, its own included; None for all.
            first: First position that the mask covers; nothing before it is visible.

        Returns:
            `[batch or 1, 1, groups * n, end - first]`, or None to attend everywhere.
        """
        if end - start == 1 and padding is None:
            return None
        slots = torch.arange(first, end, device=self.embedding.device)
        own = slots[start - first :, None]
        seen = slots <= own
        if window is not None:
            seen &= slots > own - window
        if padding is not None:
            # A padding slot sees itself, since a row of the mask must keep something.
            seen = (seen & (slots >= padding[:, None, None])) | (slots == own)
        # Attention would convert a boolean mask again in each layer.
        mask = self.embedding.new_zeros(seen.shape).masked_fill_(~seen, -torch.inf)
        mask = mask.view(-1, 1, *seen.shape[-2:])
        return mask.repeat(1, 1, self.heads // self.kv_heads, 1)
