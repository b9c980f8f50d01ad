"""Families `chat-question`, `chat-story` and `chat-code`: talk of a text, a tale or a function."""

from __future__ import annotations

import re

from blockpilot_rl.prompts.suite.passages import passage
from blockpilot_rl.prompts.suite.snippets import Snippet, snippet
from blockpilot_rl.prompts.suite.writer import Writer

_LAST_QUESTIONS = (
    "Quote the sentence that you got this from.",
    "Now summarise the whole {kind} in one sentence.",
    "Give the {kind} a title.",
    "Which of the two answers comes first in the text?",
    "What else does the {kind} say?",
    "Turn both questions and answers into a list.",
    "Write one more question about the {kind}, with its answer.",
    "Explain the {kind} to a child.",
)
# How a tale of {name} begins, and ways in which it can go on.
_TALES = (
    (
        "{name} was a {trait} {animal} who lived in {place}. Every [morning|evening], {name} "
        "looked out of the window and wished for a friend. One {weekday}, {name} opened the door, "
        "and there was {object}.",
        (
            "{name} did not know what to do with it, so {name} asked {friend}, the old {animal2}. "
            '"Keep it until {weekday}," said {friend}, "and tell nobody." That night, {name} could '
            "not sleep.",
            '"That is mine," said a voice. It was {friend}, a {trait2} {animal2}. "I lost it '
            '{3..9} years ago." {name} smiled and put the kettle on.',
        ),
    ),
    (
        "Once there was a {trait} {animal} called {name}. [Nobody far and wide was as {trait2} as "
        "{name}.|The others laughed, because {name} loved {hobby}.] But on the first day of "
        "{season}, everything changed: {name} found {object}.",
        (
            "Soon everybody was talking about it. {friend}, a {animal2} from {town}, wanted "
            "{object} too. For {3..9} days, the two did not speak a word to each other.",
            '{name} ran to {friend}, the {trait2} {animal2}. "Look at this!" {friend} looked for a '
            'long time. "We must bring it back to {town}," said {friend} at last.',
        ),
    ),
    (
        "In {place}, there lived a {trait} {animal} by the name of {name}. {name} had only one "
        "dream: to find {object}. So, one [cold|warm|windy] {weekday}, {name} packed a bag and "
        "left.",
        (
            'On the way, {name} met a {animal2} called {friend}. "Where are you going?" asked '
            '{friend}. "To {town}," said {name}. They walked on together until it got dark.',
            "After {3..9} days, the bag was empty. {name} knocked at the first door of {town}, and "
            "{friend} opened, a {trait2} {animal2}. There was soup, and there was a secret.",
        ),
    ),
)
_CONTINUATIONS = ("Go on.", "What happens next?", "Continue with one more paragraph.")
_TALE_ENDS = (
    *_CONTINUATIONS,
    "Write the ending.",
    "Write a sad ending.",
    "Write a happy ending in three sentences.",
    "Write it again, but call the {animal} {name2}.",
    "Make the {animal} a {animal3} instead.",
    "Change '{object}' to '{object2}'.",
    "Rewrite it in the first person.",
    "Rewrite it in the present tense.",
    "Make it [funnier|scarier|shorter|more exciting].",
    "Give it a title.",
    "Summarise it in one sentence.",
    "Turn it into a poem.",
    "Describe {name} in two sentences.",
)
_CODE_ENDS = (
    "Add type hints.",
    "Add a comment above each line.",
    "Write {2..4} tests for it with pytest.",
    "Explain it line by line.",
    "Call it with {2..4} different inputs and show the results.",
    "Translate it to [JavaScript|Java|Go|Rust|C].",
    "What is its time complexity?",
    "Handle bad input too.",
    "Write it as short as possible.",
    "What does it return for an empty input?",
    "Print it again with line numbers.",
)


def write_questions(writer: Writer) -> tuple[str, ...]:
    """Write the turns of one chat that asks about a passage again and again."""
    source = passage(writer)
    pairs = list(zip(source.answers, source.questions, strict=True))
    asked = dict(writer.some(pairs, len(pairs)))  # one question about each sentence
    first, second, third = list(asked.items())[:3]
    intro = writer.write(
        "[Here is a {kind}.|Read this {kind}.|I have a question about this {kind}.]",
        kind=source.kind,
    )
    turns = [f"{intro}\n\n{source.text}\n\n{first[1]}", _quoted(writer, first[0]), second[1]]
    if writer.chance(0.6):
        last = writer.write(writer.pick(_LAST_QUESTIONS), kind=source.kind)
        turns += [_quoted(writer, second[0]), writer.pick((last, third[1]))]
    return tuple(turns)


def _quoted(writer: Writer, stated: str) -> str:
    return writer.pick((stated, stated, f'The text says: "{stated}"'))


def write_tale(writer: Writer) -> tuple[str, ...]:
    """Write the turns of one chat that tells a story and changes it."""
    name, name2, name3, friend = writer.several("first", 4)
    animal, animal2, animal3 = writer.several("animal", 3)
    found, found2 = writer.pair("object")
    bound = {
        "name": name,
        "name2": name2,
        "friend": friend,
        "animal": animal,
        "animal2": animal2,
        "animal3": animal3,
        "object": found,
        "object2": found2,
        "trait": writer.pick(("small", "shy", "clever", "curious", "lonely", "brave", "tired")),
        "trait2": writer.pick(("careful", "stubborn", "cheerful", "patient", "noisy", "proud")),
    }
    asked = writer.ask(
        "[write|tell me] [the beginning of a|the first part of a|a short] story about a {trait} "
        "{animal} called {name}[ and {object}|]",
        **bound,
    )
    beginning, middles = writer.pick(_TALES)
    turns = [asked, writer.write(beginning, **bound)]
    form = writer.pick(("begun", "continued", "renamed"))
    if form == "continued":
        turns += [writer.pick(_CONTINUATIONS), writer.write(writer.pick(middles), **bound)]
    if form == "renamed":
        request = writer.write("Call the {animal} {name2} instead of {name}.", **bound)
        turns += [request, turns[1].replace(name, name2)]
        bound |= {"name": name2, "name2": name3}
    turns.append(writer.write(writer.pick(_TALE_ENDS), **bound))
    return tuple(turns)


def write_code(writer: Writer) -> tuple[str, ...]:
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
    request, changed = _code_edit(writer, source)
    last = writer.write(writer.pick(_CODE_ENDS))
    if writer.chance(0.6):
        return *turns, request, _block(changed), last
    return *turns, writer.pick((request, last))


def _code_edit(writer: Writer, source: Snippet) -> tuple[str, str]:
    """Draw one change of a function: what the user asks, and the changed code."""
    name = source.header.removeprefix("def ").partition("(")[0]
    new_name = writer.pick(("run", "helper", "process", "compute", "solve", "handle", "apply_rule"))
    argument = writer.pick(("source", "given", "argument", "entry", "content"))
    documented = f'{source.header}\n    """{source.summary}"""\n{source.body}'
    return writer.pick(
        (
            (f"Rename the function to {new_name}.", _renamed(source.code, name, new_name)),
            (
                f"Call the argument {argument} instead of {source.argument}.",
                _renamed(source.code, source.argument, argument),
            ),
            (writer.write("[Add|Now add|Please add] a docstring."), documented),
        )
    )


def _renamed(code: str, old: str, new: str) -> str:
    return re.sub(rf"\b{old}\b", new, code)


def _block(code: str) -> str:
    return f"```python\n{code}\n```"
