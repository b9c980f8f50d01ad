"""Options: the fields of a config dataclass, with the help and the bounds that every user needs.

One declaration serves Python, the command line and YAML files. A config calls `check_options` in
its `__post_init__`, so that bad values are refused wherever they come from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import MISSING
from typing import Any

from blockpilot_rl.errors import BlockPilotError, closest


def option(
    default: Any = MISSING,
    *,
    help: str,
    aliases: Sequence[str] = (),
    default_factory: Any = MISSING,
    choices: Sequence[Any] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    **argparse_options: Any,
) -> Any:
    """Declare one field of a config dataclass.

    Args:
        default: The default. Without one the option is required.
        help: What the option does, for `--help`.
        aliases: Further spellings of its flag, such as `-f`.
        default_factory: Makes the default of a list.
        choices: The allowed values.
        minimum: The smallest allowed number.
        maximum: The largest allowed number.
        above: Numbers must be larger than this.
        below: Numbers must be smaller than this.
        **argparse_options: Passed to `argparse.ArgumentParser.add_argument`, such as `metavar`.

    Returns:
        The dataclass field.
    """
    bounds = {"minimum": minimum, "maximum": maximum, "above": above, "below": below}
    metadata = {
        "help": help,
        "aliases": list(aliases),
        "choices": choices,
        "bounds": {name: bound for name, bound in bounds.items() if bound is not None},
        **argparse_options,
    }
    if default_factory is not MISSING:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def check_options(config: Any) -> None:
    """Check the values of a config against the choices and bounds of its options.

    Args:
        config: An instance of a dataclass whose fields are made by `option`. Fields that are None
            are not checked.

    Raises:
        BlockPilotError: If a value is not allowed. The message names the field and the value.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value is None:
            continue
        choices = field.metadata.get("choices")
        if choices is not None and value not in choices:
            names = [str(choice) for choice in choices]
            raise BlockPilotError(
                f"{field.name} must be one of {', '.join(names)}, got {value!r}."
                f"{closest(str(value), names)}"
            )
        bounds = field.metadata.get("bounds")
        if bounds and not _within(value, **bounds):
            raise BlockPilotError(f"{field.name} must be {_describe(**bounds)}, got {value:g}")


def _within(
    value: float,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> bool:
    """Whether a number satisfies the bounds; NaN satisfies none."""
    return (
        value == value
        and (minimum is None or value >= minimum)
        and (maximum is None or value <= maximum)
        and (above is None or value > above)
        and (below is None or value < below)
    )


def _describe(**bounds: float) -> str:
    words = {"minimum": "at least", "maximum": "at most", "above": "above", "below": "below"}
    return " and ".join(f"{words[name]} {bound:g}" for name, bound in bounds.items())
