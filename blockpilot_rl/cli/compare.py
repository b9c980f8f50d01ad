"""`compare`: train agents on a sweep, judge them on its test prompts, and say what to ship."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from blockpilot_rl.agents.registry import read_hyperparams
from blockpilot_rl.cli.comparisons import (
    check_outputs,
    report_option,
    run_comparison,
    save_comparison,
)
from blockpilot_rl.cli.console import command, open_messages, show_progress
from blockpilot_rl.cli.flags import json_option
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.results import Comparison
from blockpilot_rl.experiments.compare import CompareConfig, compare
from blockpilot_rl.options import option


@dataclass(frozen=True)
class CompareFlags(CompareConfig):
    """Compare learned block-size policies with fixed sizes on held-out prompts.

    Trains every agent with several seeds on the training prompts of a sweep. Prints what the agents
    achieve on the test prompts, including the time of their decisions, next to the results
    of the drafter's own size, the best fixed size, random sizes and the oracle. The verdict at the
    end says whether to ship an agent or a fixed size.
    """

    sweep: str | None = option(
        None, metavar="DIR", help="folder of a recorded sweep (default: the bundled one)"
    )
    conf_file: str | None = option(
        None,
        aliases=["-conf"],
        metavar="FILE.yml",
        help="YAML file of hyperparameters to replace: below each agent's name `key: value` lines, "
        "as in agents/hyperparams",
    )
    json: str | None = json_option()
    report: str | None = report_option()

    def __post_init__(self) -> None:
        """Check the values before any agent is trained.

        Raises:
            BlockPilotError: If a value is out of range, has no effect together with the others, or
                cannot be written to.
        """
        super().__post_init__()
        check_outputs(self.json, self.report)


def compare_agents(flags: CompareFlags) -> None:
    """Compare, write the files and print the tables.

    The files are written before anything is printed, and already before each further view. If they
    cannot be written at the end, the tables are printed all the same.

    Raises:
        BlockPilotError: If an input is invalid or a file cannot be written.
    """
    hyperparams = {} if flags.conf_file is None else read_hyperparams(flags.conf_file)

    def make() -> Comparison:
        with show_progress(open_messages()) as progress:
            return compare(
                flags.sweep,
                flags,
                hyperparams=hyperparams,
                progress=progress,
                on_result=lambda incomplete: _save_early(incomplete, flags),
            )

    run_comparison(make, flags.json, flags.report)


def _save_early(comparison: Comparison, flags: CompareFlags) -> None:
    """Save what is known so far; a failure ends no work, because the end saves again."""
    with suppress(BlockPilotError):
        save_comparison(comparison, flags.json, flags.report)


main = command(compare_agents, CompareFlags)
