"""Which rows and block sizes of a sweep to work on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from blockpilot_rl.decoding.state import DEFAULT_GROUPS
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.options import option
from blockpilot_rl.sweeps.table import Sweep

ALL_TEMPERATURES = "all"


def check_temperature(temperature: float | str | None) -> None:
    """Check a temperature before any work.

    Args:
        temperature: As in `select_temperature`.

    Raises:
        BlockPilotError: If it is neither a temperature nor `"all"`.
    """
    if temperature is None or temperature == ALL_TEMPERATURES:
        return
    try:
        valid = 0 <= float(temperature) < math.inf
    except ValueError:
        valid = False
    if not valid:
        raise BlockPilotError(f"temperature must be 0 or more, or all, got {temperature!r}")


def select_temperature(sweep: Sweep, temperature: float | str | None) -> tuple[Sweep, str | None]:
    """Keep the rows of one sampling temperature.

    Args:
        sweep: The sweep.
        temperature: The temperature, as a number or as text; `"all"` keeps every row. None keeps
            the greedy rows of a sweep with several temperatures, and every row of other sweeps.

    Returns:
        The rows, and a note for the user if rows were left out by default.

    Raises:
        BlockPilotError: If the temperature is invalid or was not recorded.
    """
    check_temperature(temperature)
    if temperature == ALL_TEMPERATURES:
        return sweep, None
    recorded = np.unique(sweep.temperatures)
    listed = ", ".join(f"{value:g}" for value in recorded)
    if temperature is not None:
        if float(temperature) not in recorded:
            raise BlockPilotError(
                f"temperature {float(temperature):g} was not recorded; the sweep has {listed}"
            )
        return sweep.select_rows(sweep.temperatures == float(temperature)), None
    rows = sweep.default_rows()
    if rows is sweep:
        return sweep, None
    return rows, (
        f"the sweep has the temperatures {listed}; only its {len(rows):,} greedy rows of "
        f"{len(sweep):,} are used; the option temperature selects others, or all"
    )


def state_groups_for(
    state_groups: Sequence[str], temperature: float | str | None
) -> tuple[str, ...]:
    """State groups for the rows of a temperature: the default ones gain `sampling` for all.

    Args:
        state_groups: The groups that are asked for.
        temperature: As in `select_temperature`.
    """
    groups = tuple(state_groups)
    mixed = temperature == ALL_TEMPERATURES and groups == DEFAULT_GROUPS
    return (*groups, "sampling") if mixed else groups


def select_arms(sweep: Sweep, arms: Sequence[int] | None, window: int | None) -> Sweep:
    """Keep some of the block sizes.

    Args:
        sweep: The sweep.
        arms: The block sizes, 1 first; None for all.
        window: Keeps 1 and the recorded sizes that differ from the drafter's own size by at most
            this much; None for all.

    Raises:
        BlockPilotError: If both are given, a size was not recorded, or no recorded size is in the
            window.
    """
    if arms is not None and window is not None:
        raise BlockPilotError("arms and window both choose the block sizes; give only one of them")
    if arms is not None:
        return sweep.select_arms(tuple(arms))
    if window is None:
        return sweep
    near = window_arms(sweep, window)
    if len(near) == 1:
        raise BlockPilotError(
            f"window {window} contains no recorded block size: the drafter's own size is "
            f"{sweep.metadata.default_block_size}, recorded are {', '.join(map(str, sweep.arms))}"
        )
    return sweep.select_arms(near)


def window_arms(sweep: Sweep, window: int) -> tuple[int, ...]:
    """Block sizes of the paper's window around the size that the drafter was trained for.

    Args:
        sweep: Sweep with the recorded sizes.
        window: The largest distance of a size from the drafter's own.

    Returns:
        1, which every speedup refers to, and the recorded sizes in the window, if any.
    """
    centre = sweep.metadata.default_block_size
    return (1, *(arm for arm in sweep.arms if arm > 1 and abs(arm - centre) <= window))


def temperature_option() -> Any:
    """Declare the temperature as a field of a config dataclass."""
    return option(
        None,
        metavar="T",
        help="use the rows of one sampling temperature, or all; by default the greedy rows of a "
        "sweep with several temperatures, and every row of other sweeps",
    )
