"""`compare`: train agents on a sweep, judge them on its test prompts, and say what to ship."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from blockpilot_rl.agents.registry import read_hyperparams
from blockpilot_rl.cli.comparisons import (
    check_outputs,
    print_comparison,
    report_option,
    save_comparison,
)
from blockpilot_rl.cli.console import command, open_console, open_messages, show_progress
from blockpilot_rl.cli.flags import json_option
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.results import Comparison
from blockpilot_rl.experiments.compare import CompareConfig, compare
from blockpilot_rl.files import check_output, locked, write_json
from blockpilot_rl.options import option
from blockpilot_rl.reports.sentences import comparison_values


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
    for path in (flags.json, flags.report):
        check_output(path)
    # Of two comparisons with one report, the second is refused.
    lock = nullcontext() if flags.report is None else locked(Path(flags.report) / "report.html")
    unsaved: BlockPilotError | None = None
    with lock:
        with show_progress(open_messages()) as progress:
            comparison = compare(
                flags.sweep,
                flags,
                hyperparams=hyperparams,
                progress=progress,
                on_result=lambda incomplete: _save_early(incomplete, flags),
            )
        try:
            save_comparison(comparison, flags.json, flags.report)
        except BlockPilotError as error:
            unsaved = error
    if flags.json == "-":
        write_json("-", comparison_values(comparison))
    console = open_console(flags.json)
    print_comparison(comparison, console)
    if unsaved is not None:
        raise unsaved
    if flags.report is not None:
        console.print(f"Report: {Path(flags.report) / 'report.html'}", soft_wrap=True)


def _save_early(comparison: Comparison, flags: CompareFlags) -> None:
    """Save what is known so far; a failure ends no work, because the end saves again."""
    with suppress(BlockPilotError):
        save_comparison(comparison, flags.json, flags.report)


main = command(compare_agents, CompareFlags)
