"""Configuration of a DFlash or DFlash2 drafter, in every form that checkpoints use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import Qwen3Config

from blockpilot_rl.errors import BlockPilotError

STATIC_ROPES = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose frequencies do not depend on the length of the text."""

OWN_MODULES = ("embed_tokens", "lm_head")
"""Modules that a drafter may own instead of using the target's."""

SCALES = ("input_embedding_scale", "output_multiplier", "final_logit_softcapping")
"""Settings that scale the embeddings that a drafter reads, and scale and cap its logits."""

DFLASH2 = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
"""Settings that a DFlash2 drafter has and a DFlash drafter does not have."""

PLAIN = {
    "attention_mode": "gqa",
    "attention_sink_bias": False,
    "projector_type": "dflash",
    "sample_from_anchor": False,
    "shift_label": False,
    "use_aux_hidden_state": True,
    "use_swa": False,
}
"""Settings of related models, with the only value that this implementation supports."""

_SETTINGS = (
    "mask_token_id",
    "target_layer_ids",
    "correction_rank",
    "trained_length",
    *SCALES,
    *DFLASH2,
    *(f"has_own_{name}" for name in OWN_MODULES),
)


def default_target_layer_ids(num_target_layers: int, num_draft_layers: int) -> list[int]:
    """Spread the feature layers evenly over the target, as DFlash does if a config names none.

    Python's `round` (half to even) is part of the format: 30 target layers and 5 draft layers give
    `[1, 8, 14, 20, 27]`.

    Args:
        num_target_layers: Decoder layers of the target.
        num_draft_layers: Layers of the drafter; each gets one feature layer.

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
    """Configuration of a DFlash or DFlash2 drafter, in the form of the z-lab checkpoints.

    The settings of DFlash may be at the top level or inside `dflash_config`; both load to the same
    model.

    Attributes:
        block_size: Tokens per block that the drafter was trained for, the anchor included.
        num_target_layers: Decoder layers of the target.
        dflash_config: `mask_token_id` (a token of the target's vocabulary) and these options:

            - `target_layer_ids`: 0-based decoder layers whose outputs are the features.
            - `causal` or `is_causal`: whether the positions of a block see only earlier ones. By
              default this holds for `sliding_attention` layers.
            - `input_embedding_scale`: factor of the target's embedding table.
            - `output_multiplier` and `final_logit_softcapping`: factor and soft cap of the logits.
            - `conv_kernel_size`, `conv_group_size`, `selector_rank` and `selector_top_k`: the parts
              that DFlash2 adds.
            - `has_own_embed_tokens` and `has_own_lm_head`: whether the drafter owns these modules.
            - `correction_rank` (an extension of this project): rank of a `CorrectionHead`.
            - `trained_length` (an extension of this project): tokens of the longest training text.
        draft_vocab_size: Size of the reduced draft vocabulary, or None for the target's.
    """

    model_type = "dflash"

    block_size: int | None = None
    num_target_layers: int | None = None
    dflash_config: dict[str, Any] | None = None
    draft_vocab_size: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Bring every form of the config into one.

        Raises:
            ValueError: If a config states a setting twice with different values.
        """
        inner = dict(self.dflash_config or {})
        size = _settle("block_size", self.block_size, inner.pop("block_size", None))
        self.block_size = 16 if size is None else size
        self.num_target_layers = _settle(
            "num_target_layers", self.num_target_layers, inner.pop("num_target_layers", None)
        )
        causal = [
            part.pop(key, None) for part in (kwargs, inner) for key in ("is_causal", "causal")
        ]
        stated = {"causal": _settle("is_causal", *causal)}
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

    def setting(self, name: str, default: Any = None) -> Any:
        """One setting of `dflash_config`, or a default if it is not stated."""
        return (self.dflash_config or {}).get(name, default)

    @property
    def mask_token_id(self) -> int | None:
        """Token whose embedding fills the positions to draft."""
        return self.setting("mask_token_id")  # type: ignore[no-any-return]

    @property
    def target_layer_ids(self) -> list[int] | None:
        """0-based decoder layers of the target whose outputs are the features, in order."""
        return self.setting("target_layer_ids")  # type: ignore[no-any-return]

    @property
    def causal(self) -> bool | None:
        """Whether a block's positions see only earlier ones; None for the default of each layer."""
        return self.setting("causal")  # type: ignore[no-any-return]

    @property
    def correction_rank(self) -> int | None:
        """Rank of the drafter's `CorrectionHead`, or None if it has none."""
        return self.setting("correction_rank")  # type: ignore[no-any-return]

    @property
    def trained_length(self) -> int | None:
        """Tokens of the longest text that the drafter was trained on, or None if unknown."""
        return self.setting("trained_length")  # type: ignore[no-any-return]

    @property
    def is_dflash2(self) -> bool:
        """Whether the drafter has the convolutions and the selector of DFlash2."""
        return self.setting("selector_rank") is not None

    def owns(self, module: str) -> bool:
        """Whether the drafter has its own module, one of `OWN_MODULES`, instead of the target's."""
        return bool(self.setting(f"has_own_{module}"))


def _settle(name: str, *values: Any) -> Any:
    """Find the one value that a config states for a setting; None if it states none.

    Raises:
        ValueError: If it states different values.
    """
    stated = [value for value in values if value is not None]
    if any(value != stated[0] for value in stated):
        raise ValueError(f"{name} is {stated[0]!r} in one place and {stated[-1]!r} in another")
    return stated[0] if stated else None


def validate_drafter_config(config: DFlashConfig) -> None:
    """Check what drafting depends on and a config may lack.

    Raises:
        BlockPilotError: If a setting is missing, out of range or not supported.
    """
    _check_mask_token(config)
    _check_layers(config)
    for name in ("correction_rank", "trained_length", *DFLASH2):
        _check_count(name, config.setting(name), 1)
    _check_count("block_size", config.block_size, 2)
    if config.block_size is None:
        raise BlockPilotError("drafter config has no block_size")
    _check_scales(config)
    _check_dflash2(config)
    _check_plain(config.dflash_config or {})
    rope = (config.rope_parameters or {}).get("rope_type")
    if rope not in STATIC_ROPES:
        raise BlockPilotError(
            f"drafter config: rope_type {rope!r} is not one of {', '.join(STATIC_ROPES)}"
        )


def _check_mask_token(config: DFlashConfig) -> None:
    mask = config.mask_token_id
    if mask is None:
        raise BlockPilotError(
            "drafter config has no mask_token_id: add dflash_config.mask_token_id"
        )
    _check_count("mask_token_id", mask, 0)
    for name in ("pad_token_id", "eos_token_id"):
        special = getattr(config, name)
        if mask in (special if isinstance(special, list) else [special]):
            raise BlockPilotError(
                f"drafter config: mask_token_id {mask} is also the {name}; a mask must be a token "
                "that never occurs in text"
            )


def _check_layers(config: DFlashConfig) -> None:
    if not config.target_layer_ids:
        raise BlockPilotError(
            "drafter config names no target_layer_ids and no num_target_layers to derive them from"
        )
    if config.num_target_layers is not None:
        allowed = range(config.num_target_layers - 1)
        outside = [i for i in config.target_layer_ids if i not in allowed]
        if outside:
            raise BlockPilotError(
                f"drafter config: target_layer_ids {outside} are outside 0..{allowed.stop - 1} "
                "(0-based decoder layers; the output of the last layer is normalised, so it is not "
                "a feature)"
            )


def _check_count(name: str, value: Any, least: int) -> None:
    """Refuse a stated value that is not a whole number, or too small."""
    if value is not None and type(value) is not int:
        raise BlockPilotError(f"drafter config: {name} {value!r} must be a whole number")
    if value is not None and value < least:
        raise BlockPilotError(f"drafter config: {name} {value!r} must be at least {least}")


def _check_scales(config: DFlashConfig) -> None:
    for name in SCALES:
        value = config.setting(name)
        if value is None or (name == "final_logit_softcapping" and value == 0):
            continue
        if not (isinstance(value, int | float) and 0 < value < math.inf):
            raise BlockPilotError(f"drafter config: {name} {value!r} must be a positive number")


def _check_dflash2(config: DFlashConfig) -> None:
    missing = [name for name in DFLASH2 if config.setting(name) is None]
    if len(missing) == len(DFLASH2):
        if "DFlash2DraftModel" in (config.architectures or ()):
            raise BlockPilotError(f"drafter config of DFlash2 has no {', '.join(missing)}")
        return
    if missing:
        raise BlockPilotError(f"drafter config of DFlash2 has no {', '.join(missing)}")
    if config.hidden_size % config.setting("conv_group_size"):
        raise BlockPilotError(
            f"drafter config: conv_group_size {config.setting('conv_group_size')} must divide "
            f"hidden_size {config.hidden_size}"
        )
    vocabulary = config.draft_vocab_size or config.vocab_size
    if config.setting("selector_top_k") > vocabulary:
        raise BlockPilotError(
            f"drafter config: selector_top_k {config.setting('selector_top_k')} is larger than the "
            f"vocabulary of {vocabulary}"
        )
    if config.correction_rank is not None:
        raise BlockPilotError(
            "drafter config: a DFlash2 drafter cannot have correction_rank "
            f"{config.correction_rank!r}"
        )


def _check_plain(settings: Mapping[str, Any]) -> None:
    for name, value in settings.items():
        known = (*_SETTINGS, "causal")
        if name not in known and value is not None and value != PLAIN.get(name):
            raise BlockPilotError(
                f"drafter config has {name} {value!r}, which is neither DFlash nor DFlash2 and "
                "cannot be read"
            )
