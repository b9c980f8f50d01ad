"""Agents that learn block-size policies, imported as `blockpilot_rl.agents`."""

from blockpilot_rl.agents.base import Agent
from blockpilot_rl.agents.monitor import Monitor, Score
from blockpilot_rl.agents.registry import AGENTS, ALGORITHMS, load_agent, make_agent
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
