"""The one error that bad input raises, and what helps to write it."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable


class BlockPilotError(ValueError):
    """Bad input or state that the user can mend.

    The message is one line: what is wrong, where, and how to mend it. Command line tools print it
    without a traceback and exit with code 2.
    """


def closest(name: object, known: Iterable[str]) -> str:
    """Render a hint that names the known word nearest to `name`.

    Args:
        name: The word that was not understood.
        known: The words that would have been.

    Returns:
        `" Did you mean 'x'?"` with a leading space, or an empty string when nothing is near.
    """
    matches = difflib.get_close_matches(str(name), [str(word) for word in known], n=1)
    return f" Did you mean {matches[0]!r}?" if matches else ""


def one_line(error: BaseException) -> str:
    """Shorten another library's error to one line.

    Args:
        error: What was raised.

    Returns:
        The beginning of its message without line breaks, or the name of its class if it has none.
    """
    message = " ".join(str(error).split())
    return textwrap.shorten(message, 200, placeholder=" …") or type(error).__name__
