"""Compare learned policies with fixed block sizes on held-out prompts: `blockpilot compare`."""

import sys

from blockpilot_rl.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main(["compare", *sys.argv[1:]]))
