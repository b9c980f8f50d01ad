"""Measure the cost of passes on this device, and re-price sweeps: `blockpilot calibrate`."""

import sys

from blockpilot_rl.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main(["calibrate", *sys.argv[1:]]))
