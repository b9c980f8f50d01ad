"""Family `summarise`: shorten a passage in many ways."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.passages import passage
from blockpilot_rl.prompts.suite.writer import Writer

_REQUESTS = (
    "summarise [the text|this text|the passage|the following {kind}] in "
    "[one sentence|two sentences|a few words|{15..40} words or fewer|plain words]",
    "write a [short|one-sentence|two-sentence|brief] summary of "
    "[the text|the {kind}|this passage|the following]",
    "give [a title|a headline|three possible titles|a short headline] for [this text|the {kind}]",
    "list the [main points|key facts|three most important points] of [the text|the {kind}] "
    "[as bullet points|as a numbered list|in short lines|]",
    "[rewrite|shorten] [this text|the {kind}] [so that a child understands it|for {group}|"
    "in simpler words|in half the length|as a short message to a friend]",
    "tell me what [this text|the {kind}] is about in [one sentence|simple words|two lines]",
    "name the main idea of [this text|the {kind}][ and say why it matters|]",
    "turn [this text|the {kind}] into [a short news item|a text message|a notice for the door|"
    "a short email|three bullet points]",
    "summarize [this|the {kind} below] for [a busy reader|{group}|someone who missed it|a friend]",
    "give me the [gist|short version|most important fact] of [this text|the {kind}]",
)


def write(writer: Writer) -> str:
    """Write one prompt that asks for a shorter version of an invented passage."""
    source = passage(writer)
    request = writer.ask(writer.pick(_REQUESTS), kind=source.kind)
    return writer.about(
        request, source.text, writer.pick(("Text", "Passage", source.kind.capitalize()))
    )
