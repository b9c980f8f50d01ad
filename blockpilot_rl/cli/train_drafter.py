"""The command `train-drafter`: train a DFlash drafter for a target."""

from __future__ import annotations

from dataclasses import dataclass

from blockpilot_rl.cli.console import command, open_messages, show_progress
from blockpilot_rl.cli.flags import part_of
from blockpilot_rl.options import option
from blockpilot_rl.training import DrafterTrainingConfig, train_drafter
from blockpilot_rl.training.acceptance import acceptance_table


@dataclass(frozen=True, kw_only=True)
class TrainDrafterConfig(DrafterTrainingConfig):
    """Train a DFlash drafter: regenerate the target's answers, train, report acceptance.

    All files are in the output folder. The same command resumes a run that was stopped.
    """

    part: tuple[int, int] = option(
        (0, 1),
        parse=part_of,
        metavar="I/N",
        help="make only part I of N of the corpus, then stop (default: 1/1)",
    )


def _train_drafter(config: TrainDrafterConfig) -> None:
    console = open_messages()
    with show_progress(console) as progress:
        result = train_drafter(config, progress)
    if result.report is None:
        name = f"{config.part[0] + 1}/{config.part[1]}"
        console.print(f"part {name} of the corpus is done; run without --part to train")
        return
    console.print(acceptance_table(result.report))
    for warning in result.report["warnings"]:
        console.print(f"warning: {warning}")
    console.print(f"saved the drafter to {result.folder}")


main = command(_train_drafter, TrainDrafterConfig)
