"""Families `code` and `chat-code`: code to write, explain, test and change."""

from __future__ import annotations

import re

from blockpilot_rl.prompts.suite.materials import Snippet, snippet
from blockpilot_rl.prompts.suite.writer import Writer, texts


def _columns(writer: Writer) -> str:
    return ", ".join(writer.some(texts("code", "columns"), writer.number(2, 3)))


def _function(writer: Writer) -> str:
    purpose = writer.pick_request("function", texts("code", "purposes"))
    request = (
        "[write|create|make|implement] a [small |simple ||]{language} "
        f"[function|program|function] that {purpose}"
    )
    asked = _ask(writer, request)
    note, name = writer.pick(texts("code", "notes")), writer.pick(texts("code", "names"))
    return asked + writer.write(note, name=name)


def _ask(writer: Writer, request: str) -> str:
    things = writer.pick(texts("code", "things"))
    return writer.ask(
        request,
        language=writer.pick(texts("code", "languages")),
        things=things,
        kind=writer.pick(
            ("Student", "Product", "Order", "Book", "Car", "Song", "Player", "Task", "Room", "City")
        ),
        column=writer.pick(texts("code", "columns")),
        columns=_columns(writer),
        group_column=writer.pick(("city", "month", "category", "year", "team", "country")),
        word=writer.pick(("report", "draft", "update", "backup", "summary", "new-login", "search")),
    )


def _header(writer: Writer) -> str:
    writer.begin("function header")
    source = snippet(writer)
    request = writer.ask(
        "[complete|finish|write the body of|fill in] this [Python function|function]"
        "[, with comments|, and add an example call| in as few lines as possible|]"
    )
    return writer.about(request, f'```python\n{source.header}\n    """{source.summary}"""\n```')


def _on_code(writer: Writer) -> str:
    source = snippet(writer)
    request = writer.ask(
        writer.pick_request("on code", texts("code", "on_code")),
        argument=source.argument,
        word=writer.pick(("given", "content", "entry", "element", "source")),
    )
    return writer.about(request, f"```python\n{source.code}\n```")


def _other(writer: Writer) -> str:
    group = writer.pick(("classes", "sql", "shell", "markup"))
    return _ask(writer, writer.pick_request(group, texts("code", group)))


def write_code(writer: Writer) -> str:
    """Write one prompt that asks for code or about code."""
    return writer.pick((*[_function] * 3, *[_on_code] * 2, *[_other] * 2, _header))(writer)


def write_code_chat(writer: Writer) -> tuple[str, ...]:
    """Write the turns of one chat about a Python function."""
    source = snippet(writer)
    signature = source.header.removeprefix("def ").removesuffix(":")
    asked = writer.write(
        "[Write|Implement|Please write] a Python function {signature}[ that does this:|. It should "
        "do this:] {summary}",
        signature=signature,
        summary=source.summary,
    )
    turns = [asked, _block(source.code)]
    request, changed, edit = _code_edit(writer, source)
    end = writer.pick(texts("code", "chat_ends"))
    last = writer.write(end)
    writer.begin("code chat", end)
    if writer.chance(0.6):
        return *turns, request, _block(changed), last
    turn, template = writer.pick(((request, edit), (last, end)))
    writer.begin("code chat", template)
    return *turns, turn


def _code_edit(writer: Writer, source: Snippet) -> tuple[str, str, str]:
    """Draw one change of a function: what the user asks, the changed code, and its kind."""
    name = source.header.removeprefix("def ").partition("(")[0]
    new_name = writer.pick(("run", "helper", "process", "compute", "solve", "handle", "apply_rule"))
    argument = writer.pick(("source", "given", "argument", "entry", "content"))
    documented = f'{source.header}\n    """{source.summary}"""\n{source.body}'
    return writer.pick(
        (
            (
                f"Rename the function to {new_name}.",
                _renamed(source.code, name, new_name),
                "rename",
            ),
            (
                f"Call the argument {argument} instead of {source.argument}.",
                _renamed(source.code, source.argument, argument),
                "argument",
            ),
            (writer.write("[Add|Now add|Please add] a docstring."), documented, "docstring"),
        )
    )


def _renamed(code: str, old: str, new: str) -> str:
    return re.sub(rf"\b{old}\b", new, code)


def _block(code: str) -> str:
    return f"```python\n{code}\n```"
