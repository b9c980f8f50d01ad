"""The groups of the suite: other languages, chats, short and long prompts, alone and mixed."""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter

import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.prompts import FAMILIES, GROUPS, SPLITS, Prompt, builtin_suite
from blockpilot_rl.prompts.suite.languages import LANGUAGES
from blockpilot_rl.prompts.suite.materials import load_topics
from blockpilot_rl.prompts.suite.writer import load_texts

SIZES = {"english": 400, "languages": 1000, "multi-turn": 600, "short": 600, "long": 200}
LANGUAGE_FAMILIES = ["arithmetic", "question", "story", "summarise"]


@pytest.fixture(scope="module")
def groups() -> dict[str, list[Prompt]]:
    return {name: builtin_suite(size, groups=[name]) for name, size in SIZES.items()}


@pytest.fixture(scope="module")
def mixed() -> list[Prompt]:
    return builtin_suite(1000, groups=list(GROUPS))


def of_family(prompts: list[Prompt], family: str) -> list[Prompt]:
    return [prompt for prompt in prompts if prompt.family == family]


def test_the_default_is_the_english_group() -> None:
    assert builtin_suite(50) == builtin_suite(50, groups=["english"])
    assert list(SIZES) == list(GROUPS)


@pytest.mark.parametrize("name", GROUPS)
def test_prompts_are_distinct_and_labelled(groups: dict[str, list[Prompt]], name: str) -> None:
    prompts = groups[name]
    assert len({p.id for p in prompts}) == SIZES[name]
    streams = [(stream.family, stream.language) for stream in GROUPS[name]]
    counts = Counter((p.family, p.language) for p in prompts)
    assert set(counts) == set(streams)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert {p.suite for p in prompts} == {"builtin"}


@pytest.mark.parametrize("name", GROUPS)
def test_a_smaller_group_is_the_beginning(groups: dict[str, list[Prompt]], name: str) -> None:
    assert builtin_suite(70, groups=[name]) == groups[name][:70]
    other = builtin_suite(70, seed=1, groups=[name])
    assert {p.id for p in other} != {p.id for p in groups[name][:70]}


@pytest.mark.parametrize("name", GROUPS)
def test_every_split_has_its_share(groups: dict[str, list[Prompt]], name: str) -> None:
    shares = Counter(p.split for p in groups[name])
    expected = dict(zip(SPLITS, (0.4, 0.36, 0.04, 0.2), strict=True))
    for split, share in expected.items():
        assert shares[split] / SIZES[name] == pytest.approx(share, abs=0.09)
    stream = GROUPS[name][-1]
    chosen = {"groups": [name], "families": [stream.family], "languages": [stream.language]}
    some = [p for p in builtin_suite(60, **chosen) if p.split == "test"]
    assert some == builtin_suite(len(some), **chosen, splits=["test"])


def test_groups_mix_in_equal_parts(groups: dict[str, list[Prompt]], mixed: list[Prompt]) -> None:
    assert len({p.id for p in mixed}) == 1000
    for place, name in enumerate(GROUPS):
        own = mixed[place :: len(GROUPS)]
        assert own == groups[name][: len(own)]
    assert builtin_suite(333, groups=list(GROUPS)) == mixed[:333]
    assert builtin_suite(60, groups=["long", "short"])[::2] == groups["long"][:30]


def test_choice_of_languages_and_families(groups: dict[str, list[Prompt]]) -> None:
    german = builtin_suite(80, groups=["languages"], languages=["de"])
    assert german == [p for p in groups["languages"] if p.language == "de"][:80]
    stories = builtin_suite(40, groups=["english", "languages"], families=["story"])
    assert stories[::2] == of_family(groups["english"], "story")[:20]
    assert stories[1::2] == of_family(groups["languages"], "story")[:20]


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(BlockPilotError, match=r"unknown group 'longs'\. Did you mean 'long'\?"):
        builtin_suite(5, groups=["longs"])
    with pytest.raises(BlockPilotError, match=r"unknown language 'nl'\. Known are de, fr, es"):
        builtin_suite(5, groups=["languages"], languages=["nl"])
    with pytest.raises(BlockPilotError, match="unknown family 'code'"):
        builtin_suite(5, groups=["languages"], families=["code"])
    with pytest.raises(BlockPilotError, match="group 'languages' has none of the chosen families"):
        builtin_suite(5, groups=["english", "languages"], families=["code"])
    with pytest.raises(BlockPilotError, match="no group chosen"):
        builtin_suite(5, groups=[])


def test_no_template_marks_are_left(mixed: list[Prompt]) -> None:
    marks = re.compile(r"\[[^\]\n]*\w\|\w[^\]\n]*\]|\{\d+\.\.\d+\}|\{[a-z]+\d?\}|\|\]")
    texts = [m.content for p in mixed for m in p.messages if "def " not in m.content]
    assert not [text for text in texts if marks.search(text)]
    new = [p for p in mixed if p.family not in FAMILIES or p.language != "en"]
    prose = [m.content for p in new if p.family != "chat-code" for m in p.messages]
    odd = re.compile(r"[^\s|]  \S| [,.]\s|\?\.|\.\.|,,")
    assert not [text for text in prose if odd.search(text)]


def test_languages_have_the_same_families(groups: dict[str, list[Prompt]]) -> None:
    counts = Counter((p.language, p.family) for p in groups["languages"])
    assert counts == {
        (code, family): 50
        for code in ("de", "fr", "es", "it", "pt")
        for family in LANGUAGE_FAMILIES
    }


# Errors of careless templates: missing elisions, contractions and signs.
MISTAKES = {
    "de": r"\b1 (Euro|Kilometer|Stunden)\b|\bin der \w+, (das|der) spielt",
    "fr": r"\b([Dd]e|[Ll]e|[Ll]a|[Qq]ue|ne|se|[Jj]e) [aeiouéèêâî]|\w[?!;]|\b(de|à) les?\b",
    "es": r"\b(de|a) el\b|\by i\w|\bo o\w|^[^¿]*\?",
    "it": r"\b(il|la|del|dal|una) [aeiou]|\bdel (8|11)\b|\b(di|a|da|in|su) (il|la|i|gli|le|l')\b",
    "pt": r"\b(de|em|por) (o|a|os|as)\b",
}


@pytest.mark.parametrize("code", MISTAKES)
def test_articles_and_prepositions(groups: dict[str, list[Prompt]], code: str) -> None:
    texts = [p.text for p in groups["languages"] if p.language == code]
    found = [match[0] for text in texts for match in re.finditer(MISTAKES[code], text)]
    assert not found


@pytest.mark.parametrize("language", LANGUAGES)
def test_topics_of_languages(language: str) -> None:
    """Passages state their facts, so that each of their questions has an answer."""
    for topic in load_topics(language):
        text = " ".join(line.text for line in topic.lines)
        for fact in topic.facts:
            assert f"{{{fact}}}" in text, (topic.kind, fact)
        assert all(line.questions for line in topic.lines)


def test_languages_have_the_same_texts() -> None:
    keys = [load_texts(f"languages/{language}").keys() for language in LANGUAGES]
    assert all(found == keys[0] for found in keys)


def test_chats_have_two_or_three_turns(groups: dict[str, list[Prompt]]) -> None:
    for family in {stream.family for stream in GROUPS["multi-turn"]}:
        lengths = Counter(len(p.messages) for p in of_family(groups["multi-turn"], family))
        assert set(lengths) == {3, 5}
        assert min(lengths.values()) > 15
    for prompt in groups["multi-turn"]:
        roles = [message.role for message in prompt.messages]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]


def test_sums_of_the_assistant_are_right(groups: dict[str, list[Prompt]]) -> None:
    apply = {"+": operator.add, "-": operator.sub, "x": operator.mul}
    checked = 0
    for prompt in of_family(groups["multi-turn"], "chat-arithmetic"):
        for message in prompt.messages[1::2]:
            for a, sign, b, c in re.findall(r"(\d+) ([-+x]) (\d+) = (\d+)", message.content):
                assert apply[sign](int(a), int(b)) == int(c), message.content
                checked += 1
    assert checked > 70


def test_lists_of_the_assistant_are_edited_as_asked(groups: dict[str, list[Prompt]]) -> None:
    edits = Counter[str]()
    for prompt in of_family(groups["multi-turn"], "chat-list"):
        if len(prompt.messages) < 5:
            continue
        before, after = (
            prompt.messages[i].content.removeprefix("- ").split("\n- ") for i in (1, 3)
        )
        request = prompt.messages[2].content
        assert set(before) <= set(re.split(r" with |, | and ", prompt.messages[0].content[:-1]))
        if found := re.fullmatch(r"Add (.+)\.|Please add (.+) at the end\.", request):
            if "first item" not in request:
                assert after == [*before, found[1] or found[2]]
                edits["add"] += 1
        elif found := re.fullmatch(r"Remove (.+)\.|Take (.+) off the list\.", request):
            assert after == [item for item in before if item != (found[1] or found[2])]
            edits["remove"] += 1
        elif "alphabetical" in request:
            assert after == sorted(before, key=str.casefold)
            edits["sort"] += 1
        elif "reverse" in request.lower():
            assert after == before[::-1]
            edits["reverse"] += 1
    assert min(edits[kind] for kind in ("add", "remove", "sort", "reverse")) > 1


def test_code_of_the_assistant_is_python(groups: dict[str, list[Prompt]]) -> None:
    for prompt in of_family(groups["multi-turn"], "chat-code"):
        for message in prompt.messages[1::2]:
            code = message.content.removeprefix("```python\n").removesuffix("\n```")
            assert isinstance(ast.parse(code).body[0], ast.FunctionDef)


def test_corrections_of_the_assistant_hold_the_new_fact(groups: dict[str, list[Prompt]]) -> None:
    for prompt in of_family(groups["multi-turn"], "chat-correct"):
        if len(prompt.messages) < 5:
            continue
        before, request, after = (message.content for message in prompt.messages[1:4])
        quoted = re.findall(r"'(.+?)'(?=[ ,.;])", request)
        assert after != before
        assert any(after.count(value) > before.count(value) for value in quoted), request


def test_answers_of_the_assistant_quote_the_text(groups: dict[str, list[Prompt]]) -> None:
    for prompt in of_family(groups["multi-turn"], "chat-question"):
        for message in prompt.messages[1::2]:
            answer = message.content.removeprefix('The text says: "').removesuffix('"')
            assert answer in prompt.messages[0].content


def test_short_prompts_are_one_line(groups: dict[str, list[Prompt]]) -> None:
    texts = [p.text for p in groups["short"]]
    assert all(re.fullmatch(r"[a-z0-9].*\w", text) for text in texts)
    assert max(len(text.split()) for text in texts) <= 14
    assert sum(len(text.split()) == 1 for text in texts) > 10


def test_long_prompts_are_long_and_end_with_a_task(groups: dict[str, list[Prompt]]) -> None:
    for prompt in groups["long"]:
        assert 190 <= len(prompt.text.split()) <= 660
        *texts, task = prompt.text.split("\n\n")
        assert len(texts) >= 3
        assert len(task.split()) <= 80
        numbers = [int(number) for number in re.findall(r"text (\d+)", task)]
        assert all(re.search(rf"(Text |\[){number}\b", prompt.text) for number in numbers)
