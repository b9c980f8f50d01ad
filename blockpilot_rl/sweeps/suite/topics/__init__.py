"""What the passages of the suite are about: invented firms, people, towns, animals and tales."""

from __future__ import annotations

from blockpilot_rl.sweeps.suite.topics import home, nature, town, work
from blockpilot_rl.sweeps.suite.topics.topic import Topic

__all__ = ["TOPICS", "Topic"]

TOPICS: tuple[Topic, ...] = (*work.TOPICS, *town.TOPICS, *nature.TOPICS, *home.TOPICS)
