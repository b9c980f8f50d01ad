"""Names of 0.1, until every command has moved to `flags`."""

from __future__ import annotations

from blockpilot_rl.cli.flags import device_option as device_arg
from blockpilot_rl.cli.flags import drafter_option as drafter_arg
from blockpilot_rl.cli.flags import dtype_option as dtype_arg
from blockpilot_rl.cli.flags import target_option as target_arg

__all__ = ["device_arg", "drafter_arg", "dtype_arg", "target_arg"]
