"""The target's forward pass over a cache: lean where possible, through its modules elsewhere.

The common dense families (RMSNorm, grouped-query attention, RoPE, SwiGLU) run as a few fused calls
per layer over the same weights; other targets run through their own modules behind the same
interface. Plain and speculative decoding use the same pass, so ratios are fair.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import nn
from transformers import (
    DynamicCache,
    LlamaForCausalLM,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
    SeedOssForCausalLM,
    SmolLM3ForCausalLM,
)
from transformers.modeling_outputs import BaseModelOutputWithPast

from blockpilot_rl.decoding.lean import KVCache, LeanLayer, RopeTable, causal_mask, norm_of
from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.models.drafter_config import STATIC_ROPES

LEAN_FAMILIES: tuple[type[PreTrainedModel], ...] = (
    LlamaForCausalLM,
    MistralForCausalLM,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
    SeedOssForCausalLM,
    SmolLM3ForCausalLM,
)


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

    model: Any
    head: torch.Tensor
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
        """Read `[..., hidden]` final-norm states: head, bias, scale and soft cap of the target."""


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
        self.norm = norm_of(base.norm)
        self.embedding = base.embed_tokens.weight.detach()
        self.head = model.get_output_embeddings().weight.detach()
        self.vocab_size = self.head.shape[0]
        self._rope = RopeTable(base.rotary_emb, self.embedding)

    def new_cache(self, batch: int, max_length: int) -> KVCache:
        """Make an empty cache for `batch` rows of at most `max_length` positions."""
        shape = (len(self.layers), batch, self.kv_heads, max_length, self.head_dim)
        self._rope.reach(max_length)
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
        n = input_ids.shape[1]
        start, end = cache.length, cache.length + n
        # A cache that was joined from shorter ones was not made here in its length.
        self._rope.reach(end)
        hidden = self.embed(input_ids)
        mask = causal_mask(n, end, self.groups, input_ids.device)
        if padding is None:
            cos, sin = (part[start:end, None] for part in self._rope.parts)
        else:
            slots = torch.arange(end, device=input_ids.device)
            positions = (slots[start:] - padding[:, None]).clamp(min=0)
            cos, sin = (part[positions].unsqueeze(2) for part in self._rope.parts)
            real = (slots >= padding[:, None])[:, None, None]
            # A padding slot sees itself, since a row of the mask must keep something.
            itself = slots[start:, None] == slots
            mask = real if mask is None else (real & mask) | itself.repeat(self.groups, 1)
            # Additive, so that attention need not convert a mask of the whole batch in each layer.
            mask = hidden.new_zeros(mask.shape).masked_fill_(~mask, -torch.inf)
        outputs = {}
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
                outputs[index] = hidden
        cache.length = end
        last = F.rms_norm(hidden, (hidden.shape[-1],), *self.norm)
        features = [outputs[index] for index in self.layer_ids]
        return Hidden(last, torch.cat(features, dim=-1) if features else hidden[..., :0])

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Read `[..., hidden]` final-norm states with the target's head."""
        flat = F.linear(hidden.reshape(-1, hidden.shape[-1]), self.head)
        return flat.view(*hidden.shape[:-1], self.vocab_size)


class ModuleCache(DynamicCache):
    """transformers' cache with `length` and an absolute `crop`.

    Made without a config, it keeps every position, also of layers with a sliding window: a window
    that has moved on could not take rejected drafts back. The layers' masks are unchanged by that.
    """

    @property
    def length(self) -> int:
        """Positions in use."""
        return self.get_seq_length()

    def crop(self, length: int) -> None:
        """Forget every position from `length` on.

        `DynamicCache.crop` has meant different things across releases (a positive count raises
        since 5.20), so the tensors are cut here.
        """
        if length >= self.length:
            return
        layers: list[Any] = self.layers
        for layer in layers:
            layer.keys = layer.keys[..., :length, :]
            layer.values = layer.values[..., :length, :]

    def select(self, rows: torch.Tensor) -> None:
        """Keep only these rows of the batch, in this order."""
        self.batch_select_indices(rows)

    def join(self, others: Sequence[ModuleCache], max_length: int) -> ModuleCache:
        """Stack the rows of `others` below these, each padded on the left to the longest.

        Args:
            others: Caches of the same model.
            max_length: Ignored, since the cache grows as needed.
        """
        caches = [self, *others]
        length = max(cache.length for cache in caches)
        joined = ModuleCache()
        for index in range(len(self.layers)):
            layers: list[Any] = [cache.layers[index] for cache in caches]
            keys, values = (
                torch.cat([F.pad(part, (0, 0, length - part.shape[2], 0)) for part in parts])
                for parts in zip(*((layer.keys, layer.values) for layer in layers), strict=True)
            )
            joined.update(keys, values, index)
        return joined


class _GivenOutput(BaseModelOutputWithPast):
    """Final-norm states alone: cross attentions, router logits and other extras are None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _GivenStates(nn.Module):
    """Stands in for a model's layers: what it is given is what they would have returned."""

    @property
    def decoder(self) -> _GivenStates:
        """What models call that hold their layers one level deeper."""
        return self

    def forward(
        self, *_: Any, inputs_embeds: torch.Tensor | None = None, **__: Any
    ) -> _GivenOutput:
        return _GivenOutput(last_hidden_state=inputs_embeds)


def _without_layers(model: PreTrainedModel) -> Any:
    """Make a model of what a causal LM does behind its final norm, over the same weights.

    So the head's bias, scales and soft caps apply as the family's own code has them.
    """
    rest = copy.copy(model)
    rest._modules = {**model._modules, model.base_model_prefix: _GivenStates()}
    return rest


class ModuleForward:
    """Pass of any dense decoder-only target through its own modules."""

    def __init__(self, model: PreTrainedModel, layer_ids: list[int]) -> None:
        """Wrap `model` and note its feature layers.

        Raises:
            BlockPilotError: If `model` has no head, or a few tokens show that its layers and its
                head cannot be run apart, or that it does not forget what was cropped.
        """
        self.model: Any = model
        self.layer_ids = layer_ids
        head: Any = model.get_output_embeddings()
        if head is None:
            raise BlockPilotError(f"targets of class {type(model).__name__} have no head to read")
        self.head: torch.Tensor = head.weight.detach()
        self.vocab_size = self.head.shape[0]
        self._read = _without_layers(model)
        self._takes_positions = (
            "position_ids" in inspect.signature(model.base_model.forward).parameters
        )
        self._check()

    @torch.inference_mode()
    def _check(self) -> None:
        """Read five tokens with a rejected draft between, and compare with the model's own pass."""
        ids = torch.arange(1, 6, device=self.head.device)[None] % self.vocab_size
        family = type(self.model).__name__
        try:
            cache = self.new_cache(1, 5)
            self(ids[:, :2], cache)
            self(ids[:, :2], cache)
            cache.crop(2)
            hidden = self(ids[:, 2:], cache)
            ours = self.logits(hidden.last).float()
            theirs = self.model(input_ids=ids, use_cache=False).logits[:, 2:].float()
        # Code that keeps other state, or lays its modules out otherwise, fails in its own ways.
        except Exception as error:
            raise BlockPilotError(
                f"targets of class {family} cannot be decoded: {one_line(error)}"
            ) from error
        # Half precision rounds shapes differently, which depth amplifies; a stale token does more.
        tolerance = 1e-3 if self.head.dtype == torch.float32 else 0.2
        if not (ours - theirs).norm() <= tolerance * theirs.norm():
            raise BlockPilotError(
                f"targets of class {family} cannot be decoded: their logits change when the tokens "
                "are read in parts with a rejected draft between, as those of encoders and of "
                "models with a state do; give a dense decoder-only model"
            )
        if hidden.features.shape != (1, 3, len(self.layer_ids) * hidden.last.shape[-1]):
            raise BlockPilotError(
                f"targets of class {family} give no drafter its features: the outputs of layers "
                f"{self.layer_ids} have shape {list(hidden.features.shape)}"
            )

    def new_cache(self, batch: int, max_length: int) -> ModuleCache:
        """Make an empty cache; it grows as needed."""
        return ModuleCache()

    def embed(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Embed tokens, `[batch, n]` to `[batch, n, hidden]`."""
        embedded: torch.Tensor = self.model.get_input_embeddings()(input_ids)
        return embedded

    def __call__(
        self, input_ids: torch.Tensor, cache: ModuleCache, padding: torch.Tensor | None = None
    ) -> Hidden:
        """Append tokens to the cache; see `TargetForward`."""
        extra = {}
        if padding is not None:
            slots = torch.arange(cache.length + input_ids.shape[1], device=input_ids.device)
            extra["attention_mask"] = (slots >= padding[:, None]).long()
            # Models without positions of their own (ALiBi) count from the mask.
            if self._takes_positions:
                positions = (slots - padding[:, None]).clamp(min=0)
                extra["position_ids"] = positions[:, cache.length :]
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
        flat = hidden.reshape(1, -1, hidden.shape[-1])
        logits: torch.Tensor = self._read(inputs_embeds=flat, use_cache=False).logits
        return logits.view(*hidden.shape[:-1], self.vocab_size)


def is_lean(model: PreTrainedModel) -> bool:
    """Whether `LeanForward` computes what `model`'s modules compute."""
    config = model.config
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    layer_types = getattr(config, "layer_types", None)
    full_attention = (
        getattr(config, "sliding_window", None) is None
        if layer_types is None
        else set(layer_types) == {"full_attention"}
    )
    return (
        # Subclasses and code of a checkpoint's own may differ in anything.
        type(model) in LEAN_FAMILIES
        and rope in STATIC_ROPES
        and full_attention
        # Quantised or adapted linears compute more than their weight says.
        and all(type(part) is nn.Linear for part in _linears(model))
        and model.get_output_embeddings().bias is None
    )


def _linears(model: PreTrainedModel) -> Iterator[nn.Module]:
    """Every module of a target of `LEAN_FAMILIES` that is read as a matrix."""
    yield model.get_output_embeddings()
    for module in model.base_model.modules():
        for name, part in module.named_children():
            if name.endswith("_proj"):
                yield part


def target_forward(model: PreTrainedModel, layer_ids: list[int]) -> LeanForward | ModuleForward:
    """Choose the lean pass where it applies, else the model's modules."""
    return LeanForward(model, layer_ids) if is_lean(model) else ModuleForward(model, layer_ids)
