"""Train an agent on a recorded sweep: `python scripts/train_agent.py --help`."""

from blockpilot_rl.cli.train_agent import main

if __name__ == "__main__":
    raise SystemExit(main())
