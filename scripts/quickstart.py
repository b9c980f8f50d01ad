"""Train, compare, export and decode on the bundled sweep: `blockpilot quickstart`."""

import sys

from blockpilot_rl.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main(["quickstart", *sys.argv[1:]]))
