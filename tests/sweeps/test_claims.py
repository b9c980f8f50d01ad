from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.sweeps.claims import check_claim, claim, claim_digest

WORK = {"fingerprint": "feed", "prompts": ["a", "b"], "sampling": None}


def digest_of(path, description):
    path.write_text(json.dumps(description), encoding="utf-8")
    return claim_digest(path)


def test_a_digest_depends_on_the_work_and_nothing_else(tmp_path):
    """Neither the order of the keys, nor options that are off."""
    claim(tmp_path / "claim.json", WORK)
    digest = claim_digest(tmp_path / "claim.json")
    assert re.fullmatch("[0-9a-f]{16}", digest)
    path = tmp_path / "other.json"
    assert digest_of(path, dict(reversed(WORK.items()))) == digest
    assert digest_of(path, {"fingerprint": "feed", "prompts": ["a", "b"]}) == digest
    others = ({"prompts": ["b", "a"]}, {"fingerprint": "beef"}, {"sampling": {"top_k": 5}})
    assert len({digest, *(digest_of(path, WORK | change) for change in others)}) == 4


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000])
def test_a_corrupt_claim(tmp_path, text):
    path = tmp_path / "claim.json"
    path.write_text(text, encoding="utf-8")
    for action in (claim_digest, lambda path: claim(path, WORK)):
        with pytest.raises(BlockPilotError, match=r"claim\.json is corrupt .*; remove its folder"):
            action(path)


def test_a_shard_carries_the_digest_of_its_folder():
    check_claim(Path("shard"), "feed", "feed")
    with pytest.raises(BlockPilotError, match="shard was made by other work than the rest"):
        check_claim(Path("shard"), "beef", "feed")
    with pytest.raises(BlockPilotError, match="shard does not say what it was made from"):
        check_claim(Path("shard"), None, "feed")
