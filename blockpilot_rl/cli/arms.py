"""The flags `--arms` and `--window`."""

from __future__ import annotations

from blockpilot_rl.cli.lists import whole_numbers
from blockpilot_rl.sweeps import selection
from blockpilot_rl.sweeps.table import Sweep


def select_arms(sweep: Sweep, arms: str | None, window: int | None) -> Sweep:
    """Keep the block sizes that the flags name.

    Args:
        sweep: The sweep.
        arms: Value of `--arms`: sizes separated by commas, 1 first; None for all.
        window: Value of `--window`; None for all.

    Raises:
        BlockPilotError: If a value is invalid.
    """
    numbers = None if arms is None else whole_numbers(arms, "--arms")
    return selection.select_arms(sweep, numbers, window)
