"""YAML files of users, limited to the values of JSON so that results can record them."""

from __future__ import annotations

import json
from typing import Any

import yaml

from blockpilot_rl.errors import BlockPilotError, one_line


def plain_yaml(text: str) -> Any:
    """Parse YAML that holds only values of JSON.

    Args:
        text: The YAML.

    Returns:
        The parsed value.

    Raises:
        BlockPilotError: If it is not YAML, or holds a value without a JSON counterpart, such as a
            date or an infinity. The message continues a sentence that starts with the name of the
            file.
    """
    try:
        value = yaml.safe_load(text)
    # Text that looks like a date or number but is not one raises a plain `ValueError`.
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
