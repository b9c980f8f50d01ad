"""Small Python functions with varying names, as material for editing, testing and explaining."""

from __future__ import annotations

from dataclasses import dataclass

from blockpilot_rl.prompts.suite.writer import Writer

_LISTS = ("values", "numbers", "items", "data", "scores", "prices", "records", "readings")
_TEXTS = ("text", "word", "line", "message", "title", "phrase", "comment")
_NUMBERS = ("n", "count", "number", "limit", "size", "steps")

# Name, arguments to choose from, what it does, body. `{a}` is the argument, `{k}` a small number.
_FUNCTIONS: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    ("total", _LISTS, "Return the sum of all {a}.", """\
    result = 0
    for x in {a}:
        result += x
    return result"""),
    ("largest", _LISTS, "Return the largest of the {a}.", """\
    best = {a}[0]
    for x in {a}:
        if x > best:
            best = x
    return best"""),
    ("smallest", _LISTS, "Return the smallest of the {a}.", """\
    low = {a}[0]
    for x in {a}[1:]:
        low = min(low, x)
    return low"""),
    ("average", _LISTS, "Return the mean of the {a}, or 0 if there are none.", """\
    if not {a}:
        return 0
    return sum({a}) / len({a})"""),
    ("evens", _LISTS, "Return the even ones among the {a}.", """\
    return [x for x in {a} if x % 2 == 0]"""),
    ("multiples", _LISTS, "Return those {a} that can be divided by {k}.", """\
    result = []
    for x in {a}:
        if x % {k} == 0:
            result.append(x)
    return result"""),
    ("above", _LISTS, "Return the {a} that are larger than {k}.", """\
    return [x for x in {a} if x > {k}]"""),
    ("unique", _LISTS, "Return the {a} without repeats, in order.", """\
    seen = set()
    result = []
    for x in {a}:
        if x not in seen:
            seen.add(x)
            result.append(x)
    return result"""),
    ("count_values", _LISTS, "Count how often each of the {a} occurs.", """\
    counts = dict()
    for x in {a}:
        counts[x] = counts.get(x, 0) + 1
    return counts"""),
    ("chunks", _LISTS, "Split the {a} into parts of {k}.", """\
    return [{a}[i:i + {k}] for i in range(0, len({a}), {k})]"""),
    ("rotate", _LISTS, "Move the first {k} of the {a} to the end.", """\
    k = {k} % len({a})
    return {a}[k:] + {a}[:k]"""),
    ("scale", _LISTS, "Multiply each of the {a} by {k}.", """\
    return [x * {k} for x in {a}]"""),
    ("is_sorted", _LISTS, "Tell whether the {a} never get smaller.", """\
    for i in range(len({a}) - 1):
        if {a}[i] > {a}[i + 1]:
            return False
    return True"""),
    ("running_sum", _LISTS, "Return the sums of the first 1, 2, 3, ... of the {a}.", """\
    result = []
    total = 0
    for x in {a}:
        total += x
        result.append(total)
    return result"""),
    ("second_largest", _LISTS, "Return the second largest of the {a}.", """\
    ordered = sorted(set({a}))
    return ordered[-2]"""),
    ("find", _LISTS, "Return the position of {k} in the {a}, or -1.", """\
    for i, x in enumerate({a}):
        if x == {k}:
            return i
    return -1"""),
    ("differences", _LISTS, "Return the step from each of the {a} to the next.", """\
    return [b - a for a, b in zip({a}, {a}[1:])]"""),
    ("median", _LISTS, "Return the middle one of the sorted {a}.", """\
    ordered = sorted({a})
    middle = len(ordered) // 2
    return ordered[middle]"""),
    ("reverse", _TEXTS, "Return the {a} backwards.", """\
    result = ''
    for letter in {a}:
        result = letter + result
    return result"""),
    ("is_palindrome", _TEXTS, "Tell whether the {a} reads the same backwards.", """\
    clean = {a}.lower().replace(' ', '')
    return clean == clean[::-1]"""),
    ("count_vowels", _TEXTS, "Count the vowels in the {a}.", """\
    total = 0
    for letter in {a}.lower():
        if letter in 'aeiou':
            total += 1
    return total"""),
    ("initials", _TEXTS, "Return the first letters of the words of the {a}.", """\
    return ''.join(part[0].upper() for part in {a}.split())"""),
    ("shorten", _TEXTS, "Cut the {a} after {k} letters.", """\
    if len({a}) <= {k}:
        return {a}
    return {a}[:{k}] + '...'"""),
    ("word_lengths", _TEXTS, "Return the length of each word of the {a}.", """\
    return [len(w) for w in {a}.split()]"""),
    ("repeat", _TEXTS, "Repeat the {a} {k} times with spaces between.", """\
    return ' '.join([{a}] * {k})"""),
    ("longest_word", _TEXTS, "Return the longest word of the {a}.", """\
    words = {a}.split()
    return max(words, key=len)"""),
    ("count_words", _TEXTS, "Count the words of the {a} with more than {k} letters.", """\
    total = 0
    for part in {a}.split():
        if len(part) > {k}:
            total += 1
    return total"""),
    ("shift", _TEXTS, "Move each letter of the {a} by {k} places.", """\
    result = ''
    for letter in {a}:
        result += chr(ord(letter) + {k})
    return result"""),
    ("factorial", _NUMBERS, "Return the product of 1 to {a}.", """\
    result = 1
    for i in range(2, {a} + 1):
        result *= i
    return result"""),
    ("is_prime", _NUMBERS, "Tell whether {a} is a prime number.", """\
    if {a} < 2:
        return False
    for d in range(2, int({a} ** 0.5) + 1):
        if {a} % d == 0:
            return False
    return True"""),
    ("digit_sum", _NUMBERS, "Return the sum of the digits of {a}.", """\
    return sum(int(d) for d in str({a}))"""),
    ("fibonacci", _NUMBERS, "Return the Fibonacci number at position {a}.", """\
    a, b = 0, 1
    for _ in range({a}):
        a, b = b, a + b
    return a"""),
    ("countdown", _NUMBERS, "Print the numbers from {a} down in steps of {k}.", """\
    while {a} > 0:
        print({a})
        {a} -= {k}"""),
    ("squares", _NUMBERS, "Return the squares of 1 to {a}.", """\
    return [i * i for i in range(1, {a} + 1)]"""),
    ("times_table", _NUMBERS, "Print the multiples of {a} up to {k} times.", """\
    for i in range(1, {k} + 1):
        print({a}, 'x', i, '=', {a} * i)"""),
    ("grade", _NUMBERS, "Return a letter for {a} points.", """\
    if {a} >= 90:
        return 'A'
    if {a} >= 70:
        return 'B'
    return 'C'"""),
    ("divisors", _NUMBERS, "Return all numbers that divide {a}.", """\
    result = []
    for d in range(1, {a} + 1):
        if {a} % d == 0:
            result.append(d)
    return result"""),
    ("to_binary", _NUMBERS, "Return {a} in binary digits.", """\
    digits = ''
    while {a} > 0:
        digits = str({a} % 2) + digits
        {a} = {a} // 2
    return digits or '0'"""),
    ("collatz", _NUMBERS, "Count the steps from {a} to 1.", """\
    steps = 0
    while {a} != 1:
        {a} = {a} // 2 if {a} % 2 == 0 else 3 * {a} + 1
        steps += 1
    return steps"""),
)  # fmt: skip


@dataclass(frozen=True)
class Snippet:
    """A Python function.

    Args:
        argument: Name of its one argument.
        header: Its first line.
        summary: What it does, as the first line of a docstring.
        body: Its indented lines.
    """

    argument: str
    header: str
    summary: str
    body: str

    @property
    def code(self) -> str:
        """The function without a docstring."""
        return f"{self.header}\n{self.body}"


def snippet(writer: Writer) -> Snippet:
    """Draw a function and the names in it."""
    stem, arguments, summary, body = writer.pick(_FUNCTIONS)
    names = {"a": writer.pick(arguments), "k": writer.number(2, 9)}
    name = writer.pick((stem, stem, f"get_{stem}", f"my_{stem}", f"{stem}_of_{names['a']}"))
    return Snippet(
        argument=str(names["a"]),
        header=f"def {name}({names['a']}):",
        summary=writer.write(summary, **names),
        body=writer.write(body, **names),
    )
