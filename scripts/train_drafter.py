"""Train a DFlash drafter for a target: `python scripts/train_drafter.py --help`."""

from blockpilot_rl.cli.train_drafter import main

if __name__ == "__main__":
    raise SystemExit(main())
