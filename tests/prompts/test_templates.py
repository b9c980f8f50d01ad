"""The templates of the suite: every prompt has one, and a template is on one side of the split."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from blockpilot_rl.prompts import BUILTIN, GROUPS, SPLITS, Prompt, builtin_suite, split_of
from blockpilot_rl.prompts.prompt import Message, is_held_out
from blockpilot_rl.prompts.suite.writer import Writer, load_texts

SIZES = {"english": 2400, "languages": 4000, "multi-turn": 1800, "short": 1000, "long": 600}


@pytest.fixture(scope="module")
def groups() -> dict[str, list[Prompt]]:
    return {name: builtin_suite(size, groups=[name]) for name, size in SIZES.items()}


@pytest.mark.parametrize("name", GROUPS)
def test_all_prompts_of_a_template_are_on_one_side(
    groups: dict[str, list[Prompt]], name: str
) -> None:
    splits = defaultdict(set)
    for prompt in groups[name]:
        assert prompt.template is not None
        splits[prompt.template].add(prompt.split)
    for template, found in splits.items():
        assert found == {"test"} if is_held_out(template) else "test" not in found


def test_all_groups_hold_out_the_same_templates(groups: dict[str, list[Prompt]]) -> None:
    prompts = [prompt for group in groups.values() for prompt in group]
    held_out = {prompt.template for prompt in prompts if prompt.split == "test"}
    seen = {prompt.template for prompt in prompts if prompt.split != "test"}
    assert held_out
    assert not held_out & seen


@pytest.mark.parametrize("name", GROUPS)
def test_every_family_and_language_has_templates_on_both_sides(
    groups: dict[str, list[Prompt]], name: str
) -> None:
    tests = defaultdict(list)
    templates = defaultdict(set)
    for prompt in groups[name]:
        tests[prompt.family, prompt.language].append(prompt.split == "test")
        templates[prompt.family, prompt.language].add(prompt.template)
    for stream, found in tests.items():
        assert 0.05 < sum(found) / len(found) < 0.36, stream
        assert len(templates[stream]) >= 7, stream


def test_prompts_of_other_templates_keep_their_split(groups: dict[str, list[Prompt]]) -> None:
    kept = {split: split for split in SPLITS} | {"test": "train"}
    for prompt in (prompt for group in groups.values() for prompt in group):
        if prompt.split != "test":
            assert prompt.split == kept[split_of(prompt.id)]


def test_prompts_without_a_template_are_split_by_their_id() -> None:
    for suite in (BUILTIN, "custom", "spec-bench", "human-eval"):
        for number in range(50):
            prompt = Prompt(suite, "other", "en", (Message("user", f"Question {number}"),))
            assert prompt.template is None
            assert prompt.split == split_of(prompt.id)


def test_chosen_splits_are_those_of_the_prompts(groups: dict[str, list[Prompt]]) -> None:
    for split in SPLITS:
        chosen = builtin_suite(20, groups=["short"], splits=[split])
        assert chosen == [prompt for prompt in groups["short"] if prompt.split == split][:20]


def test_a_template_is_the_request_and_not_its_words_layout_or_style(
    groups: dict[str, list[Prompt]],
) -> None:
    summaries = [p for p in groups["english"] if p.family == "summarise"]
    assert len({p.template for p in summaries}) == len(load_texts("questions")["summaries"])
    stories = [p for p in groups["english"] if p.family == "story"]
    assert len({p.template for p in stories}) == len(set(load_texts("stories")["requests"]))
    tables = [p for p in groups["english"] if p.text.startswith("Which columns are there?")]
    assert len({p.template for p in tables}) == 1


def test_a_marked_choice_names_the_template_by_its_text_as_written() -> None:
    writer = Writer(np.random.default_rng(0))
    written = defaultdict(set)
    for _ in range(60):
        writer.begin("kind")
        text = writer.write("[please ||][!sort it [up|down]|say {2..9}|stop][ now|]")
        written[writer.template].add(text.removeprefix("please ")[:3])
    assert sorted(written.values(), key=str) == [{"say"}, {"sor"}, {"sto"}]
