"""What a drafter is trained on: the target's answers to prompts of several sources.

Only the drafter share of a source is trained on. Its validation share measures acceptance. Unseen
families are never trained on; their validation share is measured separately.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, overload

from blockpilot_rl.decoding.batched import Continuation
from blockpilot_rl.decoding.forward import TargetForward
from blockpilot_rl.models.pairs import Pair
from blockpilot_rl.progress import ProgressCallback
from blockpilot_rl.prompts import BUILTIN, Prompt, length_check, load_prompts, split_of
from blockpilot_rl.sweeps.continuations import ContinuationStore, StoredAnswers
from blockpilot_rl.training.own_prompts import OWN, own_count, own_prompts

if TYPE_CHECKING:
    from blockpilot_rl.training.train import DrafterTrainingConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PromptSource:
    """Prompts of one source.

    Attributes:
        name: A name that can name a folder.
        prompts: The prompts of all splits that were loaded.
    """

    name: str
    prompts: Sequence[Prompt]

    def split(self, split: str, families: Collection[str], inside: bool) -> list[Prompt]:
        """The prompts of a split whose family is, or is not, one of some families."""
        return [
            prompt
            for prompt in self.prompts
            if prompt.split == split and (prompt.family in families) == inside
        ]


def source_name(source: str) -> str:
    """Name of a source that can name a folder."""
    name = source if source.startswith(("hf:", OWN)) else Path(source).name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "prompts"


def evenly(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """Up to `count` prompts, evenly spaced."""
    count = min(count, len(prompts))
    return [prompts[index * len(prompts) // count] for index in range(count)]


class Corpus(Sequence[Continuation]):
    """Answers of several folders that a drafter is trained on.

    Attributes:
        groups: Group of each answer: family and language of its prompt, or the folder if the prompt
            is not known.
    """

    def __init__(
        self,
        folders: Sequence[StoredAnswers],
        sources: Sequence[PromptSource] = (),
        unseen: Collection[str] = (),
    ) -> None:
        """Choose the answers to train on, and log how many are left out.

        Args:
            folders: Finished folders of answers.
            sources: Prompts whose families are known.
            unseen: Families that are not trained on.
        """
        known = {prompt.id: prompt for source in sources for prompt in source.prompts}
        self._places: list[tuple[StoredAnswers, int]] = []
        self.groups: list[str] = []
        for folder in folders:
            before = len(self._places)
            for index, key in enumerate(folder.prompt_ids):
                prompt = known.get(key)
                split = prompt.split if prompt else split_of(key)
                if split != "drafter" or (prompt and prompt.family in unseen):
                    continue
                self._places.append((folder, index))
                self.groups.append(
                    f"{prompt.family}/{prompt.language}" if prompt else folder.folder.name
                )
            left_out = len(folder) - (len(self._places) - before)
            if left_out:
                logger.warning(
                    "%s: %d of %d answers are not trained on: their prompts are outside the "
                    "drafter share, or of unseen families",
                    folder.folder,
                    left_out,
                    len(folder),
                )

    def __len__(self) -> int:
        """Number of answers."""
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Continuation: ...

    @overload
    def __getitem__(self, index: slice) -> list[Continuation]: ...

    def __getitem__(self, index: int | slice) -> Continuation | list[Continuation]:
        """An answer, or several."""
        if isinstance(index, slice):
            return [folder[place] for folder, place in self._places[index]]
        folder, place = self._places[index]
        return folder[place]


def load_sources(
    config: DrafterTrainingConfig,
    names: Sequence[str],
    pair: Pair,
    target: TargetForward,
    progress: ProgressCallback,
) -> dict[str, PromptSource]:
    """Load the prompts of sources. A prompt of several sources belongs to the first.

    Args:
        config: Chooses prompts of the built-in suite, and whether bad lines are left out.
        names: What `load_prompts` reads, `builtin`, or `target:N` for prompts that the target
            writes itself, which are kept in the output folder.
        pair: The target. Prompts must fit into its positions.
        target: Its forward pass.
        progress: Called with the task `prompts`.

    Raises:
        BlockPilotError: If a source cannot be read.
    """
    taken: set[str] = set()
    sources: dict[str, PromptSource] = {}
    for source in names:
        if source == BUILTIN:
            prompts = config.suite("drafter", config.suite_size, progress)[config.skip :]
            prompts += config.suite("validation", config.report_prompts)
            if config.answers:
                # Folders of release 0.1 may hold prompts of templates that are now held out.
                prompts += config.suite("test", config.suite_size)
        elif source.startswith(OWN):
            path = Path(config.out) / "prompts" / f"{source_name(source)}.jsonl"
            prompts = own_prompts(pair, target, own_count(source), path, progress)
        else:
            prompts = load_prompts(
                source,
                check=length_check(pair, config.max_new_tokens),
                on_bad=logger.warning if config.skip_bad else None,
                progress=progress,
            )
        prompts = [prompt for prompt in prompts if prompt.id not in taken]
        taken.update(prompt.id for prompt in prompts)
        name = source_name(source)
        while any(name == other.name for other in sources.values()):
            name += "-2"
        sources[source] = PromptSource(name, prompts)
    return sources


def answer_sources(
    config: DrafterTrainingConfig,
    sources: Mapping[str, PromptSource],
    pair: Pair,
    target: TargetForward,
    layer_ids: tuple[int, ...],
    progress: ProgressCallback,
) -> list[StoredAnswers]:
    """Let the target answer the prompts of a leg that have no answer yet; open all its folders.

    Args:
        config: The options of the leg.
        sources: The result of `load_sources`.
        pair: The target.
        target: Its forward pass, with the features of `layer_ids`.
        layer_ids: Target layers that the drafter reads.
        progress: Called with the task `corpus`.

    Returns:
        The folders of `config.answers`, then one for each source; none if only a part was made.

    Raises:
        BlockPilotError: If a folder holds other answers than those asked for.
    """
    folders = [StoredAnswers(Path(folder), pair, layer_ids) for folder in config.answers]
    names = config.prompts or (() if config.answers else (BUILTIN,))
    stores = [_store(config, sources[name], folders) for name in names]
    stores = [store for store in stores if store.prompts]
    total, done = sum(store.size for store in stores), 0
    progress("corpus", 0, total)
    for store in stores:

        def report(count: int, _: int, before: int = done) -> None:
            progress("corpus", before + count, total)

        store.record(pair, target, layer_ids, config.part, report)
        done += store.size
    if config.part[1] > 1:
        return []
    return [*folders, *(StoredAnswers(store.folder, pair, layer_ids) for store in stores)]


def _store(
    config: DrafterTrainingConfig, source: PromptSource, folders: Sequence[StoredAnswers]
) -> ContinuationStore:
    """Folder for the answers to a source, without the prompts that other folders have answered."""
    name = source.name
    if config.temperature:
        seeds = "".join(f"-s{seed}" for seed in config.answer_seeds if config.answer_seeds != (0,))
        name += f"-t{config.temperature:g}{seeds}"
    store = ContinuationStore(
        Path(config.out) / "corpus" / name,
        source.split("drafter", config.unseen, inside=False),
        config.max_new_tokens,
        config.sampling,
        config.answer_seeds,
    )
    alike = [folder for folder in folders if folder.sampling == store.describe_sampling()]
    answered = {key for folder in alike for key in folder.prompt_ids}
    return replace(store, prompts=[x for x in store.prompts if x.id not in answered])
