"""Family `code`: functions, classes, SQL, shell, tests, docstrings, explanations and fixes."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.snippets import snippet
from blockpilot_rl.prompts.suite.writer import Writer

# Each purpose reads on from "a function that ..."; slots vary the numbers and the things.
_PURPOSES = (
    "[adds|multiplies] all numbers in a list",
    "returns the [largest|smallest|second largest] number of a list",
    "counts how often [a word|a letter|each word|each letter] occurs in a text",
    "removes [duplicates|empty strings|negative numbers|all spaces] from a [list|given input]",
    "checks whether a [number is prime|year is a leap year|word is a palindrome|string is empty|"
    "number is even|list is sorted|string holds only digits|number is a multiple of {3..19}]",
    "converts [Celsius to Fahrenheit|kilometres to miles|minutes to hours and minutes|"
    "a number to binary|a list to a string|a string to a list of words|seconds to hh:mm:ss|"
    "dollars to cents|a date string to day, month and year|grams to kilograms]",
    "reads a [text|CSV|JSON] file and [prints its lines|counts its lines|returns its rows|"
    "returns the longest line|adds up its column '{column}']",
    "writes a list of {things} to a [text|CSV|JSON] file",
    "sorts a list of {things} by [name|length|{column}|date]",
    "groups {things} by [first letter|length|{column}|month]",
    "finds all {things} with a {column} above {5..95}",
    "returns the first {2..20} [Fibonacci numbers|prime numbers|square numbers|even numbers]",
    "prints a [triangle|square|pyramid|staircase] of stars with {3..12} rows",
    "prints the multiplication table of a number up to {5..20}",
    "computes the [average|median|sum of squares|product|range] of a list of numbers",
    "computes the [area|perimeter] of a [circle|rectangle|triangle|square]",
    "computes the [factorial|digit sum|square root|number of divisors] of a number",
    "reverses [a string|a list|the words of a sentence|the digits of a number]",
    "merges two [lists|dictionaries|sorted lists]",
    "splits a list into parts of {2..12} elements",
    "returns the common elements of two lists",
    "returns a random [password of {6..20} characters|number from 1 to {6..100}|element of a list]",
    "validates [an email address|a phone number|a password of at least {6..14} characters|a date]",
    "calculates the total price of {things} with a discount of {5..50} percent",
    "calculates the [tip|tax] of {5..25} percent on a bill",
    "counts [vowels|consonants|words|sentences|upper-case letters] in a string",
    "replaces every [vowel|space|digit|letter 'a'] in a text with a [dash|star|dot]",
    "returns the [longest|shortest] word of a sentence",
    "plays [rock, paper, scissors|guess the number|heads or tails] with the user",
    "flattens a nested list",
    "caches results in a dictionary",
    "finds the index of a value with [binary|linear] search",
    "sorts a list with [bubble sort|insertion sort|selection sort]",
    "rotates a list by {2..9} places",
    "returns the number of days between two dates",
    "shifts each letter of a text by {1..12} places",
    "capitalises the first letter of each word",
    "swaps the [keys and values|first and last element] of a [dictionary|list]",
    "finds pairs of numbers whose sum is {5..60}",
    "rounds every price in a list to {0..3} decimal places",
)
_THINGS = (
    "students", "products", "orders", "books", "employees", "cities", "songs", "recipes",
    "players", "invoices", "movies", "cars", "animals", "tasks", "messages", "flights", "rooms",
)  # fmt: skip
_COLUMNS = (
    "age", "price", "score", "year", "weight", "rating", "amount", "height", "salary", "distance",
    "quantity", "duration", "temperature", "points",
)  # fmt: skip
_LANGUAGES = (*["Python"] * 7, "JavaScript", "Java", "C", "Rust", "Go")
_NOTES = (
    *[""] * 5,
    " Add comments.",
    " Include a docstring.",
    " Use type hints.",
    " Do not use any library.",
    " Show an example call.",
    " Use a loop.",
    " Use recursion.",
    " Handle empty input.",
    " Raise an error for bad input.",
    " Explain the code afterwards.",
    " Only write the code.",
    " Name the function {name}.",
    " Add two tests.",
    " Keep it as short as possible.",
    " Write it for beginners.",
)
_NAMES = ("solve", "process", "run_task", "compute", "handle", "check", "build", "convert")
_CLASSES = (
    "write a {language} class {kind} with [the attributes|the fields] {columns} "
    "and a method [to print it|that returns a summary|that compares two objects|"
    "to update the {column}|to read it from a dictionary]",
    "write a [small|simple] {language} class for a [bank account|shopping cart|stack|queue|"
    "counter|timer|library of {things}|list of {things}|thermometer|dice game|to-do list|"
    "linked list|phone book|parking lot|vending machine] with [two|three|four] methods",
    "write a Python dataclass {kind} with the fields {columns}",
    "write a Python enum for [the days of the week|{things} states|traffic lights|card suits|"
    "the four seasons|sizes of a {product}]",
)
_SQL = (
    "write [an SQL|a SQL] query that [selects|returns] [all|the first {3..20}|the newest {3..20}] "
    "{things} [with a {column} above {5..95}|whose {column} is between {2..40} and {50..99}|"
    "sorted by {column}|whose name starts with '[A|B|C|M|S]']",
    "write an SQL query that [counts|groups] {things} by [{column}|city|month|category]",
    "write an SQL query for the [average|largest|smallest|total] {column} of all {things}"
    "[ per {group_column}|]",
    "write an SQL statement that creates a table {things} with the columns id, name, {columns}",
    "write an SQL statement that [inserts {2..5} rows into|deletes old rows from|"
    "updates the {column} in] the table {things}",
    "write an SQL query that joins {things} with their [owners|categories|cities|suppliers] and "
    "shows name and {column}",
)
_SHELL = (
    "write a shell command that [lists all .[txt|py|csv|log|md] files|counts the lines of all "
    ".[txt|py|csv|log|md] files|finds files larger than {2..90} MB|shows the last {5..50} lines "
    "of a log file|removes empty folders|renames all .[txt|jpeg|htm] files|"
    "sorts a file by column {2..6}|prints the disk space|shows the {3..20} largest files|"
    "replaces '{column}' with '{word}' in a file|downloads a file|makes a backup of the folder "
    "{things}|counts how often '{word}' occurs in a file|prints column {2..7} of a CSV file]",
    "write a Bash script that [asks for a name and greets the user|makes folders for {things}|"
    "deletes files older than {5..60} days|prints the numbers from 1 to {10..90}|"
    "checks whether the file {word}.txt exists|copies all .[txt|py|csv|log] files to a backup "
    "folder]",
    "give the git [command|commands] to [create a branch named {word}|undo the last commit|"
    "see the last {3..20} commits|merge the branch {word}|delete the branch {word}|"
    "add the file {word}.py and commit it], with a short explanation",
    "write a [regular expression|Python regular expression] that matches [an email address|a date|"
    "a time such as {10..23}:{10..59}|a number with {2..6} digits|a word that starts with "
    "'[a|b|s|t]'|a price such as {price}|a hex colour|a postcode with {4..6} digits]",
)
_MARKUP = (
    "write HTML for [a page about {things}|a table of {3..6} {things} with name and {column}|"
    "a form with the fields name, {columns}|a list of {3..8} {things}|a button that says "
    "'[Save|Send|Cancel|Buy now|Log in]'|a menu with {3..6} links]",
    "write CSS for [a {color} button|a centred box of {20..80} percent width|"
    "a table with {color} lines|a {color} heading|a page with two columns]",
    "write a JSON example with {2..4} {things}, each with name and {columns}",
    "write a YAML configuration for [a web server|a list of {things}|a backup job|a game] with "
    "{3..6} settings, among them {column}",
    "write a CSV file with {3..8} rows of {things} and the columns name, {columns}",
    "write a Makefile with the targets [build, test and clean|run and lint|install and docs]",
    "write a Markdown table of {3..7} {things} with the columns name and {column}",
)
_ON_CODE = (
    "explain [what this function does|this code line by line|this code in one sentence|"
    "this code to a beginner|what this code returns for a small example]",
    "write [{2..5} unit tests with pytest|a unit test|{2..4} assert statements] for this function",
    "write a docstring for this function[ in Google style| with an example|]",
    "complete the docstring of this function and print the whole function",
    "rewrite this function [as one line|with a while loop|with type hints|with better names|"
    "in JavaScript|in Java|with comments|so that it handles bad input]",
    "find a possible bug in this function and fix it",
    "say what the time complexity of this function is[ and why|]",
    "call this function with {2..4} different inputs and show the results",
    "[translate|convert] this function [to JavaScript|to Java|to Go|to Rust|to C]",
    "rename {argument} to {word} in this function and add a docstring",
)


def _columns(writer: Writer) -> str:
    return ", ".join(writer.some(_COLUMNS, writer.number(2, 3)))


def _function(writer: Writer) -> str:
    purpose = writer.pick(_PURPOSES)
    request = (
        "[write|create|make|implement] a [small |simple ||]{language} "
        f"[function|program|function] that {purpose}"
    )
    return _ask(writer, request) + writer.write(writer.pick(_NOTES), name=writer.pick(_NAMES))


def _ask(writer: Writer, request: str) -> str:
    things = writer.pick(_THINGS)
    return writer.ask(
        request,
        language=writer.pick(_LANGUAGES),
        things=things,
        kind=writer.pick(
            ("Student", "Product", "Order", "Book", "Car", "Song", "Player", "Task", "Room", "City")
        ),
        column=writer.pick(_COLUMNS),
        columns=_columns(writer),
        group_column=writer.pick(("city", "month", "category", "year", "team", "country")),
        word=writer.pick(("report", "draft", "update", "backup", "summary", "new-login", "search")),
    )


def _header(writer: Writer) -> str:
    source = snippet(writer)
    request = writer.ask(
        "[complete|finish|write the body of|fill in] this [Python function|function]"
        "[, with comments|, and add an example call| in as few lines as possible|]"
    )
    return writer.about(request, f'```python\n{source.header}\n    """{source.summary}"""\n```')


def _on_code(writer: Writer) -> str:
    source = snippet(writer)
    request = writer.ask(
        writer.pick(_ON_CODE),
        argument=source.argument,
        word=writer.pick(("given", "content", "entry", "element", "source")),
    )
    return writer.about(request, f"```python\n{source.code}\n```")


def _other(writer: Writer) -> str:
    group = writer.pick((_CLASSES, _SQL, _SHELL, _MARKUP))
    return _ask(writer, writer.pick(group))


def write(writer: Writer) -> str:
    """Write one prompt that asks for code or about code."""
    return writer.pick((*[_function] * 3, *[_on_code] * 2, *[_other] * 2, _header))(writer)
