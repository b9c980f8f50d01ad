"""Prompts: the built-in suite is varied and reproducible, and splits are fixed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections import Counter

import numpy as np
import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.prompts import (
    FAMILIES,
    GROUPS,
    SPLITS,
    Message,
    Prompt,
    builtin_suite,
    split_of,
)
from blockpilot_rl.prompts.prompt import Split
from blockpilot_rl.prompts.suite.materials import Topic, load_topics, passage
from blockpilot_rl.prompts.suite.writer import Writer


@pytest.fixture(scope="module")
def all_prompts() -> list[Prompt]:
    return builtin_suite(12000)


@pytest.fixture(scope="module")
def suite(all_prompts: list[Prompt]) -> list[Prompt]:
    return all_prompts[:8000]


def digest(prompts: list[Prompt]) -> str:
    rows = [[p.id, p.suite, p.family, p.language, split_of(p.id), p.chat()] for p in prompts]
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return hashlib.sha256(lines.encode()).hexdigest()


def test_suite_never_changes(all_prompts: list[Prompt]) -> None:
    """Drafters were trained on a part of it, and sweeps name its prompts by their ids."""
    assert digest(all_prompts) == (
        "6fc0d0a7d09b6b2ed77ecb8d53872e44a81d9125047367bac46f0664d79534a4"
    )


@pytest.mark.slow
def test_training_prompts_never_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Prompt, "split", property(lambda prompt: split_of(prompt.id)))
    assert digest(builtin_suite(12000, splits=["drafter"])) == (
        "38f14b252a9545015831e14477613f106ab476bad93c81328d0806f737885dbe"
    )


def test_suite_is_deterministic(suite: list[Prompt]) -> None:
    np.random.seed(7)  # noqa: NPY002 - global state must not matter
    assert builtin_suite(2000) == suite[:2000]
    assert builtin_suite(200, seed=1) == builtin_suite(200, seed=1)
    assert {p.id for p in builtin_suite(200, seed=1)} != {p.id for p in suite[:200]}


def test_suite_has_unique_prompts_and_even_families(suite: list[Prompt]) -> None:
    assert len(suite) == 8000
    assert len({p.id for p in suite}) == len({p.text for p in suite}) == 8000
    assert {p.suite for p in suite} == {"builtin"}
    assert {p.language for p in suite} == {"en"}
    assert Counter(p.family for p in suite) == dict.fromkeys(FAMILIES, 1000)
    assert [p.family for p in suite[: len(FAMILIES)]] == list(FAMILIES)


def test_smaller_suite_is_the_beginning_of_a_larger_one(suite: list[Prompt]) -> None:
    assert builtin_suite(100) == suite[:100]
    assert builtin_suite(0) == []


def test_choice_of_families_and_splits_does_not_change_prompts(suite: list[Prompt]) -> None:
    some = builtin_suite(60, families=["code", "copy"])
    assert some == [p for p in suite if p.family in ("code", "copy")][:60]
    test = builtin_suite(80, families=["story"], splits=["test"])
    assert test == [p for p in suite if p.family == "story" and p.split == "test"][:80]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_many_prompts(family: str) -> None:
    assert len({p.id for p in builtin_suite(1500, seed=3, families=[family])}) == 1500


def test_exhausted_family_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    story = GROUPS["english"][FAMILIES.index("story")]
    few = dataclasses.replace(story, write=lambda writer: writer.write("Tell {2..4} stories."))
    monkeypatch.setattr("blockpilot_rl.prompts.suite.GROUPS", {"english": (few,)})
    assert {p.text for p in builtin_suite(3, families=["story"])} == {
        f"Tell {n} stories." for n in (2, 3, 4)
    }
    with pytest.raises(BlockPilotError, match="'story' has only 3 different prompts"):
        builtin_suite(4, families=["story"])


@pytest.mark.parametrize("size", [1_000_001, 999_999_999, 10**30])
def test_a_suite_that_is_too_large_is_refused_at_once(size: int) -> None:
    with pytest.raises(BlockPilotError, match=f"is {size}; give 0 to 1000000"):
        builtin_suite(size)


@pytest.mark.parametrize("groups", [["english"], ["short", "long"], list(GROUPS)])
def test_progress_is_reported_from_the_first_prompt(groups: list[str]) -> None:
    reports: list[tuple[str, int, int | None]] = []
    builtin_suite(150, groups=groups, progress=lambda *report: reports.append(report))
    assert reports == [("prompts", done, 150) for done in (0, 100, 150)]


def test_no_template_marks_are_left(suite: list[Prompt]) -> None:
    marks = re.compile(r"\[[^\]\n]*\w\|\w[^\]\n]*\]|\{\d+\.\.\d+\}|\{(first|town|kind|a|k)\}")
    assert not [p.text for p in suite if marks.search(p.text)]
    prose = [p.text for p in suite if p.family in ("arithmetic", "question", "story", "summarise")]
    odd = re.compile(r"\S  \S| [,;]|\?\.|\b[Aa] [aio]\w(?!e)|\b[Aa]n [b-df-gj-np-tv-z]")
    assert not [text for text in prose if odd.search(text)]


def test_prompts_fit_small_models(suite: list[Prompt]) -> None:
    words = [len(p.text.split()) for p in suite]
    assert min(words) >= 3
    assert max(words) <= 180
    assert max(len(p.text) for p in suite) <= 1200


def test_near_duplicates_are_rare(suite: list[Prompt]) -> None:
    """Texts that differ in numbers only count as the same, so sums are left out."""
    worded = [p.text for p in suite if p.family != "arithmetic"]
    masked = {re.sub(r"\d+", "#", text.lower()) for text in worded}
    assert len(masked) / len(worded) > 0.95


def test_split_shares(suite: list[Prompt]) -> None:
    shares = Counter(p.split for p in suite)
    expected: dict[Split, float] = {"drafter": 0.4, "train": 0.36, "validation": 0.04, "test": 0.2}
    assert tuple(expected) == SPLITS
    for split, share in expected.items():
        assert shares[split] / len(suite) == pytest.approx(share, abs=0.025)
    for family in FAMILIES:
        assert {p.split for p in suite if p.family == family} == set(SPLITS)


def test_split_depends_on_the_prompt_alone(suite: list[Prompt]) -> None:
    original = suite[3]
    renamed = Prompt.from_text(original.text, suite="mine", family="story", language="de")
    other = Prompt.from_text(original.text, suite="spec-bench", family="other", language="en")
    assert other.id == renamed.id == original.id
    assert other.split == renamed.split == split_of(original.id)
    assert split_of("5cb3b36b3cbb6e1a") in SPLITS


def test_id_is_the_hash_of_canonical_json() -> None:
    prompt = Prompt.from_text("Grüße, world")
    canonical = '[{"content":"Grüße, world","role":"user"}]'
    assert prompt.id == hashlib.sha256(canonical.encode("utf-8")).hexdigest()[:16]
    assert prompt.chat() == [{"role": "user", "content": "Grüße, world"}]
    assert prompt == Prompt.from_text("Grüße, world")
    assert len({prompt, Prompt.from_text("Grüße, world")}) == 1


def test_conversations() -> None:
    turns = (
        Message("system", "Be brief."),
        Message("user", "Hi"),
        Message("assistant", "Hello."),
        Message("user", "Count to three."),
    )
    prompt = Prompt("custom", "other", "en", turns)
    assert prompt.text == "Count to three."
    assert prompt.id != Prompt.from_text("Count to three.").id
    with pytest.raises(BlockPilotError, match="last message must be the user's"):
        Prompt("custom", "other", "en", turns[:3])
    with pytest.raises(BlockPilotError, match=r"last message"):
        Prompt("custom", "other", "en", ())
    with pytest.raises(BlockPilotError, match=r"unknown role 'sistem'\. Did you mean 'system'\?"):
        Prompt("custom", "other", "en", (Message("sistem", "Be brief."), *turns[1:]))


@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_empty_prompt_is_refused(text: str) -> None:
    with pytest.raises(BlockPilotError, match="empty"):
        Prompt.from_text(text)


def test_unknown_names_are_refused_with_a_hint() -> None:
    with pytest.raises(BlockPilotError, match=r"unknown family 'storys'\. Did you mean 'story'\?"):
        builtin_suite(10, families=["storys"])
    with pytest.raises(BlockPilotError, match=r"unknown family 'zzz'\. Known are arithmetic, code"):
        builtin_suite(10, families=["zzz"])
    with pytest.raises(BlockPilotError, match=r"unknown split 'tests'\. Did you mean 'test'\?"):
        builtin_suite(10, splits=["tests"])
    with pytest.raises(BlockPilotError, match="no family chosen"):
        builtin_suite(10, families=[])
    with pytest.raises(BlockPilotError, match="suite is -1; give 0 to 1000000"):
        builtin_suite(-1)
    with pytest.raises(BlockPilotError, match="seed of the built-in suite is -3"):
        builtin_suite(0, seed=-3)


@pytest.mark.parametrize("topic", load_topics(), ids=lambda topic: topic.kind)
def test_topics_write_whole_passages(topic: Topic) -> None:
    writer = Writer(np.random.default_rng(0))
    for _ in range(40):
        written = passage(writer, topics=[topic])
        assert 30 <= len(written.text.split()) <= 120
        assert len(written.facts) >= 2
        assert len(written.questions) >= 2
        assert all(sentence[-1] in ".?!" for sentence in written.sentences)
        assert not re.search(r"[\[\]{}|]|  | [.,;?]", written.text), written.text
        fact = writer.pick(list(written.facts))
        assert written.another(writer, fact) != written.facts[fact]
