"""Families in languages other than English, written from data files with the same keys."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.materials import Passage, load_topics, passage
from blockpilot_rl.prompts.suite.writer import Writer, load_texts, sentence, texts

LANGUAGES = ("de", "fr", "es", "it", "pt")
"""ISO 639-1 codes of the languages, in the order in which the suite mixes them."""

_SUMS = (
    "{11..999} + {11..999}",
    "{200..999} - {11..199}",
    "{11..99} × {3..19}",
    "{2..12} × {11..60} + {2..90}",
    "({2..30} + {2..30}) × {2..9}",
    "{11..99} + {11..99} + {11..99}",
    "{300..900} - {11..99} - {11..99}",
)


def write_arithmetic(writer: Writer) -> str:
    """Write one prompt that asks for a calculation."""
    kind = writer.pick(("problem", "problem", "sum", "task"))
    if kind == "sum":
        calculation = writer.write(writer.pick(_SUMS))
        return sentence(writer.write(_request(writer, "calculations"), sum=calculation))
    if kind == "task":
        return writer.ask(_request(writer, "tasks"))
    who, friend = writer.pair("first")
    template = _request(writer, "problems")
    problem = writer.write(template, who=who, friend=friend, things=writer.write("{things}"))
    return problem + _pick(writer, "calculation_styles")


def write_question(writer: Writer) -> str:
    """Write one question, with or without a text that answers it."""
    style = writer.write(_pick(writer, "answer_styles"))
    if writer.chance(0.5):
        return writer.write(_request(writer, "questions")) + style
    source = _passage(writer)
    writer.begin("topic", source.kind)
    question = writer.pick(source.questions) + style
    return _pick(writer, "layouts").format(text=source.text, question=question)


def write_story(writer: Writer) -> str:
    """Write one prompt that asks for free writing."""
    first, first2 = writer.pair("first")
    animal, animal2 = writer.pair("animal")
    cast = {"first": first, "first2": first2, "animal": animal, "animal2": animal2}
    opening = writer.write(_pick(writer, "openings"), **cast)
    request = _request(writer, "stories")
    asked = writer.ask(request, **cast, opening=opening)
    return asked if ": " in request else asked + writer.write(_pick(writer, "story_styles"))


def write_summary(writer: Writer) -> str:
    """Write one prompt that asks for a shorter version of an invented passage."""
    request = writer.ask(_request(writer, "summaries"))
    label: str = load_texts(f"languages/{writer.language}")["label"]
    return writer.about(request, _passage(writer).text, label)


def _request(writer: Writer, key: str) -> str:
    """Draw one request of the writer's language, the template of its prompt."""
    return writer.pick_request(key, texts(f"languages/{writer.language}", key))


def _pick(writer: Writer, key: str) -> str:
    """Draw one text of the writer's language."""
    drawn: str = writer.pick(texts(f"languages/{writer.language}", key))
    return drawn


def _passage(writer: Writer) -> Passage:
    """Compose a passage from all lines of its topic, since later ones may refer to earlier ones."""
    topics = load_topics(writer.language)
    most = max(len(topic.lines) for topic in topics)
    return passage(writer, most, most, topics)
