"""Export a trained agent as a policy: `python scripts/export_policy.py --help`."""

from blockpilot_rl.cli.export_policy import main

if __name__ == "__main__":
    raise SystemExit(main())
