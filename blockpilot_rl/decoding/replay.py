"""Exact replay: what every block size would have done, from one continuation.

The text does not depend on the block size, so a draft made at position `s` with block size `b` is
a function of `(s, b)` alone. Given the target's features along its own continuation, the accepted
lengths of every arm need drafter passes only; no further target pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.utils.rnn import pad_sequence

from blockpilot_rl.decoding.batched import Continuation
from blockpilot_rl.decoding.drafting import LeanDrafter
from blockpilot_rl.decoding.lean import KVCache
from blockpilot_rl.decoding.sampling import greedy


@torch.inference_mode()
def replay(
    drafter: LeanDrafter, continuations: Sequence[Continuation], block_sizes: Sequence[int]
) -> list[list[list[int]]]:
    """Replay a batch of continuations under every block size.

    Args:
        drafter: The drafter's lean pass.
        continuations: The target's own texts with their features.
        block_sizes: Arms; 1 is plain decoding.

    Returns:
        For each continuation and block size, the tokens emitted by each decode pass behind
        prefill: the last is clipped to the text, so they sum to one less than the emitted tokens.
    """
    texts = [torch.cat([item.prompt_ids, item.output_ids]) for item in continuations]
    cache = drafter.new_cache(len(texts), max(len(text) for text in texts) + max(block_sizes))
    device = drafter.device
    features = pad_sequence([item.features for item in continuations], batch_first=True)
    drafter.extend(features.to(device), cache)
    padded = pad_sequence(texts, batch_first=True, padding_value=-1).to(device)
    starts = torch.tensor([len(item.prompt_ids) for item in continuations], device=device)
    ends = torch.tensor([len(text) - 1 for text in texts], device=device)
    by_arm = [
        [[1] * int(n) for n in ends - starts]
        if size == 1
        else _trajectories(drafter, padded, starts.clone(), ends, size, cache)
        for size in block_sizes
    ]
    return [[arm[row] for arm in by_arm] for row in range(len(texts))]


def _trajectories(
    drafter: LeanDrafter,
    texts: torch.Tensor,
    positions: torch.Tensor,
    ends: torch.Tensor,
    block_size: int,
    cache: KVCache,
) -> list[list[int]]:
    """Walk all texts under one block size, one drafter pass for a step of all of them.

    Args:
        drafter: The drafter's lean pass.
        texts: Prompts and continuations, `[rows, length]`, padded with -1.
        positions: Position of each row's first anchor, `[rows]`; advanced in place.
        ends: Position of each row's last token, `[rows]`.
        block_size: Anchor and masks together, at least 2.
        cache: The drafter's context of all texts.
    """
    emitted: list[list[int]] = [[] for _ in range(len(texts))]
    padded = torch.nn.functional.pad(texts, (0, block_size), value=-1)
    offsets = torch.arange(1, block_size, device=texts.device)
    while True:
        rows = (positions < ends).nonzero()[:, 0]
        if not len(rows):
            return emitted
        starts = positions[rows]
        anchors = padded[rows, starts]
        logits = drafter.draft_at(rows, starts, anchors, block_size, cache)
        drafts = drafter.to_target_ids(greedy(logits))
        truth = padded[rows[:, None], starts[:, None] + offsets]
        accepted = (drafts == truth).long().cumprod(dim=1).sum(dim=1)
        steps = torch.minimum(accepted + 1, ends[rows] - starts)
        positions[rows] += steps
        for row, step in zip(rows.tolist(), steps.tolist(), strict=True):
            emitted[row].append(step)
