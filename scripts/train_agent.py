"""Train one agent on a recorded sweep: `blockpilot train-agent`."""

import sys

from blockpilot_rl.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main(["train-agent", *sys.argv[1:]]))
