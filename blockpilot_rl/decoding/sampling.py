"""Drafter-invariant sampling: the same text for every block size, at any temperature.

The target's choice at position `t` is `argmax(logits / T + g_t)`, where the Gumbel noise `g_t`
comes from `(seed, t)` alone, so each choice is an exact sample of the target's distribution
(Gumbel-max) and does not depend on how the position was reached. The drafter proposes with the same
noise, which makes it agree with the target as often as two samplers without communication can
(Daliri, Musco and Suresh, arXiv 2408.07978). A draft is accepted while it equals the choice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from transformers import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from blockpilot_rl.errors import BlockPilotError


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen.

    Attributes:
        temperature: 0 is greedy.
        top_k: Keep this many most probable tokens; 0 keeps all.
        top_p: Keep the most probable tokens that hold this much probability; 1 keeps all.
        seed: Decides the noise of every position.
        draft: Whether drafts share the noise (`shared`) or are the drafter's most probable tokens
            (`argmax`). The text is the same; acceptance differs.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    draft: Literal["shared", "argmax"] = "shared"

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            BlockPilotError: If a value is out of range.
        """
        if not 0 <= self.temperature < float("inf"):
            raise BlockPilotError(f"temperature must be 0 or more, not {self.temperature}")
        if self.top_k < 0:
            raise BlockPilotError(f"top_k must be 0 (off) or more, not {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise BlockPilotError(f"top_p must be in (0, 1], not {self.top_p}")
        if self.seed < 0:
            raise BlockPilotError(f"seed must be 0 or more, not {self.seed}")
        if self.draft not in ("shared", "argmax"):
            raise BlockPilotError(f"draft must be 'shared' or 'argmax', not {self.draft!r}")

    @property
    def is_greedy(self) -> bool:
        """Whether the target's choices need no noise."""
        return self.temperature == 0

    @property
    def noisy_drafts(self) -> bool:
        """Whether drafts need noise."""
        return not self.is_greedy and self.draft == "shared"

    def choose(self, logits: torch.Tensor, noise: torch.Tensor | None) -> torch.Tensor:
        """Choose the target's tokens.

        Args:
            logits: The target's, `[n, vocab]`.
            noise: Gumbel noise of each position, same shape; not read if `is_greedy`.

        Returns:
            Token ids, `[n]`.
        """
        if self.is_greedy:
            return greedy(logits)
        assert noise is not None
        # None of the warpers reads the tokens so far.
        no_tokens = torch.empty((len(logits), 0), dtype=torch.long, device=logits.device)
        scores: torch.Tensor = self._warpers()(no_tokens, logits.float())  # type: ignore[arg-type]
        return greedy(scores + noise)

    def propose(self, logits: torch.Tensor, noise: torch.Tensor | None) -> torch.Tensor:
        """Choose draft tokens.

        Args:
            logits: The drafter's, `[n, draft_vocab]`.
            noise: Gumbel noise of each position for the draft vocabulary, same shape; not read
                unless `noisy_drafts`.

        Returns:
            Draft ids, `[n]`.
        """
        if not self.noisy_drafts:
            return greedy(logits)
        assert noise is not None
        return greedy(logits.float() / self.temperature + noise)

    def _warpers(self) -> LogitsProcessorList:
        """The warpers that transformers' `generate` would use."""
        warpers = LogitsProcessorList()
        if self.temperature > 0:
            warpers.append(TemperatureLogitsWarper(float(self.temperature)))
        if self.top_k > 0:
            warpers.append(TopKLogitsWarper(self.top_k))
        if self.top_p < 1:
            warpers.append(TopPLogitsWarper(float(self.top_p)))
        return warpers


GREEDY = Sampling()


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """Most probable token of `[..., vocab]` logits (the first of equals).

    `max` is three times faster than `argmax` for bfloat16 on CPUs.
    """
    return logits.max(dim=-1).indices


class Sampler:
    """Chooses tokens for one text; greedy sampling makes no noise.

    Noise is held for the positions asked for last, which for a decode are those of its block, so
    it takes no more memory than one block and is made once per position as long as blocks move on.
    """

    def __init__(self, sampling: Sampling, vocab_size: int) -> None:
        """Start without noise."""
        self.sampling = sampling
        self.vocab_size = vocab_size
        self._first = 0
        self._noise = torch.empty((0, vocab_size))

    def choose(self, logits: torch.Tensor, position: int) -> torch.Tensor:
        """Choose the target's tokens at consecutive positions.

        Args:
            logits: `[n, vocab]`, for positions `position … position + n - 1`.
            position: Absolute position of the first chosen token.

        Returns:
            Token ids, `[n]`.
        """
        if self.sampling.is_greedy:
            return greedy(logits)
        return self.sampling.choose(logits, self.noise(position, len(logits), logits.device))

    def propose(
        self, logits: torch.Tensor, position: int, token_ids: torch.Tensor | None
    ) -> torch.Tensor:
        """Choose draft tokens at consecutive positions.

        Args:
            logits: `[n, draft_vocab]`.
            position: Absolute position of the first drafted token.
            token_ids: Target id of each draft id, or None if the vocabularies are one.

        Returns:
            Draft ids, `[n]`.
        """
        if not self.sampling.noisy_drafts:
            return greedy(logits)
        noise = self.noise(position, len(logits), logits.device)
        return self.sampling.propose(logits, noise if token_ids is None else noise[:, token_ids])

    def begin_block(self, position: int, n: int, device: torch.device) -> None:
        """Make the noise of a whole block before its drafts are proposed, maybe one by one.

        Args:
            position: Absolute position of the first draft.
            n: Positions that the target will choose.
            device: Where the logits will be.
        """
        if self.sampling.noisy_drafts:
            self.noise(position, n, device)

    def forget(self) -> None:
        """Drop the noise that is held; it will be made anew, the same."""
        self._noise = torch.empty((0, self.vocab_size))

    def noise(self, position: int, n: int, device: torch.device) -> torch.Tensor:
        """Gumbel noise of consecutive positions, to read only.

        If not all of them are held, these become the ones that are.

        Args:
            position: The first one, absolute.
            n: How many.
            device: Where to put it.

        Returns:
            `[n, vocab]`, float32.
        """
        start = position - self._first
        if start < 0 or start + n > len(self._noise):
            kept = (self._noise[start:] if start >= 0 else self._noise[:0]).to(device)
            places = ((self.sampling.seed, t) for t in range(position + len(kept), position + n))
            made = gumbel_rows(places, self.vocab_size).to(device)
            self._first, self._noise, start = position, torch.cat([kept, made]), 0
        return self._noise[start : start + n]


def gumbel(seed: int, position: int, size: int) -> torch.Tensor:
    """Standard Gumbel noise that `(seed, position)` alone decides, `[size]`, float32 on the CPU."""
    # SeedSequence mixes the pair so that neighbouring seeds and positions are unrelated.
    state = np.random.SeedSequence((seed, position)).generate_state(1, np.uint64)
    generator = torch.Generator().manual_seed(int(state[0]) % 2**63)
    exponential = torch.empty(size).exponential_(generator=generator)
    return -exponential.log()


def gumbel_rows(places: Iterable[tuple[int, int]], size: int) -> torch.Tensor:
    """Noise of several places, each a seed and a position, `[places, size]`, as `gumbel` gives."""
    return torch.stack([gumbel(seed, position, size) for seed, position in places])
