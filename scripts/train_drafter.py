"""Train a DFlash drafter for a target: `blockpilot train-drafter`."""

import sys

from blockpilot_rl.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main(["train-drafter", *sys.argv[1:]]))
