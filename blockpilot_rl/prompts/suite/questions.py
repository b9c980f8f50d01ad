"""Families `question`, `summarise` and `chat-question`: questions about a given text."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.materials import Passage, draw_table, passage
from blockpilot_rl.prompts.suite.writer import Writer, texts


def _one_question(writer: Writer, source: Passage) -> str:
    question = writer.pick(source.questions)
    style = writer.pick(texts("questions", "styles"))
    asked = f"{question} {style}".strip()
    intro = writer.write(writer.pick(texts("questions", "intros")), kind=source.kind)
    layouts = (
        f"{source.text}\n\n{asked}",
        f"{source.text}\n\nQuestion: {asked}\nAnswer:",
        f"{asked}\n\n{source.text}",
        f"Text: {source.text}\nQuestion: {asked}",
        f"{intro}\n\n{source.text}\n\n{asked}",
    )
    return writer.pick(layouts)


def _several_questions(writer: Writer, source: Passage) -> str:
    questions = writer.some(source.questions, writer.number(2, 3))
    numbered = "\n".join(f"{i}. {question}" for i, question in enumerate(questions, 1))
    request = writer.ask(
        "answer [these|the following] questions about the {kind}", kind=source.kind
    )
    return f"{request}\n\n{source.text}\n\n{numbered}"


def _about_value(writer: Writer, source: Passage) -> str:
    value = writer.pick(list(source.facts.values()))
    request = writer.write(
        "[Does the text mention '{value}'? Answer yes or no, and give the sentence."
        "|What does the {kind} say about '{value}'?|Find the sentence that mentions '{value}'."
        "|Why is '{value}' mentioned in the text?|In which sentence does '{value}' occur?"
        "|Write one question about this {kind} whose answer is '{value}'.]",
        value=value,
        kind=source.kind,
    )
    return writer.about(request, source.text, "Text")


def _about_table(writer: Writer) -> str:
    writer.begin("about table")
    table = draw_table(writer)
    row, other = writer.some(table.rows, 2)
    column = writer.number(1, len(table.columns) - 1)
    asked = writer.write(
        "[!What is the {column} of {key}?|Which {name} has the {column} {value}?"
        "|How many rows does this table have?|List all values of {column}."
        "|Compare {key} and {other}.|Which columns are there?|What do we know about {key}?"
        "|What is different between {key} and {other}?|Describe the {kind} in two sentences.]",
        column=table.columns[column],
        key=row[0],
        other=other[0],
        name=table.columns[0],
        value=row[column],
        kind=table.kind,
    )
    style = writer.pick(texts("questions", "styles")[:6])
    return writer.about(f"{asked} {style}".strip(), table.render(writer), "Table")


def write_question(writer: Writer) -> str:
    """Write one prompt with an invented passage or table and questions about it."""
    if writer.chance(0.12):
        return _about_table(writer)
    forms = (*[_one_question] * 3, _several_questions, _about_value)
    form, source = writer.pick(forms), passage(writer)
    writer.begin("topic", source.kind)
    return form(writer, source)


def write_summary(writer: Writer) -> str:
    """Write one prompt that asks for a shorter version of an invented passage."""
    source = passage(writer)
    template = writer.pick_request("summary", texts("questions", "summaries"))
    request = writer.ask(template, kind=source.kind)
    return writer.about(
        request, source.text, writer.pick(("Text", "Passage", source.kind.capitalize()))
    )


def write_question_chat(writer: Writer) -> tuple[str, ...]:
    """Write the turns of one chat that asks about a passage again and again."""
    source = passage(writer)
    writer.begin("topic", source.kind)
    pairs = list(zip(source.answers, source.questions, strict=True))
    asked = dict(writer.some(pairs, len(pairs)))  # one question about each sentence
    first, second, third = list(asked.items())[:3]
    intro = writer.write(
        "[Here is a {kind}.|Read this {kind}.|I have a question about this {kind}.]",
        kind=source.kind,
    )
    turns = [f"{intro}\n\n{source.text}\n\n{first[1]}", _quoted(writer, first[0]), second[1]]
    if writer.chance(0.6):
        template = writer.pick(texts("questions", "chat_last_questions"))
        last = writer.write(template, kind=source.kind)
        turns += [_quoted(writer, second[0]), writer.pick((last, third[1]))]
    return tuple(turns)


def _quoted(writer: Writer, stated: str) -> str:
    return writer.pick((stated, stated, f'The text says: "{stated}"'))
