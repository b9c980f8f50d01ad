"""Lists on the command line, given as one word with commas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.plain_yaml import plain_yaml


def words(text: str) -> tuple[str, ...]:
    """Split `a,b` into its words; blanks around them do not count."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def whole_numbers(text: str, flag: str, least: int = 0) -> tuple[int, ...]:
    """Split `1,2,4` into its numbers.

    Args:
        text: The list.
        flag: The flag that gave it, for the message.
        least: Least number that is allowed.

    Raises:
        BlockPilotError: If there is no word, one is not a whole number, or one is too small.
    """
    if not words(text) or not all(word.isdecimal() for word in words(text)):
        raise BlockPilotError(f"{flag} must be whole numbers such as 1,2,4,8, not {text!r}")
    numbers = tuple(int(word) for word in words(text))
    if any(number < least for number in numbers):
        raise BlockPilotError(f"{flag} must be at least {least} each, not {text}")
    return numbers


def part_of(text: str) -> tuple[int, int]:
    """Read `I/N`, counted from 1, as an index from 0 and a count.

    Raises:
        BlockPilotError: If it is not of that form.
    """
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise BlockPilotError(f"--part must be I/N with 1 <= I <= N, such as 1/2, got {text!r}")
    return int(index) - 1, int(count)


def assignments(pairs: Sequence[str], flag: str) -> dict[str, Any]:
    """Read `key:value` words; values are YAML, so `false` is no text.

    Args:
        pairs: The words.
        flag: The flag that gave them, for the message.

    Raises:
        BlockPilotError: If a word has no key or its value is not YAML or has no JSON counterpart.
    """
    values = {}
    for pair in pairs:
        key, _, text = pair.partition(":")
        if not key or not text:
            raise BlockPilotError(f"{flag} must be KEY:VALUE, such as size:3, not {pair!r}")
        try:
            values[key] = plain_yaml(text)
        except BlockPilotError as error:
            raise BlockPilotError(f"{flag} {pair}: the value {error}") from error
    return values
