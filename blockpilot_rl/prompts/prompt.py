"""One prompt: its messages, its id and its split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Literal

from blockpilot_rl.errors import BlockPilotError, closest

Split = Literal["drafter", "train", "validation", "test"]

BUILTIN = "builtin"
"""Name of the suite of this package."""

SPLITS: tuple[Split, ...] = ("drafter", "train", "validation", "test")
"""Drafter training, policy training, model selection, and the final comparison."""

TEMPLATE_TEST_SHARE = 0.2
"""Share of the built-in suite's templates whose prompts are all test prompts."""

_TEMPLATE_SALT = "templates:18918"
_SPLIT_ENDS = (0.50, 0.75, 0.80, 1.0)
_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class Message:
    """One turn of a conversation.

    Args:
        role: `"system"`, `"user"` or `"assistant"`.
        content: The text.
    """

    role: str
    content: str


@dataclass(frozen=True)
class Prompt:
    """A conversation for the target to answer.

    Args:
        suite: Name of the suite, `"builtin"` for the suite of this package.
        family: Kind of task; results are grouped by it.
        language: ISO code of the language.
        messages: The turns so far; the last one is the user's.
        template: Id of the template that the built-in suite wrote the prompt from. It does not
            count when prompts are compared.

    Attributes:
        id: First 16 hexadecimal digits of the SHA-256 of the messages' canonical JSON. Two prompts
            with equal messages have the same id in every suite and family.

    Raises:
        BlockPilotError: If there is no message, one is empty, or the last is not the user's.
    """

    id: str = field(init=False)
    suite: str
    family: str
    language: str
    messages: tuple[Message, ...]
    template: str | None = field(default=None, compare=False)

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
                    f"prompt: the {message.role} message has a lone surrogate, which is not a "
                    "character; save the text as UTF-8."
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
        """The split of the prompt, which never changes.

        All prompts of a template are on one side: they are test prompts if the template is held
        out, and none of them is otherwise, when the test share of `split_of` is training data.
        Prompts without a template are split by their id alone.
        """
        split = split_of(self.id)
        if self.template is None:
            return split
        if is_held_out(self.template):
            return "test"
        return "train" if split == "test" else split

    @property
    def text(self) -> str:
        """The user's last message."""
        return self.messages[-1].content

    def chat(self) -> list[dict[str, str]]:
        """The messages in the form that `tokenizer.apply_chat_template` takes."""
        return [asdict(message) for message in self.messages]


def policy_split(prompt: Prompt, unseen_families: Collection[str] = ()) -> Split:
    """Return the split of a prompt in a sweep.

    Only the built-in suite trains drafters. In all other suites, the drafter share is training
    data of policies.

    Args:
        prompt: The prompt.
        unseen_families: Families that nothing is trained on. All their prompts are test prompts.
    """
    if prompt.family in unseen_families:
        return "test"
    return "train" if prompt.suite != BUILTIN and prompt.split == "drafter" else prompt.split


def split_of(prompt_id: str) -> Split:
    """Return the split of a prompt, which depends on its id alone.

    A prompt has the same split in every suite, order and size. Shares: drafter 50%, train 25%,
    validation 5%, test 20%.

    Args:
        prompt_id: The id of a prompt.

    Returns:
        One of `SPLITS`.
    """
    share = _share(f"split:{prompt_id}")
    return next(
        (split for split, end in zip(SPLITS, _SPLIT_ENDS, strict=True) if share < end), SPLITS[-1]
    )


def is_held_out(template: str) -> bool:
    """Whether all prompts of a template of the built-in suite are test prompts.

    Args:
        template: Id of the template, `Prompt.template`.
    """
    return _share(f"{_TEMPLATE_SALT}:{template}") < TEMPLATE_TEST_SHARE


def _share(text: str) -> float:
    """Map a text to a number from 0 to 1, as a uniform random number that never changes."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64
