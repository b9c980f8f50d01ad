"""YAML from users: values that JSON has too, so that whatever uses them can record them."""

from __future__ import annotations

import json
from typing import Any

import yaml

from blockpilot_rl.errors import BlockPilotError, one_line


def plain_yaml(text: str) -> Any:
    """Read YAML that holds nothing but what JSON has too.

    Raises:
        BlockPilotError: If it is not YAML, or holds a date, an infinity or the like. The message
            goes on behind the name of what was read.
    """
    try:
        value = yaml.safe_load(text)
    # Words that look like dates or numbers but are none raise a plain `ValueError`.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BlockPilotError(f"is not YAML: {one_line(error)}") from error
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BlockPilotError(
            f"has no JSON counterpart: {one_line(error)}; text that looks like a date needs "
            "quotation marks"
        ) from error
    return value
