"""All that passages can be about: invented firms, people, towns, animals and tales."""

from __future__ import annotations

from blockpilot_rl.prompts.suite import topics_home, topics_nature, topics_town, topics_work
from blockpilot_rl.prompts.suite.topic import Topic

TOPICS: tuple[Topic, ...] = (
    *topics_work.TOPICS,
    *topics_town.TOPICS,
    *topics_nature.TOPICS,
    *topics_home.TOPICS,
)
