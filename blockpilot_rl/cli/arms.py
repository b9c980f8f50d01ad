"""The block sizes to choose from, as the flags `--arms` and `--window` name them."""

from __future__ import annotations

from blockpilot_rl.cli.lists import whole_numbers
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.experiments.paper_table import window_arms
from blockpilot_rl.sweeps.table import Sweep


def select_arms(sweep: Sweep, arms: str | None, window: int | None) -> Sweep:
    """Keep the block sizes that were asked for.

    Args:
        sweep: A sweep.
        arms: Value of `--arms`: sizes separated by commas, 1 first; None for all.
        window: Value of `--window`: plain decoding, and the recorded sizes that differ from the
            drafter's training size by this much at most; None for all.

    Raises:
        BlockPilotError: If both are given, a size is no number or was not recorded, or nothing
            was recorded within the window.
    """
    if arms is not None and window is not None:
        raise BlockPilotError("--arms and --window both name the block sizes; give one of them")
    if arms is not None:
        return sweep.select_arms(whole_numbers(arms, "--arms"))
    if window is None:
        return sweep
    near = window_arms(sweep, window)
    if len(near) == 1:
        raise BlockPilotError(
            f"--window {window} holds no recorded block size: the drafter's own is "
            f"{sweep.metadata.default_block_size}, recorded are {', '.join(map(str, sweep.arms))}"
        )
    return sweep.select_arms(near)
