"""Acceptance on held-out prompts while a drafter trains, by replay of stored answers.

The target answers the held-out prompts once. The acceptance lengths of a drafter on these answers
then need drafter passes only, and equal those of decoding.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from blockpilot_rl.decoding.drafting import LeanDrafter
from blockpilot_rl.decoding.forward import TargetForward
from blockpilot_rl.decoding.replay import replay
from blockpilot_rl.files import atomic_write
from blockpilot_rl.models.drafter import DFlashDraftModel
from blockpilot_rl.models.pairs import Pair
from blockpilot_rl.prompts import Prompt
from blockpilot_rl.sweeps.continuations import ContinuationStore, StoredAnswers, prompts_digest
from blockpilot_rl.training.corpus import evenly


def choose_held_out(
    seen: Sequence[Prompt], unseen: Sequence[Prompt], count: int
) -> list[tuple[Prompt, str]]:
    """Choose prompts of each language of the seen and of the unseen families.

    Args:
        seen: Held-out prompts of families that are trained on.
        unseen: Prompts of families that are not.
        count: The most prompts of one language, seen and unseen each.

    Returns:
        Prompts with `"seen"` or `"unseen"`.
    """
    chosen = []
    for name, prompts in (("seen", seen), ("unseen", unseen)):
        for language in sorted({prompt.language for prompt in prompts}):
            own = [prompt for prompt in prompts if prompt.language == language]
            chosen += [(prompt, name) for prompt in evenly(own, count)]
    return chosen


class HeldOut:
    """The target's answers to held-out prompts."""

    def __init__(
        self,
        prompts: Sequence[tuple[Prompt, str]],
        folder: Path,
        pair: Pair,
        target: TargetForward,
        layer_ids: Sequence[int],
        max_new_tokens: int,
    ) -> None:
        """Answer the prompts, or open their answers.

        Args:
            prompts: The result of `choose_held_out`.
            folder: Where answers are kept.
            pair: The target.
            target: Its forward pass, with the features of `layer_ids`.
            layer_ids: Target layers that the drafter reads.
            max_new_tokens: Budget of each answer, in tokens.

        Raises:
            BlockPilotError: If the answers cannot be made or read.
        """
        self._pair, self._target = pair, target
        plain = [prompt for prompt, _ in prompts]
        folder = folder / prompts_digest(plain)
        ContinuationStore(folder, plain, max_new_tokens).record(pair, target, layer_ids)
        answers = StoredAnswers(folder, pair, layer_ids)
        groups = {
            prompt.id: ("all", name, f"language/{prompt.language}", f"family/{prompt.family}")
            for prompt, name in prompts
        }
        pairs = zip(answers, answers.prompt_ids, strict=True)
        usable = [(answer, groups[key]) for answer, key in pairs if len(answer.output_ids) > 1]
        self._answers = [answer for answer, _ in usable]
        self._groups = [names for _, names in usable]

    def measure(self, drafter: DFlashDraftModel) -> dict[str, float]:
        """Pooled acceptance length of each group at the drafter's block size.

        Args:
            drafter: The drafter, which is moved to the pair's device and dtype.

        Returns:
            Tokens per pass of the groups `all`, `seen`, `unseen`, `language/…` and `family/…`.
        """
        size = drafter.config.block_size
        assert size is not None
        module: torch.nn.Module = drafter
        module.to(self._pair.device, self._pair.dtype)
        lean = LeanDrafter(drafter, self._target)
        tokens, passes = Counter[str](), Counter[str]()
        for [steps], names in zip(replay(lean, self._answers, [size]), self._groups, strict=True):
            for name in names:
                tokens[name] += sum(steps)
                passes[name] += len(steps)
        return {name: tokens[name] / passes[name] for name in tokens}


def append_measure(path: Path, leg: int, step: int, acceptance: dict[str, float]) -> None:
    """Add a line to a JSON Lines file; lines of the same or later steps are replaced.

    Args:
        path: The file.
        leg: Number of the leg, from 1.
        step: Step of the leg.
        acceptance: The result of `HeldOut.measure`.
    """
    lines = [line for line in measures(path) if (line["leg"], line["step"]) < (leg, step)]
    lines.append({"leg": leg, "step": step, "acceptance": acceptance})
    with atomic_write(path) as partial:
        partial.write_text("".join(json.dumps(x) + "\n" for x in lines), encoding="utf-8")


def measures(path: Path) -> list[dict[str, object]]:
    """Read the lines that `append_measure` has written."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
