"""Options: the fields of a config dataclass, with the help and the bounds that every user needs.

One declaration serves Python, the command line and YAML files. A config calls `check_options` in
its `__post_init__`, so that bad values are refused in all three.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import MISSING
from numbers import Real
from typing import Any, NoReturn

from blockpilot_rl.errors import BlockPilotError, closest


def option(
    default: Any = MISSING,
    *,
    help: str,
    aliases: Sequence[str] = (),
    renamed_from: str | Sequence[str] = (),
    default_factory: Any = MISSING,
    choices: Sequence[Any] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    parse: Callable[[str], Any] | None = None,
    first: bool = False,
    **argparse_options: Any,
) -> Any:
    """Declare one field of a config dataclass.

    The type of the field decides how the command line reads it: numbers and text as they are,
    `bool` as a switch (`--trace`, `--no-trace`), `tuple[int, ...]` and `tuple[str, ...]` as one
    word with commas (`--arms 1,2,4`), `list[...]` as several words, `dict[str, Any]` as
    `KEY:VALUE` words, `Literal[...]` as one of its values.

    Args:
        default: The default. Without one the option is required.
        help: What the option does, for `--help`.
        aliases: Further spellings of its flag, such as `-f`.
        renamed_from: Field names of earlier releases. Their flags and file keys still work and
            print a notice.
        default_factory: Makes the default of a list or dictionary.
        choices: The allowed values, or those of each element if the field is a tuple or list. With
            bounds, numbers within the bounds are allowed too.
        minimum: The smallest allowed number, of each element if the field is a tuple or list.
        maximum: The largest allowed number.
        above: Numbers must be larger than this.
        below: Numbers must be smaller than this.
        parse: Reads the value from one word of the command line, instead of the field's type.
        first: Whether the value may come first on the command line, without its flag.
        **argparse_options: Passed to `argparse.ArgumentParser.add_argument`, such as `metavar`.
            `nargs="?"` with `const` makes the value of the flag optional.

    Returns:
        The dataclass field.
    """
    bounds = {"minimum": minimum, "maximum": maximum, "above": above, "below": below}
    metadata = {
        "help": help,
        "aliases": tuple(aliases),
        "renamed_from": (renamed_from,) if isinstance(renamed_from, str) else tuple(renamed_from),
        "choices": choices,
        "bounds": {name: bound for name, bound in bounds.items() if bound is not None},
        "parse": parse,
        "first": first,
        "argparse": argparse_options,
    }
    if default_factory is not MISSING:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def check_options(config: Any) -> None:
    """Check the values of a config against the choices and bounds of its options.

    Args:
        config: An instance of a dataclass whose fields are made by `option`. Fields that are None
            are not checked; of a tuple or list every element is.

    Raises:
        BlockPilotError: If a value is not allowed. The message names the field and the value.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        choices, bounds = field.metadata.get("choices"), field.metadata.get("bounds")
        for item in value if isinstance(value, tuple | list) else (value,):
            if item is None or (choices is not None and item in choices):
                continue
            if bounds:
                _check_bounds(field.name, item, bounds)
            elif choices is not None:
                _refuse_choice(field.name, item, choices)


def changed_options(config: Any) -> tuple[str, ...]:
    """Return the names of the options whose values are not their defaults.

    Args:
        config: An instance of a dataclass. A required option always counts as changed.
    """
    return tuple(
        field.name
        for field in dataclasses.fields(config)
        if getattr(config, field.name) != _default(field)
    )


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def _refuse_choice(name: str, value: Any, choices: Sequence[Any]) -> NoReturn:
    names = [str(choice) for choice in choices]
    raise BlockPilotError(
        f"{name} must be one of {', '.join(names)}, got {value!r}.{closest(value, names)}"
    )


def _check_bounds(name: str, value: Any, bounds: dict[str, float]) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise BlockPilotError(f"{name} must be a number, got {value!r}")
    if not _within(value, **bounds):
        raise BlockPilotError(f"{name} must be {_describe(**bounds)}, got {value}")


def _within(
    value: Any,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> bool:
    """Whether a number, however large, satisfies the bounds; NaN satisfies none."""
    return bool(
        value == value
        and (minimum is None or value >= minimum)
        and (maximum is None or value <= maximum)
        and (above is None or value > above)
        and (below is None or value < below)
    )


def _describe(**bounds: float) -> str:
    words = {"minimum": "at least", "maximum": "at most", "above": "above", "below": "below"}
    return " and ".join(f"{words[name]} {bound:.12g}" for name, bound in bounds.items())
