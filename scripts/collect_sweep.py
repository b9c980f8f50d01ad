"""Record the outcome of every block size: `python scripts/collect_sweep.py --help`."""

from blockpilot_rl.cli.collect_sweep import main

if __name__ == "__main__":
    raise SystemExit(main())
