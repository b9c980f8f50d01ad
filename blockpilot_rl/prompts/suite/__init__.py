"""The built-in suite: groups of prompt families, written by templates and a random generator.

To add a family, write a function that takes a `Writer` and returns a text, put its texts into
`blockpilot_rl/prompts/data`, and add a new group below. The function draws its requests with
`Writer.pick_request`, so that all prompts of one template are on one side of the test split.
Existing groups keep their families in their order, which decides the prompts that a group begins
with.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from blockpilot_rl.errors import BlockPilotError, closest
from blockpilot_rl.progress import ProgressCallback, no_progress
from blockpilot_rl.prompts.prompt import BUILTIN, SPLITS, Message, Prompt
from blockpilot_rl.prompts.suite import (
    arithmetic,
    code,
    editing,
    extract,
    free,
    languages,
    long,
    questions,
)
from blockpilot_rl.prompts.suite.writer import Writer

LARGEST_SUITE = 1_000_000
"""Most prompts that `builtin_suite` writes."""

_MAX_REPEATS = 2000
_PROGRESS_EVERY = 100


@dataclass(frozen=True)
class Stream:
    """The prompts of one family in one language.

    Attributes:
        family: Name of the family.
        language: ISO 639-1 code of the language.
        write: Writes the text of one prompt, or the turns of a chat that the user begins and ends.
        key: Seed of the stream's random numbers, in addition to the seed of the suite.
    """

    family: str
    language: str
    write: Callable[[Writer], str | tuple[str, ...]]
    key: tuple[int, ...]


def _stream(
    family: str, write: Callable[[Writer], str | tuple[str, ...]], language: str = "en"
) -> Stream:
    """A stream whose random numbers depend on its names alone."""
    return Stream(family, language, write, tuple(f"{language} {family}".encode()))


GROUPS: Mapping[str, tuple[Stream, ...]] = {
    "english": (
        Stream("arithmetic", "en", arithmetic.write_arithmetic, (0,)),
        Stream("code", "en", code.write_code, (1,)),
        Stream("copy", "en", editing.write_copy, (2,)),
        Stream("extract", "en", extract.write_extract, (3,)),
        Stream("summarise", "en", questions.write_summary, (4,)),
        Stream("question", "en", questions.write_question, (5,)),
        Stream("story", "en", free.write_story, (6,)),
        Stream("other", "en", free.write_other, (7,)),
    ),
    "languages": tuple(
        _stream(family, write, language)
        for family, write in (
            ("arithmetic", languages.write_arithmetic),
            ("question", languages.write_question),
            ("story", languages.write_story),
            ("summarise", languages.write_summary),
        )
        for language in languages.LANGUAGES
    ),
    "multi-turn": (
        _stream("chat-arithmetic", arithmetic.write_arithmetic_chat),
        _stream("chat-list", editing.write_list_chat),
        _stream("chat-correct", editing.write_correction_chat),
        _stream("chat-question", questions.write_question_chat),
        _stream("chat-story", free.write_story_chat),
        _stream("chat-code", code.write_code_chat),
    ),
    "short": (_stream("short", free.write_short),),
    "long": (
        _stream("long-question", long.write_question),
        _stream("long-summarise", long.write_summary),
        _stream("long-extract", long.write_facts),
        _stream("long-copy", long.write_copy),
    ),
}
"""The groups of the built-in suite, each with the streams that it mixes in turn."""

FAMILIES: tuple[str, ...] = tuple(stream.family for stream in GROUPS["english"])
"""The families of the default group, in the order in which the suite mixes them."""


def builtin_suite(
    size: int = 8000,
    seed: int = 0,
    families: Sequence[str] | None = None,
    splits: Collection[str] | None = None,
    groups: Sequence[str] = ("english",),
    languages: Collection[str] | None = None,
    progress: ProgressCallback | None = None,
) -> list[Prompt]:
    """Write prompts from the package's own templates.

    The groups take turns, and so do the families and languages within a group. Each has its own
    random stream, so a smaller suite is the beginning of a larger one, and leaving out a group, a
    family, a language or a split does not change the other prompts.

    Args:
        size: Number of different prompts, counted after splits are chosen.
        seed: Random seed. The same seed always gives the same list.
        families: Families of the groups to mix; all of them by default.
        splits: Splits to keep, of `SPLITS`; all of them by default.
        groups: Groups to mix in equal parts, of `GROUPS`: `"english"` (everyday tasks),
            `"languages"` (tasks in German, French, Spanish, Italian and Portuguese),
            `"multi-turn"` (chats with two or three messages of the user), `"short"` (a word or a
            line) and `"long"` (several texts, then a task).
        languages: Codes of the languages to keep; all of the groups' by default.
        progress: Called with the number of prompts written so far.

    Returns:
        `size` prompts of suite `"builtin"`.

    Raises:
        BlockPilotError: If the size or seed is out of range, a name is unknown, a choice is empty
            or leaves nothing of a group, or a family has fewer different prompts.
    """
    if not 0 <= size <= LARGEST_SUITE:
        raise BlockPilotError(f"size of the built-in suite is {size}; give 0 to {LARGEST_SUITE}.")
    if seed < 0:
        raise BlockPilotError(f"seed of the built-in suite is {seed}; give 0 or more.")
    kept = _checked("split", SPLITS, splits)
    rotation = [
        itertools.cycle([_prompts(stream, seed, kept) for stream in streams])
        for streams in _chosen_streams(groups, families, languages)
    ]
    report = progress or no_progress
    prompts: list[Prompt] = []
    for index in range(size):
        if index % _PROGRESS_EVERY == 0:
            report("prompts", index, size)
        prompts.append(next(next(rotation[index % len(rotation)])))
    report("prompts", size, size)
    return prompts


def _chosen_streams(
    groups: Sequence[str], families: Sequence[str] | None, languages: Collection[str] | None
) -> list[list[Stream]]:
    """The streams of each chosen group, in its own order or that of the chosen families."""
    names = _checked("group", tuple(GROUPS), groups)
    offered = [stream for name in names for stream in GROUPS[name]]
    wanted = _checked("family", _distinct(stream.family for stream in offered), families)
    spoken = _checked("language", _distinct(stream.language for stream in offered), languages)
    mixed = [
        [stream for stream in GROUPS[name] if stream.family in wanted and stream.language in spoken]
        for name in names
    ]
    for name, streams in zip(names, mixed, strict=True):
        if not streams:
            raise BlockPilotError(
                f"group {name!r} has none of the chosen families and languages; leave it out."
            )
        if families is not None:
            streams.sort(key=lambda stream: wanted.index(stream.family))
    return mixed


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _checked(kind: str, known: Sequence[str], chosen: Collection[str] | None) -> list[str]:
    if chosen is None:
        return list(known)
    names = [chosen] if isinstance(chosen, str) else list(dict.fromkeys(chosen))
    if not names:
        raise BlockPilotError(f"no {kind} chosen; known are {', '.join(known)}.")
    for name in names:
        if name not in known:
            hint = closest(name, known) or f" Known are {', '.join(known)}."
            raise BlockPilotError(f"unknown {kind} {name!r}.{hint}")
    return names


def _prompts(stream: Stream, seed: int, splits: Collection[str]) -> Iterator[Prompt]:
    """Yield the stream's different prompts of these splits in its own order."""
    writer = Writer(np.random.default_rng([seed, *stream.key]), stream.language)
    seen: set[str] = set()
    repeats = 0
    while repeats < _MAX_REPEATS:
        prompt = _conversation(stream, stream.write(writer), writer.template)
        repeats = repeats + 1 if prompt.id in seen else 0
        if not repeats and prompt.split in splits:
            yield prompt
        seen.add(prompt.id)
    raise BlockPilotError(
        f"family {stream.family!r} has only {len(seen)} different prompts in {stream.language!r}; "
        "ask for fewer."
    )


def _conversation(stream: Stream, written: str | tuple[str, ...], template: str) -> Prompt:
    """Turn a text, or the turns of a chat that the user begins and ends, into a prompt."""
    turns = (written,) if isinstance(written, str) else written
    roles = itertools.cycle(("user", "assistant"))
    messages = tuple(Message(role, text) for role, text in zip(roles, turns, strict=False))
    return Prompt(BUILTIN, stream.family, stream.language, messages, template)
