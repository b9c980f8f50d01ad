"""The rows of a sweep to work on, as the flag `--temperature` names them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from blockpilot_rl.cli.parsing import arg
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.sweeps.table import Sweep

ALL = "all"


def temperature_arg() -> Any:
    """Declare the flag as a field of an arguments dataclass."""
    return arg(
        None,
        metavar="T",
        help="take the rows of one sampling temperature, or all; without it, of a sweep with "
        "several temperatures the greedy rows are taken, if it has any",
    )


def check_temperature(wanted: str | None) -> None:
    """Check the flag's value before any work.

    Raises:
        BlockPilotError: If it is neither a temperature nor `all`.
    """
    if wanted is None or wanted == ALL:
        return
    try:
        valid = 0 <= float(wanted) < math.inf
    except ValueError:
        valid = False
    if not valid:
        raise BlockPilotError(f"--temperature must be 0 or more, or all, got {wanted!r}")


def select_temperature(sweep: Sweep, wanted: str | None) -> tuple[Sweep, str | None]:
    """Keep the rows that were asked for, or the greedy ones of a sweep that has others too.

    Args:
        sweep: A sweep.
        wanted: The flag's value; None if it was not given.

    Returns:
        The rows, and a remark for the user if rows were left out without being asked to.

    Raises:
        BlockPilotError: If there are no rows of the temperature.
    """
    known = np.unique(sweep.temperatures)
    listed = ", ".join(f"{value:g}" for value in known)
    if wanted == ALL:
        return sweep, None
    if wanted is not None:
        if float(wanted) not in known:
            raise BlockPilotError(
                f"--temperature {float(wanted):g} was not recorded; the sweep has {listed}"
            )
        return sweep.select_rows(sweep.temperatures == float(wanted)), None
    rows = sweep.default_rows()
    return rows, None if rows is sweep else (
        f"the sweep has the temperatures {listed}, and its {len(rows):,} greedy rows of "
        f"{len(sweep):,} were taken; --temperature T takes others, --temperature all takes all"
    )
