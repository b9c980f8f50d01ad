"""Hyperparameters: values from a YAML file per algorithm, checked by a frozen dataclass."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from blockpilot_rl.errors import BlockPilotError, closest
from blockpilot_rl.plain_yaml import plain_yaml
from blockpilot_rl.policies.config import ACTIVATIONS, MAX_WIDTH

HYPERPARAMS_FOLDER = Path(__file__).parent / "hyperparams"

H = TypeVar("H")


def resolve_hyperparams(algorithm: str, kind: type[H], overrides: Mapping[str, Any]) -> H:
    """Read the default hyperparameters of an algorithm and replace some.

    Args:
        algorithm: Name of the algorithm and of its YAML file.
        kind: Dataclass of the hyperparameters.
        overrides: Values to replace; text is converted to the type of the field.

    Returns:
        The complete, checked hyperparameters.

    Raises:
        BlockPilotError: If a key is unknown or a value is of the wrong type or out of range.
    """
    types_of = typing.get_type_hints(kind)
    for key in overrides:
        if key not in types_of:
            known = f"it has {', '.join(types_of)}" if types_of else "it has none"
            raise BlockPilotError(
                f"{algorithm} has no hyperparameter {key!r}; {known}.{closest(key, types_of)}"
            )
    values = {**read_yaml(HYPERPARAMS_FOLDER / f"{algorithm}.yml"), **overrides}
    return kind(
        **{
            name: _convert(f"{algorithm} hyperparameter {name}", hint, values[name])
            for name, hint in types_of.items()
        }
    )


def resolve_alias(algorithm: str, hyperparams: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Replace the old name `reward-regression`, which stood for two algorithms.

    Args:
        algorithm: Name of an algorithm.
        hyperparams: Its hyperparameters; `model` selects the algorithm.

    Returns:
        The name and hyperparameters of the selected algorithm. Hyperparameters of the other one are
        dropped.

    Raises:
        BlockPilotError: If there is no such model.
    """
    if algorithm != "reward-regression":
        return algorithm, hyperparams
    model = hyperparams.get("model", "ridge")
    if model not in _REGRESSIONS:
        raise BlockPilotError(
            f"hyperparameter model must be {' or '.join(_REGRESSIONS)}, not {model!r}"
        )
    other = "mlp" if model == "ridge" else "ridge"
    dropped = {"model", *read_yaml(HYPERPARAMS_FOLDER / f"{_REGRESSIONS[other]}.yml")}
    kept = {name: value for name, value in hyperparams.items() if name not in dropped}
    return _REGRESSIONS[model], kept


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file of hyperparameters.

    Raises:
        BlockPilotError: If it cannot be read or does not hold `key: value` lines.
    """
    try:
        values = plain_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BlockPilotError(f"cannot read hyperparameters {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BlockPilotError(f"hyperparameters {path} are not UTF-8 text: {error}") from error
    except BlockPilotError as error:
        raise BlockPilotError(f"hyperparameters {path}: the content {error}") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise BlockPilotError(f"hyperparameters {path} must hold `key: value` lines")
    return values


def to_dict(hyperparams: Any) -> dict[str, Any]:
    """Render hyperparameters as JSON and YAML values."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(hyperparams).items()
    }


def require(condition: bool, what: str) -> None:
    """Check a hyperparameter's range.

    Raises:
        BlockPilotError: If the condition does not hold.
    """
    if not condition:
        raise BlockPilotError(f"hyperparameter {what}")


def require_network(hidden: tuple[int, ...], activation: str) -> None:
    """Check the shape of a multilayer perceptron.

    Raises:
        BlockPilotError: If a width is out of range or the activation is unknown.
    """
    require(all(width >= 1 for width in hidden), "hidden must hold positive widths")
    require(
        all(width <= MAX_WIDTH for width in hidden),
        f"hidden must hold widths of at most {MAX_WIDTH}, not {max(hidden, default=0)}",
    )
    require(
        activation in ACTIVATIONS,
        f"activation must be {' or '.join(ACTIVATIONS)}, not {activation!r}",
    )


def _convert(what: str, hint: Any, value: Any) -> Any:
    """Read a YAML value as a type: a number, text, a tuple of numbers, or one of these or None."""
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        values = value if isinstance(value, list | tuple) else str(value).split(",")
        return tuple(_convert(what, item, entry) for entry in values)
    try:
        if isinstance(value, bool) or value is None:
            raise ValueError
        converted = hint(value)
        if hint is int and converted != float(value):
            raise ValueError
        if hint is float and not math.isfinite(converted):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise BlockPilotError(f"{what} must be {_WORDS[hint]}, not {value!r}") from None
    return converted


_REGRESSIONS = {"ridge": "ridge-regression", "mlp": "network-regression"}
_WORDS = {int: "a whole number", float: "a finite number", str: "text"}
