"""Family `arithmetic`: sums, word problems, sequences, tables and conversions."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.writer import Writer, sentence

_STYLES = (
    "",
    "",
    " Show your work.",
    " Think step by step.",
    " Explain each step.",
    " Give only the answer.",
    " Write the calculation and the result.",
    " Answer in a full sentence.",
    " Check your answer at the end.",
)
_WORD_PROBLEMS = (
    "{who} has {12..90} {what} and "
    "[gives {2..11} to {friend}|loses {2..11} of them|sells {2..11}]. "
    "How many {what} [are left|does {who} have now]?",
    "{who} buys {2..12} {what} for {2..15} dollars each. "
    "[How much does that cost?|What is the total price?|How much is left of 200 dollars?]",
    "A [box|bag|shelf|basket] holds {3..24} {what}. How many {what} fit in {2..15} of them?",
    "{who} shares {what} with {2..7} friends. There are {2..9}{0..9} {what}. How many does each "
    "person get, and how many are left over?",
    "A [train|bus|car|cyclist] travels {2..9}0 kilometres [per hour|in one hour]. How far does it "
    "go in {2..9} hours?",
    "{who} reads {5..40} pages a day. How long does a book of {1..6}{0..9}0 pages take?",
    "A {product} costs {2..9}0 dollars. The price [falls|rises] by {1..9}0 percent. What is the "
    "new price?",
    "{who} is {5..15} years old. {friend} is {2..4} times as old. How old [is {friend}|are they "
    "together]?",
    "There are {10..40} children in a class, and {3..9} of them [wear glasses|sing in the choir|"
    "walk to school|have a pet]. How many do not?",
    "{who} saves {3..30} dollars every [week. How much is that after {4..30} weeks?|"
    "month. How much is that after {3..24} months?|day. How much is that after {5..60} days?]",
    "A garden is {3..30} metres long and {2..20} metres wide. What is its [area|perimeter|area and "
    "its perimeter]?",
    "{who} starts work at {7..10}:[00|15|30] and works for {3..8} hours and [15|30|45] minutes. "
    "When does the work end?",
    "A recipe for {2..4} people needs {2..9}00 grams of flour. How much is needed for {5..12} "
    "people?",
    "In a bag there are {2..20} {color} and {2..20} {color2} {what}. How many {what} are there in "
    "all, and what fraction is {color}?",
    "{who} and {friend} collect {what}. {who} finds {11..80}, and {friend} finds {3..10} "
    "[more|fewer]. How many do they have together?",
    "A shop sells {5..50} {what} on {day}, twice as many the next day, and {2..9} on the day "
    "after. How many {what} does it sell in three days?",
    "{who} runs {2..12} kilometres on {2..6} days a week. How many kilometres is that in {2..10} "
    "weeks?",
    "A farmer plants {3..20} rows with {4..25} {color} tulips each. How many tulips are there?",
    "{who} is reading a book with {120..480} pages and has read {20..100} of them. How many pages "
    "are left?",
    "It is {3..20} degrees in the morning, and by noon it is {2..14} degrees [warmer|colder]. How "
    "warm is it then?",
    "A film starts at {6..9}:[00|10|20|30|45] pm and lasts {80..150} minutes. When does it end?",
    "A taxi costs {2..6} dollars plus {1..4} dollars per kilometre. What does a trip of {3..40} "
    "kilometres cost?",
    "{who} has {3..40} [ten-cent|twenty-cent|fifty-cent] coins. How much money is that in dollars?",
    "{2..6} workers need {2..12} hours to paint a house. How long does one worker need alone?",
    "A cake is cut into {6..16} equal pieces, and {who} eats {2..5} of them. What fraction is "
    "left?",
    "Half of the {1..9}[0|2|4|6|8] {what} in a [shop|box|room] are {color}. How many are not "
    "{color}?",
    "{who} scores {5..30}, {5..30} and {5..30} points in three games. What is the [total|average]?",
    "A rope of {20..95} metres is cut into pieces of {2..9} metres. How many pieces are there, and "
    "how much is left?",
    "The sum of two numbers is {20..90}, and one of them is {3..19}. What is the other?",
    "I think of a number, [add {2..20}|double it|subtract {2..9}|multiply it by {3..5}] and get "
    "{30..60}. What is my number?",
    "{friend} walks {3000..9999} steps a day. How many steps is that in {3..14} days?",
    "A class of {12..36} pupils forms teams of {2..6}. How many teams are there?",
    "Tickets cost {6..20} dollars for adults and {2..5} dollars for children. What do {2..5} "
    "adults "
    "and {2..6} children pay?",
    "A tank holds {50..400} litres and loses {2..9} litres an hour. How much is left after {3..12} "
    "hours?",
    "{who} was born in 19{50..99}. How old is {who} in 20{24..60}?",
    "A square has sides of {2..30} centimetres. What are its area and its perimeter?",
    "Two tickets cost {20..90} dollars each, and a third is [half|twice] the price. What do all "
    "three cost?",
    "{who} sleeps from {8..11}:[00|15|30] pm to {5..8}:[00|30|45] am. How long is that?",
    "Last year {town} had {2..9}{100..999} inhabitants, and now it has {2..40}0 [more|fewer]. How "
    "many are there now?",
    "For a party, {who} needs {2..6} {what} for each of {5..30} guests. How many are needed?",
    "A bottle holds {2..20}00 millilitres. {who} fills {2..12} bottles. How many litres is that?",
)
_SUMS = (
    "{11..999} + {11..999}",
    "{200..999} - {11..199}",
    "{3..99} x {3..19}",
    "{2..12} * {11..60} + {2..90}",
    "({2..30} + {2..30}) * {2..9}",
    "{11..99} + {11..99} + {11..99}",
    "{2..9}0{0..9} + {11..99} - {2..30}",
    "{2..9}{0..9}.{1..9} + {2..9}.{1..9}",
    "{1..9}0% of {2..90}0",
    "1/{2..9} + 1/{2..9}",
    "{2..20} squared",
    "{20..99} - {2..9} - {2..9} - {2..9}",
)
_SUM_REQUESTS = (
    "What is {sum}?",
    "Calculate {sum}.",
    "Compute {sum} step by step.",
    "Work out {sum} and show each step.",
    "Solve: {sum}",
    "{sum} = ?",
    "How do you calculate {sum}? Explain it to a child.",
    "Find the value of {sum}. Then check the result.",
    "Please tell me what {sum} is.",
    "Is {sum} more than {2..9}0?",
    "{sum}: how much is that?",
    "{first} needs the result of {sum}. What is it?",
)
_TASKS = (
    "write the [multiplication table|times table] of {2..25} from 1 to {8..15}",
    "write the {3..19} times table up to {5..12}",
    "count from {1..60} to {70..110} in steps of {2..9}",
    "count backwards from {20..99} to {1..15} by {1..4}",
    "list the first {5..15} multiples of {2..30}",
    "list the numbers from {1..50} to {60..95} that can be divided by {3..9}",
    "list the even numbers between {1..40} and {50..90}",
    "list the odd numbers between {1..40} and {50..90}",
    "list the squares of the numbers from {1..8} to {10..18}",
    "convert {2..90} [kilometres to metres|metres to centimetres|hours to minutes|"
    "minutes to seconds|kilograms to grams|weeks to days|litres to millilitres|feet to inches|"
    "days to hours], then do the same for {2..90}",
    "convert {1..9}{0..9} degrees [Celsius to Fahrenheit|Fahrenheit to Celsius], showing the "
    "formula",
    "write the number {100..9999} in words",
    "write the numbers from {1..40} to {50..60} in words",
    "round {1..9}{0..9}{0..9}.{11..99} to the nearest [ten|hundred|whole number]",
    "find the average of {3..30}, {3..30}, {3..30} and {3..30}",
    "sort these numbers from [small to large|large to small]: {1..99}, {1..99}, {1..99}, {1..99}, "
    "{1..99}, {1..99}",
    "add these numbers one after the other: {2..50}, {2..50}, {2..50}, {2..50}, {2..50}",
    "find the [largest|smallest] of the numbers {1..99}, {1..99}, {1..99}, {1..99} and {1..99}",
    "make a table of {2..9} to the power of 1 to {4..8}",
    "find x if x [+|-] {3..60} = {5..99}",
    "write {2..9} [addition|subtraction|multiplication] problems with the [result|answer] {12..60}",
    "make {3..8} easy [addition|subtraction|multiplication] exercises with answers, using numbers "
    "up to {2..9}0",
    "halve {40..400} again and again until you are below {2..9}",
    "start with {2..15} and double it {4..9} times, writing every result",
)


def _problem(writer: Writer) -> str:
    who, friend = writer.pair("first")
    color, color2 = writer.pair("color")
    text = writer.write(
        writer.pick(_WORD_PROBLEMS),
        who=who,
        friend=friend,
        what=writer.write("{[thing|fruit]}"),
        color=color,
        color2=color2,
        day=writer.write("{weekday}"),
    )
    return text + writer.pick(_STYLES)


def _sum(writer: Writer) -> str:
    calculation = writer.write(writer.pick(_SUMS))
    return sentence(writer.write(writer.pick(_SUM_REQUESTS), sum=calculation))


def _task(writer: Writer) -> str:
    return writer.ask(writer.pick(_TASKS))


def _equation(writer: Writer) -> str:
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
    return request + writer.pick(_STYLES)


def _sequence(writer: Writer) -> str:
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
    return request + writer.pick(_STYLES[:5])


def write(writer: Writer) -> str:
    """Write one prompt that asks for a calculation."""
    forms = (*[_problem] * 4, *[_sum] * 2, *[_task] * 3, _sequence, _equation)
    return writer.pick(forms)(writer)
