"""A claim is a JSON file in a folder of shards that describes the work they belong to.

Each shard carries the digest of the claim. Work with other options cannot resume in the folder, and
shards that were copied from other work are refused.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.files import write_json

CLAIM = "claim"
"""Key of the digest in a shard's metadata."""


def claim(path: Path, description: dict[str, Any]) -> None:
    """Claim a folder of shards, or check that this work has claimed it before.

    Args:
        path: The claim, a JSON file in the folder.
        description: What the shards are made from.

    Raises:
        BlockPilotError: If the folder holds shards of other work.
    """
    if not path.exists():
        write_json(path, description)
        return
    found = read_claim(path)
    differing = [key for key, value in description.items() if found.get(key) != value]
    if differing:
        raise BlockPilotError(
            f"{path.parent} holds unfinished work with other {', '.join(differing)}; give the same "
            "options, remove it, or name another folder"
        )


def claim_digest(path: Path) -> str:
    """Digest of a folder's claim, which its shards carry.

    Keys with the value null, which mean that an option is off, do not count.

    Args:
        path: The claim.

    Raises:
        BlockPilotError: If the claim is missing or corrupt.
    """
    if not path.exists():
        raise BlockPilotError(f"{path} is missing; run the same command again")
    stated = {key: value for key, value in read_claim(path).items() if value is not None}
    return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:16]


def check_claim(shard: Path, found: str | None, digest: str) -> None:
    """Check that a shard belongs to the work that has claimed its folder.

    Args:
        shard: The shard's file.
        found: The digest that it carries, if any.
        digest: The digest of the folder's claim.

    Raises:
        BlockPilotError: If the shard belongs to other work or carries no digest. The caller adds
            how to fix it.
    """
    if found is None:
        raise BlockPilotError(f"{shard} does not say what it was made from")
    if found != digest:
        raise BlockPilotError(
            f"{shard} was made by other work than the rest of its folder: from other models or "
            "prompts, or with another dtype or other options"
        )


def read_claim(path: Path) -> dict[str, Any]:
    """Read what a folder of shards is made from.

    Args:
        path: The claim.

    Raises:
        BlockPilotError: If the claim cannot be read.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it holds no JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise BlockPilotError(
            f"{path} is corrupt ({one_line(error)}); remove its folder and start again"
        ) from error
    return found
