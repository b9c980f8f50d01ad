"""Family `story`: stories, poems, letters, dialogues and other free writing."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.writer import Writer

_HEROES = (
    "a [young|old|shy|clever|curious|lonely|brave|tired|small] {animal}",
    "a {job}[ named {first}| called {first}|]",
    "a {animal} and a {animal}",
    "two [friends|cousins|neighbours|classmates] named {first} and {first}",
    "a robot that [loves {hobby}|cannot sleep|learns to cook|wants a friend]",
    "a {job} named {first} who [found|lost|hides|repairs] {object}",
    "a [girl|boy|child] who is [afraid of the dark|good at {hobby}|new in town]",
    "a {color} {animal} who wants to be a {job}",
)
_REQUESTS = (
    "write a [short|very short|{mood}|] story about {hero}[ in {place}|]",
    "write a {mood} story [set in {place}|that takes place in {place}] about {hero}",
    "tell me a [bedtime|short|{mood}|] story about [{object} and |]{hero}",
    "tell a story in [three|four|five|six] sentences about {hero}",
    "write the [first|last] paragraph of a {mood} story about {hero}",
    "write a fable that teaches {theme}, with {hero}",
    "write a [short|{mood}|four-line|rhyming|eight-line|] poem about "
    "[{hero}|{season} in {place}|{object}|{theme}|{hobby}|the {color} sky]",
    "write a haiku about [{season}|{place}|{object}|{hero}]",
    "write a song [verse|chorus] about [{theme}|{hero}|{hobby}|{place}]",
    "write a dialogue between a {job} and {hero}[ about {theme}| about {object}| in {place}]",
    "write a conversation in which {first} and {first2} talk about [{hobby}|{object}|{theme}|"
    "{food}]",
    "write a [letter|postcard|short letter] from {first} to [{first2}|an old friend|a grandmother|"
    "a neighbour] about [{place}|{hobby}|a trip to {town}|{object}|{theme}]",
    "write a diary entry of {hero}[ after a day in {place}| about a {mood} {weekday}|]",
    "describe {place} [in a {mood} way|on a {season} morning|as seen by {hero}|at night]",
    "describe {hero} in [three|four|five] sentences",
    "invent a [{mood}|funny|strange] character who lives in {place}, and describe a usual day",
    "continue this story: {opening}",
    "finish this story: {opening}",
    "write a story that starts with the sentence: {opening}",
    "write a story that ends with the sentence: {ending}",
    "write a story with the words {animal}, {color} and {food}",
    "write a [joke|riddle|short speech|toast] about [{hobby}|a {job}|a {animal}|{food}|{season}]",
    "write a [birthday|thank-you|get-well|farewell] [card|message] for {first}, who loves {hobby}",
    "make up a legend that explains [why the {animal} is {color}|how {town} got its name|"
    "where {season} comes from|why the {animal} sleeps so long]",
    "write a short play with two characters, a {job} and {hero}, [in {place}|on a {weekday}]",
)
_OPENINGS = (
    "One {season} morning, {first} found {object} [in the garden|under the bed|at the station].",
    "Nobody in {town} had ever seen a {color} {animal} before.",
    "The door of {place} was open, and inside stood {hero}.",
    "{first} had only {2..9} minutes left.",
    "Every night, {hero} looked out of the window and waited.",
    "It had been raining in {town} for {3..40} days.",
    "The letter was addressed to {person}, but {first} opened it.",
    "When the lights went out, {first} heard a {animal}.",
    "Once upon a time, in {place}, there lived {hero}.",
    "On the last day of {season}, the {job} closed the shop for ever.",
    "{first} promised never to speak about {object} again.",
)
_ENDINGS = (
    "And that is how {first} became a {job}.",
    "From that day on, the {animal} was never alone again.",
    "{first} smiled and closed the door.",
    "And {town} was quiet once more.",
    "In the end, it was only {object}.",
    "They still tell this story in {town}.",
)
_LIMITS = (
    *[""] * 6,
    " Use simple words.",
    " Keep it under {4..15}0 words.",
    " Give it a title.",
    " End with a surprise.",
    " Make it about {theme}.",
    " It should be for {group}.",
    " Use short sentences.",
    " Write in the first person.",
    " Include {object}.",
    " End on a {mood} note.",
)


def write(writer: Writer) -> str:
    """Write one prompt that asks for free writing."""
    hero = writer.write(writer.pick(_HEROES))
    request = writer.pick(_REQUESTS)
    asked = writer.ask(
        request,
        hero=hero,
        first2=writer.write("{first}"),
        opening=writer.write(writer.pick(_OPENINGS), hero=hero),
        ending=writer.write(writer.pick(_ENDINGS)),
    )
    return asked if ": " in request else asked + writer.write(writer.pick(_LIMITS))
