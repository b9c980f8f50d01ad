"""Rows of prompt files and datasets, in their usual shapes, as prompts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.messages import normalize_messages
from blockpilot_rl.prompts.prompt import Message, Prompt

SHAPES = ("prompt", "messages", "turns")
"""Keys that hold a prompt: one text, a conversation, or the user's turns as in Spec-Bench."""

HUMAN_EVAL_INSTRUCTION = (
    "Complete the following Python function. Answer with the whole function.\n\n"
    "```python\n{prompt}\n```"
)
"""The task for a function of HumanEval. Its rows hold only the beginning of the function."""


@dataclass(frozen=True)
class Labels:
    """Default labels of prompts.

    Attributes:
        suite: Name of the suite for all prompts.
        family: Family of prompts without one.
        language: ISO code of the language of prompts without one.
    """

    suite: str = "custom"
    family: str = "other"
    language: str = "en"


def prompt_of(row: Any, labels: Labels) -> Prompt:
    """Read a JSON object as a prompt.

    The object has one of these keys; keys whose value is null do not count.

    - `prompt`: a text.
    - `messages`: objects with `role` and `content`, in any form that `normalize_messages` reads.
      The prompt ends with the user's last message.
    - `turns`: texts of the user, as in Spec-Bench. The first is the prompt.

    `family`, or else `category`, and `language` are its labels. If `task_id` starts with
    `HumanEval/`, the prompt is a function to complete, of family `"code"`. Other keys are ignored.

    Args:
        row: The object.
        labels: Labels that are used if the object has none.

    Raises:
        BlockPilotError: If the object has another form or holds no prompt.
    """
    fields = row if isinstance(row, Mapping) else {}
    shapes = [key for key in SHAPES if fields.get(key) is not None]
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
    """Return the turns of a row that its prompt leaves out.

    These are the assistant's turns at the end of `messages`, or the user's after the first of
    `turns`.
    """
    if row.get("messages") is not None:
        return _split(row["messages"])[1]
    turns: list[Any] = row.get("turns") or []
    return turns[1:]


def _label(row: Mapping[str, Any], key: str) -> str | None:
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        raise BlockPilotError(f"the value of {key!r} must be a string, not {value!r:.80}.")
    return value


def _conversation(messages: Any) -> tuple[Message, ...]:
    turns = normalize_messages(_split(messages)[0] if isinstance(messages, list) else messages)
    if any(turn.get("tool_calls") or turn.get("function_call") for turn in turns):
        raise BlockPilotError("a message calls a tool; prompts hold texts only, leave it out.")
    return tuple(Message(turn["role"], turn["content"]) for turn in turns)


def _split(messages: list[Any]) -> tuple[list[Any], list[Any]]:
    """The messages of a prompt, and the assistant's after them, as in fine-tuning data."""
    answers = itertools.takewhile(
        lambda message: isinstance(message, Mapping) and message.get("role") == "assistant",
        reversed(messages),
    )
    end = len(messages) - len(list(answers))
    return messages[:end], messages[end:]


def _first_turn(turns: Any) -> str:
    if not (isinstance(turns, list) and turns and isinstance(turns[0], str)):
        raise BlockPilotError(f"the value of 'turns' must be a list of strings, not {turns!r:.80}.")
    return str(turns[0])
