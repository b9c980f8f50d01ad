"""Families `chat-list` and `chat-correct`: a list or a text that the user has changed."""

from __future__ import annotations

from collections.abc import Sequence

from blockpilot_rl.prompts.suite.passages import passage
from blockpilot_rl.prompts.suite.writer import Writer

# What a list is called, and the slot that its items come from.
_LISTS = (
    ("list of fruit for the market", "fruit"),
    ("list of things to sell at the fair", "thing"),
    ("packing list", "product"),
    ("wish list", "product"),
    ("guest list", "first"),
    ("list of hobbies to try", "hobby"),
    ("list of animals for a picture book", "animal"),
    ("list of towns to visit", "town"),
    ("menu for the week", "food"),
    ("list of subjects for the exam", "subject"),
    ("list of events for this month", "event"),
    ("list of colours for the wall", "color"),
    ("list of jobs for a quiz", "job"),
)
_LAST_EDITS = (
    "Write it as a JSON array.",
    "Put a number before each item.",
    "Write it in one line, separated by commas.",
    "Write every item in upper case.",
    "Add a short reason to each item.",
    "How many items are on it now?",
    "Which item has the longest name?",
    "Make a Markdown table with a column for the number and one for the item.",
    "Write one sentence that mentions every item.",
)


def _bullets(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _edit(writer: Writer, items: list[str], spare: list[str]) -> tuple[str, list[str]]:
    """Draw one change of a list: what the user asks, and the changed list."""
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
    return writer.write(request, item=item, new=new), changed


def write_list(writer: Writer) -> tuple[str, ...]:
    """Write the turns of one chat about a list that changes from turn to turn."""
    title, slot = writer.pick(_LISTS)
    first, second, *items = writer.several(slot, writer.number(5, 8))
    spare = [first, second]
    turns = [
        writer.write(
            "[Make|Write|Start] a {title} with {items} and {end}.",
            title=title,
            items=", ".join(items[:-1]),
            end=items[-1],
        )
    ]
    for _ in range(writer.number(0, 1)):
        turns.append(_bullets(items))
        request, items = _edit(writer, items, spare)
        turns.append(request)
    turns.append(_bullets(items))
    request, _ = _edit(writer, items, spare)
    turns.append(writer.pick((request, request, writer.pick(_LAST_EDITS))))
    return tuple(turns)


def write_correction(writer: Writer) -> tuple[str, ...]:
    """Write the turns of one chat in which facts of a text are put right."""
    source = passage(writer, 3, 5)
    text = source.text
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
