"""Measure how many rounds per second the simulator of step control makes, on one core.

`python benchmarks/simulator.py --json OUT`. The traced training requests of a sweep are decoded
together with each rule, as often as fits the time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from rich.table import Table

from blockpilot_rl.cli.console import open_console, run
from blockpilot_rl.control.requests import TracedRequests, load_step_splits
from blockpilot_rl.files import check_output, write_json
from blockpilot_rl.options import check_options, option
from blockpilot_rl.policies.rules import EntropyRule, FixedRule, PrefixRule, RateRule, Rule
from blockpilot_rl.provenance import provenance


@dataclass(frozen=True)
class SimulatorBenchmark:
    """Simulate rules on the traced training requests of a sweep."""

    sweep: str | None = option(None, metavar="DIR", help="a traced sweep; default: the bundled")
    batch: int = option(512, minimum=1, help="requests that are decoded together")
    seconds: float = option(2.0, above=0, help="time for each rule")
    json: str | None = option(None, nargs="?", const="-", metavar="FILE", help="write a record")

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If one is out of range.
        """
        check_options(self)


def rules(longest: int) -> dict[str, Rule]:
    """List the rules that are timed."""
    return {
        "fixed": FixedRule(longest),
        "confident prefix": PrefixRule(longest, 0.04),
        "confident prefix, drafts end early": PrefixRule(longest, 0.04, stops_early=True),
        "entropy bound": EntropyRule(longest),
        "acceptance rate and confidence": RateRule(),
    }


def rounds_per_second(requests: TracedRequests, rule: Rule, seconds: float) -> float:
    """Simulate requests again and again for some time."""
    requests.simulate(rule)
    began, rounds = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds or not rounds:
        rounds += int(requests.simulate(rule).rounds.sum())
    return rounds / spent


def main(config: SimulatorBenchmark) -> None:
    """Time every rule, save the record and print a table."""
    check_output(config.json)
    torch.set_num_threads(1)
    train = load_step_splits(config.sweep).train
    requests = train.select(np.resize(np.arange(len(train)), config.batch))
    longest = requests.traces.block_sizes[-1]
    found = {
        name: rounds_per_second(requests, rule, config.seconds)
        for name, rule in rules(longest).items()
    }
    if config.json is not None:
        write_json(config.json, {"rounds_per_second": found, "machine": provenance()})
    table = Table("rule", "rounds a second")
    for name, rate in found.items():
        table.add_row(name, f"{rate:,.0f}")
    open_console(config.json).print(table)


if __name__ == "__main__":
    raise SystemExit(run(main, SimulatorBenchmark))
