"""Exact replay: the outcome of every block size, computed from one continuation.

The text does not depend on the block size, so a draft at position `s` with block size `b` is a
function of `(s, b)` alone, at any temperature. Given the target's features along its own
continuation, the accepted lengths of all block sizes need drafter passes only, and no further
target pass.

A pass drafts blocks of all sizes and of several texts at once. The head reads a draft only while
all drafts before it are right, which rarely reaches far into a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from blockpilot_rl.decoding.batched import Continuation
from blockpilot_rl.decoding.drafting import Blocks, LeanDrafter
from blockpilot_rl.decoding.latency import pass_sizes
from blockpilot_rl.decoding.sampling import gumbel
from blockpilot_rl.decoding.state import next_token_features

_TEXTS = 16
"""Texts that share a pass, enough for large matrices."""

_TOKENS = 256
"""Approximate number of tokens of one text in a pass of a trace."""

_ROWS = 128
"""Drafts whose logits are read together, few enough to stay in the cache."""


@dataclass(frozen=True, eq=False)
class Trace:
    """The outcome of a pass anchored at any output token, under every draft length.

    A text of `m` output tokens has `m - 1` anchors: output token `i` is the anchor of the pass that
    emits tokens `i + 1, …`. A block of size `b` is the anchor and `b - 1` drafts; it is shorter
    near the end of the budget, where it has no more drafts than tokens are left (`sizes`).

    The drafts of a block are its *chain*. The chains of all block sizes are stored side by side,
    those of `block_sizes[0]` first: `draft_columns(block_sizes)` gives the columns of each,
    `block_sizes[arm] - 1` of them, and `drafts` is their total number. Drafts that a shorter block
    does not have are 0. Chains of different block sizes differ, also at the same place, since the
    masks of a block attend to each other; they agree only for drafters that are causal. A chain is
    what the decoder drafts: at a temperature, each draft is proposed with the noise, and the next
    one is based on it.

    So a round is known exactly: draft a block of some size at anchor `i`, stop the chain early or
    not, verify the first `k` drafts, and emit `min(accepted[i, arm], k + 1)` tokens.

    Traces of release 0.1 hold `accepted` and the greedy confidences of the largest block alone;
    their other fields are None, and their blocks were whole to the end.

    Attributes:
        accepted: Tokens that a pass emits if it verifies the whole block, the target's own
            included, clipped to the end of the text, `[m - 1, arms]`, int16; 1 for plain decoding.
        confidences: The drafter's probability of its most probable token for each draft, given the
            drafts before it in the chain, at temperature 1, `[m - 1, drafts]`, float16. In traces
            of 0.1 `[m - 1, block_sizes[-1] - 1]`.
        margins: That probability minus the one of the second token, `[m - 1, drafts]`, float16.
        proposed: The drafter's probability at the text's temperature of the token that it proposed,
            `[m - 1, drafts]`, float16; None for greedy texts, which propose the most probable.
        next_token: Entropy in nats, top-1 probability and top-2 margin of the target's distribution
            at temperature 1 that output token `i` was chosen from, `[m, 3]`, float16. Row `i` is
            known before the pass that is anchored at `i`; row `i + 1` is its anchor's next token.
        max_new_tokens: Budget of the text; None in traces of 0.1.
    """

    accepted: np.ndarray
    confidences: np.ndarray
    margins: np.ndarray | None = None
    proposed: np.ndarray | None = None
    next_token: np.ndarray | None = None
    max_new_tokens: int | None = None

    @property
    def is_extended(self) -> bool:
        """Whether it holds the chains of all block sizes, not only that of the largest."""
        return self.margins is not None

    def sizes(self, block_sizes: Sequence[int]) -> np.ndarray:
        """Size of the block that is drafted at each anchor, `[m - 1, arms]`.

        Args:
            block_sizes: The arms.
        """
        anchors = np.arange(len(self.accepted))[:, None]
        return pass_sizes(np.asarray(block_sizes), anchors, self.max_new_tokens)

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


def draft_columns(block_sizes: Sequence[int]) -> list[slice]:
    """Columns of a trace's `confidences`, `margins` and `proposed` that each block size has.

    The largest size has the last columns, also in traces of release 0.1.

    Args:
        block_sizes: The arms, increasing.
    """
    ends = np.cumsum([size - 1 for size in block_sizes]).tolist()
    return [slice(end - size + 1, end) for size, end in zip(block_sizes, ends, strict=True)]


def is_drafted(block_sizes: Sequence[int], anchors: int, max_new_tokens: int | None) -> np.ndarray:
    """Which drafts of a trace a block has: all but those that a shorter one lacks.

    Args:
        block_sizes: The arms, increasing.
        anchors: Number of anchors.
        max_new_tokens: Budget of the text; None if every block was whole.

    Returns:
        Booleans `[anchors, drafts]`, with the columns of `draft_columns`.
    """
    numbers = np.concatenate([np.arange(1, size) for size in block_sizes])
    chosen = np.repeat(block_sizes, np.subtract(block_sizes, 1))
    return pass_sizes(chosen, np.arange(anchors)[:, None], max_new_tokens) > numbers


def encode_probabilities(values: np.ndarray) -> np.ndarray:
    """Round probabilities to one of 256 codes, `c = round(255 sqrt(-ln p / 10))`.

    The relative error is about `sqrt(10 * -ln p) / 255`: nothing near 1, 1% at 0.5, 1.9% at 0.1,
    and 3.9% at the smallest value, e^-10 or 4.5e-5, which smaller probabilities are raised to.

    Args:
        values: Probabilities, any shape.

    Returns:
        uint8 of the same shape.
    """
    negative = -np.log(np.maximum(np.asarray(values, np.float32), np.float32(np.exp(-10.0))))
    codes = np.rint(255 * np.sqrt(np.maximum(negative, 0) / 10))
    return np.asarray(codes.astype(np.uint8))


def decode_probabilities(codes: np.ndarray) -> np.ndarray:
    """Read codes of `encode_probabilities` as float16."""
    return np.asarray(_PROBABILITIES[codes])


_PROBABILITIES = np.exp(-10 * (np.arange(256) / 255) ** 2).astype(np.float16)


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
    return [row for texts, _ in groups for row in _trajectories(texts, block_sizes)]


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
    return [item for group in groups for item in _traces(*group, block_sizes)]


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
        self.budgets = torch.tensor([item.max_new_tokens for item in continuations], device=device)
        features = pad_sequence([item.features for item in continuations], batch_first=True)
        self.cache = drafter.new_cache(len(texts), features.shape[1] + room)
        drafter.extend(features.to(device), self.cache)
        self.sampling, *others = {replace(x.sampling, seed=0) for x in continuations}
        if others:
            raise ValueError(f"continuations of one replay are sampled differently: {others}")
        self._seeds = torch.tensor([x.sampling.seed for x in continuations], device=device)
        ids = drafter.token_ids
        self._ids = torch.arange(drafter.target.vocab_size, device=device) if ids is None else ids

    def blocks(self, rows: torch.Tensor, starts: torch.Tensor, sizes: torch.Tensor) -> Blocks:
        """Blocks at some positions of some texts, shorter near the end of the budget."""
        room = self.starts[rows] + self.budgets[rows] - starts
        return Blocks(rows, starts, self.tokens[rows, starts], torch.minimum(sizes, room))

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

    def chains(self, blocks: Blocks, states: torch.Tensor) -> _Chains:
        """Draft the chain of each block, and compare it with the text.

        Args:
            blocks: The blocks.
            states: Their hidden states, as `LeanDrafter.draft_at` returns them.
        """
        count, longest = len(blocks.sizes), int(blocks.sizes.max()) - 1
        accepted = torch.zeros_like(blocks.sizes)
        values = states.new_zeros(count, longest, 3, dtype=torch.float32)
        before, right = blocks.anchors.clone(), torch.ones_like(blocks.sizes, dtype=torch.bool)
        for offset in range(1, longest + 1):
            for alive in (blocks.sizes > offset).nonzero()[:, 0].split(_ROWS):
                rows, places = blocks.rows[alive], blocks.starts[alive] + offset
                logits = self.drafter.logits(states[blocks.firsts[alive] + offset], before[alive])
                noise = self._noise(rows, places) if self.sampling.noisy_drafts else None
                drafts, values[alive, offset - 1] = self._propose(logits, noise)
                before[alive] = proposed = self.drafter.to_target_ids(drafts)
                inside = places <= self.ends[rows]
                right[alive] &= inside & (proposed == self.tokens[rows, places * inside])
                accepted[alive] += right[alive]
        left = self.ends[blocks.rows] - blocks.starts
        return _Chains(torch.minimum(accepted + 1, left), values)

    def _propose(
        self, logits: torch.Tensor, noise: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Choose drafts and describe them.

        Args:
            logits: `[n, draft_vocab]`; overwritten.
            noise: As for `Sampling.propose`.

        Returns:
            Draft ids, `[n]`, and their values as in `_Chains`, `[n, 3]`.
        """
        temperature = 1.0 if self.sampling.is_greedy else self.sampling.temperature
        top, best = logits.max(dim=-1)
        drafts = best if noise is None else self.sampling.propose(logits, noise)
        relative = logits.float().sub_(top[:, None])
        chosen = relative.gather(1, drafts[:, None])[:, 0] / temperature
        tempered = (relative / temperature).exp_().sum(dim=-1) if temperature != 1 else None
        odds = relative.exp_()
        total = odds.sum(dim=-1)
        odds.scatter_(1, best[:, None], 0.0)
        margins = (1 - odds.amax(dim=-1)) / total
        proposed = chosen.exp() / (total if tempered is None else tempered)
        return drafts, torch.stack([1 / total, margins, proposed], dim=-1)

    def _noise(self, rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Noise for the draft vocabulary, computed once where arms share a place, `[n, vocab]`."""
        pairs = torch.stack([self._seeds[rows], places], dim=1)
        distinct, which = pairs.unique(dim=0, return_inverse=True)
        return gumbel(distinct[:, 0], distinct[:, 1], self._ids)[which]


@dataclass(frozen=True)
class _Chains:
    """Drafted chains of some blocks.

    Attributes:
        accepted: Tokens that a pass over each block emits, clipped to its text, `[blocks]`.
        values: `Trace.confidences`, `margins` and `proposed` of each draft, `[blocks, drafts, 3]`,
            0 for drafts that a block does not have.
    """

    accepted: torch.Tensor
    values: torch.Tensor


def _groups(
    drafter: LeanDrafter, continuations: Sequence[Continuation], room: int
) -> Iterator[tuple[_Texts, Sequence[Continuation]]]:
    for first in range(0, len(continuations), _TEXTS):
        some = continuations[first : first + _TEXTS]
        yield _Texts(drafter, some, room), some


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


def _traces(
    texts: _Texts, continuations: Sequence[Continuation], block_sizes: Sequence[int]
) -> list[Trace]:
    """Draft with all block sizes at all anchors of all texts, some anchors at a time."""
    device = texts.starts.device
    sizes = torch.tensor(block_sizes, device=device)
    counts = texts.ends - texts.starts
    shape = (len(counts), int(counts.max()), len(sizes))
    accepted = torch.ones(shape, dtype=torch.int16, device=device)
    values = torch.zeros(*shape, max(block_sizes) - 1, 3, device=device)
    window = _anchors(block_sizes)
    # Start at the last anchors: drafting overwrites the context after an anchor.
    for first in reversed(range(0, shape[1], window)):
        anchors = torch.arange(first, first + window, device=device)
        wanted = (anchors[:, None] < counts[:, None, None]) & (sizes > 1)
        rows, places, arms = wanted.nonzero(as_tuple=True)
        places += first
        blocks = texts.blocks(rows, texts.starts[rows] + places, sizes[arms])
        states = texts.drafter.draft_at(blocks, texts.cache, keeps_context=False)
        chains = texts.chains(blocks, states)
        accepted[rows, places, arms] = chains.accepted.to(torch.int16)
        values[rows, places, arms, : chains.values.shape[1]] = chains.values
    drafts = torch.cat(
        [values[:, :, arm, : size - 1] for arm, size in enumerate(block_sizes)], dim=2
    ).cpu()
    traces = []
    for row, (item, count) in enumerate(zip(continuations, counts.tolist(), strict=True)):
        rounded = decode_probabilities(encode_probabilities(drafts[row, :count].numpy()))
        rounded[~is_drafted(block_sizes, count, item.max_new_tokens)] = 0
        confidences, margins, proposed = np.ascontiguousarray(np.moveaxis(rounded, 2, 0))
        traces.append(
            Trace(
                accepted[row, :count].cpu().numpy(),
                confidences,
                margins,
                None if item.sampling.is_greedy else proposed,
                _next_tokens(texts, item),
                item.max_new_tokens,
            )
        )
    return traces


def _next_tokens(texts: _Texts, item: Continuation) -> np.ndarray:
    """Describe the target's distribution of every output token; see `Trace.next_token`."""
    target = texts.drafter.target
    last = item.last[len(item.prompt_ids) - 1 :].to(texts.starts.device)
    parts = [next_token_features(target.logits(some)) for some in last.split(64)]
    return torch.cat(parts).half().cpu().numpy()
