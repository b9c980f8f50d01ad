"""Learners of block-size policies, imported as `blockpilot_rl.agents`."""

from blockpilot_rl.agents.base import Agent
from blockpilot_rl.agents.monitor import Monitor, Score
from blockpilot_rl.agents.registry import ALGORITHMS, load_agent, make_agent

__all__ = ["ALGORITHMS", "Agent", "Monitor", "Score", "load_agent", "make_agent"]
