"""Prompts: the built-in suite, files of prompts, and the split that every prompt belongs to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, cast

import numpy as np

from blockpilot_rl.errors import BlockPilotError, closest
from blockpilot_rl.sweeps.suite import FAMILY_WRITERS, Writer

Split = Literal["drafter", "train", "validation", "test"]

BUILTIN = "builtin"
"""Name of the suite of this package."""

SPLITS: tuple[Split, ...] = ("drafter", "train", "validation", "test")
"""Drafter training, policy training, model selection, and the final comparison."""

FAMILIES: tuple[str, ...] = tuple(FAMILY_WRITERS)
"""The families of the built-in suite, in the order in which it mixes them."""

_SPLIT_ENDS = (0.50, 0.75, 0.80, 1.0)
_ROLES = ("system", "user", "assistant")
_MAX_REPEATS = 2000


@dataclass(frozen=True)
class Message:
    """One turn of a conversation.

    Args:
        role: `"system"`, `"user"` or `"assistant"`.
        content: What was said.
    """

    role: str
    content: str


@dataclass(frozen=True)
class Prompt:
    """A conversation that waits for the target's answer.

    Args:
        suite: Where the prompt comes from, `"builtin"` for the suite of this package.
        family: Kind of task; results are grouped by it.
        language: ISO code of the language.
        messages: The turns so far; the last one is the user's.

    Attributes:
        id: First 16 hexadecimal digits of the SHA-256 of the messages' canonical JSON. Two prompts
            with equal messages have the same id, whatever their suite and family.

    Raises:
        BlockPilotError: If there is no message, one is empty, or the last is not the user's.
    """

    id: str = field(init=False)
    suite: str
    family: str
    language: str
    messages: tuple[Message, ...]

    def __post_init__(self) -> None:
        """Check the messages and derive the id from them."""
        if not self.messages or self.messages[-1].role != "user":
            raise BlockPilotError("prompt: the last message must be the user's.")
        for message in self.messages:
            if message.role not in _ROLES:
                raise BlockPilotError(
                    f"prompt: unknown role {message.role!r}.{closest(message.role, _ROLES)}"
                )
            if not message.content.strip():
                raise BlockPilotError(f"prompt: the {message.role} message is empty; give it text.")
            if any("\ud800" <= character <= "\udfff" for character in message.content):
                raise BlockPilotError(
                    f"prompt: the {message.role} message has a lone surrogate, which is no "
                    "character; remove it."
                )
        canonical = json.dumps(
            self.chat(), ensure_ascii=False, sort_keys=True, separators=(",", ":")
        )
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        object.__setattr__(self, "id", digest[:16])

    @classmethod
    def from_text(
        cls, text: str, suite: str = "custom", family: str = "other", language: str = "en"
    ) -> Prompt:
        """Make a prompt of one user message.

        Args:
            text: The message.
            suite: Name of its suite.
            family: Name of its family.
            language: ISO code of its language.

        Returns:
            The prompt.

        Raises:
            BlockPilotError: If the text is empty or blank.
        """
        return cls(suite, family, language, (Message("user", text),))

    @property
    def split(self) -> Split:
        """The split that the prompt belongs to, always the same one."""
        return split_of(self.id)

    @property
    def text(self) -> str:
        """The user's last message."""
        return self.messages[-1].content

    def chat(self) -> list[dict[str, str]]:
        """The messages in the form that `tokenizer.apply_chat_template` takes."""
        return [asdict(message) for message in self.messages]


def split_of(prompt_id: str) -> Split:
    """Decide the split of a prompt from its id alone.

    As nothing else is looked at, a prompt never changes sides, in whatever suite, order or size it
    appears. Shares: drafter 50%, train 25%, validation 5%, test 20%.

    Args:
        prompt_id: The id of a prompt.

    Returns:
        One of `SPLITS`.
    """
    digest = hashlib.sha256(f"split:{prompt_id}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return next(
        (split for split, end in zip(SPLITS, _SPLIT_ENDS, strict=True) if share < end), SPLITS[-1]
    )


def builtin_suite(
    size: int = 8000,
    seed: int = 0,
    families: Sequence[str] | None = None,
    splits: Collection[str] | None = None,
) -> list[Prompt]:
    """Write prompts from the package's own templates.

    The families take turns, each from a random stream of its own. So a smaller suite is the
    beginning of a larger one, and leaving out a family or a split does not change the others'
    prompts.

    Args:
        size: How many prompts, all different; counted after the choice of splits.
        seed: Decides the prompts. The same seed always gives the same list.
        families: Which of `FAMILIES` to mix; all of them by default.
        splits: Which of `SPLITS` to keep; all of them by default.

    Returns:
        `size` prompts of suite `"builtin"`.

    Raises:
        BlockPilotError: If the size or seed is negative, a name is unknown, a choice is empty, or
            a family has not as many different prompts as that.
    """
    if size < 0:
        raise BlockPilotError(f"size of the built-in suite is {size}; give 0 or more.")
    if seed < 0:
        raise BlockPilotError(f"seed of the built-in suite is {seed}; give 0 or more.")
    chosen = _checked("family", FAMILIES, families)
    kept = _checked("split", SPLITS, splits)
    streams = [_stream(name, seed, kept) for name in chosen]
    return [next(streams[i % len(streams)]) for i in range(size)]


def load_prompts(
    path: str | Path, suite: str = "custom", family: str = "other", language: str = "en"
) -> list[Prompt]:
    """Read prompts from a file.

    A name ending in `.jsonl` means JSON Lines: one object per line with the key `prompt`, and
    optionally `family` and `language`; other keys are not used. Any other file is plain text with
    one prompt per line.

    Args:
        path: The file, in UTF-8.
        suite: Name of the suite for all prompts.
        family: Family of the prompts that name none.
        language: ISO code of the language of the prompts that name none.

    Returns:
        The prompts in the order of the file.

    Raises:
        BlockPilotError: If the file cannot be read or has no prompt, or a line is empty, repeats
            another, is not UTF-8, or is not such an object; the message names the line.
    """
    path = Path(path)
    parse: Callable[[str], dict[str, str]] = (
        _parse_json if path.suffix.lower() == ".jsonl" else _parse_text
    )
    try:
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except OSError as error:
        raise BlockPilotError(f"cannot read prompts from {path}: {error.strerror}.") from error
    if lines[-1] == b"":
        lines.pop()
    if not lines:
        raise BlockPilotError(f"{path} has no prompts; write one per line.")
    seen: dict[str, int] = {}
    prompts = []
    for number, line in enumerate(lines, 1):
        try:
            row = parse(line.decode("utf-8").rstrip("\r"))
            prompt = Prompt.from_text(
                row["prompt"], suite, row.get("family", family), row.get("language", language)
            )
        except UnicodeDecodeError as error:
            raise BlockPilotError(f"{path}, line {number}: not UTF-8; convert the file.") from error
        except BlockPilotError as error:
            raise BlockPilotError(f"{path}, line {number}: {error}") from error
        if prompt.id in seen:
            raise BlockPilotError(
                f"{path}, line {number}: the same prompt as line {seen[prompt.id]}; remove one."
            )
        seen[prompt.id] = number
        prompts.append(prompt)
    return prompts


def _parse_text(line: str) -> dict[str, str]:
    return {"prompt": line}


def _parse_json(line: str) -> dict[str, str]:
    if not line.strip():
        raise BlockPilotError("empty line; remove it.")
    try:
        row = json.loads(line)
    except ValueError as error:
        raise BlockPilotError(f"not valid JSON ({error}).") from error
    if not isinstance(row, dict) or "prompt" not in row:
        raise BlockPilotError("need a JSON object with the key 'prompt'.")
    used = {key: row[key] for key in ("prompt", "family", "language") if key in row}
    for key, value in used.items():
        if not isinstance(value, str):
            raise BlockPilotError(f"the value of {key!r} must be a string, not {value!r}.")
    return cast("dict[str, str]", used)


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


def _stream(family: str, seed: int, splits: Collection[str]) -> Iterator[Prompt]:
    """Yield the family's different prompts of these splits in the order of its own stream."""
    writer = Writer(np.random.default_rng([seed, FAMILIES.index(family)]))
    seen: set[str] = set()
    repeats = 0
    while repeats < _MAX_REPEATS:
        prompt = Prompt.from_text(FAMILY_WRITERS[family](writer), BUILTIN, family)
        repeats = repeats + 1 if prompt.id in seen else 0
        if not repeats and prompt.split in splits:
            yield prompt
        seen.add(prompt.id)
    raise BlockPilotError(
        f"family {family!r} has only {len(seen)} different prompts; ask for fewer."
    )
