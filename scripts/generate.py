"""Decode one prompt: `blockpilot generate`."""

import sys

from blockpilot_rl.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main(["generate", *sys.argv[1:]]))
