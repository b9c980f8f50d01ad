"""Family `chat-arithmetic`: sums that go on over several turns."""

from __future__ import annotations

import operator

from blockpilot_rl.prompts.suite.writer import Writer

_FIRST_SUMS = (
    "What is {sum}?",
    "Calculate {sum}.",
    "How much is {sum}?",
    "Please work out {sum}.",
    "Can you tell me what {sum} is?",
    "{sum} = ?",
)
# What the user asks, the sign of the calculation, and the range of the second number.
_STEPS = (
    ("[Add {k}.|Now add {k} to that.|And plus {k}?]", "+", operator.add, 3, 99),
    ("[Subtract {k}.|Take {k} away from that.|And minus {k}?]", "-", operator.sub, 2, 40),
    ("[Multiply that by {k}.|Now times {k}.|And times {k}?]", "x", operator.mul, 2, 9),
)
_LAST_SUMS = (
    "Is that more than {2..9}00?",
    "Round that to the nearest [ten|hundred].",
    "Write that number in words.",
    "Now divide that by {2..9} and give the remainder.",
    "List every step from the beginning to {value}.",
    "What is half of that?",
    "Check it by doing the steps backwards.",
    "Which numbers between 2 and 10 divide that without a remainder?",
    "How far is that from 1000?",
)
_ANSWERS = (
    "{left} = {right}.",
    "{left} = {right}",
    "The result is {right}.",
    "That makes {right}.",
)
_CONVERSIONS = (
    ("kilometres", "metres", 1000),
    ("metres", "centimetres", 100),
    ("hours", "minutes", 60),
    ("minutes", "seconds", 60),
    ("kilograms", "grams", 1000),
    ("weeks", "days", 7),
    ("days", "hours", 24),
    ("litres", "millilitres", 1000),
    ("feet", "inches", 12),
)


def _step(writer: Writer, value: int) -> tuple[str, str, int]:
    """Go on from a value: what the user asks, the calculation, and its result."""
    requests, sign, apply, low, high = writer.pick(_STEPS)
    k = writer.number(low, high)
    return writer.write(requests, k=k), f"{value} {sign} {k}", apply(value, k)


def _answer(writer: Writer, left: str, right: int) -> str:
    return writer.pick(_ANSWERS).format(left=left, right=right)


def _running(writer: Writer) -> tuple[str, ...]:
    a, b = writer.number(50, 500), writer.number(11, 400)
    calculation, value = f"{a} + {b}", a + b
    turns = [writer.write(writer.pick(_FIRST_SUMS), sum=calculation)]
    for _ in range(writer.number(0, 1)):
        turns.append(_answer(writer, calculation, value))
        request, calculation, value = _step(writer, value)
        turns.append(request)
    turns.append(_answer(writer, calculation, value))
    last = writer.write(writer.pick(_LAST_SUMS), value=value)
    turns.append(writer.pick((last, last, _step(writer, value)[0])))
    return tuple(turns)


def _story(writer: Writer) -> tuple[str, ...]:
    who, friend = writer.pair("first")
    things = writer.write("{[thing|fruit]}")
    start, more, less = writer.number(30, 90), writer.number(5, 30), writer.number(3, 20)
    bound = {"who": who, "friend": friend, "things": things}
    first = writer.write(
        "{who} has {start} {things} and [buys|finds|gets] {more} more. How many {things} does "
        "{who} have now?",
        **bound,
        start=start,
        more=more,
    )
    second = writer.write(
        "Then {who} [gives {friend} {less} of them|loses {less} of them|sells {less} of them]. How "
        "many are left?",
        **bound,
        less=less,
    )
    last = writer.write(
        "[{who} shares the rest with {2..6} friends. How many does each person get, and how many "
        "are left over?|{friend} has {2..4} times as many. How many do they have together?"
        "|{2..9} of the rest are {color}. What fraction is that?"
        "|How many boxes are needed if {3..9} {things} fit in one?"
        "|And if {who} had given away twice as many?"
        "|Write the whole story in one sentence, with all the numbers.]",
        **bound,
    )
    total = start + more
    answers = (
        writer.write(
            "[{who} has {start} + {more} = {total} {things}.|{start} + {more} = {total}, so {who} "
            "has {total} {things} now.]",
            **bound,
            start=start,
            more=more,
            total=total,
        ),
        writer.write(
            "[{total} - {less} = {rest}, so {rest} {things} are left.|There are {rest} {things} "
            "left.]",
            **bound,
            total=total,
            less=less,
            rest=total - less,
        ),
    )
    if writer.chance(0.4):
        return first, answers[0], second
    return first, answers[0], second, answers[1], last


def _table(writer: Writer) -> tuple[str, ...]:
    n, end = writer.number(3, 25), writer.number(4, 8)
    first = writer.write(
        "[Write|Show me|Give me] the {n} times table from 1 to {end}.", n=n, end=end
    )
    lines = "\n".join(f"{i} x {n} = {i * n}" for i in range(1, end + 1))
    second = writer.write(
        "[Go on up to {further}.|Now the same for {other}.|Now backwards, from {end} to 1."
        "|Write only the results, separated by commas.|Make a Markdown table of it."
        "|And what is {factor} x {n}?|Put the numbers in words.]",
        n=n,
        end=end,
        further=end + writer.number(3, 7),
        other=n + writer.number(1, 9),
        factor=writer.number(11, 30),
    )
    return first, lines, second


def _conversion(writer: Writer) -> tuple[str, ...]:
    large, small, factor = writer.pick(_CONVERSIONS)
    first, second, third = (writer.number(2, 40) for _ in range(3))
    bound = {"large": large, "small": small}
    turns = [
        writer.write(
            "[Convert {n} {large} to {small}.|How many {small} are {n} {large}?]", **bound, n=first
        ),
        f"{first} {large} = {first} x {factor} = {first * factor} {small}.",
        writer.write("[And {n} {large}?|Now the same for {n} {large}.]", **bound, n=second),
    ]
    if writer.chance(0.6):
        turns += [
            f"{second} {large} = {second} x {factor} = {second * factor} {small}.",
            writer.write(
                "[And the other way round: how many {large} are {n} {small}?|Make a table of both, "
                "and add {m} {large}.|What is the formula?|What do both make together?]",
                **bound,
                n=third * factor,
                m=third,
            ),
        ]
    return tuple(turns)


def write(writer: Writer) -> tuple[str, ...]:
    """Write the turns of one chat about numbers, the assistant's sums being right."""
    return writer.pick((_running, _running, _story, _story, _table, _conversion))(writer)
