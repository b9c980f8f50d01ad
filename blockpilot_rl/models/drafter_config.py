"""Configuration of a DFlash drafter, in every shape that checkpoints state it."""

from __future__ import annotations

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import Qwen3Config

from blockpilot_rl.errors import BlockPilotError

STATIC_ROPES = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose frequencies do not depend on the length of the text."""

OWN_MODULES = ("embed_tokens", "lm_head")
"""Modules that a drafter may have of its own, in place of the target's."""

PLAIN = {
    "attention_mode": "gqa",
    "attention_sink_bias": False,
    "final_logit_softcapping": None,
    "input_embedding_scale": 1.0,
    "output_multiplier": 1.0,
    "projector_type": "dflash",
    "sample_from_anchor": False,
    "shift_label": False,
    "use_aux_hidden_state": True,
    "use_swa": False,
}
"""What other models of the DFlash kind can set, with the value that means a plain one."""

_SETTINGS = (
    "mask_token_id",
    "target_layer_ids",
    "correction_rank",
    *(f"has_own_{name}" for name in OWN_MODULES),
)


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

    What is DFlash's own may stand at the top level or inside `dflash_config`; both load to the same
    model.

    Attributes:
        block_size: Tokens per block the drafter was trained for, the anchor included.
        num_target_layers: Decoder layers of the target.
        dflash_config: `mask_token_id` (a token of the target's vocabulary) and, optionally,
            `target_layer_ids` (0-based decoder layers whose outputs are the features), `causal`
            (whether the positions of a block see only earlier ones; by default those of
            `sliding_attention` layers do), `has_own_embed_tokens`, `has_own_lm_head`, and
            `correction_rank` (an extension of this project: the rank of a `CorrectionHead`).
        draft_vocab_size: Size of the reduced draft vocabulary, or None for the target's own.
    """

    model_type = "dflash"

    block_size: int | None = None
    num_target_layers: int | None = None
    dflash_config: dict[str, Any] | None = None
    draft_vocab_size: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Normalise every config shape to one.

        Raises:
            ValueError: If a config states a setting twice, with different values.
        """
        inner = dict(self.dflash_config or {})
        size = _settle("block_size", self.block_size, inner.pop("block_size", None))
        self.block_size = 16 if size is None else size
        self.num_target_layers = _settle(
            "num_target_layers", self.num_target_layers, inner.pop("num_target_layers", None)
        )
        causal = (kwargs.pop("is_causal", None), kwargs.pop("causal", None))
        stated = {"causal": _settle("is_causal", *causal, inner.pop("causal", None))}
        for name in (*_SETTINGS, *PLAIN):
            stated[name] = _settle(name, kwargs.pop(name, None), inner.pop(name, None))
        inner |= {name: value for name, value in stated.items() if value is not None}
        if inner.get("target_layer_ids") is None and self.num_target_layers is not None:
            inner["target_layer_ids"] = default_target_layer_ids(
                self.num_target_layers, self.num_hidden_layers
            )
        self.dflash_config = inner
        rope = self.rope_parameters or kwargs.get("rope_scaling") or {}
        _settle("rope_theta", kwargs.get("rope_theta"), rope.get("rope_theta"))
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]

    @property
    def mask_token_id(self) -> int | None:
        """Token whose embedding fills the positions to be drafted."""
        return (self.dflash_config or {}).get("mask_token_id")

    @property
    def target_layer_ids(self) -> list[int] | None:
        """0-based decoder layers of the target whose outputs are the features, in order."""
        return (self.dflash_config or {}).get("target_layer_ids")

    @property
    def causal(self) -> bool | None:
        """Whether a block's positions see only earlier ones; None for each layer's default."""
        return (self.dflash_config or {}).get("causal")

    @property
    def correction_rank(self) -> int | None:
        """Rank of the drafter's `CorrectionHead`; None if it has none."""
        return (self.dflash_config or {}).get("correction_rank")

    def owns(self, module: str) -> bool:
        """Whether the drafter has this one of `OWN_MODULES` in place of the target's."""
        return bool((self.dflash_config or {}).get(f"has_own_{module}"))


def _settle(name: str, *values: Any) -> Any:
    """Find the one value that a config states for a setting; None if it states none.

    Raises:
        ValueError: If it states different ones.
    """
    stated = [value for value in values if value is not None]
    if any(value != stated[0] for value in stated):
        raise ValueError(f"{name} is {stated[0]!r} in one place and {stated[-1]!r} in another")
    return stated[0] if stated else None


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
    rank = config.correction_rank
    if rank is not None and (type(rank) is not int or rank < 1):
        raise BlockPilotError(f"drafter config: correction_rank {rank!r} must be at least 1")
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
    for name, value in (config.dflash_config or {}).items():
        if name not in (*_SETTINGS, "causal") and value is not None and value != PLAIN.get(name):
            raise BlockPilotError(
                f"drafter config has {name} {value!r}, which is not plain DFlash and cannot be read"
            )
    rope = (config.rope_parameters or {}).get("rope_type")
    if rope not in STATIC_ROPES:
        raise BlockPilotError(
            f"drafter config: rope_type {rope!r} is not one of {', '.join(STATIC_ROPES)}"
        )
