"""Family `question`: answer questions about a passage, or short questions without one."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.passages import Passage, passage
from blockpilot_rl.prompts.suite.records import records
from blockpilot_rl.prompts.suite.writer import Writer

_STYLES = (
    "",
    "",
    "",
    "Answer in one sentence.",
    "Answer with a full sentence.",
    "Answer briefly.",
    "Give a short answer and quote the sentence that shows it.",
    "Answer using only the text.",
    "Answer and explain how you know.",
    "Answer in a few words.",
)
_INTROS = (
    "Read the text and answer the question.",
    "Use the {kind} to answer the question.",
    "Here is a {kind}. Answer the question about it.",
    "Answer the question with the help of the text.",
    "Read this {kind} carefully.",
)


def _one(writer: Writer, source: Passage) -> str:
    question = writer.pick(source.questions)
    style = writer.pick(_STYLES)
    asked = f"{question} {style}".strip()
    layouts = (
        f"{source.text}\n\n{asked}",
        f"{source.text}\n\nQuestion: {asked}\nAnswer:",
        f"{asked}\n\n{source.text}",
        f"Text: {source.text}\nQuestion: {asked}",
        f"{writer.write(writer.pick(_INTROS), kind=source.kind)}\n\n{source.text}\n\n{asked}",
    )
    return writer.pick(layouts)


def _several(writer: Writer, source: Passage) -> str:
    questions = writer.some(source.questions, writer.number(2, 3))
    numbered = "\n".join(f"{i}. {question}" for i, question in enumerate(questions, 1))
    request = writer.ask(
        "answer [these|the following] questions about the {kind}", kind=source.kind
    )
    return f"{request}\n\n{source.text}\n\n{numbered}"


def _judge(writer: Writer, source: Passage) -> str:
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


def _table(writer: Writer) -> str:
    table = records(writer)
    row, other = writer.some(table.rows, 2)
    column = writer.number(1, len(table.columns) - 1)
    asked = writer.write(
        "[What is the {column} of {key}?|Which {name} has the {column} {value}?"
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
    return writer.about(
        f"{asked} {writer.pick(_STYLES[:6])}".strip(), table.render(writer), "Table"
    )


def write(writer: Writer) -> str:
    """Write one prompt with an invented passage or table and something to answer about it."""
    if writer.chance(0.12):
        return _table(writer)
    return writer.pick((_one, _one, _one, _several, _judge))(writer, passage(writer))
