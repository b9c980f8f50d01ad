"""The shapes in which others write a prompt as a JSON object, read as prompts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.prompts.prompt import Message, Prompt

SHAPES = ("prompt", "messages", "turns")
"""Keys that hold a prompt: one text, a conversation, or the user's turns as in Spec-Bench."""

HUMAN_EVAL_INSTRUCTION = (
    "Complete the following Python function. Answer with the whole function.\n\n"
    "```python\n{prompt}\n```"
)
"""What is asked about a function of HumanEval, whose rows hold its beginning and nothing else."""


@dataclass(frozen=True)
class Labels:
    """How prompts are labelled that say nothing about themselves.

    Attributes:
        suite: Name of the suite, of all prompts.
        family: Family of the prompts that name none.
        language: ISO code of the language of the prompts that name none.
    """

    suite: str = "custom"
    family: str = "other"
    language: str = "en"


def prompt_of(row: Any, labels: Labels) -> Prompt:
    """Read a JSON object as a prompt.

    It has one of the keys `prompt` (a text), `messages` (objects with `role` and `content`, as
    OpenAI has them, up to the user's last; a content may be a list of text parts, which become
    lines) and `turns` (texts of the user, as Spec-Bench has them; the first is the prompt).
    `family`, or else `category`, and `language` are its labels. Where `task_id` begins with
    `HumanEval/`, the prompt is a function to complete, of family `"code"`. Other keys are not used.

    Args:
        row: The object.
        labels: What it may leave out.

    Raises:
        BlockPilotError: If it is no such object or holds no prompt.
    """
    shapes = [key for key in SHAPES if isinstance(row, Mapping) and key in row]
    if len(shapes) != 1:
        raise BlockPilotError(
            "need a JSON object with the key 'prompt', or one of 'messages' and 'turns' instead."
        )
    family = _label(row, "family") or _label(row, "category") or labels.family
    if shapes == ["messages"]:
        messages = _conversation(row["messages"])
    elif shapes == ["turns"]:
        messages = (Message("user", _first_turn(row["turns"])),)
    else:
        text = row["prompt"]
        if not isinstance(text, str):
            raise BlockPilotError(f"the value of 'prompt' must be a string, not {text!r:.80}.")
        if str(row.get("task_id")).startswith("HumanEval/"):
            text, family = HUMAN_EVAL_INSTRUCTION.format(prompt=text.rstrip("\n")), "code"
        messages = (Message("user", text),)
    return Prompt(labels.suite, family, _label(row, "language") or labels.language, messages)


def unused_turns(row: Mapping[str, Any]) -> list[Any]:
    """What a row that was read as a prompt has behind it.

    That is the assistant's turns that end `messages`, or the user's after the first of `turns`.
    """
    if "messages" in row:
        return _split(row["messages"])[1]
    turns: list[Any] = row.get("turns", [])[1:]
    return turns


def _label(row: Mapping[str, Any], key: str) -> str | None:
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        raise BlockPilotError(f"the value of {key!r} must be a string, not {value!r:.80}.")
    return value


def _conversation(messages: Any) -> tuple[Message, ...]:
    if not isinstance(messages, list):
        raise _no_message(messages)
    return tuple(map(_message, _split(messages)[0]))


def _split(messages: list[Any]) -> tuple[list[Any], list[Any]]:
    """The messages of a prompt, and the assistant's behind them, as fine-tuning data has them."""
    answers = itertools.takewhile(
        lambda message: isinstance(message, Mapping) and message.get("role") == "assistant",
        reversed(messages),
    )
    end = len(messages) - len(list(answers))
    return messages[:end], messages[end:]


def _message(message: Any) -> Message:
    fields = message if isinstance(message, Mapping) else {}
    role, content = fields.get("role"), fields.get("content")
    if isinstance(content, list):
        content = "\n".join(map(_text_part, content))
    if not (isinstance(role, str) and isinstance(content, str)):
        raise _no_message(message)
    return Message(role, content)


def _text_part(part: Any) -> str:
    fields = part if isinstance(part, Mapping) else {}
    if fields.get("type") != "text" or not isinstance(fields.get("text"), str):
        raise BlockPilotError(
            f'a part of a content must be a text, {{"type": "text", "text": …}}, not {part!r:.80}.'
        )
    return str(fields["text"])


def _no_message(value: Any) -> BlockPilotError:
    return BlockPilotError(
        f"'messages' must be a list of objects with a role and content, not {value!r:.80}."
    )


def _first_turn(turns: Any) -> str:
    if not (isinstance(turns, list) and turns and isinstance(turns[0], str)):
        raise BlockPilotError(f"the value of 'turns' must be a list of strings, not {turns!r:.80}.")
    return str(turns[0])
