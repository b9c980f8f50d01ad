"""Small Python functions with varying names, as material for editing, testing and explaining."""

from __future__ import annotations

from dataclasses import dataclass

from blockpilot_rl.sweeps.suite.writer import Writer


@dataclass(frozen=True)
class Snippet:
    """A function: its name, its argument and its source."""

    name: str
    argument: str
    code: str


_LISTS = ("values", "numbers", "items", "data", "scores", "prices", "records", "readings")
_TEXTS = ("text", "word", "line", "message", "name", "title", "phrase")
_NUMBERS = ("n", "count", "number", "limit", "size", "total")

# Name, kind of argument, body; `{a}` is the argument and `{k}` a small number.
_FUNCTIONS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("total", _LISTS, "    result = 0\n    for x in {a}:\n        result += x\n    return result"),
    ("largest", _LISTS, "    best = {a}[0]\n    for x in {a}:\n        if x > best:\n"
     "            best = x\n    return best"),
    ("smallest", _LISTS, "    low = {a}[0]\n    for x in {a}[1:]:\n        low = min(low, x)\n"
     "    return low"),
    ("average", _LISTS, "    if not {a}:\n        return 0\n    return sum({a}) / len({a})"),
    ("evens", _LISTS, "    return [x for x in {a} if x % 2 == 0]"),
    ("multiples", _LISTS, "    result = []\n    for x in {a}:\n        if x % {k} == 0:\n"
     "            result.append(x)\n    return result"),
    ("above", _LISTS, "    return [x for x in {a} if x > {k}]"),
    ("unique", _LISTS, "    seen = set()\n    result = []\n    for x in {a}:\n"
     "        if x not in seen:\n            seen.add(x)\n            result.append(x)\n"
     "    return result"),
    ("count_values", _LISTS, "    counts = dict()\n    for x in {a}:\n"
     "        counts[x] = counts.get(x, 0) + 1\n    return counts"),
    ("chunks", _LISTS, "    return [{a}[i:i + {k}] for i in range(0, len({a}), {k})]"),
    ("rotate", _LISTS, "    k = {k} % len({a})\n    return {a}[k:] + {a}[:k]"),
    ("scale", _LISTS, "    return [x * {k} for x in {a}]"),
    ("is_sorted", _LISTS, "    for i in range(len({a}) - 1):\n        if {a}[i] > {a}[i + 1]:\n"
     "            return False\n    return True"),
    ("running_sum", _LISTS, "    result = []\n    total = 0\n    for x in {a}:\n"
     "        total += x\n        result.append(total)\n    return result"),
    ("reverse", _TEXTS, "    result = ''\n    for letter in {a}:\n"
     "        result = letter + result\n    return result"),
    ("is_palindrome", _TEXTS, "    clean = {a}.lower().replace(' ', '')\n"
     "    return clean == clean[::-1]"),
    ("count_vowels", _TEXTS, "    total = 0\n    for letter in {a}.lower():\n"
     "        if letter in 'aeiou':\n            total += 1\n    return total"),
    ("initials", _TEXTS, "    return ''.join(part[0].upper() for part in {a}.split())"),
    ("shorten", _TEXTS, "    if len({a}) <= {k}:\n        return {a}\n    return {a}[:{k}] + '...'"),
    ("word_lengths", _TEXTS, "    return [len(w) for w in {a}.split()]"),
    ("repeat", _TEXTS, "    return ' '.join([{a}] * {k})"),
    ("longest_word", _TEXTS, "    words = {a}.split()\n    return max(words, key=len)"),
    ("factorial", _NUMBERS, "    result = 1\n    for i in range(2, {a} + 1):\n"
     "        result *= i\n    return result"),
    ("is_prime", _NUMBERS, "    if {a} < 2:\n        return False\n"
     "    for d in range(2, int({a} ** 0.5) + 1):\n        if {a} % d == 0:\n"
     "            return False\n    return True"),
    ("digit_sum", _NUMBERS, "    return sum(int(d) for d in str({a}))"),
    ("fibonacci", _NUMBERS, "    a, b = 0, 1\n    for _ in range({a}):\n        a, b = b, a + b\n"
     "    return a"),
    ("countdown", _NUMBERS, "    while {a} > 0:\n        print({a})\n        {a} -= {k}"),
    ("squares", _NUMBERS, "    return [i * i for i in range(1, {a} + 1)]"),
    ("table", _NUMBERS, "    for i in range(1, {k} + 1):\n        print({a}, 'x', i, '=', {a} * i)"),
    ("grade", _NUMBERS, "    if {a} >= 90:\n        return 'A'\n    if {a} >= 70:\n"
     "        return 'B'\n    return 'C'"),
)  # fmt: skip


def snippet(writer: Writer) -> Snippet:
    """Draw a function and the names in it."""
    stem, arguments, body = writer.pick(_FUNCTIONS)
    argument = writer.pick(arguments)
    name = writer.pick((stem, stem, f"get_{stem}", f"my_{stem}", f"{stem}_of_{argument}"))
    code = writer.write(f"def {{name}}({{a}}):\n{body}", name=name, a=argument, k=writer.number(2, 9))
    return Snippet(name, argument, code)
