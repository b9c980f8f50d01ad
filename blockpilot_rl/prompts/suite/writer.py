"""The writer of the built-in suite: texts from data files, filled in by a random generator."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml

T = TypeVar("T")

_CHOICE = re.compile(r"(\b[Aa] )?\[([^\[\]]*\|[^\[\]]*)\]")
_SLOT = re.compile(r"(\b[Aa] )?\{(\w+|\d+\.\.\d+)\}")
_VOWEL = re.compile(r"(?!one|eu|use|usu|uni)[aeiou]|8|1[18]\b", re.IGNORECASE)


_MARK = "!"
_DATA = Path(__file__).parents[1] / "data"
# The loader written in C is ten times as fast, but some builds of PyYAML lack it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.cache
def load_texts(name: str) -> dict[str, Any]:
    """Load one data file of the suite.

    Args:
        name: Its name in `blockpilot_rl/prompts/data`, without the suffix.
    """
    content = (_DATA / f"{name}.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.load(content, Loader=_LOADER)
    return loaded


def texts(name: str, key: str) -> list[Any]:
    """Return one list of a data file, such as the word problems of `arithmetic`."""
    found: list[Any] = load_texts(name)[key]
    return found


@dataclass(frozen=True)
class Grammar:
    """The grammar and the words of a language.

    Attributes:
        lexicon: The words, or templates of words, that fill each slot.
        requests: Phrasings of a request. `{lower}` stands for the imperative, `{upper}` for the
            imperative with a capital.
        quoting_requests: Phrasings for an imperative that ends with a quoted text.
        articles: Whether the article "a" before a mark becomes "an" where needed.
    """

    lexicon: Mapping[str, Sequence[str]]
    requests: Sequence[str]
    quoting_requests: Sequence[str]
    articles: bool


@functools.cache
def load_grammar(language: str) -> Grammar:
    """Load the grammar of a language, by its ISO 639-1 code."""
    loaded = load_texts(f"languages/{language}")
    return Grammar(
        loaded["lexicon"], loaded["requests"], loaded["quoting_requests"], language == "en"
    )


@functools.cache
def _template_options(text: str) -> tuple[str, ...]:
    """The options, as they are written, of the choice `[!a|b]` in a text; () if it has none."""
    _, found, rest = text.partition(f"[{_MARK}")
    options, depth = [""], 0
    for character in rest if found else "]":
        if character == "]" and depth == 0:
            break
        depth += (character == "[") - (character == "]")
        if character == "|" and depth == 0:
            options.append("")
        else:
            options[-1] += character
    return tuple(options) if found else ()


class Writer:
    """Draws words, numbers and whole texts from one random generator.

    Templates have two kinds of marks. `[a|b|c]` becomes one of its alternatives, which may be empty
    or hold further alternatives. `{slot}` becomes a bound value or a word of the lexicon, and
    `{2..9}` a number in that range, ends included. In English the article "a" before either mark
    agrees with what follows.

    A writer notes which request it draws: `template` names it, without the words filled in and
    without phrasing, layout and style. `begin` and `pick_request` note requests, and so does a
    choice whose first character is an exclamation mark, `[!a|b]`.

    Args:
        rng: The generator of all choices. Writers with equal generators write the same.
        language: ISO 639-1 code of the language to write in.
    """

    def __init__(self, rng: np.random.Generator, language: str = "en") -> None:
        self.language = language
        self._rng = rng
        self._grammar = load_grammar(language)
        self._noted: tuple[str, ...] = ()

    @property
    def template(self) -> str:
        """Id of the template of the last prompt: 16 hexadecimal digits."""
        noted = json.dumps(self._noted, ensure_ascii=False)
        return hashlib.sha256(noted.encode()).hexdigest()[:16]

    def begin(self, *request: str) -> None:
        """Note what a new prompt asks for, in place of all noted before.

        Args:
            request: Name of the kind of request, and the text that identifies it within its
                kind.
        """
        self._noted = request

    def pick_request(self, kind: str, options: Sequence[str]) -> str:
        """Draw one of several requests of a kind, and note it as the prompt's template."""
        drawn = self.pick(options)
        self.begin(kind, drawn)
        return drawn

    def pick(self, options: Sequence[T]) -> T:
        """Draw one of the options."""
        return options[int(self._rng.integers(len(options)))]

    def some(self, options: Sequence[T], count: int) -> list[T]:
        """Draw `count` different options in random order, or all where there are fewer."""
        return [options[i] for i in self._rng.permutation(len(options))[:count]]

    def several(self, slot: str, count: int) -> list[str]:
        """Draw `count` different words of one slot of the lexicon."""
        return self.some(self._grammar.lexicon[slot], count)

    def pair(self, slot: str) -> tuple[str, str]:
        """Draw two different words of one slot of the lexicon."""
        first, second = self.several(slot, 2)
        return first, second

    def number(self, low: int, high: int) -> int:
        """Draw a whole number from `low` to `high`, both included."""
        return int(self._rng.integers(low, high + 1))

    def chance(self, probability: float) -> bool:
        """Be true with the given probability."""
        return bool(self._rng.random() < probability)

    def write(self, template: str, **bound: object) -> str:
        """Fill in a template.

        Args:
            template: Text with `[a|b]` alternatives and `{slot}` slots.
            bound: Values for slots; they are inserted as they are and win over the lexicon.

        Returns:
            The text, with nothing left to fill in.
        """
        requests = _template_options(template)
        while choice := _CHOICE.search(template):
            options = choice[2].removeprefix(_MARK).split("|")
            drawn = int(self._rng.integers(len(options)))
            if choice[2].startswith(_MARK):
                self.begin(*self._noted, requests[drawn])
            option = self._after(choice[1], options[drawn])
            template = template[: choice.start()] + option + template[choice.end() :]
        return _SLOT.sub(lambda slot: self._after(slot[1], self._word(slot[2], bound)), template)

    def ask(self, request: str, **bound: object) -> str:
        """Phrase an imperative ("write a poem") as one of several kinds of request.

        Args:
            request: Template that starts with a verb in lower case. It ends without a stop, unless
                it ends with a quoted sentence; after a colon nothing is added but the stop.
            bound: Values for its slots.

        Returns:
            One sentence with its punctuation.
        """
        lower = " ".join(self.write(request, **bound).split())
        ended = lower[-1] in ".?!"
        grammar = self._grammar
        form = self.pick(grammar.quoting_requests if ended or ": " in lower else grammar.requests)
        asked = form.format(lower=lower, upper=sentence(lower))
        return asked if asked[-1] in ".?!" else f"{asked}."

    def about(self, request: str, text: str, label: str = "") -> str:
        """Join an instruction and the text it is about, in one of several layouts.

        Args:
            request: The instruction, a finished sentence.
            text: The material.
            label: Name of the material, which some layouts show; None for layouts without it.

        Returns:
            The prompt.
        """
        layouts = [f"{request}\n\n{text}", f"{text}\n\n{request}", f"{request}\n{text}"]
        if label:
            layouts += [
                f"{request}\n\n{label}:\n{text}",
                f"{request}\n\n{label}: {text}",
                f"{label}:\n{text}\n\n{request}",
                f'{request}\n\n"""\n{text}\n"""',
            ]
        return self.pick(layouts)

    def _word(self, slot: str, bound: dict[str, object]) -> str:
        if slot in bound:
            return str(bound[slot])
        if ".." in slot:
            low, high = slot.split("..")
            return str(self.number(int(low), int(high)))
        return self.write(self.pick(self._grammar.lexicon[slot]), **bound)

    def _after(self, article: str | None, word: str) -> str:
        if article and self._grammar.articles and _VOWEL.match(word):
            article = f"{article[0]}n "
        return (article or "") + word


def sentence(text: str) -> str:
    """Start a text with a capital, leaving the rest as it is."""
    return text[:1].upper() + text[1:]
