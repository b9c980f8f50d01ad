"""Measure what drafting and verifying cost on this device: `python scripts/calibrate.py --help`."""

from blockpilot_rl.cli.calibrate import main

if __name__ == "__main__":
    raise SystemExit(main())
