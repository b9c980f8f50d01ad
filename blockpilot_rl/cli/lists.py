"""Names of 0.1, until every command has moved to `flags`."""

from __future__ import annotations

from blockpilot_rl.cli.flags import assignments, part_of, whole_numbers, words

__all__ = ["assignments", "part_of", "whole_numbers", "words"]
