"""Judge an existing policy on any sweep, without training: `blockpilot evaluate`."""

import sys

from blockpilot_rl.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main(["evaluate", *sys.argv[1:]]))
