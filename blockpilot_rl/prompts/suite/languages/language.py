"""What a language other than English gives to the suite, and the families written from it."""

from __future__ import annotations

from dataclasses import dataclass

from blockpilot_rl.prompts.suite.passages import Passage, passage
from blockpilot_rl.prompts.suite.topic import Topic
from blockpilot_rl.prompts.suite.writer import Grammar, Writer, sentence

_SUMS = (
    "{11..999} + {11..999}",
    "{200..999} - {11..199}",
    "{11..99} × {3..19}",
    "{2..12} × {11..60} + {2..90}",
    "({2..30} + {2..30}) × {2..9}",
    "{11..99} + {11..99} + {11..99}",
    "{300..900} - {11..99} - {11..99}",
)


@dataclass(frozen=True)
class Language:
    """The texts of one language, as templates of the suite's writer.

    Args:
        code: ISO 639-1 code.
        grammar: The writer's lexicon, which has the slots `first`, `things` and `animal`, and its
            phrases.
        problems: Word problems; `{who}` and `{friend}` are two people, `{things}` stays the same
            throughout.
        calculations: Ways to ask for the result of `{sum}`.
        tasks: Imperatives about numbers, for `Writer.ask`.
        calculation_styles: What may follow a problem, each with its leading space.
        questions: Questions that need no text.
        answer_styles: What may follow a question, each with its leading space.
        layouts: Ways to join a `{text}` and a `{question}` about it.
        stories: Imperatives that ask for free writing; `{first}` and `{first2}` differ, so do
            `{animal}` and `{animal2}`, and `{opening}` is a first sentence.
        openings: First sentences of stories.
        story_styles: What may follow a request for a story, each with its leading space.
        summaries: Imperatives that ask for a shorter version of a text.
        label: What a text is called, as the colon behind it needs it.
        topics: What passages are about.
    """

    code: str
    grammar: Grammar
    problems: tuple[str, ...]
    calculations: tuple[str, ...]
    tasks: tuple[str, ...]
    calculation_styles: tuple[str, ...]
    questions: tuple[str, ...]
    answer_styles: tuple[str, ...]
    layouts: tuple[str, ...]
    stories: tuple[str, ...]
    openings: tuple[str, ...]
    story_styles: tuple[str, ...]
    summaries: tuple[str, ...]
    label: str
    topics: tuple[Topic, ...]

    def arithmetic(self, writer: Writer) -> str:
        """Write one prompt that asks for a calculation."""
        kind = writer.pick(("problem", "problem", "sum", "task"))
        if kind == "sum":
            calculation = writer.write(writer.pick(_SUMS))
            return sentence(writer.write(writer.pick(self.calculations), sum=calculation))
        if kind == "task":
            return writer.ask(writer.pick(self.tasks))
        who, friend = writer.pair("first")
        problem = writer.write(
            writer.pick(self.problems), who=who, friend=friend, things=writer.write("{things}")
        )
        return problem + writer.pick(self.calculation_styles)

    def question(self, writer: Writer) -> str:
        """Write one question, with or without a text that answers it."""
        style = writer.write(writer.pick(self.answer_styles))
        if writer.chance(0.5):
            return writer.write(writer.pick(self.questions)) + style
        source = self._passage(writer)
        question = writer.pick(source.questions) + style
        return writer.pick(self.layouts).format(text=source.text, question=question)

    def story(self, writer: Writer) -> str:
        """Write one prompt that asks for free writing."""
        first, first2 = writer.pair("first")
        animal, animal2 = writer.pair("animal")
        cast = {"first": first, "first2": first2, "animal": animal, "animal2": animal2}
        opening = writer.write(writer.pick(self.openings), **cast)
        request = writer.pick(self.stories)
        asked = writer.ask(request, **cast, opening=opening)
        return asked if ": " in request else asked + writer.write(writer.pick(self.story_styles))

    def summarise(self, writer: Writer) -> str:
        """Write one prompt that asks for a shorter version of an invented passage."""
        request = writer.ask(writer.pick(self.summaries))
        return writer.about(request, self._passage(writer).text, self.label)

    def _passage(self, writer: Writer) -> Passage:
        """Compose a passage of all lines of its topic, as later ones may refer to earlier ones."""
        most = max(len(topic.lines) for topic in self.topics)
        return passage(writer, most, most, self.topics)
