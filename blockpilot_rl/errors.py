"""The error that bad input raises, and helpers for its message."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterable

_MEMORY_ERRORS = re.compile(r"(can't|cannot) allocate memory|not enough memory|out of memory", re.I)


class BlockPilotError(ValueError):
    """Bad input or state that the user can fix.

    The message is one line: what is wrong, where, and how to fix it. Commands print it without a
    traceback and exit with code 2.
    """


def closest(name: object, known: Iterable[str]) -> str:
    """Return a hint with the known word that is most similar to `name`.

    Args:
        name: The unknown word.
        known: The known words.

    Returns:
        `" Did you mean 'x'?"` with a leading space, or an empty string if no word is similar.
    """
    matches = difflib.get_close_matches(str(name), [str(word) for word in known], n=1)
    return f" Did you mean {matches[0]!r}?" if matches else ""


def one_line(error: BaseException) -> str:
    """Shorten another library's error to one line.

    Args:
        error: The error.

    Returns:
        The start of its message without line breaks, or the name of its class if it has none.
    """
    message = " ".join(str(error).split())
    return textwrap.shorten(message, 200, placeholder=" …") or type(error).__name__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is a lack of memory, which torch reports as a `RuntimeError`."""
    return isinstance(error, MemoryError) or bool(_MEMORY_ERRORS.search(str(error)))
