"""`train-drafter`: train a DFlash drafter for a target on the built-in prompt suite."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from torch.utils.tensorboard import SummaryWriter

from blockpilot_rl.cli.lists import part_of, whole_numbers, words
from blockpilot_rl.cli.pair_flags import target_arg
from blockpilot_rl.cli.parsing import arg, run
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.forward import target_forward
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import atomic_directory, write_json
from blockpilot_rl.models.fit import check_layer_ids, check_mask_token
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.prompts.sources import GROUPS, Prompt, builtin_suite
from blockpilot_rl.sweeps.continuations import ContinuationStore
from blockpilot_rl.training.acceptance import acceptance_report, acceptance_table
from blockpilot_rl.training.initial import choose_mask_token, new_drafter, pretrained_drafter
from blockpilot_rl.training.recipe import RecipeConfig, Trainer

_RECIPE = RecipeConfig()


@dataclass(frozen=True)
class TrainDrafterConfig:
    """Train a DFlash drafter: regenerate the target's responses, train, report acceptance.

    Everything lies in the output folder; the same command goes on where it was stopped.
    """

    out: str = arg(
        help="folder of the corpus, the checkpoint and the finished drafter", metavar="DIR"
    )
    target: str | None = target_arg()
    device: str = arg("cpu", help="where the target runs")
    dtype: str = arg("bfloat16", help="dtype of the target: float32, bfloat16 or float16")
    suite_size: int = arg(12000, help="prompts of the built-in suite; its drafter split is used")
    groups: str = arg(
        "english",
        metavar="A,B",
        help=f"groups of the suite to mix, for the corpus and the report, of {', '.join(GROUPS)}",
    )
    skip: int = arg(0, help="first prompts of the split to leave out, such as --init has seen")
    max_new_tokens: int = arg(128, help="budget of each response")
    part: str = arg("1/1", metavar="I/N", help="make only corpus part I of N, then stop (N > 1)")
    init: str | None = arg(
        None,
        metavar="DRAFTER",
        help="hub id or folder of a drafter to start from (default: random weights); its layers, "
        "target layers, draft vocabulary, mask token and correction head are kept",
    )
    steps: int = arg(_RECIPE.steps, help="optimiser steps")
    sequences: int = arg(_RECIPE.sequences, help="sequences per step")
    queries: int = arg(_RECIPE.queries, help="positions to denoise per sequence and step")
    block_sizes: str = arg(
        ",".join(map(str, _RECIPE.block_sizes)), help="block size of each step, in rotation"
    )
    learning_rate: float = arg(_RECIPE.learning_rate, help="peak of the cosine schedule")
    layers: int = arg(_RECIPE.layers, help="drafter layers")
    target_layer_ids: str = arg(
        ",".join(map(str, _RECIPE.target_layer_ids)), help="0-based target layers to read"
    )
    draft_vocab_size: int = arg(_RECIPE.draft_vocab_size, help="tokens that may be drafted")
    correction_rank: int = arg(
        _RECIPE.correction_rank,
        help="rank of a head that corrects each draft by the one before it; 0 for none, or for "
        "the one that --init has",
    )
    mask_token_id: int | None = arg(
        None, help="token that stands for a mask (default: an unused special token)"
    )
    seed: int = arg(0, help="decides initial weights and batches")
    report_prompts: int = arg(40, help="held-out prompts of the acceptance report")

    def __post_init__(self) -> None:
        """Check what can be checked before any work.

        Raises:
            BlockPilotError: If a value is out of range.
        """
        self.recipe()
        part_of(self.part)
        self.prompts("drafter", 0)
        if self.skip < 0 or 0 < self.suite_size <= self.skip:
            raise BlockPilotError(
                f"--skip {self.skip} must leave some of the {self.suite_size} prompts of the suite"
            )
        if self.report_prompts < 1:
            raise BlockPilotError(f"--report-prompts must be positive, got {self.report_prompts}")
        if self.max_new_tokens < 2:
            raise BlockPilotError(f"--max-new-tokens must be at least 2, got {self.max_new_tokens}")

    def prompts(self, split: str, count: int) -> list[Prompt]:
        """The first prompts of a split of the suite.

        Raises:
            BlockPilotError: If the suite has not as many, or lacks a group.
        """
        return builtin_suite(count, splits=[split], groups=words(self.groups))

    def recipe(self) -> RecipeConfig:
        """The recipe that the flags describe."""
        return RecipeConfig(
            steps=self.steps,
            sequences=self.sequences,
            queries=self.queries,
            block_sizes=whole_numbers(self.block_sizes, "--block-sizes"),
            learning_rate=self.learning_rate,
            layers=self.layers,
            target_layer_ids=whole_numbers(self.target_layer_ids, "--target-layer-ids"),
            draft_vocab_size=self.draft_vocab_size,
            correction_rank=self.correction_rank,
            seed=self.seed,
        )


def main(argv: Sequence[str] | None = None, *, prog: str | None = None) -> int:
    """Run the command.

    Args:
        argv: Its arguments; None for those of the process.
        prog: Name shown in its help.

    Returns:
        The exit code.
    """
    return run(train_drafter, TrainDrafterConfig, argv, prog=prog)


def train_drafter(config: TrainDrafterConfig) -> None:
    """Regenerate, train, export and report.

    Raises:
        BlockPilotError: If an argument, the target or the output folder is not as needed.
    """
    console = Console(stderr=True)
    out, recipe = Path(config.out), config.recipe()
    if config.init is not None and Path(config.init).resolve() == (out / "drafter").resolve():
        raise BlockPilotError(
            f"--init {config.init} is where the new drafter goes; name another --out"
        )
    pair = load_pair(config.target, None, config.dtype, config.device, with_drafter=False)
    if recipe.block_size + config.max_new_tokens >= pair.max_length:
        raise BlockPilotError(
            f"blocks of {recipe.block_size} and {config.max_new_tokens} new tokens leave no room "
            f"for a prompt in the target's {pair.max_length} positions"
        )
    start = None
    if config.init is not None:
        start, recipe = pretrained_drafter(config.init, pair, recipe)
    check_layer_ids(pair.target, recipe.target_layer_ids)
    if config.mask_token_id is not None:
        check_mask_token(pair.target, config.mask_token_id, pair.tokenizer)
    prompts = config.prompts("drafter", config.suite_size)[config.skip :]
    part = part_of(config.part)
    store = ContinuationStore(out / "corpus", prompts, config.max_new_tokens)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("corpus", total=len(prompts))
        store.record(
            pair,
            target_forward(pair.target, list(recipe.target_layer_ids)),
            recipe.target_layer_ids,
            part,
            lambda done, total: progress.update(task, completed=done, total=total),
        )
    if part[1] > 1:
        console.print(f"part {config.part} of the corpus is done; run without --part to train")
        return
    answers = [answer for shard in store.read() for answer in shard.continuations]
    if start is None:
        mask = config.mask_token_id
        if mask is None:
            mask = choose_mask_token(pair, answers)
        start = new_drafter(pair, answers, mask, recipe)
    trainer = Trainer(start, pair, answers, recipe)
    _train(trainer, out, console)
    with atomic_directory(out / "drafter", overwrite=True) as partial:
        trainer.export().save_pretrained(partial)
        _report(config, recipe, partial, console)
    console.print(f"drafter in {out / 'drafter'}")


def _train(trainer: Trainer, out: Path, console: Console) -> None:
    bars = Progress(console=console, disable=not console.is_terminal)
    with bars as progress, SummaryWriter(str(out / "tensorboard")) as writer:
        task = progress.add_task("train", total=trainer.config.steps)

        def log(step: int, loss: float, accuracy: list[float]) -> None:
            progress.update(task, completed=step, description=f"train (loss {loss:.2f})")
            writer.add_scalar("loss", loss, step)
            for position in (1, 2, 4, 8):
                if position <= len(accuracy):
                    writer.add_scalar(f"accuracy/{position}", accuracy[position - 1], step)

        trainer.run(out / "checkpoint.pt", log)


def _report(
    config: TrainDrafterConfig, recipe: RecipeConfig, drafter: Path, console: Console
) -> None:
    """Report acceptance in real decoding on prompts that no drafter was trained on."""
    tested = load_pair(config.target, drafter, config.dtype, config.device)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("acceptance", total=config.report_prompts)
        report = acceptance_report(
            Decoder(tested),
            config.prompts("validation", config.report_prompts),
            tested.block_size,
            config.max_new_tokens,
            lambda done, total: progress.update(task, completed=done, total=total),
        )
    console.print(acceptance_table(report))
    for warning in report["warnings"]:
        print("warning:", warning, file=sys.stderr)
    write_json(drafter / "acceptance.json", {**report, "recipe": recipe})
