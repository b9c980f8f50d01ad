"""Prompts that the target writes itself, for targets without prompts at hand.

The chat template up to the user's message is the start of a text, and the target continues it as a
user would (as in Magpie, Xu et al., 2024). Texts that end are prompts.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

from blockpilot_rl.decoding.batched import continue_batch
from blockpilot_rl.decoding.forward import TargetForward
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import atomic_write
from blockpilot_rl.models.messages import COMPLETION
from blockpilot_rl.models.pairs import Pair
from blockpilot_rl.progress import ProgressCallback
from blockpilot_rl.prompts import Prompt

OWN = "target:"
"""How a source of prompts that the target writes begins; the number of prompts follows."""

_BATCH = 128
_LONGEST = 160
_SHORTEST = 8
_FRUITLESS = 5


def own_count(source: str) -> int:
    """Number of prompts of a source such as `target:2000`.

    Raises:
        BlockPilotError: If it is not a whole number above 0.
    """
    count = source.removeprefix(OWN)
    if not (count.isascii() and count.isdecimal() and int(count)):
        raise BlockPilotError(f"prompts {source!r} must be {OWN}N with a number of prompts N")
    return int(count)


def own_prompts(
    pair: Pair, target: TargetForward, count: int, path: Path, progress: ProgressCallback
) -> list[Prompt]:
    """Let the target write prompts, at temperature 1; repeated texts are left out.

    Args:
        pair: The target.
        target: Its forward pass.
        count: Number of prompts.
        path: JSON Lines file where they are kept. Prompts that it has are not written again.
        progress: Called with the task `prompts`.

    Returns:
        The prompts, of the family `target` and the language `und`, which means unknown.

    Raises:
        BlockPilotError: If the target has no chat template, or writes no new prompts.
    """
    prefix = torch.tensor(_user_prefix(pair), device=pair.device)
    rows = []
    if path.exists():
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    seen = {row["prompt"] for row in rows}
    batch = rows[-1]["seed"] // _BATCH + 1 if rows else 0
    fruitless = 0
    while len(rows) < count:
        progress("prompts", len(rows), count)
        seeds = list(range(batch * _BATCH, (batch + 1) * _BATCH))
        batch, before = batch + 1, len(rows)
        for seed, text in zip(seeds, _write(pair, target, prefix, seeds), strict=True):
            if text is not None and len(text) >= _SHORTEST and text not in seen:
                seen.add(text)
                rows.append({"prompt": text, "seed": seed})
        fruitless = 0 if len(rows) > before else fruitless + 1
        if fruitless == _FRUITLESS:
            raise BlockPilotError(
                f"the target wrote {len(rows)} prompts and then no new ones in {_FRUITLESS} "
                f"batches; ask for {OWN}{max(1, len(rows))} or give prompts of your own"
            )
        with atomic_write(path) as partial:
            lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
            partial.write_text("".join(lines), encoding="utf-8")
    progress("prompts", count, count)
    texts = [row["prompt"] for row in rows[:count]]
    return [Prompt.from_text(text, family="target", language="und") for text in texts]


def _user_prefix(pair: Pair) -> list[int]:
    """Tokens of the chat template before the user's message."""
    mark = "XYZZY"
    if COMPLETION in (pair.template or {}) or not getattr(pair.tokenizer, "chat_template", None):
        raise BlockPilotError(
            f"prompts {OWN}N need a target with a chat template; give prompts of your own"
        )
    text = str(
        pair.tokenizer.apply_chat_template(
            [{"role": "user", "content": mark}], tokenize=False, **(pair.template or {})
        )
    )
    prefix = text[: text.index(mark)]
    ids: list[int] = pair.tokenizer(prefix, add_special_tokens=False).input_ids
    if not ids:
        raise BlockPilotError(
            f"the chat template has nothing before the user's message, so the target cannot write "
            f"prompts; give prompts of your own instead of {OWN}N"
        )
    return ids


def _write(
    pair: Pair, target: TargetForward, prefix: torch.Tensor, seeds: list[int]
) -> list[str | None]:
    """Sample a user's message with each seed; None if it does not end or has special tokens."""
    texts: list[str | None] = []
    special = set(pair.tokenizer.all_special_ids)
    prompts = [prefix] * len(seeds)
    stops = pair.stop_token_ids
    for answer in continue_batch(target, prompts, _LONGEST, stops, Sampling(1.0), seeds):
        *said, last = answer.output_ids.tolist()
        whole = last in stops and special.isdisjoint(said)
        texts.append(str(pair.tokenizer.decode(said)).strip() if whole else None)
    return texts
