"""Checks that fused passes over a model's weights still compute what its modules compute.

A lean pass reads weights and skips the modules, so it must not be used on a model that hooks,
patches, adapters or quantization have changed. Copies of weights, such as packed ones, must not
outlive the weights that they were made from.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from transformers import (
    Gemma3ForCausalLM,
    LlamaForCausalLM,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
    SeedOssForCausalLM,
    SmolLM3ForCausalLM,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from blockpilot_rl.models.drafter_config import STATIC_ROPES

LEAN_FAMILIES: tuple[type[PreTrainedModel], ...] = (
    Gemma3ForCausalLM,
    LlamaForCausalLM,
    MistralForCausalLM,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
    SeedOssForCausalLM,
    SmolLM3ForCausalLM,
)
_LAYER_TYPES = {"full_attention", "sliding_attention"}
_PLAIN_MODULES = (nn.Linear, nn.Embedding, nn.ModuleList)
_ACTIVATIONS = ("transformers.activations", "torch.nn.modules.activation")

_LIBRARIES = ("torch.", "transformers.", "blockpilot_rl.", "dataclasses.")
_REPLACEABLE = ("forward", "_call_impl")
"""Methods that torch calls, and that a single module may replace."""

_MODULE_FIELDS = frozenset(vars(nn.Module()))
"""Attributes that every module has, which hold no tensors."""

_GLOBAL_HOOKS = (torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks)
_CAPTURES = ("transformers.utils.output_capturing", "blockpilot_rl.decoding.forward")
"""Modules of the hooks that record hidden states and change nothing."""


def is_lean(model: PreTrainedModel) -> bool:
    """Whether `LeanForward` computes what `model`'s modules compute."""
    config = model.config
    rope = getattr(config, "rope_parameters", None) or {}
    # Gemma has different frequencies for each kind of layer.
    ropes = [part for part in rope.values() if isinstance(part, dict)] or [rope]
    caps = ("attn_logit_softcapping", "final_logit_softcapping")
    return (
        # Subclasses and code of a checkpoint's own may differ in anything.
        type(model) in LEAN_FAMILIES
        and not has_global_hooks()
        and not torch.is_autocast_enabled(model.device.type)
        and all(part.get("rope_type", "default") in STATIC_ROPES for part in ropes)
        and set(getattr(config, "layer_types", None) or ()) <= _LAYER_TYPES
        and all(getattr(config, name, None) is None for name in caps)
        and has_own_code(type(model))
        and customization(model, (type(model).__module__,)) is None
        and _has_plain_layers(model)
    )


def _has_plain_layers(model: PreTrainedModel) -> bool:
    """Whether the layers of a target of `LEAN_FAMILIES` are put together as its config says."""
    config, base = model.config, cast(Any, model.base_model)
    head: Any = model.get_output_embeddings()
    attention = ALL_ATTENTION_FUNCTIONS.get(config._attn_implementation)
    if attention is not None and not _is_own(attention):
        return False
    if len(base.layers) != config.num_hidden_layers or head.bias is not None:
        return False
    # A layer that occurs twice would write to one cache twice.
    if len(set(base.layers)) < len(base.layers) or base.embed_tokens.max_norm is not None:
        return False
    return all(_is_plain_attention(layer.self_attn, config) for layer in base.layers)


def _is_plain_attention(attention: Any, config: Any) -> bool:
    """Whether an attention module has the shape, scale and mask that the config implies."""
    linears = [attention.q_proj, attention.k_proj, attention.v_proj]
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    rows = [linear.weight.shape[0] for linear in linears]
    dropout = attention.training and getattr(attention, "attention_dropout", 0.0) > 0
    return (
        bool(attention.scaling == attention.head_dim**-0.5)
        and getattr(attention, "is_causal", True)
        and not dropout
        and head_dim == attention.head_dim
        and rows == [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
        and len({linear.bias is None for linear in linears}) == 1
        and (attention.q_proj.bias is None or len(attention.q_proj.bias) == rows[0])
    )


def customization(model: nn.Module, known: Sequence[str]) -> str | None:
    """Find changes that make a model compute something else than its weights and classes say.

    Args:
        model: The model.
        known: Python modules or packages that define the classes whose weights the caller reads,
            besides linears, embeddings and activations.

    Returns:
        The first change and its place, such as `a forward hook on model.layers.10`, or None.
    """
    plain: dict[type, bool] = {}
    devices: set[tuple[torch.device, torch.dtype]] = set()
    for name, module in model.named_modules():
        kind = type(module)
        if kind not in plain:
            is_known = kind in _PLAIN_MODULES or kind.__module__.startswith((*known, *_ACTIVATIONS))
            plain[kind] = is_known and _has_own_forward(kind)
        found = override(module)
        if found is None and not plain[kind]:
            found = f"the module class {kind.__name__}"
        for tensor in _tensors(module, buffers=True):
            if found is None:
                found = _unusual(tensor)
                if tensor.is_floating_point() and isinstance(tensor, nn.Parameter):
                    devices.add((tensor.device, tensor.dtype))
        if found is not None:
            return f"{found} on {name or 'the model'}"
    return "weights of several devices or dtypes" if len(devices) > 1 else None


def has_global_hooks() -> bool:
    """Whether hooks are registered for the modules of all models."""
    return any(_GLOBAL_HOOKS)


def override(module: nn.Module) -> str | None:
    """Find what replaces or extends a module's own forward pass; None if nothing does."""
    if any(name in module.__dict__ for name in _REPLACEABLE):
        return "a replaced forward"
    if module._forward_pre_hooks:
        return "a forward pre-hook"
    if not all(map(_captures, list(module._forward_hooks.values()))):
        return "a forward hook"
    return None


def has_own_code(kind: type) -> bool:
    """Whether a model class, and the functions of its Python module, are those of their library."""
    family = vars(sys.modules[kind.__module__])
    functions = [value for value in family.values() if inspect.isfunction(value)]
    return all(map(_is_own, functions)) and _has_own_forward(kind)


def _has_own_forward(kind: type) -> bool:
    """Whether a class runs the forward pass that it, or a base class, was defined with."""
    forward: Any = getattr(kind, "forward", None)
    owner = getattr(forward, "__qualname__", "").rpartition(".")[0]
    defined = [base for base in kind.__mro__ if base.__name__ == owner]
    if not (_is_own(kind.__call__) and _is_own(getattr(kind, "_call_impl", kind.__call__))):
        return False
    if not owner:  # Containers, such as a `ModuleList`, have no pass.
        return getattr(forward, "__module__", "") == nn.Module.__module__
    return bool(defined) and forward.__module__ == defined[0].__module__ and _is_own(forward)


def _is_own(function: Any) -> bool:
    """Whether a function, and all that it wraps, are code of the libraries.

    Names do not decide this: `functools.wraps` gives a patch those of the original.
    """
    while function is not None:
        home = getattr(function, "__globals__", {}).get("__name__", "")
        if not f"{home}.".startswith(_LIBRARIES):
            return False
        function = getattr(function, "__wrapped__", None)
    return True


def _unusual(tensor: torch.Tensor) -> str | None:
    if type(tensor) not in (torch.Tensor, nn.Parameter):
        return f"a weight of class {type(tensor).__name__}"
    if tensor.is_meta:
        return "an offloaded weight"
    if tensor.layout != torch.strided or tensor.is_quantized:
        return "a weight that is not dense"
    return None


class Snapshot:
    """Snapshot of a model at the time when a pass over its weights was prepared."""

    def __init__(self, model: nn.Module, *, buffers: bool = True) -> None:
        """Take the snapshot.

        Args:
            model: The model.
            buffers: Whether its buffers and numbers count. Some models update theirs in a pass.
        """
        self._model, self._buffers = model, buffers
        self._facts = _facts(model, buffers)
        self._values = _sample(model, buffers)

    def is_current(self) -> bool:
        """Whether modules, hooks and weights are still the same.

        Some values of every weight are compared too: assignments through `.data` and edits in
        inference mode may leave no other sign.
        """
        if _facts(self._model, self._buffers) != self._facts:
            return False
        return all(map(torch.equal, _sample(self._model, self._buffers), self._values))


def _facts(model: nn.Module, buffers: bool) -> list[Any]:
    """Describe modules, hooks and tensors without reading any values."""
    facts: list[Any] = [list(hooks.values()) for hooks in _GLOBAL_HOOKS]
    for module in model.modules():
        hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
        # Hooks that record come and go, also while other threads decode.
        facts += [hook for hook in hooks if not _captures(hook)]
        facts += [module, type(module), *map(module.__dict__.get, _REPLACEABLE)]
        # Such as an epsilon or a scale; models that update buffers may update these too.
        if buffers:
            facts += [
                (name, value)
                for name, value in vars(module).items()
                if type(value) in (int, float, bool) and name != "training" and name[0] != "_"
            ]
        for tensor in _tensors(module, buffers):
            version = -1 if tensor.is_inference() else tensor._version
            place = (0 if tensor.is_meta else tensor.data_ptr(), version, tensor.shape)
            facts.append((id(tensor), *place, tensor.dtype, tensor.device))
    return facts


def _tensors(module: nn.Module, buffers: bool) -> list[torch.Tensor]:
    """Parameters, and buffers and other tensors that the module holds."""
    values: list[Any] = list(module._parameters.values())
    if buffers:
        values += module._buffers.values()
        values += [value for name, value in vars(module).items() if name not in _MODULE_FIELDS]
    return [value for value in values if isinstance(value, torch.Tensor)]


def _captures(hook: Any) -> bool:
    """Whether a hook only records hidden states, for transformers or for us."""
    return getattr(hook, "__module__", None) in _CAPTURES


@torch.inference_mode()
def _sample(model: nn.Module, buffers: bool) -> list[torch.Tensor]:
    """Take at least one value of each row and column of every matrix, as bytes by dtype."""
    parts: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
    tensors = {id(x): x for module in model.modules() for x in _tensors(module, buffers)}
    for tensor in tensors.values():
        if not tensor.is_meta:
            place = (tensor.device, tensor.dtype)
            parts.setdefault(place, []).append(_spread(tensor.detach()))
    return [torch.cat(values).view(torch.uint8) for values in parts.values()]


def _spread(tensor: torch.Tensor) -> torch.Tensor:
    """Values of a tensor that meet each of its rows and columns, `[n]`."""
    flat = tensor.reshape(-1)
    if tensor.dim() < 2 or not flat.numel():
        return flat
    return flat[:: _step(tensor.shape[0], flat.numel() // tensor.shape[0])]


@lru_cache
def _step(rows: int, columns: int) -> int:
    """Distance between values of a matrix, row after row, that meet each row and column."""
    step = min(rows, columns)
    # Multiples of a step that shares no factor with the columns meet all of them.
    while math.gcd(step, columns) > 1:
        step -= 1
    return step
