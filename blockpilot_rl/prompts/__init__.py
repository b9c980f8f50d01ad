"""Prompts from files, datasets and packages, and the built-in suite.

The names below are imported when they are first used, so that reading a sweep does not load them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blockpilot_rl.prompts.prompt import (
        BUILTIN,
        SPLITS,
        Message,
        Prompt,
        policy_split,
        split_of,
    )
    from blockpilot_rl.prompts.sources import BadLine, UnusedTurns, length_check, load_prompts
    from blockpilot_rl.prompts.suite import FAMILIES, GROUPS, LARGEST_SUITE, builtin_suite

__all__ = [
    "BUILTIN",
    "FAMILIES",
    "GROUPS",
    "LARGEST_SUITE",
    "SPLITS",
    "BadLine",
    "Message",
    "Prompt",
    "UnusedTurns",
    "builtin_suite",
    "length_check",
    "load_prompts",
    "policy_split",
    "split_of",
]

_HOMES = {
    "prompt": ("BUILTIN", "SPLITS", "Message", "Prompt", "policy_split", "split_of"),
    "sources": ("BadLine", "UnusedTurns", "length_check", "load_prompts"),
    "suite": ("FAMILIES", "GROUPS", "LARGEST_SUITE", "builtin_suite"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
