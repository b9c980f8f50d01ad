"""Prompts as clients send them: conversations for a chat template, and texts to complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from blockpilot_rl.errors import BlockPilotError

COMPLETION = "completion"
"""Key of a pair's `template` whose value True means that prompts are plain text."""

_CALLS = {"tool_calls", "function_call"}
"""Keys that can stand in place of a content."""

_ROLES = {"developer": "system"}
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}


def normalize_messages(messages: Any) -> list[dict[str, Any]]:
    """Normalize a conversation in the format of the OpenAI API.

    - A `content` that is a list of text parts becomes one text; parts become lines.
    - The role `developer` becomes `system`, its older name.
    - Keys whose value is null are dropped. A null `content` next to another key, or none next to
      `tool_calls`, becomes an empty text.
    - All other keys, such as `name` or `tool_calls`, are kept for the chat template.

    Args:
        messages: The turns: mappings with `role` and `content`.

    Returns:
        New dictionaries with `role` and `content` (both strings) and the keys that were kept.

    Raises:
        BlockPilotError: If it is not a list of messages, a message has no role or content, or a
            part is not text.
    """
    if not isinstance(messages, list | tuple):
        raise _not_a_message(messages)
    return [_normalize(message) for message in messages]


def completion_text(turns: Sequence[Mapping[str, Any]]) -> str:
    """Return the plain text that a prompt of one user message stands for.

    Args:
        turns: Messages as `normalize_messages` returns them.

    Raises:
        BlockPilotError: If there are several messages, or the message is not the user's.
    """
    roles = [str(turn["role"]) for turn in turns]
    if roles != ["user"]:
        raise BlockPilotError(
            f"a completion is one text, not a conversation of {' and '.join(roles)}; give one "
            "message of the user, or a target with a chat template"
        )
    return str(turns[0]["content"])


def describe_template(template: Mapping[str, Any] | None) -> str:
    """Describe how a pair turns prompts into tokens, for messages.

    Args:
        template: The pair's `template`.
    """
    if (template or {}).get(COMPLETION):
        return "prompts as plain text (completions)"
    return f"chat-template options {dict(template or {})}"


def _normalize(message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise _not_a_message(message)
    kept = {key: value for key, value in message.items() if value is not None}
    role, content = kept.pop("role", None), kept.pop("content", None)
    if isinstance(content, list | tuple):
        content = "\n".join(map(_text_of, content))
    if content is None and kept and ("content" in message or kept.keys() & _CALLS):
        content = ""
    if not (isinstance(role, str) and isinstance(content, str)):
        raise _not_a_message(message)
    return {"role": _ROLES.get(role, role), "content": content, **kept}


def _text_of(part: Any) -> str:
    """Return the text of one part of a content."""
    fields = part if isinstance(part, Mapping) else {}
    kind = fields.get("type")
    text = fields.get(_TEXT_PARTS[kind]) if isinstance(kind, str) and kind in _TEXT_PARTS else None
    if not isinstance(text, str):
        raise BlockPilotError(
            f'a part of a content must be a text, {{"type": "text", "text": …}}, not {part!r:.80}.'
        )
    return text


def _not_a_message(value: Any) -> BlockPilotError:
    return BlockPilotError(
        f"'messages' must be a list of objects with a role and content, not {value!r:.80}."
    )
