"""The built-in suite of prompts, beside what else makes prompts: one import serves all."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from blockpilot_rl.errors import BlockPilotError, closest
from blockpilot_rl.prompts.files import BadLine, UnusedTurns, length_check, load_prompts
from blockpilot_rl.prompts.prompt import SPLITS, Message, Prompt, Split, split_of
from blockpilot_rl.prompts.suite import GROUPS, Stream, Writer

__all__ = [
    "BUILTIN",
    "FAMILIES",
    "GROUPS",
    "SPLITS",
    "BadLine",
    "Message",
    "Prompt",
    "Split",
    "UnusedTurns",
    "builtin_suite",
    "length_check",
    "load_prompts",
    "policy_split",
    "split_of",
]

BUILTIN = "builtin"
"""Name of the suite of this package."""

FAMILIES: tuple[str, ...] = tuple(stream.family for stream in GROUPS["english"])
"""The families of the group that is the default, in the order in which the suite mixes them."""

_MAX_REPEATS = 2000


def builtin_suite(
    size: int = 8000,
    seed: int = 0,
    families: Sequence[str] | None = None,
    splits: Collection[str] | None = None,
    groups: Sequence[str] = ("english",),
    languages: Collection[str] | None = None,
) -> list[Prompt]:
    """Write prompts from the package's own templates.

    The groups take turns, and within each its families (and their languages), each from a random
    stream of its own. So a smaller suite is the beginning of a larger one, and leaving out a group,
    a family, a language or a split does not change the others' prompts.

    Args:
        size: How many prompts, all different; counted after the choice of splits.
        seed: Decides the prompts. The same seed always gives the same list.
        families: Which families of the groups to mix; all of them by default.
        splits: Which of `SPLITS` to keep; all of them by default.
        groups: Which of `GROUPS` to mix, in equal parts: `"english"` (everyday tasks),
            `"languages"` (tasks in German, French, Spanish, Italian and Portuguese),
            `"multi-turn"` (chats with two or three messages of the user), `"short"` (a word or a
            line) and `"long"` (several texts, then a task).
        languages: Codes of the languages to keep; all of the groups' by default.

    Returns:
        `size` prompts of suite `"builtin"`.

    Raises:
        BlockPilotError: If the size or seed is negative, a name is unknown, a choice is empty or
            leaves nothing of a group, or a family has not as many different prompts as that.
    """
    if size < 0:
        raise BlockPilotError(f"size of the built-in suite is {size}; give 0 or more.")
    if seed < 0:
        raise BlockPilotError(f"seed of the built-in suite is {seed}; give 0 or more.")
    kept = _checked("split", SPLITS, splits)
    rotation = [
        itertools.cycle([_prompts(stream, seed, kept) for stream in streams])
        for streams in _chosen_streams(groups, families, languages)
    ]
    return [next(next(rotation[i % len(rotation)])) for i in range(size)]


def policy_split(prompt: Prompt) -> str:
    """Split of a prompt in a sweep.

    Only the built-in suite trains drafters; the share that its hash keeps for them is training data
    of policies everywhere else.
    """
    return "train" if prompt.suite != BUILTIN and prompt.split == "drafter" else prompt.split


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


def _distinct(names: Iterator[str]) -> list[str]:
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
    writer = Writer(np.random.default_rng([seed, *stream.key]), stream.grammar)
    seen: set[str] = set()
    repeats = 0
    while repeats < _MAX_REPEATS:
        prompt = _conversation(stream, stream.write(writer))
        repeats = repeats + 1 if prompt.id in seen else 0
        if not repeats and prompt.split in splits:
            yield prompt
        seen.add(prompt.id)
    raise BlockPilotError(
        f"family {stream.family!r} has only {len(seen)} different prompts in {stream.language!r}; "
        "ask for fewer."
    )


def _conversation(stream: Stream, written: str | tuple[str, ...]) -> Prompt:
    """Turn a text, or the turns of a chat that the user begins and ends, into a prompt."""
    turns = (written,) if isinstance(written, str) else written
    roles = itertools.cycle(("user", "assistant"))
    messages = tuple(Message(role, text) for role, text in zip(roles, turns, strict=False))
    return Prompt(BUILTIN, stream.family, stream.language, messages)
