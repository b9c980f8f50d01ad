"""The prompts of the built-in suite never change: drafters and recordings depend on them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import pytest

from blockpilot_rl.prompts import GROUPS, SPLITS, Prompt, builtin_suite, split_of

FIRST_GROUPS = ("english", "languages", "multi-turn", "short", "long")
"""The groups that the bundled drafter and sweep are made with."""

POLICY_SPLITS = ("train", "validation", "test")
PINNED = {
    ("english", "drafter"): "6039baeae0b25312",
    ("english", "train"): "1e713d70a778cb5f",
    ("english", "validation"): "b301e08c688b0362",
    ("english", "test"): "85e33e1d66151e0e",
    ("languages", "drafter"): "2d74ec57c2d65f37",
    ("languages", "train"): "17fddf70a48f9b3f",
    ("languages", "validation"): "6a9feca3aef40978",
    ("languages", "test"): "a70a58e63e493863",
    ("multi-turn", "drafter"): "c82e29f0a5015a1b",
    ("multi-turn", "train"): "1b5e5787fa065451",
    ("multi-turn", "validation"): "0ad470baedb41071",
    ("multi-turn", "test"): "d3aebce09bc894c6",
    ("short", "drafter"): "39adfff7e63fe135",
    ("short", "train"): "c43845a0d167cae6",
    ("short", "validation"): "6bc826de898605e4",
    ("short", "test"): "1c8afc0579b1a341",
    ("long", "drafter"): "6740a3ec543e4b8d",
    ("long", "train"): "a86d4e96eef0cac8",
    ("long", "validation"): "5e800ee8fe6755eb",
    ("long", "test"): "cb545fcfe7f6c656",
}
TEMPLATES = {
    "english": "e94595442f8bc26c",
    "languages": "e7d82788d3a74249",
    "multi-turn": "06627ca0ebe240b3",
    "short": "3de45f49c1a6a09f",
    "long": "21fcc1c3e329360e",
}


def digest(prompts: Iterable[Prompt]) -> str:
    """Digest of ids, labels and texts in order."""
    hashed = hashlib.sha256()
    for prompt in prompts:
        described = [prompt.id, prompt.suite, prompt.family, prompt.language, prompt.chat()]
        hashed.update(json.dumps(described, ensure_ascii=False).encode())
    return hashed.hexdigest()[:16]


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("split", SPLITS)
def test_every_group_and_share_of_ids(
    group: str, split: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts and ids stay, and so does the share that an id alone falls into."""
    monkeypatch.setattr(Prompt, "split", property(lambda prompt: split_of(prompt.id)))
    size = 40 if group == "long" else 400
    prompts = builtin_suite(size, groups=[group], splits=[split])
    assert digest(prompts) == PINNED[group, split]


def test_the_prompts_that_reports_are_made_on() -> None:
    assert digest(builtin_suite(8000)) == "e46878f945e5d23f"


@pytest.mark.parametrize("group", GROUPS)
def test_the_templates_of_every_group(group: str) -> None:
    prompts = builtin_suite(40 if group == "long" else 400, groups=[group])
    templates = "".join(str(prompt.template) for prompt in prompts)
    assert hashlib.sha256(templates.encode()).hexdigest()[:16] == TEMPLATES[group]


def test_the_prompts_that_drafters_are_trained_on() -> None:
    drafter = builtin_suite(2000, splits=["drafter"], groups=FIRST_GROUPS)
    assert digest(drafter) == "abcd5ab860c7877b"


def test_the_prompts_that_sweeps_are_recorded_on() -> None:
    assert digest(builtin_suite(2000, splits=POLICY_SPLITS)) == "a9699e266cf1afe1"
    mixed = builtin_suite(1000, splits=POLICY_SPLITS, groups=FIRST_GROUPS)
    assert digest(mixed) == "201b912d7ec91f9a"


def test_the_prompts_of_another_seed() -> None:
    assert digest(builtin_suite(500, seed=1, groups=FIRST_GROUPS)) == "b63720707c41bc72"
