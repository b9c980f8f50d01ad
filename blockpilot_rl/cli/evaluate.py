"""`evaluate`: judge an existing policy on any sweep, without training."""

from __future__ import annotations

from dataclasses import dataclass

from blockpilot_rl.cli.comparisons import check_outputs, report_option, run_comparison
from blockpilot_rl.cli.console import command
from blockpilot_rl.cli.flags import json_option
from blockpilot_rl.evaluation.evaluate import EvaluateConfig, evaluate
from blockpilot_rl.options import option


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
    run_comparison(lambda: evaluate(flags.policy, flags.sweep, flags), flags.json, flags.report)


main = command(evaluate_policy, EvaluateFlags)
