"""Drafter-invariant sampling: the same text for every block size, at any temperature.

The target chooses `argmax(logits / T + g_t)` at position `t`. The Gumbel noise `g_t` depends only
on the seed, the position and the token. Each choice is therefore an exact sample of the target's
distribution (the Gumbel-max trick) and does not depend on the blocks before it. The drafter
proposes with the same noise, so it agrees with the target as often as two samplers that do not
communicate can (Daliri, Musco and Suresh, arXiv 2408.07978). A draft is accepted if it equals the
target's choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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
        seed: Random seed of the noise, from 0 to 2**63 - 1.
        draft: `shared` proposes drafts with the target's noise, `argmax` proposes the drafter's
            most probable tokens. The text is the same; acceptance differs.
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
        if not 0 <= self.seed < 2**63:
            raise BlockPilotError(f"seed must be from 0 to 2**63 - 1, not {self.seed}")
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
            noise: Gumbel noise of each position, same shape; unused if `is_greedy`.

        Returns:
            Token ids, `[n]`.
        """
        if self.is_greedy:
            return greedy(logits)
        assert noise is not None
        # The warpers do not read the tokens so far.
        no_tokens = torch.empty((len(logits), 0), dtype=torch.long, device=logits.device)
        scores: torch.Tensor = self._warpers()(no_tokens, logits.float())  # type: ignore[arg-type]
        return greedy(scores + noise)

    def propose(self, logits: torch.Tensor, noise: torch.Tensor | None) -> torch.Tensor:
        """Choose draft tokens.

        Args:
            logits: The drafter's, `[n, draft_vocab]`.
            noise: Gumbel noise of each position for the draft vocabulary, same shape; used only
                if `noisy_drafts`.

        Returns:
            Draft ids, `[n]`.
        """
        if not self.noisy_drafts:
            return greedy(logits)
        assert noise is not None
        return greedy(logits.float() / self.temperature + noise)

    def confidence(self, logits: torch.Tensor, drafts: torch.Tensor) -> torch.Tensor:
        """The drafter's probabilities of its drafts, at this temperature.

        Args:
            logits: The drafter's, `[n, draft_vocab]`.
            drafts: Draft ids that `propose` chose, `[n]`.

        Returns:
            `[n]`, float32.
        """
        scores = logits.float() if self.is_greedy else logits.float() / self.temperature
        chosen = scores.gather(1, drafts[:, None])[:, 0]
        return (chosen - scores.logsumexp(dim=-1)).exp()

    def _warpers(self) -> LogitsProcessorList:
        """The warpers that `generate` of transformers uses."""
        warpers = LogitsProcessorList()
        if self.temperature > 0:
            warpers.append(TemperatureLogitsWarper(float(self.temperature)))
        if self.top_k > 0:
            warpers.append(TopKLogitsWarper(self.top_k))
        if self.top_p < 1:
            warpers.append(TopPLogitsWarper(float(self.top_p)))
        return warpers


GREEDY = Sampling()


def validate_seeds(sampling: Sampling, seeds: Sequence[int]) -> None:
    """Check the seeds that every prompt is sampled with.

    Raises:
        BlockPilotError: If there are none, one is repeated or out of range, or the sampling is
            greedy and seeds are given.
    """
    if not seeds or len(set(seeds)) < len(seeds) or not all(0 <= seed < 2**63 for seed in seeds):
        raise BlockPilotError(
            f"seeds {list(seeds)} must be one or more, each once, from 0 to 2**63 - 1"
        )
    if sampling.is_greedy and tuple(seeds) != (0,):
        raise BlockPilotError(
            f"greedy answers do not depend on a seed; seeds {list(seeds)} need a temperature"
        )


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """Most probable token of `[..., vocab]` logits; the first one among equals.

    `max` is three times as fast as `argmax` for bfloat16 on CPUs.
    """
    return logits.max(dim=-1).indices


class Sampler:
    """Chooses the tokens of one text; greedy sampling needs no noise.

    The noise of the positions that were asked for last is kept. In decoding these are the positions
    of one block, so the memory is that of one block, and the noise of a position is computed once.
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
            logits: `[n, vocab]`, for the positions `position … position + n - 1`.
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
            token_ids: Target id of each draft id; None if both vocabularies are the same.

        Returns:
            Draft ids, `[n]`.
        """
        if not self.sampling.noisy_drafts:
            return greedy(logits)
        noise = self.noise(position, len(logits), logits.device)
        return self.sampling.propose(logits, noise if token_ids is None else noise[:, token_ids])

    def begin_block(self, position: int, n: int, device: torch.device) -> None:
        """Compute the noise of a whole block at once, before its drafts are proposed.

        Args:
            position: Absolute position of the first draft.
            n: Number of positions that the target chooses.
            device: Device of the logits.
        """
        if self.sampling.noisy_drafts:
            self.noise(position, n, device)

    def forget(self) -> None:
        """Drop the noise that is kept. It is computed again when needed, with the same values."""
        self._noise = torch.empty((0, self.vocab_size))

    def noise(self, position: int, n: int, device: torch.device) -> torch.Tensor:
        """Gumbel noise of consecutive positions.

        Args:
            position: Absolute position of the first row.
            n: Number of positions.
            device: Device of the result.

        Returns:
            `[n, vocab]`, float32. Do not write to it.
        """
        start = position - self._first
        if start < 0 or start + n > len(self._noise):
            kept = (self._noise[start:] if start >= 0 else self._noise[:0]).to(device)
            positions = torch.arange(position + len(kept), position + n, device=device)
            seeds = torch.full_like(positions, self.sampling.seed)
            new = gumbel(seeds, positions, torch.arange(self.vocab_size, device=device))
            self._noise = torch.cat([kept, new]) if len(kept) else new
            self._first, start = position, 0
        return self._noise[start : start + n]


# Multipliers of splitmix64 (Steele et al., 2014) and lowbias32 (Wellons, 2018), and the golden
# ratio in 32 and 64 bits. PyTorch's integers are signed.
_GOLDEN_64 = 0x9E3779B97F4A7C15 - 2**64
_MIX_64 = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))
_GOLDEN_32 = 0x9E3779B1 - 2**32
_MIX_32 = ((16, 0x7FEB352D), (15, 0x846CA68B - 2**32))

# Maps 31 bits to the open interval (0, 1) in float32, exactly where the result is small.
_UNIT_SCALE, _UNIT_OFFSET = 2.0**-31 * (1 - 2.0**-23), 2.0**-32


NOISE = "splitmix64-lowbias32"
"""Name of the hash, which recordings store: a seed gives another text with another hash."""


def gumbel(seeds: torch.Tensor, positions: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise, a hash of seed, position and token.

    Every value depends on its own seed, position and token only. It is computed on the device of
    the arguments, without a random generator.

    Args:
        seeds: Seed of each row, int64 `[n]`.
        positions: Position of each row, int64 `[n]`.
        tokens: Token of each column, `[m]`.

    Returns:
        `[n, m]`, float32, finite.
    """
    keys = _mix_64(_mix_64(seeds + _GOLDEN_64) + positions)[:, None]
    low, high = keys.int(), (keys >> 32).int()
    counters = tokens.int() * _GOLDEN_32
    noise = torch.empty(len(keys), len(tokens), device=tokens.device)
    # On a CPU one row at a time stays in the cache; a GPU is fastest with all rows at once.
    rows = 1 if tokens.device.type == "cpu" else max(1, len(keys))
    bits, shifted = counters.new_empty(2, min(rows, len(keys)), len(tokens))
    for out, first, second in zip(
        noise.split(rows), low.split(rows), high.split(rows), strict=True
    ):
        _hash_32(counters, first, second, bits, shifted)
        # A uniform number u in (0, 1) gives the noise -log(-log(1 - u)).
        out.copy_(bits).mul_(-_UNIT_SCALE).sub_(_UNIT_OFFSET)
        out.log1p_().neg_().log_().neg_()
    return noise


def _mix_64(values: torch.Tensor) -> torch.Tensor:
    """Mix the bits of int64 values: the finaliser of splitmix64."""
    for shift, multiplier in _MIX_64:
        values = (values ^ _shift_right(values, shift)) * multiplier
    return values ^ _shift_right(values, 31)


def _hash_32(
    counters: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    bits: torch.Tensor,
    shifted: torch.Tensor,
) -> None:
    """Hash int32 counters with two keys to 31 bits: lowbias32 with a second key between its rounds.

    Two positions whose first keys are close would otherwise have shifted copies of one sequence.

    Args:
        counters: `[m]`.
        first: `[n, 1]`.
        second: `[n, 1]`.
        bits: Receives the result, int32 `[n, m]`, 0 or more.
        shifted: Memory for intermediate values, int32 `[n, m]`.
    """
    torch.bitwise_xor(counters, first, out=bits)
    for shift, multiplier in _MIX_32:
        torch.bitwise_right_shift(bits, shift, out=shifted)
        shifted.bitwise_and_(2 ** (32 - shift) - 1)
        bits.bitwise_xor_(shifted).mul_(multiplier).bitwise_xor_(second)
    torch.bitwise_right_shift(bits, 16, out=shifted)
    bits.bitwise_xor_(shifted).bitwise_and_(2**31 - 1)


def _shift_right(values: torch.Tensor, shift: int) -> torch.Tensor:
    """Shift int64 values to the right and fill with zeros; PyTorch fills with the sign."""
    return (values >> shift).bitwise_and_(2 ** (64 - shift) - 1)
