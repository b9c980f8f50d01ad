"""What a topic is: facts to draw and sentences that state them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """A kind of passage, as templates of the suite's writer.

    Args:
        kind: What a text on it is called, such as `"memo"`.
        facts: Templates by name, drawn in order; a later one may use the earlier ones.
        lines: The sentences in order. The first part of each is the sentence itself, the others
            are questions that it answers. A passage always has the first line.
    """

    kind: str
    facts: Mapping[str, str]
    lines: tuple[tuple[str, ...], ...]
