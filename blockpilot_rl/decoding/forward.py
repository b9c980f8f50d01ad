"""The target's forward pass over a cache: lean where possible, otherwise through its modules.

The common dense families (RMSNorm, grouped-query attention, RoPE, SwiGLU) run as a few fused calls
per layer over the same weights. Other targets, and targets that hooks, adapters or patches have
changed, run through their own modules with the same interface. Plain and speculative decoding use
the same pass, so ratios are fair.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import nn
from transformers import DynamicCache, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast

from blockpilot_rl.decoding.fidelity import (
    LEAN_FAMILIES,
    Snapshot,
    has_global_hooks,
    has_own_code,
    is_lean,
    override,
)
from blockpilot_rl.decoding.lean import Hidden, LeanForward
from blockpilot_rl.errors import BlockPilotError, one_line


class TargetForward(Protocol):
    """A target's pass over new tokens, appended to a cache."""

    model: Any
    head: torch.Tensor
    vocab_size: int
    reads_blocks: bool
    """Whether a pass over several tokens computes what passes over one token each compute."""

    def is_current(self) -> bool:
        """Whether the model still is the one that this pass was prepared for."""

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
            padding: Number of padding slots at the left of each row, `[batch]`. Those slots are
                never attended to, and positions count from the first slot after them.
        """

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Read `[..., hidden]` final-norm states: head, bias, scale and soft cap of the target."""


class ModuleCache(DynamicCache):
    """transformers' cache with `length` and an absolute `crop`.

    Made without a config, it keeps every position, also of layers with a sliding window: a window
    that has moved on could not take rejected drafts back. The layers' masks stay the same.
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
    """Takes the place of a model's layers and returns the states that it is given."""

    @property
    def decoder(self) -> _GivenStates:
        """The module that models call when they hold their layers one level deeper."""
        return self

    def forward(
        self, *_: Any, inputs_embeds: torch.Tensor | None = None, **__: Any
    ) -> _GivenOutput:
        return _GivenOutput(last_hidden_state=inputs_embeds)


def _without_layers(model: PreTrainedModel) -> Any:
    """Make a model of the part of a causal LM after its final norm, with the same weights.

    The head's bias, scales and soft caps apply as the family's own code has them.
    """
    rest = copy.copy(model)
    rest._modules = {**model._modules, model.base_model_prefix: _GivenStates()}
    return rest


class ModuleForward:
    """Pass of any dense decoder-only target through its own modules, hooks included."""

    def __init__(self, model: PreTrainedModel, layer_ids: list[int]) -> None:
        """Wrap `model` and note its feature layers.

        Raises:
            BlockPilotError: If `model` has no head or weights that are not in memory, or if a few
                tokens show that its layers and its head cannot be run apart or that it does not
                forget what was cropped.
        """
        self.model: Any = model
        self.layer_ids = layer_ids
        head: Any = model.get_output_embeddings()
        family = type(model).__name__
        if head is None:
            raise BlockPilotError(f"targets of class {family} have no head to read")
        if any(parameter.is_meta for parameter in model.parameters()):
            raise BlockPilotError(
                f"this {family} has offloaded weights (on the meta device); load it without "
                "offloading, on a device that holds it"
            )
        self.head = matrix_of(head)
        self.vocab_size = self.head.shape[0]
        # Hooks of the whole model expect its own inputs and outputs.
        self._whole = (
            has_global_hooks() or override(model) is not None or not has_own_code(type(model))
        )
        self._read = _without_layers(model)
        self._layers = _layers_of(model) if layer_ids else nn.ModuleList()
        self._takes_positions = (
            "position_ids" in inspect.signature(model.base_model.forward).parameters
        )
        self._check()
        self._could_be_lean = is_lean(model)
        self._snapshot = Snapshot(model, buffers=False)

    def is_current(self) -> bool:
        """Whether the model still is the one that this pass was prepared for."""
        return is_lean(self.model) == self._could_be_lean and self._snapshot.is_current()

    @torch.inference_mode()
    def _check(self) -> None:
        """Read five tokens with a rejected draft between, and compare with other passes.

        Families that forget what was cropped are compared with their own passes over one token,
        because hooks may depend on a token's place in a pass.
        """
        ids = torch.arange(1, 6, device=self.head.device)[None] % self.vocab_size
        family = type(self.model).__name__
        known = type(self.model) in LEAN_FAMILIES
        try:
            cache = self.new_cache(1, 5)
            self(ids[:, :2], cache)
            self(ids[:, :2], cache)
            cache.crop(2)
            hidden = self(ids[:, 2:], cache)
            ours = logits_of(self, hidden)
            if known:
                cache.crop(2)
                singles = ids[:, 2:].split(1, dim=1)
                theirs = torch.cat([logits_of(self, self(x, cache)) for x in singles], dim=1)
            else:
                theirs = self.model(input_ids=ids, use_cache=False).logits[:, 2:]
        # Code with other state or another layout of modules can raise any error.
        except Exception as error:
            raise BlockPilotError(
                f"targets of class {family} cannot be decoded: {one_line(error)}"
            ) from error
        # Half precision rounds shapes differently, which depth amplifies; a stale token does more.
        tolerance = 1e-3 if self.head.dtype == torch.float32 else 0.05 if known else 0.2
        difference = (ours.float() - theirs.float()).norm()
        self.reads_blocks = bool(difference <= tolerance * theirs.float().norm())
        if not (self.reads_blocks or known):
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
        inputs: dict[str, Any] = {"input_ids": input_ids, "cache": cache, "use_cache": True}
        if padding is not None:
            slots = torch.arange(cache.length + input_ids.shape[1], device=input_ids.device)
            inputs["attention_mask"] = (slots >= padding[:, None]).long()
            # Models without positions of their own (ALiBi) count from the mask.
            if self._takes_positions:
                positions = (slots - padding[:, None]).clamp(min=0)
                inputs["position_ids"] = positions[:, cache.length :]
        recorded = [self._layers[index] for index in self.layer_ids]
        if self._whole:
            with _recording([*recorded, self.model.base_model]) as outputs:
                logits = self.model(**inputs).logits
            last = outputs.pop()
        else:
            with _recording(recorded) as outputs:
                last = self.model.base_model(**inputs).last_hidden_state
            logits = None
        return Hidden(last, torch.cat(outputs, dim=-1) if outputs else last[..., :0], logits)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Read `[..., hidden]` final-norm states with the target's head."""
        flat = hidden.reshape(1, -1, hidden.shape[-1])
        logits: torch.Tensor = self._read(inputs_embeds=flat, use_cache=False).logits
        return logits.view(*hidden.shape[:-1], self.vocab_size)


def logits_of(target: TargetForward, hidden: Hidden) -> torch.Tensor:
    """Read the logits of every position of a pass, `[batch, n, vocab]`."""
    return target.logits(hidden.last) if hidden.logits is None else hidden.logits


def matrix_of(module: nn.Module) -> torch.Tensor:
    """Find the matrix of a head or an embedding, which another module may wrap, `[vocab, hidden]`.

    Raises:
        BlockPilotError: If there is none.
    """
    weight = getattr(module, "weight", None)
    if not isinstance(weight, torch.Tensor):
        matrices = [parameter for parameter in module.parameters() if parameter.dim() == 2]
        if not matrices:
            raise BlockPilotError(f"the target's {type(module).__name__} has no matrix to read")
        weight = max(matrices, key=torch.Tensor.numel)
    return weight.detach()


def _layers_of(model: PreTrainedModel) -> nn.ModuleList:
    """Find the decoder layers of a model.

    Raises:
        BlockPilotError: If none of its lists is as long as its config says.
    """
    count = model.config.num_hidden_layers
    for module in model.base_model.modules():
        if isinstance(module, nn.ModuleList) and len(module) >= count:
            return module
    raise BlockPilotError(
        f"targets of class {type(model).__name__} give no drafter its features: they "
        f"have no list of {count} layers"
    )


@contextmanager
def _recording(modules: Sequence[nn.Module]) -> Iterator[list[torch.Tensor]]:
    """Record the output of each module, in order, as the modules after it read it.

    The hooks are registered for one pass, and so run after those of the user. Passes of other
    threads are not recorded.
    """
    outputs: list[Any] = [None] * len(modules)
    thread = threading.get_ident()

    def record(index: int) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if threading.get_ident() != thread:
                return
            outputs[index] = output[0] if isinstance(output, tuple) else output
            if hasattr(output, "last_hidden_state"):
                outputs[index] = output.last_hidden_state

        return hook

    handles = [module.register_forward_hook(record(i)) for i, module in enumerate(modules)]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def target_forward(model: PreTrainedModel, layer_ids: list[int]) -> LeanForward | ModuleForward:
    """Choose the lean pass where it applies, else the model's modules."""
    return LeanForward(model, layer_ids) if is_lean(model) else ModuleForward(model, layer_ids)
