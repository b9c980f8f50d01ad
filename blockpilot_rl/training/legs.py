"""Legs: parts of a drafter's training that follow each other, each with its own options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

from blockpilot_rl.errors import BlockPilotError, closest
from blockpilot_rl.plain_yaml import plain_yaml

if TYPE_CHECKING:
    from blockpilot_rl.training.train import DrafterTrainingConfig

LEG_OPTIONS = (
    "prompts",
    "answers",
    "temperature",
    "answer_seeds",
    "steps",
    "sequences",
    "queries",
    "block_sizes",
    "learning_rate",
    "warmup",
    "weight_decay",
    "distillation",
    "teacher_top",
    "gamma",
    "architecture",
    "correction_rank",
    "draft_vocab_size",
    "seed",
)
"""Options that a leg may state. All others hold for the whole training."""


def split_legs(config: DrafterTrainingConfig) -> list[DrafterTrainingConfig]:
    """Return the config of each leg; a config without a file of legs is one leg.

    A leg has the options of `config`, except those that it states. It starts from the drafter of
    the leg before it, so only the first leg has the shape options, and its seed is `config.seed`
    plus its index.

    Raises:
        BlockPilotError: If the file cannot be read, or an option is unknown or not allowed.
    """
    if config.legs is None:
        return [config]
    path = Path(config.legs)
    legs = []
    for index, options in enumerate(_read(path)):
        shape: dict[str, Any] = {}
        if index:
            shape = {
                "init": str(leg_folder(config, index - 1) / "drafter"),
                "layers": None,
                "target_layer_ids": None,
                "draft_vocab_size": None,
                "mask_token_id": None,
                "architecture": None,
                "correction_rank": 0,
            }
        try:
            values = {"seed": config.seed + index, **shape, **_values(config, options)}
            legs.append(dataclasses.replace(config, legs=None, **values))
        except BlockPilotError as error:
            raise BlockPilotError(f"{path}, leg {index + 1}: {error}") from error
    return legs


def leg_folder(config: DrafterTrainingConfig, index: int) -> Path:
    """Folder of the checkpoint and the drafter of a leg."""
    return Path(config.out) / f"leg-{index + 1}"


def _read(path: Path) -> list[Mapping[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BlockPilotError(f"legs {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BlockPilotError(f"legs {path} cannot be read: it is not UTF-8") from error
    try:
        legs = plain_yaml(text)
    except BlockPilotError as error:
        raise BlockPilotError(f"legs {path} {error}") from error
    if not isinstance(legs, list) or not legs or not all(isinstance(x, dict) for x in legs):
        raise BlockPilotError(
            f"legs {path} must be a YAML list with the options of each leg, such as "
            "`- {steps: 2000, learning_rate: 0.001}`"
        )
    for index, leg in enumerate(legs):
        for name in leg:
            if name not in LEG_OPTIONS:
                raise BlockPilotError(
                    f"{path}, leg {index + 1}: {name!r} is not an option of a leg."
                    f"{closest(str(name), LEG_OPTIONS)}"
                )
    return legs


def _values(config: DrafterTrainingConfig, options: Mapping[str, Any]) -> dict[str, Any]:
    """Values as the config has them: tuples for lists and for words with commas."""
    hints = get_type_hints(type(config))
    values = {}
    for name, value in options.items():
        if get_origin(hints[name]) is tuple and not isinstance(value, list | tuple):
            value = (
                [word.strip() for word in value.split(",")] if isinstance(value, str) else [value]
            )
        if hints[name] is float and isinstance(value, str):
            value = _number(name, value)
        values[name] = tuple(value) if isinstance(value, list) else value
    return values


def _number(name: str, text: str) -> float:
    """Read a number that YAML takes for text, such as `1e-3`."""
    try:
        return float(text)
    except ValueError as error:
        raise BlockPilotError(f"{name} must be a number, got {text!r}") from error
