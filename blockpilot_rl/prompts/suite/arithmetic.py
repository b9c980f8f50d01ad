"""Families `arithmetic` and `chat-arithmetic`: sums, word problems, tables, conversions."""

from __future__ import annotations

import operator

from blockpilot_rl.prompts.suite.writer import Writer, sentence, texts

# What the user asks, the sign of the calculation, and the range of the second number.
_STEPS = (
    ("[Add {k}.|Now add {k} to that.|And plus {k}?]", "+", operator.add, 3, 99),
    ("[Subtract {k}.|Take {k} away from that.|And minus {k}?]", "-", operator.sub, 2, 40),
    ("[Multiply that by {k}.|Now times {k}.|And times {k}?]", "x", operator.mul, 2, 9),
)


def _problem(writer: Writer) -> str:
    who, friend = writer.pair("first")
    color, color2 = writer.pair("color")
    text = writer.write(
        writer.pick_request("problem", texts("arithmetic", "problems")),
        who=who,
        friend=friend,
        what=writer.write("{[thing|fruit]}"),
        color=color,
        color2=color2,
        day=writer.write("{weekday}"),
    )
    return text + str(writer.pick(texts("arithmetic", "styles")))


def _sum(writer: Writer) -> str:
    calculation = writer.write(writer.pick(texts("arithmetic", "sums")))
    request = writer.pick_request("sum", texts("arithmetic", "sum_requests"))
    return sentence(writer.write(request, sum=calculation))


def _task(writer: Writer) -> str:
    return writer.ask(writer.pick_request("number task", texts("arithmetic", "tasks")))


def _equation(writer: Writer) -> str:
    writer.begin("equation")
    x, factor, term = writer.number(2, 25), writer.number(2, 12), writer.number(1, 40)
    unknown = writer.pick(("x", "y", "n", "k"))
    equation = writer.pick(
        (
            f"{factor}{unknown} + {term} = {factor * x + term}",
            f"{term} + {factor}{unknown} = {factor * x + term}",
            f"{factor}{unknown} - {term} = {factor * x - term}",
            f"{factor} * ({unknown} + {term}) = {factor * (x + term)}",
        )
    )
    request = writer.write(
        "[Solve {equation}.|Solve the equation {equation}.|Find {unknown}: {equation}.|"
        "For which {unknown} is {equation}?|What is {unknown} if {equation}?]",
        unknown=unknown,
        equation=equation,
    )
    return request + str(writer.pick(texts("arithmetic", "styles")))


def _sequence(writer: Writer) -> str:
    writer.begin("sequence")
    start, step = writer.number(1, 60), writer.number(2, 25)
    grows = writer.chance(0.7)
    length = writer.number(4, 6)
    if grows:
        terms = [start + step * i for i in range(length)]
    else:
        terms = [start + step * (length + 4 - i) for i in range(length)]
    request = writer.write(
        "[What are the next {3..8} numbers in|Continue|Write the next {4..9} terms of|"
        "What is the rule of|Find the rule and the next {3..6} numbers of] "
        "[this sequence|the sequence]: {terms}, ...",
        terms=", ".join(map(str, terms)),
    )
    return request + str(writer.pick(texts("arithmetic", "styles")[:5]))


def write_arithmetic(writer: Writer) -> str:
    """Write one prompt that asks for a calculation."""
    forms = (*[_problem] * 4, *[_sum] * 2, *[_task] * 3, _sequence, _equation)
    return writer.pick(forms)(writer)


def _next_sum(writer: Writer, value: int) -> tuple[str, str, int]:
    """Continue from a value: what the user asks, the calculation, and its result."""
    requests, sign, apply, low, high = writer.pick(_STEPS)
    k = writer.number(low, high)
    return writer.write(requests, k=k), f"{value} {sign} {k}", apply(value, k)


def _answer(writer: Writer, left: str, right: int) -> str:
    return str(writer.pick(texts("arithmetic", "chat_answers"))).format(left=left, right=right)


def _running_sum(writer: Writer) -> tuple[str, ...]:
    a, b = writer.number(50, 500), writer.number(11, 400)
    calculation, value = f"{a} + {b}", a + b
    turns = [writer.write(writer.pick(texts("arithmetic", "chat_first_sums")), sum=calculation)]
    for _ in range(writer.number(0, 1)):
        turns.append(_answer(writer, calculation, value))
        request, calculation, value = _next_sum(writer, value)
        turns.append(request)
    turns.append(_answer(writer, calculation, value))
    request = writer.pick(texts("arithmetic", "chat_last_sums"))
    last = writer.write(request, value=value)
    further = _next_sum(writer, value)[0]
    turn, template = writer.pick(((last, request), (last, request), (further, "next")))
    writer.begin("running sum", template)
    return (*turns, turn)


def _word_problem_chat(writer: Writer) -> tuple[str, ...]:
    writer.begin("problem chat")
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
        "[!{who} shares the rest with {2..6} friends. How many does each person get, and how many "
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
        writer.begin("problem chat", "second")
        return first, answers[0], second
    return first, answers[0], second, answers[1], last


def _times_table(writer: Writer) -> tuple[str, ...]:
    writer.begin("times table chat")
    n, end = writer.number(3, 25), writer.number(4, 8)
    first = writer.write(
        "[Write|Show me|Give me] the {n} times table from 1 to {end}.", n=n, end=end
    )
    lines = "\n".join(f"{i} x {n} = {i * n}" for i in range(1, end + 1))
    second = writer.write(
        "[!Go on up to {further}.|Now the same for {other}.|Now backwards, from {end} to 1."
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
    writer.begin("conversion chat")
    units = writer.pick(texts("arithmetic", "conversions"))
    large, small, factor = units["large"], units["small"], units["factor"]
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
                "[!And the other way round: how many {large} are {n} {small}?|Make a table of both"
                ", and add {m} {large}.|What is the formula?|What do both make together?]",
                **bound,
                n=third * factor,
                m=third,
            ),
        ]
    return tuple(turns)


def write_arithmetic_chat(writer: Writer) -> tuple[str, ...]:
    """Write the turns of one chat about numbers. The assistant's sums are right."""
    forms = (*[_running_sum] * 2, *[_word_problem_chat] * 2, _times_table, _conversion)
    return writer.pick(forms)(writer)
