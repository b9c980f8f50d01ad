"""Family `extract`: facts of a passage as JSON, a table or a list."""

from __future__ import annotations

import json

from blockpilot_rl.prompts.suite.materials import Passage, draw_table, passage
from blockpilot_rl.prompts.suite.writer import Writer, texts


def _keys(writer: Writer, source: Passage) -> list[str]:
    keys = list(source.facts)
    return writer.some(keys, min(len(keys), writer.number(2, 5)))


def _json(writer: Writer, source: Passage) -> str:
    writer.begin("JSON")
    keys = _keys(writer, source)
    request = writer.ask(
        "[extract the facts from|read|convert the information in] the {kind} "
        "[and return JSON with the keys|as a JSON object with the keys|into JSON with these keys:] "
        "{keys}",
        kind=source.kind,
        keys=", ".join(writer.pick((keys, [f'"{key}"' for key in keys]))),
    )
    note = writer.pick(("", "", " Return only the JSON.", " Do not add other keys."))
    return writer.about(request + note, source.text, "Text")


def _template(writer: Writer, source: Passage) -> str:
    writer.begin("JSON form")
    blank = dict.fromkeys(_keys(writer, source), "")
    form = json.dumps(blank, indent=writer.pick((None, 2)))
    request = writer.ask(
        "fill in this JSON [template|form] with [facts from|information from] the {kind}",
        kind=source.kind,
    )
    return writer.about(f"{request}\n{form}", source.text, "Text")


def _fields(writer: Writer, source: Passage) -> str:
    writer.begin("fields")
    keys = _keys(writer, source)
    request = writer.ask(
        "[list|find|write down] the {keys} [from|mentioned in] the {kind}, "
        "[!one per line as 'key: value'|as a Markdown table with two columns|as bullet points|"
        "as YAML|as a CSV line with a header|as a numbered list]",
        kind=source.kind,
        keys=", ".join(keys[:-1]) + " and " + keys[-1],
    )
    return writer.about(request, source.text, "Text")


def _all(writer: Writer, source: Passage) -> str:
    writer.begin("all words")
    request = writer.ask(
        "[list|find|extract] all [!names of people|names|numbers|places|dates and times|nouns|"
        "verbs|capitalised words|adjectives] in [this text|the {kind}]"
        "[ as a JSON array|, separated by commas|, one per line|]",
        kind=source.kind,
    )
    return writer.about(request, source.text, "Text")


def _convert(writer: Writer) -> str:
    writer.begin("convert")
    table = draw_table(writer)
    source, target = writer.pick(
        (
            (table.csv(), "[!JSON|a JSON array of objects|a Markdown table|YAML]"),
            (table.lines(), "[!JSON|a JSON array of objects|a Markdown table|CSV]"),
            (table.markdown(), "[!JSON|a JSON array of objects|CSV|YAML]"),
            (table.json(), "[!CSV|a Markdown table|YAML|one sentence each]"),
            (
                table.render(writer),
                "[!an HTML table|sentences|bullet points|Python dictionaries|"
                "a list of the {column} values|SQL insert statements]",
            ),
        )
    )
    request = writer.ask(
        "[turn|convert|change|rewrite] [these {kind}|this list of {kind}|the table of {kind}] "
        f"into {target}",
        kind=table.kind,
        column=writer.pick(table.columns),
    )
    return writer.about(request, source, table.kind.capitalize())


def _sentences(writer: Writer) -> str:
    writer.begin("sentences")
    form = writer.pick(texts("extract", "statements"))
    lines = [writer.write(form) for _ in range(writer.number(2, 5))]
    request = writer.ask(
        "[turn|convert] [these sentences|each of these lines] into [!a JSON array of objects|"
        "JSON with one object per line|a Markdown table|CSV with a header|YAML|short notes]"
    )
    separator = writer.pick(("\n", " "))
    return writer.about(request, separator.join(lines), writer.pick(("Sentences", "Notes", "Text")))


def write_extract(writer: Writer) -> str:
    """Write one prompt that asks for facts of an invented text in a given form."""
    if writer.chance(0.25):
        return writer.pick((_convert, _convert, _sentences))(writer)
    form = writer.pick((_json, _json, _template, _fields, _all))
    return form(writer, passage(writer))
