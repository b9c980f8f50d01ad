"""The templates of the built-in suite: families of prompts over one small template language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from blockpilot_rl.prompts.suite import (
    arithmetic,
    chat_arithmetic,
    chat_edits,
    chat_texts,
    code,
    copying,
    extract,
    long,
    other,
    question,
    short,
    story,
    summarise,
)
from blockpilot_rl.prompts.suite.languages import LANGUAGES, Language
from blockpilot_rl.prompts.suite.writer import ENGLISH, Grammar, Writer

__all__ = ["GROUPS", "Stream", "Writer"]


@dataclass(frozen=True)
class Stream:
    """Where the prompts of one family in one language come from.

    Args:
        family: Name of the family.
        language: ISO 639-1 code of the language.
        write: Writes the text of one prompt, or the turns of a chat that the user begins and ends.
        grammar: What the writer knows of the language.
        key: Tells the stream's random numbers from those of the others.
    """

    family: str
    language: str
    write: Callable[[Writer], str | tuple[str, ...]]
    grammar: Grammar
    key: tuple[int, ...]


def _streams(
    writers: Mapping[str, Callable[[Writer], str | tuple[str, ...]]],
    language: str = "en",
    grammar: Grammar = ENGLISH,
) -> tuple[Stream, ...]:
    """Streams whose random numbers depend on their names alone."""
    return tuple(
        Stream(family, language, write, grammar, tuple(f"{language} {family}".encode()))
        for family, write in writers.items()
    )


_ENGLISH: Mapping[str, Callable[[Writer], str]] = {
    "arithmetic": arithmetic.write,
    "code": code.write,
    "copy": copying.write,
    "extract": extract.write,
    "summarise": summarise.write,
    "question": question.write,
    "story": story.write,
    "other": other.write,
}

_OTHER_LANGUAGES: Mapping[str, Callable[[Language, Writer], str]] = {
    "arithmetic": Language.arithmetic,
    "question": Language.question,
    "story": Language.story,
    "summarise": Language.summarise,
}

GROUPS: Mapping[str, tuple[Stream, ...]] = {
    # Bundled drafters are trained on these prompts, so their order and random numbers stay.
    "english": tuple(
        Stream(family, "en", write, ENGLISH, (index,))
        for index, (family, write) in enumerate(_ENGLISH.items())
    ),
    "languages": tuple(
        stream
        for family, write in _OTHER_LANGUAGES.items()
        for language in LANGUAGES
        for stream in _streams({family: partial(write, language)}, language.code, language.grammar)
    ),
    "multi-turn": _streams(
        {
            "chat-arithmetic": chat_arithmetic.write,
            "chat-list": chat_edits.write_list,
            "chat-correct": chat_edits.write_correction,
            "chat-question": chat_texts.write_questions,
            "chat-story": chat_texts.write_tale,
            "chat-code": chat_texts.write_code,
        }
    ),
    "short": _streams({"short": short.write}),
    "long": _streams(
        {
            "long-question": long.write_question,
            "long-summarise": long.write_summary,
            "long-extract": long.write_facts,
            "long-copy": long.write_copy,
        }
    ),
}
"""The groups of the built-in suite, each with the streams that it mixes in turn."""
