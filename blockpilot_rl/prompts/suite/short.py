"""Family `short`: prompts of a word or a line, written as into a search box."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.writer import Writer

# Every form begins with a small letter or a digit and ends without a stop, unlike those of other
# families, so that no prompt belongs to two.
_WORDS = (
    "{animal}",
    "{food}",
    "{hobby}",
    "{subject}",
    "{mood}",
    "{theme}",
    "{concept}",
    "{product}",
    "{material}",
    "{event}",
    "[hi|hello|hey|good morning|good evening|thanks|thank you|bye|help|test|ping|joke|poem|"
    "surprise me|who are you|how are you|what can you do|are you there|tell me something]",
    "[hi|hello|hey|good morning|good evening|thanks|goodbye] {first}",
)
_LINES = (
    "{11..999} + {11..999}",
    "{200..999} - {11..199}",
    "{3..25} times {11..60}",
    "{10..90}0 divided by {2..9}",
    "{1..9}0% of {2..90}0",
    "{2..90} [km in miles|miles in km|hours in minutes|kg in pounds|feet in cm|weeks in days]",
    "what is {concept}",
    "define {concept}",
    "{concept} in one sentence",
    "{concept} explained",
    "{animal} facts",
    "how long does a {animal} live",
    "what does a {animal} eat",
    "{animal} or {animal2}",
    "{hobby} for {group}",
    "{hobby} or {hobby2}",
    "how to {goal}",
    "{food} recipe",
    "{food} for {2..9} people",
    "what goes with {food}",
    "{color} {product} under {2..9}0 dollars",
    "how to clean a {product}",
    "[haiku|poem|limerick|song] about [{season}|{theme}|a {animal}|{hobby}|{object}]",
    "[joke|riddle|pun] about a {job}",
    "name for a {color} {animal}",
    "name for a shop that sells {thing}",
    "gift for a {job} who likes {hobby}",
    "what does a {job} do",
    "questions for a {job}",
    "words that rhyme with {rhyme}",
    "[synonyms for|opposite of] {mood}",
    "plural of {animal}",
    "translate {[animal|color|weekday|month|season|fruit|material]} into [French|Spanish|German|"
    "Italian]",
    "{animal} in [French|Spanish|German|Italian]",
    "spell {[weekday|month|material|subject]} backwards",
    "list {3..12} [fruits|trees|birds|countries|rivers|tools|sports] that start with [a|b|c|m|p|s]",
    "count from {1..40} to {50..99}",
    "{subject} quiz",
    "{event} slogan",
    "text {first} that i am late for the {event}",
    "python [loop over|sort|reverse|filter|print|save] a list of {thing}",
    "sql select {thing} where color is {color}",
    "regex for [a date|an email|a phone number|a number with {2..9} digits|a word of {3..9} "
    "letters]",
    "days between {1..28} {month} and {1..28} {month2}",
)


def write(writer: Writer) -> str:
    """Write one prompt of a word or a line."""
    form = writer.pick(_WORDS if writer.chance(0.1) else _LINES)
    bound: dict[str, str] = {}
    for slot in ("animal", "hobby", "month"):
        if f"{{{slot}2}}" in form:
            bound[slot], bound[f"{slot}2"] = writer.pair(slot)
    text = writer.write(form, **bound)
    return text[:1].lower() + text[1:]
