"""Record the outcome of every block size on many prompts: `blockpilot collect-sweep`."""

import sys

from blockpilot_rl.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main(["collect-sweep", *sys.argv[1:]]))
