"""The templates of the built-in suite: one module per family, over one small template language."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from blockpilot_rl.sweeps.suite import (
    arithmetic,
    code,
    copying,
    extract,
    other,
    question,
    story,
    summarise,
)
from blockpilot_rl.sweeps.suite.writer import Writer

__all__ = ["FAMILY_WRITERS", "Writer"]

FAMILY_WRITERS: Mapping[str, Callable[[Writer], str]] = {
    "arithmetic": arithmetic.write,
    "code": code.write,
    "copy": copying.write,
    "extract": extract.write,
    "summarise": summarise.write,
    "question": question.write,
    "story": story.write,
    "other": other.write,
}
