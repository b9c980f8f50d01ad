"""Export a trained agent as a policy that needs no RL library: `blockpilot export-policy`."""

import sys

from blockpilot_rl.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main(["export-policy", *sys.argv[1:]]))
