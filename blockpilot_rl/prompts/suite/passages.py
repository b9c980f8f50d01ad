"""Short invented passages with the facts they state and questions that they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blockpilot_rl.prompts.suite.topic import Topic
from blockpilot_rl.prompts.suite.topics import TOPICS
from blockpilot_rl.prompts.suite.writer import Writer, sentence


@dataclass(frozen=True)
class Passage:
    """One invented text.

    Args:
        topic: What it is about.
        sentences: Its sentences in order.
        facts: What it states, by name; each value occurs in the text word for word.
        questions: Questions whose answers are in the text.
        answers: The sentence that answers each question.
    """

    topic: Topic
    sentences: tuple[str, ...]
    facts: dict[str, str]
    questions: tuple[str, ...]
    answers: tuple[str, ...]

    @property
    def kind(self) -> str:
        """What the text is called, such as `"memo"`."""
        return self.topic.kind

    @property
    def text(self) -> str:
        """The passage as one paragraph."""
        return " ".join(self.sentences)

    def another(self, writer: Writer, fact: str) -> str:
        """Draw a different value for one of the facts."""
        others = {name: value for name, value in self.facts.items() if name != fact}
        value = self.facts[fact]
        while value == self.facts[fact]:
            value = writer.write(self.topic.facts[fact], **others)
        return value


def passage(
    writer: Writer, low: int = 5, high: int = 7, topics: Sequence[Topic] | None = None
) -> Passage:
    """Compose a passage on a random topic.

    Args:
        writer: Decides everything.
        low: Fewest sentences.
        high: Most sentences; a topic that has fewer uses all it has.
        topics: What it may be about; all English topics by default.

    Returns:
        The passage: its topic's first sentence, then some of the others in their order.
    """
    topic = writer.pick(topics or TOPICS)
    facts: dict[str, str] = {}
    for name, template in topic.facts.items():
        facts[name] = writer.write(template, **facts)
    later = writer.some(range(1, len(topic.lines)), writer.number(low, high) - 1)
    lines = [topic.lines[i] for i in (0, *sorted(later))]
    sentences = tuple(sentence(writer.write(line[0], **facts)) for line in lines)
    text = " ".join(sentences)
    return Passage(
        topic=topic,
        sentences=sentences,
        facts={name: value for name, value in facts.items() if value in text},
        questions=tuple(writer.write(asked, **facts) for line in lines for asked in line[1:]),
        answers=tuple(
            stated for stated, line in zip(sentences, lines, strict=True) for _ in line[1:]
        ),
    )
