"""Prompts from files, datasets and packages, and the built-in suite."""

from blockpilot_rl.prompts.prompt import BUILTIN, SPLITS, Message, Prompt, policy_split, split_of
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
