"""Measure what adapting the block size could gain, before training: `blockpilot headroom`."""

import sys

from blockpilot_rl.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main(["headroom", *sys.argv[1:]]))
