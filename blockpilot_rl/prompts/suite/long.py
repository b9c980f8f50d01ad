"""Families `long-…`: several invented texts and a task at the end."""

from __future__ import annotations

from collections.abc import Callable

from blockpilot_rl.prompts.suite.materials import Passage, load_topics, passage
from blockpilot_rl.prompts.suite.writer import Writer, sentence

_WORDS = (190, 540)
"""Fewest and most words of the texts, about 300 to 900 tokens with headings and task."""

_HEADINGS = ("Text {number} ({kind}):\n", "## Text {number}: {kind}\n\n", "[{number}] {kind}\n")


def _texts(writer: Writer) -> list[Passage]:
    """Write texts of different kinds until they are long enough together."""
    wanted = writer.number(*_WORDS)
    texts: list[Passage] = []
    words = 0
    topics = load_topics()
    for topic in writer.some(topics, len(topics)):
        text = passage(writer, topics=[topic])
        length = len(text.text.split())
        if any(text.kind == other.kind for other in texts) or words + length > _WORDS[1]:
            continue
        texts.append(text)
        words += length
        if words >= wanted:
            break
    return texts


def _prompt(writer: Writer, task: Callable[[Writer, list[Passage]], str]) -> str:
    texts = _texts(writer)
    heading = writer.pick(_HEADINGS)
    parts = [
        heading.format(number=number, kind=sentence(text.kind)) + text.text
        for number, text in enumerate(texts, 1)
    ]
    return "\n\n".join([*parts, task(writer, texts)])


def _one(writer: Writer, texts: list[Passage]) -> tuple[int, Passage]:
    """Draw one of the texts with its number, counted from 1."""
    place = writer.number(1, len(texts))
    return place, texts[place - 1]


def _question(writer: Writer, texts: list[Passage]) -> str:
    writer.begin("long question")
    place, text = _one(writer, texts)
    questions = writer.some(text.questions, 3)
    value = writer.pick(list(text.facts.values()))
    return writer.write(
        "[!About text {place}: {question}|Read text {place} again. {question}|Question about the "
        "{kind}: {question}|Answer with the help of the {kind}: {question}"
        "|Answer these questions about text {place}:\n1. {question}\n2. {question2}\n3. {question3}"
        "|In which text is '{value}' mentioned, and why?|Which texts mention a [date|price|name]? "
        "Give their numbers.|Which text is [longer, text {place} or text {other}|the shortest]? "
        "What is it about?]",
        place=place,
        kind=text.kind,
        other=place % len(texts) + 1,
        question=questions[0],
        question2=questions[1],
        question3=questions[2],
        value=value,
    )


def _summary(writer: Writer, texts: list[Passage]) -> str:
    writer.begin("long summary")
    place, text = _one(writer, texts)
    return writer.ask(
        "[!summarise each text in one sentence|summarise text {place} in [one sentence|two "
        "sentences|{15..40} words or fewer]|give each text a [title|headline]"
        "|write [one paragraph|a list of bullet points] that covers all texts"
        "|list the [two|three] most important facts of each text"
        "|tell me what text {place} is about in simple words"
        "|compare text {place} and text {other}[ in two sentences| in a table|]"
        "|write a table of contents with one line for each text"
        "|shorten the {kind} to half its length|sum up all texts for a busy reader]",
        place=place,
        other=place % len(texts) + 1,
        kind=text.kind,
    )


def _facts(writer: Writer, texts: list[Passage]) -> str:
    writer.begin("long facts")
    place, text = _one(writer, texts)
    keys = writer.some(list(text.facts), 4)
    return writer.ask(
        "[!convert text {place} into a JSON object with the keys {keys}"
        "|extract {keys} from the {kind}, one per line as 'key: value'"
        "|list all [names of people|places|numbers|dates and times] in the texts"
        "|make a Markdown table with one row for each text: number, kind and most important fact"
        "|return a JSON array with the number and the kind of each text"
        "|list all [prices|names|dates] in text {place}, if there are any"
        "|list the kinds of the texts in order]",
        place=place,
        kind=text.kind,
        keys=", ".join(keys),
    )


def _copy(writer: Writer, texts: list[Passage]) -> str:
    writer.begin("long copy")
    place, text = _one(writer, texts)
    fact = writer.pick(list(text.facts))
    return writer.ask(
        "[!copy text {place} exactly|repeat the {kind} word for word"
        "|copy text {place} but write '{new}' instead of '{old}'"
        "|copy the [first|last] sentence of each text|write text {place} in upper case"
        "|put each sentence of the {kind} on its own line|copy text {place} without its first "
        "sentence|number the sentences of text {place}|repeat the texts in reverse order]",
        place=place,
        kind=text.kind,
        old=text.facts[fact],
        new=text.another(writer, fact),
    )


def write_question(writer: Writer) -> str:
    """Write several texts and questions about one of them."""
    return _prompt(writer, _question)


def write_summary(writer: Writer) -> str:
    """Write several texts and ask for something shorter."""
    return _prompt(writer, _summary)


def write_facts(writer: Writer) -> str:
    """Write several texts and ask for some of their facts in a given form."""
    return _prompt(writer, _facts)


def write_copy(writer: Writer) -> str:
    """Write several texts and ask to repeat one of them, exactly or with a small change."""
    return _prompt(writer, _copy)
