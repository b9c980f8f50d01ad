"""What a drafter is trained on: the target's answers to prompts of several sources.

Only the drafter share of a source is trained on. Its validation share measures acceptance. Unseen
families are never trained on; their validation share is measured separately.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

from blockpilot_rl.decoding.batched import Continuation
from blockpilot_rl.prompts import Prompt, split_of
from blockpilot_rl.sweeps.continuations import ContinuationStore, StoredAnswers

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

    def split(self, split: str, families: Collection[str], *, inside: bool) -> list[Prompt]:
        """The prompts of a split whose family is, or is not, one of some families."""
        return [
            prompt
            for prompt in self.prompts
            if prompt.split == split and (prompt.family in families) == inside
        ]


def source_name(source: str) -> str:
    """Name of a source that can name a folder."""
    name = source if source.startswith("hf:") else Path(source).name
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
                    *(folder.folder, left_out, len(folder)),
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


def without_answered(
    store: ContinuationStore, folders: Sequence[StoredAnswers]
) -> ContinuationStore:
    """A store without the prompts that folders have answered with the same sampling."""
    sampling = store.describe_sampling()
    answered = {
        key for folder in folders if folder.sampling == sampling for key in folder.prompt_ids
    }
    left = [prompt for prompt in store.prompts if prompt.id not in answered]
    return replace(store, prompts=left)
