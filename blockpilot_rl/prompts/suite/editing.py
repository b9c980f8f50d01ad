"""Families `copy`, `chat-list` and `chat-correct`: texts to repeat, exactly or with a change."""

from __future__ import annotations

from collections.abc import Sequence

from blockpilot_rl.prompts.suite.materials import Passage, draw_table, passage, snippet
from blockpilot_rl.prompts.suite.writer import Writer, texts


def _exact(writer: Writer, source: Passage) -> str:
    writer.begin("exact")
    request = writer.ask(
        "[repeat|copy|write out|print|type] [this text|the {kind}|the text below|the following] "
        "[exactly|word for word|without any change|exactly as it is]",
        kind=source.kind,
    )
    return writer.about(request, source.text, "Text")


def _replace(writer: Writer, source: Passage) -> str:
    writer.begin("replace")
    fact = writer.pick(list(source.facts))
    request = writer.ask(
        "[replace '{old}' with '{new}' in the {kind}"
        "|rewrite the text, changing '{old}' to '{new}' everywhere"
        "|copy the {kind} but write '{new}' instead of '{old}']",
        old=source.facts[fact],
        new=source.another(writer, fact),
        kind=source.kind,
    )
    return writer.about(request, source.text, "Text")


def _form(writer: Writer, source: Passage) -> str:
    writer.begin("form")
    request = writer.ask(
        "[!write this text in upper case|rewrite the {kind} in capital letters"
        "|change the {kind} to lower case|put each sentence of the {kind} on its own line"
        "|put this text in quotation marks|make every sentence a bullet point"
        "|number the sentences of this text|write the {kind} as a Markdown list"
        "|add a full stop and a line break after each sentence"
        "|write the sentences of this text in reverse order"
        "|copy only the first sentence of the {kind}|copy only the last sentence of the {kind}"
        "|copy the {kind} and add the sentence '{extra}' at the [end|start]"
        "|copy this text without its [first|second|last] sentence]",
        kind=source.kind,
        extra=writer.write(
            "[Thank you, {first}.|This is all for today.|Please reply by {weekday}.|"
            "More news follows on {date}.|Written by {person}.]"
        ),
    )
    return writer.about(request, source.text, "Text")


def _typo(writer: Writer, source: Passage) -> str:
    writer.begin("typo")
    words = source.text.split(" ")
    long_words = [i for i, word in enumerate(words) if len(word) > 4 and word.isalpha()]
    place = writer.pick(long_words)
    cut = writer.number(1, len(words[place]) - 3)
    word = words[place]
    words[place] = writer.pick(
        (
            word[:cut] + word[cut + 1] + word[cut] + word[cut + 2 :],
            word[:cut] + word[cut + 1 :],
            word[:cut] + word[cut] + word[cut:],
        )
    )
    request = writer.ask(
        "[correct the typo in this text|correct the spelling and change nothing else|fix the "
        "spelling mistake and print the corrected text"
        "|write the {kind} again without its one spelling mistake"
        "|find the misspelled word in the {kind} and print the text with the right spelling"
        "|copy the {kind} and correct the one wrong word]",
        kind=source.kind,
    )
    return writer.about(request, " ".join(words), "Text")


def _tense(writer: Writer, source: Passage) -> str:
    writer.begin("tense")
    request = writer.ask(
        "rewrite [the {kind}|this text] [!in the past tense|in the future tense|in the first person"
        "|in British spelling|with shorter sentences|without commas|as questions|more politely|"
        "more formally|in a friendly tone], [keeping everything else the same"
        "|changing as little as possible]",
        kind=source.kind,
    )
    return writer.about(request, source.text, "Text")


def _lines(writer: Writer) -> str:
    writer.begin("lines")
    lexicon = writer.pick(("first", "animal", "town", "thing", "food", "job", "hobby", "event"))
    items = list(dict.fromkeys(writer.write(f"{{{lexicon}}}") for _ in range(writer.number(5, 10))))
    request = writer.ask(
        "[!repeat this list exactly|number the lines|sort these lines alphabetically"
        "|write this list in reverse order|turn this list into one line separated by commas"
        "|turn this list into a JSON array|write each line twice|make each line upper case"
        "|put a dash before each line|remove the [first|last|second] line"
        "|put each line in quotation marks|add '{extra}' at the end of this list]",
        extra=writer.write(f"{{{lexicon}}}"),
    )
    return writer.about(request, "\n".join(items), "List")


def _table_edit(writer: Writer) -> str:
    writer.begin("table edit")
    table = draw_table(writer)
    request = writer.ask(
        "[!copy this table exactly|print this table again without the row of {key}"
        "|sort the {kind} by {column}|write the {kind} in reverse order"
        "|rename the column {column} to {new} and print the table|remove the column {column}"
        "|repeat the table, changing {value} to {other}|print only the first {2..3} {kind}"
        "|add one more row to these {kind}|write the column {column} in upper case]",
        kind=table.kind,
        key=writer.pick(table.rows)[0],
        column=writer.pick(table.columns),
        value=table.rows[0][-1],
        other=table.rows[1][-1],
        new=writer.pick(("value", "info", "label", "entry", "detail")),
    )
    return writer.about(request, table.render(writer), table.kind.capitalize())


def _code_edit(writer: Writer) -> str:
    writer.begin("code edit")
    source = snippet(writer)
    request = writer.ask(
        "[!copy this code exactly|rename the function to {name} and print the code"
        "|add a comment above each line of this code|add a docstring to this function"
        "|rename the variable {variable} to {new} in this code"
        "|add type hints to this function|print this code with line numbers]",
        name=writer.pick(("run", "helper", "process", "compute", "solve", "handle", "apply_rule")),
        variable=source.argument,
        new=writer.pick(("data", "source", "given", "argument", "entry", "element_list")),
    )
    return writer.about(request, f"```python\n{source.code}\n```")


def write_copy(writer: Writer) -> str:
    """Write one prompt that asks for a copy of a text, exact or with a small change."""
    if writer.chance(0.3):
        return writer.pick((_lines, _table_edit, _code_edit))(writer)
    form = writer.pick((_exact, _exact, _replace, _replace, _form, _form, _typo, _tense))
    return form(writer, passage(writer, 3, 6))


def _bullets(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _list_edit(writer: Writer, items: list[str], spare: list[str]) -> tuple[str, list[str], str]:
    """Draw one change of a list: what the user asks, the changed list, and the template."""
    item, new = writer.pick(items), spare.pop()
    place = items.index(item)
    rest = [other for other in items if other != item]
    edits = (
        ("[Add {new}.|Please add {new} at the end.]", [*items, new]),
        ("[Put {new} at the top.|Add {new} as the first item.]", [new, *items]),
        ("[Remove {item}.|Take {item} off the list.]", rest),
        ("[Replace {item} with {new}.|Change {item} to {new}.]",
         [*items[:place], new, *items[place + 1 :]]),
        ("[Sort it alphabetically.|Put it in alphabetical order.]",
         sorted(items, key=str.casefold)),
        ("[Reverse the order.|Now in reverse order.]", items[::-1]),
        ("[Move {item} to the end.|Put {item} last.]", [*rest, item]),
    )  # fmt: skip
    request, changed = writer.pick(edits)
    return writer.write(request, item=item, new=new), changed, request


def write_list_chat(writer: Writer) -> tuple[str, ...]:
    """Write the turns of one chat about a list that changes from turn to turn."""
    drawn = writer.pick(texts("editing", "lists"))
    first, second, *items = writer.several(drawn["slot"], writer.number(5, 8))
    spare = [first, second]
    turns = [
        writer.write(
            "[Make|Write|Start] a {title} with {items} and {end}.",
            title=drawn["title"],
            items=", ".join(items[:-1]),
            end=items[-1],
        )
    ]
    for _ in range(writer.number(0, 1)):
        turns.append(_bullets(items))
        request, items, _ = _list_edit(writer, items, spare)
        turns.append(request)
    turns.append(_bullets(items))
    request, _, edit = _list_edit(writer, items, spare)
    last = writer.pick(texts("editing", "last_edits"))
    turn, template = writer.pick(((request, edit), (request, edit), (last, last)))
    writer.begin("list chat", template)
    return (*turns, turn)


def write_correction_chat(writer: Writer) -> tuple[str, ...]:
    """Write the turns of one chat that corrects facts of a text."""
    source = passage(writer, 3, 5)
    text = source.text
    writer.begin("topic", source.kind)
    stated = "\n".join(f"- {name}: {value}" for name, value in source.facts.items())
    turns = [
        writer.write("[Write|Please write|I need] a {kind} with these facts:", kind=source.kind)
        + f"\n{stated}"
    ]
    for fact in writer.some(list(source.facts), writer.number(1, 2)):
        old, new = source.facts[fact], source.another(writer, fact)
        turns.append(text)
        turns.append(
            writer.write(
                "[No, not '{old}' but '{new}'. Please write it again."
                "|I made a mistake: it is '{new}', not '{old}'. Correct the {kind}."
                "|Change '{old}' to '{new}' and leave the rest as it is."
                "|Sorry, '{old}' is wrong; it should be '{new}'. Print the corrected text.]",
                old=old,
                new=new,
                kind=source.kind,
            )
        )
        text = text.replace(old, new)
    if len(turns) == 3 and writer.chance(0.5):
        turns.append(text)
        turns.append(
            writer.write(
                "[Now make it shorter.|Put each sentence on its own line.|Make it more polite."
                "|Rewrite it in the past tense.|Add a title.|Write it again without its last "
                "sentence.|Which sentence did you change?|Translate it into [French|Spanish|"
                "German].]"
            )
        )
    return tuple(turns)
