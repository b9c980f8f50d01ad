"""Walk the whole road on the bundled sweep: `python scripts/quickstart.py --help`."""

from blockpilot_rl.cli.quickstart import main

if __name__ == "__main__":
    raise SystemExit(main())
