"""The prompts of the built-in suite never change: drafters and recordings depend on them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import pytest

from blockpilot_rl.prompts import GROUPS, SPLITS, Prompt, builtin_suite

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


def digest(prompts: Iterable[Prompt]) -> str:
    """Digest of ids, labels and texts in order."""
    hashed = hashlib.sha256()
    for prompt in prompts:
        described = [prompt.id, prompt.suite, prompt.family, prompt.language, prompt.chat()]
        hashed.update(json.dumps(described, ensure_ascii=False).encode())
    return hashed.hexdigest()[:16]


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("split", SPLITS)
def test_every_group_and_split(group: str, split: str) -> None:
    size = 40 if group == "long" else 400
    prompts = builtin_suite(size, groups=[group], splits=[split])
    assert digest(prompts) == PINNED[group, split]


def test_the_prompts_that_drafters_are_trained_and_reported_on() -> None:
    drafter = builtin_suite(2000, splits=["drafter"], groups=FIRST_GROUPS)
    assert digest(drafter) == "4be2e5c7547842d7"
    assert digest(builtin_suite(8000)) == "e46878f945e5d23f"


def test_the_prompts_that_sweeps_are_recorded_on() -> None:
    assert digest(builtin_suite(2000, splits=POLICY_SPLITS)) == "dcab42aa30d2e904"
    mixed = builtin_suite(1000, splits=POLICY_SPLITS, groups=FIRST_GROUPS)
    assert digest(mixed) == "e4a4a8fa86c48ea9"


def test_the_prompts_of_another_seed() -> None:
    assert digest(builtin_suite(500, seed=1, groups=FIRST_GROUPS)) == "b63720707c41bc72"
