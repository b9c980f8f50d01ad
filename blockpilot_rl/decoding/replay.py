"""Exact replay: the outcome of every block size, computed from one continuation.

The text does not depend on the block size, so a draft at position `s` with block size `b` is a
function of `(s, b)` alone, at any temperature. Given the target's features along its own
continuation, the accepted lengths of all block sizes need drafter passes only, and no further
target pass.

A pass drafts blocks of all sizes and of several texts at once. The head reads a draft only while
all drafts before it are right, which rarely reaches far into a block.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from blockpilot_rl.decoding.batched import Continuation
from blockpilot_rl.decoding.drafting import Blocks, LeanDrafter
from blockpilot_rl.decoding.sampling import gumbel
from blockpilot_rl.decoding.state import draft_features

_TEXTS = 16
"""Texts that share a pass, enough for large matrices."""

_TOKENS = 256
"""Approximate number of tokens of one text in a pass of a trace."""


@dataclass(frozen=True, eq=False)
class Trace:
    """The outcome of a pass anchored at any output token.

    Attributes:
        accepted: Tokens that a pass anchored at output token `i` emits with each block size,
            clipped to the end of the text, `[m - 1, arms]`, int16; 1 for plain decoding.
        confidences: The drafter's top-1 probabilities along a block of the largest size at that
            anchor, `[m - 1, largest - 1]`, float16.
    """

    accepted: np.ndarray
    confidences: np.ndarray

    def trajectory(self, arm: int) -> list[int]:
        """Tokens emitted by each decode pass after prefill.

        Args:
            arm: Column of the block size.
        """
        steps: list[int] = []
        anchor = 0
        while anchor < len(self.accepted):
            steps.append(int(self.accepted[anchor, arm]))
            anchor += steps[-1]
        return steps


@torch.inference_mode()
def replay(
    drafter: LeanDrafter, continuations: Sequence[Continuation], block_sizes: Sequence[int]
) -> list[list[list[int]]]:
    """Replay continuations under every block size.

    Args:
        drafter: The drafter's lean pass.
        continuations: The target's own texts with their features, sampled alike but for the seed.
        block_sizes: Block sizes; 1 is plain decoding.

    Returns:
        For each continuation and block size, the tokens emitted by each decode pass after prefill.
        The last pass is clipped to the text, so they sum to one less than the emitted tokens.

    Raises:
        ValueError: If the continuations are not sampled alike.
    """
    groups = _groups(drafter, continuations, sum(block_sizes))
    return [row for texts in groups for row in _trajectories(texts, block_sizes)]


@torch.inference_mode()
def trace(
    drafter: LeanDrafter, continuations: Sequence[Continuation], block_sizes: Sequence[int]
) -> list[Trace]:
    """Compute the outcome of every block size at every position of continuations.

    Args:
        drafter: The drafter's lean pass.
        continuations: The target's own texts with their features, sampled alike but for the seed.
        block_sizes: Block sizes, increasing, the largest above 1.

    Returns:
        A trace of each continuation.

    Raises:
        ValueError: If the continuations are not sampled alike.
    """
    room = _anchors(block_sizes) * sum(block_sizes)
    groups = _groups(drafter, continuations, room)
    return [item for texts in groups for item in _traces(texts, block_sizes)]


class _Texts:
    """Texts whose features the drafter has read, so that it can draft at any of their positions."""

    def __init__(
        self,
        drafter: LeanDrafter,
        continuations: Sequence[Continuation],
        room: int,
    ) -> None:
        self.drafter, device = drafter, drafter.device
        texts = [torch.cat([item.prompt_ids, item.output_ids]) for item in continuations]
        self.tokens = pad_sequence(texts, batch_first=True).to(device)
        # Positions of each text's first anchor and of its last token.
        self.starts = torch.tensor([len(x.prompt_ids) for x in continuations], device=device)
        self.ends = torch.tensor([len(text) - 1 for text in texts], device=device)
        features = pad_sequence([item.features for item in continuations], batch_first=True)
        self.cache = drafter.new_cache(len(texts), features.shape[1] + room)
        drafter.extend(features.to(device), self.cache)
        self.sampling, *others = {dataclasses.replace(x.sampling, seed=0) for x in continuations}
        if others:
            raise ValueError(f"continuations of one replay are sampled differently: {others}")
        self._seeds = torch.tensor([x.sampling.seed for x in continuations], device=device)
        ids = drafter.token_ids
        self._ids = torch.arange(drafter.target.vocab_size, device=device) if ids is None else ids

    def blocks(self, rows: torch.Tensor, starts: torch.Tensor, sizes: torch.Tensor) -> Blocks:
        """Blocks at some positions of some texts."""
        return Blocks(rows, starts, self.tokens[rows, starts], sizes)

    def emitted(self, blocks: Blocks, states: torch.Tensor) -> torch.Tensor:
        """Count the tokens that a pass over each block emits, clipped to its text, `[blocks]`.

        Args:
            blocks: The blocks.
            states: Their hidden states, as `LeanDrafter.draft_at` returns them.
        """
        left = self.ends[blocks.rows] - blocks.starts
        drafts = torch.minimum(blocks.sizes - 1, left)
        accepted = torch.zeros_like(left)
        alive = torch.arange(len(left), device=left.device)
        for offset in range(1, int(drafts.max()) + 1):
            alive = alive[drafts[alive] >= offset]
            if not len(alive):
                break
            rows, places = blocks.rows[alive], blocks.starts[alive] + offset
            # A draft is read only while all drafts before it are right.
            before = self.tokens[rows, places - 1]
            logits = self.drafter.logits(states[blocks.firsts[alive] + offset], before)
            noise = None
            if self.sampling.noisy_drafts:
                noise = self._noise(rows, places)
            proposed = self.drafter.to_target_ids(self.sampling.propose(logits, noise))
            alive = alive[proposed == self.tokens[rows, places]]
            accepted[alive] += 1
        return torch.minimum(accepted + 1, left)

    def _noise(self, rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Noise for the draft vocabulary, computed once where arms share a place, `[n, vocab]`."""
        pairs = torch.stack([self._seeds[rows], places], dim=1)
        distinct, which = pairs.unique(dim=0, return_inverse=True)
        return gumbel(distinct[:, 0], distinct[:, 1], self._ids)[which]


def _groups(
    drafter: LeanDrafter, continuations: Sequence[Continuation], room: int
) -> Iterator[_Texts]:
    for first in range(0, len(continuations), _TEXTS):
        yield _Texts(drafter, continuations[first : first + _TEXTS], room)


def _trajectories(texts: _Texts, block_sizes: Sequence[int]) -> list[list[list[int]]]:
    """Decode all texts with all block sizes, with one drafter pass per step of all of them."""
    sizes = torch.tensor(block_sizes, device=texts.starts.device)
    counts = (texts.ends - texts.starts).tolist()
    emitted = [[[1] * count if size == 1 else [] for size in block_sizes] for count in counts]
    positions = torch.where(sizes > 1, texts.starts[:, None], texts.ends[:, None])
    while True:
        rows, arms = (positions < texts.ends[:, None]).nonzero(as_tuple=True)
        if not len(rows):
            return emitted
        blocks = texts.blocks(rows, positions[rows, arms], sizes[arms])
        steps = texts.emitted(blocks, texts.drafter.draft_at(blocks, texts.cache))
        positions[rows, arms] += steps
        for row, arm, step in zip(rows.tolist(), arms.tolist(), steps.tolist(), strict=True):
            emitted[row][arm].append(step)


def _anchors(block_sizes: Sequence[int]) -> int:
    """Number of anchors of one text in a pass of a trace."""
    return max(1, _TOKENS // sum(block_sizes))


def _traces(texts: _Texts, block_sizes: Sequence[int]) -> list[Trace]:
    """Draft with all block sizes at all anchors of all texts, some anchors at a time."""
    device, largest = texts.starts.device, max(block_sizes)
    sizes = torch.tensor(block_sizes, device=device)
    masks = torch.arange(1, largest, device=device)
    counts = texts.ends - texts.starts
    shape = (len(counts), int(counts.max()))
    accepted = torch.ones(*shape, len(sizes), dtype=torch.int16, device=device)
    confidences = torch.zeros(*shape, largest - 1, dtype=torch.float16, device=device)
    window = _anchors(block_sizes)
    for first in range(0, shape[1], window):
        anchors = torch.arange(first, first + window, device=device)
        wanted = (anchors[:, None] < counts[:, None, None]) & (sizes > 1)
        rows, places, arms = wanted.nonzero(as_tuple=True)
        places += first
        blocks = texts.blocks(rows, texts.starts[rows] + places, sizes[arms])
        states = texts.drafter.draft_at(blocks, texts.cache)
        accepted[rows, places, arms] = texts.emitted(blocks, states).to(torch.int16)
        whole = blocks.sizes == largest
        whole_states = states[blocks.firsts[whole, None] + masks]
        logits = texts.drafter.greedy_logits(whole_states, blocks.anchors[whole])
        confidences[rows[whole], places[whole]] = draft_features(logits).half()
    return [
        Trace(accepted[row, :count].cpu().numpy(), confidences[row, :count].cpu().numpy())
        for row, count in enumerate(counts.tolist())
    ]
