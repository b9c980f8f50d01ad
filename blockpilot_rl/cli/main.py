"""The `blockpilot` command, which runs all commands by name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from blockpilot_rl import __version__
from blockpilot_rl.cli.console import guarded
from blockpilot_rl.errors import BlockPilotError, closest

COMMANDS = {
    "generate": "decode one prompt plainly, with a fixed block size, or with a policy",
    "collect-sweep": "record the outcome of every block size on many prompts",
    "train-agent": "train one agent on a recorded sweep",
    "headroom": "measure what adapting the block size could gain, before training",
    "compare": "compare learned policies with fixed block sizes on held-out prompts",
    "evaluate": "judge an existing policy on any sweep, without training",
    "export-policy": "export a trained agent as a policy that needs no RL library",
    "train-drafter": "train a DFlash drafter for a target",
    "calibrate": "measure the cost of passes on this device, and re-price sweeps",
    "quickstart": "train, compare, export and decode on the bundled sweep",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `blockpilot COMMAND …`.

    Commands are imported when they are called, so that deploying a policy loads no RL library.

    Args:
        argv: The arguments; None for those of the process.

    Returns:
        The exit code.
    """
    return guarded(lambda: _main(list(sys.argv[1:] if argv is None else argv)))


def _main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: blockpilot COMMAND [options]\n")
        for name, purpose in COMMANDS.items():
            print(f"  {name:14} {purpose}")
        print("\n`blockpilot COMMAND --help` lists the options of a command.")
        return 0
    if arguments[0] == "--version":
        print(f"blockpilot-rl {__version__}")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        raise BlockPilotError(f"unknown command {name!r}.{closest(name, COMMANDS)}")
    module = importlib.import_module(f"blockpilot_rl.cli.{name.replace('-', '_')}")
    code: int = module.main(arguments[1:], prog=f"blockpilot {name}")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
