"""Decode one prompt and say how it went: `python scripts/generate.py --help`."""

from blockpilot_rl.cli.generate import main

if __name__ == "__main__":
    raise SystemExit(main())
