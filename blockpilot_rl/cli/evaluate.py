"""`evaluate`: judge an existing policy on any sweep, without training."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from blockpilot_rl.cli.comparisons import (
    check_outputs,
    print_comparison,
    report_option,
    save_comparison,
)
from blockpilot_rl.cli.console import command, open_console
from blockpilot_rl.cli.flags import json_option
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.evaluate import EvaluateConfig, evaluate
from blockpilot_rl.files import check_output, locked, write_json
from blockpilot_rl.options import option
from blockpilot_rl.reports.sentences import comparison_values


@dataclass(frozen=True)
class EvaluateFlags(EvaluateConfig):
    """Judge an existing policy on a sweep of its pair: `evaluate --policy DIR --sweep DIR`.

    Trains nothing. Record your own traffic with collect-sweep, or re-price a sweep for another
    device with calibrate, and see whether the policy is faster there than the best fixed size.
    """

    policy: str = option(
        "bundled", metavar="DIR", help="folder or hub id of the policy (default: the bundled one)"
    )
    sweep: str | None = option(
        None, metavar="DIR", help="folder of a recorded sweep (default: the bundled one)"
    )
    json: str | None = json_option()
    report: str | None = report_option()

    def __post_init__(self) -> None:
        """Check the values before any work.

        Raises:
            BlockPilotError: If a value is out of range, or a file cannot be written to.
        """
        super().__post_init__()
        check_outputs(self.json, self.report)


def evaluate_policy(flags: EvaluateFlags) -> None:
    """Judge, write the files and print the tables; the files are written first.

    Raises:
        BlockPilotError: If an input is invalid or a file cannot be written.
    """
    for path in (flags.json, flags.report):
        check_output(path)
    # Of two commands with one report, the second is refused.
    lock = nullcontext() if flags.report is None else locked(Path(flags.report) / "report.html")
    unsaved: BlockPilotError | None = None
    with lock:
        comparison = evaluate(flags.policy, flags.sweep, flags)
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


main = command(evaluate_policy, EvaluateFlags)
