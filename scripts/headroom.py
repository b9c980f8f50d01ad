"""Say how much there is to win by adapting the block size: `python scripts/headroom.py --help`."""

from blockpilot_rl.cli.headroom import main

if __name__ == "__main__":
    raise SystemExit(main())
