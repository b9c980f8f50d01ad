"""Material for prompts: invented passages, small tables and Python functions."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from blockpilot_rl.prompts.suite.writer import Writer, load_texts, sentence, texts


class Line(NamedTuple):
    """One sentence of a topic, as templates.

    Attributes:
        text: The sentence.
        questions: Questions that it answers.
    """

    text: str
    questions: Sequence[str]


@dataclass(frozen=True)
class Topic:
    """A kind of passage, as templates of the suite's writer.

    Attributes:
        kind: Name for such a text, such as `"memo"`.
        facts: Templates by name, drawn in order; a later one may use the earlier ones.
        lines: The sentences in order. A passage always has the first line.
    """

    kind: str
    facts: Mapping[str, str]
    lines: Sequence[Line]


@functools.cache
def load_topics(language: str = "en") -> tuple[Topic, ...]:
    """Load the topics of a language, by its ISO 639-1 code."""
    return tuple(
        Topic(topic["kind"], topic["facts"], [Line(**line) for line in topic["lines"]])
        for topic in load_texts(f"languages/{language}")["topics"]
    )


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
        writer: Draws the topic, the facts and the sentences.
        low: Fewest sentences.
        high: Most sentences; a topic that has fewer uses all it has.
        topics: What the passage may be about; all English topics by default.

    Returns:
        The passage: its topic's first sentence, then some of the others in their order.
    """
    topic = writer.pick(topics or load_topics())
    facts: dict[str, str] = {}
    for name, template in topic.facts.items():
        facts[name] = writer.write(template, **facts)
    later = writer.some(range(1, len(topic.lines)), writer.number(low, high) - 1)
    lines = [topic.lines[i] for i in (0, *sorted(later))]
    sentences = tuple(sentence(writer.write(line.text, **facts)) for line in lines)
    text = " ".join(sentences)
    return Passage(
        topic=topic,
        sentences=sentences,
        facts={name: value for name, value in facts.items() if value in text},
        questions=tuple(writer.write(asked, **facts) for line in lines for asked in line.questions),
        answers=tuple(
            stated for stated, line in zip(sentences, lines, strict=True) for _ in line.questions
        ),
    )


@dataclass(frozen=True)
class Table:
    """A table of strings.

    Args:
        kind: What the rows are, in the plural.
        columns: Names of the columns.
        rows: One value per column each.
    """

    kind: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def csv(self) -> str:
        """The table as comma-separated lines with a header."""
        return "\n".join(",".join(row) for row in (self.columns, *self.rows))

    def markdown(self) -> str:
        """The table in Markdown."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def json(self) -> str:
        """The rows as a JSON array of objects, one per line."""
        objects = [json.dumps(dict(zip(self.columns, row, strict=True))) for row in self.rows]
        return "[" + ",\n ".join(objects) + "]"

    def lines(self) -> str:
        """One line per row, each value after its column's name."""
        return "\n".join(
            ", ".join(f"{name}: {value}" for name, value in zip(self.columns, row, strict=True))
            for row in self.rows
        )

    def render(self, writer: Writer) -> str:
        """The table in one of its forms."""
        return writer.pick((self.csv, self.csv, self.markdown, self.json, self.lines))()


def draw_table(writer: Writer) -> Table:
    """Invent a table of two to six rows and two or more columns."""
    drawn = writer.pick(texts("tables", "tables"))
    kind, templates = drawn["kind"], drawn["columns"]
    columns = tuple(list(templates)[: writer.number(2, len(templates))])
    rows = tuple(
        tuple(writer.write(templates[name]).replace(",", "") for name in columns)
        for _ in range(writer.number(2, 6))
    )
    return Table(kind, columns, rows)


@dataclass(frozen=True)
class Snippet:
    """A Python function.

    Args:
        argument: Name of its one argument.
        header: Its first line.
        summary: What it does, as the first line of a docstring.
        body: Its indented lines.
    """

    argument: str
    header: str
    summary: str
    body: str

    @property
    def code(self) -> str:
        """The function without a docstring."""
        return f"{self.header}\n{self.body}"


def snippet(writer: Writer) -> Snippet:
    """Draw a function and the names in it."""
    function = writer.pick(texts("code", "functions"))
    arguments = load_texts("code")["arguments"][function["arguments"]]
    names = {"a": writer.pick(arguments), "k": writer.number(2, 9)}
    stem = function["name"]
    name = writer.pick((stem, stem, f"get_{stem}", f"my_{stem}", f"{stem}_of_{names['a']}"))
    return Snippet(
        argument=str(names["a"]),
        header=f"def {name}({names['a']}):",
        summary=writer.write(function["summary"], **names),
        body=writer.write(function["body"], **names),
    )
