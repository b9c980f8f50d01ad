"""The flag `--temperature`."""

from __future__ import annotations

from typing import Any

from blockpilot_rl.cli.parsing import arg
from blockpilot_rl.sweeps.selection import check_temperature, select_temperature

__all__ = ["check_temperature", "select_temperature", "temperature_arg"]


def temperature_arg() -> Any:
    """Declare the flag as a field of an arguments dataclass."""
    return arg(
        None,
        metavar="T",
        help="use the rows of one sampling temperature, or all; by default the greedy rows of a "
        "sweep with several temperatures, and every row of other sweeps",
    )
