"""Compare learned block-size policies with fixed sizes: `python scripts/compare.py --help`."""

from blockpilot_rl.cli.compare import main

if __name__ == "__main__":
    raise SystemExit(main())
