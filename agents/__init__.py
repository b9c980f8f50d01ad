"""Agents that learn block-size policies, imported as `blockpilot_rl.agents`."""

from typing import TYPE_CHECKING, Any

from blockpilot_rl.agents.base import Agent
from blockpilot_rl.agents.monitor import Monitor, Score
from blockpilot_rl.agents.registry import AGENTS, ALGORITHMS, load_agent, make_agent

if TYPE_CHECKING:
    from blockpilot_rl.agents.yardsticks import Yardstick

__all__ = [
    "AGENTS",
    "ALGORITHMS",
    "Agent",
    "Monitor",
    "Score",
    "Yardstick",
    "load_agent",
    "make_agent",
]


def __getattr__(name: str) -> Any:
    """Import `Yardstick` when it is first used."""
    if name != "Yardstick":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from blockpilot_rl.agents.yardsticks import Yardstick

    return Yardstick
