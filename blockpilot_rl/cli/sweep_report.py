"""What `collect-sweep` says about the sweep that it has recorded."""

from __future__ import annotations

from pathlib import Path

from blockpilot_rl.decoding.acceptance import acceptance_warnings
from blockpilot_rl.sweeps.table import Sweep


def describe(table: Sweep, out: Path) -> list[str]:
    """Say what was recorded, what was left out, and what looks wrong, a line each.

    Args:
        table: The sweep.
        out: Its folder.
    """
    lines = [f"{len(table)} rows recorded in {out}"]
    if left_out := table.metadata.provenance["ended_with_first_token"]:
        lines.append(
            f"{len(left_out)} texts ended with their first token and have nothing to time; "
            "the ids of their prompts are in metadata.json"
        )
    if skipped := table.metadata.provenance["skipped_prompts"]:
        lines.append(f"{len(skipped)} bad prompts were skipped; they are in metadata.json too")
    measured = table.metadata.provenance.get("measured", {"other_texts": 0})
    if measured["other_texts"]:
        lines.append(
            f"{measured['other_texts']} of {measured['decodes']} real decodes came to another text "
            "than the recorded one, since numbers round differently; they have no measured seconds"
        )
    return lines + [f"warning: {line}" for line in _warnings(table)]


def _warnings(table: Sweep) -> list[str]:
    """What looks wrong over all rows, at the drafter's own block size if it is an arm."""
    size = table.metadata.default_block_size
    arm = table.arms.index(size) if size in table.arms else len(table.arms) - 1
    looping = table.rows["repetitive"].to_numpy()
    return acceptance_warnings(table.emitted, table.passes[:, arm], looping, table.arms[arm])
