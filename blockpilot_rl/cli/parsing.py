"""Names of 0.1, until every command has moved to `options`, `flags` and `console`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from blockpilot_rl.cli.console import (
    INPUT_ERROR,
    INTERRUPTED,
    PIPE_CLOSED,
    TERMINATED,
    run,
)
from blockpilot_rl.cli.flags import parse
from blockpilot_rl.options import option as arg


def name_first(argv: Sequence[str] | None, flag: str) -> list[str]:
    """Let the first argument of a command do without its flag; now `option(first=True)`."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and not words[0].startswith("-"):
        words[0] = f"{flag}={words[0]}"
    return words


__all__ = [
    "INPUT_ERROR",
    "INTERRUPTED",
    "PIPE_CLOSED",
    "TERMINATED",
    "arg",
    "name_first",
    "parse",
    "run",
]
