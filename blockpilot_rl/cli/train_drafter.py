"""The command `train-drafter`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from blockpilot_rl.cli.console import show_progress
from blockpilot_rl.cli.lists import part_of, whole_numbers, words
from blockpilot_rl.cli.parsing import arg, run
from blockpilot_rl.training import DrafterTrainingConfig, train_drafter
from blockpilot_rl.training.acceptance import acceptance_table
from blockpilot_rl.training.recipe import RecipeConfig


def _same_as(config_class: Any, name: str, default: Any = dataclasses.MISSING) -> Any:
    """Declare a flag with the help, and unless given the default, of an option of the library."""
    field = config_class.__dataclass_fields__[name]
    metavar = {"metavar": field.metadata["metavar"]} if "metavar" in field.metadata else {}
    return arg(
        field.default if default is dataclasses.MISSING else default,
        help=field.metadata["help"],
        **metavar,
    )


@dataclass(frozen=True)
class TrainDrafterConfig:
    """Train a DFlash drafter: regenerate the target's answers, train, report acceptance.

    All files are in the output folder. The same command resumes a run that was stopped.
    """

    out: str = _same_as(DrafterTrainingConfig, "out")
    target: str | None = _same_as(DrafterTrainingConfig, "target")
    device: str = _same_as(DrafterTrainingConfig, "device")
    dtype: str = _same_as(DrafterTrainingConfig, "dtype")
    suite_size: int = _same_as(DrafterTrainingConfig, "suite_size")
    groups: str = _same_as(DrafterTrainingConfig, "groups", "english")
    skip: int = _same_as(DrafterTrainingConfig, "skip")
    max_new_tokens: int = _same_as(DrafterTrainingConfig, "max_new_tokens")
    part: str = arg("1/1", metavar="I/N", help="make only corpus part I of N, then stop (N > 1)")
    init: str | None = arg(
        None,
        metavar="DRAFTER",
        help="hub id or folder of a drafter to start from (default: random weights); it decides "
        "the layers, the target layers, the draft vocabulary and the mask token",
    )
    steps: int = _same_as(RecipeConfig, "steps")
    sequences: int = _same_as(RecipeConfig, "sequences")
    queries: int = _same_as(RecipeConfig, "queries")
    block_sizes: str = _same_as(
        RecipeConfig, "block_sizes", ",".join(map(str, RecipeConfig().block_sizes))
    )
    learning_rate: float = _same_as(RecipeConfig, "learning_rate")
    layers: int | None = _same_as(RecipeConfig, "layers")
    target_layer_ids: str | None = _same_as(RecipeConfig, "target_layer_ids")
    draft_vocab_size: int | None = _same_as(RecipeConfig, "draft_vocab_size")
    correction_rank: int = _same_as(RecipeConfig, "correction_rank")
    mask_token_id: int | None = _same_as(DrafterTrainingConfig, "mask_token_id")
    seed: int = _same_as(RecipeConfig, "seed")
    report_prompts: int = _same_as(DrafterTrainingConfig, "report_prompts")

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If a value is not allowed.
        """
        self.training()

    def training(self) -> DrafterTrainingConfig:
        """The config of the library's workflow."""
        layer_ids = self.target_layer_ids
        recipe = RecipeConfig(
            steps=self.steps,
            sequences=self.sequences,
            queries=self.queries,
            block_sizes=whole_numbers(self.block_sizes, "--block-sizes"),
            learning_rate=self.learning_rate,
            layers=self.layers,
            target_layer_ids=None
            if layer_ids is None
            else whole_numbers(layer_ids, "--target-layer-ids"),
            draft_vocab_size=self.draft_vocab_size,
            correction_rank=self.correction_rank,
            init=self.init,
            seed=self.seed,
        )
        return DrafterTrainingConfig(
            out=self.out,
            target=self.target,
            device=self.device,
            dtype=self.dtype,
            suite_size=self.suite_size,
            groups=words(self.groups),
            skip=self.skip,
            max_new_tokens=self.max_new_tokens,
            part=part_of(self.part),
            recipe=recipe,
            mask_token_id=self.mask_token_id,
            report_prompts=self.report_prompts,
        )


def main(argv: Sequence[str] | None = None, *, prog: str | None = None) -> int:
    """Run the command.

    Args:
        argv: Its arguments; None for those of the process.
        prog: Name shown in its help.

    Returns:
        The exit code.
    """
    return run(_main, TrainDrafterConfig, argv, prog=prog)


def _main(config: TrainDrafterConfig) -> None:
    console = Console(stderr=True)
    with show_progress(console) as progress:
        result = train_drafter(config.training(), progress)
    if result.report is None:
        console.print(f"part {config.part} of the corpus is done; run without --part to train")
        return
    console.print(acceptance_table(result.report))
    for warning in result.report["warnings"]:
        print("warning:", warning, file=sys.stderr)
    console.print(f"saved the drafter to {result.folder}")
