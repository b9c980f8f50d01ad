"""Family `other`: lists, explanations, comparisons, classification, messages, plans, advice."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.writer import Writer

_LISTS = (
    "list {3..10} [kinds of|types of] [fruit|vegetables|birds|trees|musical instruments|tools|"
    "sports|flowers|fish|insects|furniture|vehicles|drinks|clothes|shapes|materials]",
    "list the [days of the week|months of the year|seasons|colours of the rainbow|"
    "planets of the solar system|letters of the alphabet|continents|oceans|five senses|"
    "primary colours|parts of a plant|parts of the human body|numbers from one to {11..30}]"
    "[ in reverse order| with one fact about each| in alphabetical order| separated by commas"
    "| as a JSON array|]",
    "list {3..10} [things|objects] that are {color}",
    "list {3..10} things [you need for {hobby}|you find in {place}|a {job} uses|"
    "to pack for a trip in {season}|to do in {season}|to eat at a {event}]",
    "list {3..8} [good|bad] points of [{hobby}|living in {place}|working as a {job}|being a {job}]",
    "give {3..8} [examples of [nouns|verbs|adjectives]|words that rhyme with '{rhyme}'|"
    "words that start with the letters of '{rhyme}'|words that belong to {place}]",
    "name {3..8} animals that [can swim|can fly|live in [trees|water|the desert|cold places|the "
    "forest]|are active at night|"
    "are smaller than a {animal}|start with the letter [a|b|c|d|f|m|p|s|t]]",
    "name {3..10} [cities|countries|rivers|mountains|languages|islands] "
    "[and say where they are|in alphabetical order|that you know]",
    "give {3..10} [names|funny names|good names] for a [{color} {animal}|{mood} {animal}|"
    "shop that sells {thing}|book about {theme}|team that likes {hobby}]",
    "write {3..8} [sentences|questions|true sentences] about [{animal}s|{hobby}|{season}|{food}|"
    "the {job}|{concept}]",
    "write a [shopping|packing|to-do|check] list for [making {food}|a {event}|a day of {hobby}|"
    "a trip to {place}|a {job}]",
)
_EXPLAIN = (
    "explain {concept}[ to a child| in simple words| in two sentences| with an example| to {group}"
    "| in one paragraph| step by step|]",
    "explain how [a {product} works|to make {food}|to start {hobby}|to {goal}|"
    "people used to live without a {product}]",
    "explain why [{hobby} is good for you|we need {concept}|{theme} matters|"
    "people like {season}|a {animal} needs sleep|{subject} is useful]",
    "define {concept}[ in one sentence| and give an example| for a dictionary|]",
    "describe [a {product}|{concept}|the work of a {job}|how {food} tastes|a {animal}|"
    "a usual day of a {job}] in [one sentence|two sentences|three sentences|{3..6}0 words]",
    "describe the steps to [make {food}|{goal}|clean a {product}|prepare a {event}|choose a "
    "{product}]",
    "write {3..7} facts about [{concept}|a {animal}|{season}|{subject}|the colour {color}]",
    "write a glossary with {3..6} words from [{subject}|{hobby}|cooking|the work of a {job}]",
    "say if this is true and explain: [A {animal} can fly.|A {animal} lays eggs.|{season} is "
    "colder than {season}.|"
    "A {job} must know {subject}.|A {animal} eats {fruit}.|A {product} needs electricity.]",
)
_COMPARE = (
    "compare a {animal} and a {other_animal}[ in a table| in three sentences| in a list|]",
    "compare {hobby} and {other_hobby}[ for {group}| as a hobby| in two sentences|]",
    "compare {season} and {other_season}[ in {place}| in a table|]",
    "compare the work of a {job} with the work of a {other_job}",
    "name {2..5} differences between [a {animal} and a {other_animal}|a {job} and a {other_job}|"
    "{season} and {other_season}|{concept} and {other_concept}]",
    "say which is [better|easier|cheaper|healthier] for {group}, {hobby} or {other_hobby}, and why",
    "choose between {food} and {other_food} for a {event}, and give {2..4} reasons",
)
_MESSAGES = (
    "write [a short|a polite|a formal|a friendly|an] email [to {person}|to the {team} team|"
    "to a customer|to {company}] [about the {event} on {date}|to ask for a day off on {date}|"
    "to say thank you for the {product}|to move a meeting from {weekday} to {weekday}|"
    "to ask about the price of a {product}|to apologise for a late reply|"
    "to invite them to a {event} in {town}]",
    "write a text message to {first} [about the {event}|to say you are late|to ask for help with "
    "{hobby}|to cancel dinner on {weekday}|to suggest {food} for dinner]",
    "write [an advertisement|a slogan|a product description|a short review] for "
    "a {color} {product}[ made of {material}| from {company}| that costs {price}|]",
    "write [a notice|a sign|an invitation|a poster text] for a {event} at {venue} on {date}",
    "write a job advertisement for a {job} [in {town}|at {company}]",
    "write [a complaint|a thank-you note|a reply to a complaint] about a {product} [from {company}|"
    "that arrived on {date}]",
    "write interview questions for a {job}, {3..7} of them",
    "write a short introduction of {person}, a {job} from {town} who likes {hobby}",
    "write a recipe for {food} [with ingredients and steps|for {2..8} people|in five steps]",
)
_ADVICE = (
    "give me {3..7} tips [to {goal}|for {hobby}|for a new {job}|for {group} who want to {goal}]",
    "give advice to [someone who wants|a friend who hopes|{group} who would like] to {goal}",
    "make a [weekly|three-day|daily|monthly] plan to {goal}",
    "make a timetable for a {weekday} with {hobby}, {subject} and time for {food}",
    "plan a {event} in {town} for {20..300} people",
    "plan a [day|weekend] in {place} for {group}",
    "suggest {3..6} gifts for {first}, who likes {hobby}[ and {hobby}|]",
    "suggest a meal with {food} and [two|three] side dishes",
    "help {first} to choose a {product} for less than {price}",
    "say what to do if [a {product} does not work|you get lost in {place}|it rains during a "
    "{event}|you forget {subject} homework]",
)
_WORDS = (
    "translate [into|to] [French|Spanish|German|Italian]: [The {animal} is {color}.|"
    "I like {food}.|My name is {first}.|The {job} lives in {town}.|It is {weekday} today.|"
    "Where is the {event}?|I have {2..20} {thing}.|Good morning, {first}!|{first} likes {hobby}.]",
    "say whether each word is an animal, a food or a colour: {animal}, {food}, {color}, {animal}, "
    "{color}",
    "classify the mood of this sentence as positive, negative or neutral: [The {product} stopped "
    "working on {weekday}.|I love the new {product} from {company}.|The {event} starts at {time}.|"
    "{first} was late for the {event} again.|{food} was the best part of the day.|"
    "The {color} {product} costs {price}.|What a {mood} evening in {town}!]",
    "give the plural of these words: {animal}, {job}, {animal}, {product}",
    "give the past tense of these verbs: [go, see, run|eat, drink, sleep|write, read, sing|"
    "take, give, bring|buy, sell, pay|swim, fly, fall] and [make|find|lose|build|teach|think]",
    "give a synonym and an opposite for [happy|cold|fast|large|quiet|brave|easy|bright|rich|"
    "early], "
    "and use each in a sentence about a {job}",
    "use the words {animal}, {product} and {color} in one sentence",
    "make a sentence in the [past|present|future] tense with the words {job} and {food}",
    "spell the word '[elephant|umbrella|calendar|mountain|kitchen|library|telescope|hospital|"
    "Wednesday|February|vegetable|bicycle|knowledge|neighbour]' letter by letter, then use it in "
    "a sentence about {first}",
    "sort these words alphabetically: {animal}, {color}, {job}, {animal}, {color}",
    "sort these words by length: {animal}, {job}, {color}, {job}, {animal}",
    "group these words: {animal}, {color}, {job}, {animal}, {job}, {color}",
    "find the odd one out and explain: {animal}, {animal}, {job}, {animal}",
    "write a [rhyme|tongue twister|riddle] with the word {animal}",
    "make a quiz with {3..6} questions and answers about [{subject}|{animal}s|{hobby}|{concept}]",
    "fill in the gap: [The {job} went to ___ to buy {thing}.|In {season}, I like to ___ in {town}."
    "|A {animal} is bigger than a ___.|{first} ___ {food} every {weekday}.]",
)
_QUESTIONS = (
    "What is {concept}?",
    "[How does a {product} work?|What is a {product} used for?|Who needs a {product}, and why?]",
    "[What does a {job} do?|How do you become a {job}?|What should a good {job} know?]",
    "[What do people eat with {food}?|How do you make {food}?|Is {food} healthy?]",
    "[Why do people enjoy {hobby}?|How can {group} start with {hobby}?|What do I need for "
    "{hobby}?]",
    "[What can I do in {place} in {season}?|What should I wear in {season}?]",
    "[How can I {goal}?|Why is it hard to {goal}?|What helps people to {goal}?]",
    "[What is the difference between {concept} and {other_concept}?"
    "|How are a {animal} and a {other_animal} alike?]",
    "[Where does a {animal} live?|What does a {animal} eat?|How long does a {animal} live?]",
    "[Why is {theme} important?|How can parents teach {theme} to children?]",
    "[Why do we learn {subject}?|What is the hardest part of {subject}?"
    "|What do students learn first in {subject}?]",
    "[I have {fruit}, {food} and {thing}. What can I do with them?"
    "|My {product} is made of {material}. How do I clean it?]",
)
_STYLES = (
    *[""] * 4,
    " Keep it short.",
    " Use simple words.",
    " Write for {group}.",
    " Use at most {3..9}0 words.",
    " Answer as a friendly {job}.",
)
_LIST_STYLES = (
    *[""] * 4,
    " Use bullet points.",
    " Use a numbered list.",
    " One per line.",
    " Add a short reason to each.",
    " Start with the most important one.",
)
_TEXT_STYLES = (
    *[""] * 4,
    " Keep it short.",
    " Use a friendly tone.",
    " Use a formal tone.",
    " Do not write more than {2..6} sentences.",
    " Use at most {4..12}0 words.",
    " Sign it with {person}.",
)
# Each group of templates with the styles that can follow it.
_GROUPS = (
    (_LISTS, _LIST_STYLES),
    (_EXPLAIN, _STYLES),
    (_COMPARE, _STYLES),
    (_MESSAGES, _TEXT_STYLES),
    (_ADVICE, _LIST_STYLES),
    (_WORDS, ("",)),
    (_QUESTIONS, _STYLES),
)


def write(writer: Writer) -> str:
    """Write one everyday prompt that fits none of the other families."""
    templates, styles = writer.pick(_GROUPS)
    template = writer.pick(templates)
    pairs = {}
    for name in ("animal", "hobby", "season", "job", "concept", "food"):
        if f"{{other_{name}}}" in template:
            pairs[name], pairs[f"other_{name}"] = writer.pair(name)
    phrase = writer.write if templates is _QUESTIONS else writer.ask
    return phrase(template, **pairs) + writer.write(writer.pick(styles))
