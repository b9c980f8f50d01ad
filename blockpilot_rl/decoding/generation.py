"""Prefilled prompts, target passes, and finished texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from blockpilot_rl.decoding.control import Controller, FixedLength
from blockpilot_rl.decoding.sampling import Sampler


def shortened(block_size: int, tokens_left: int) -> int:
    """Size of the block that is drafted and verified near the end of a budget.

    A block has the anchor and at most one draft for each token that is left, as in z-lab's
    reference.

    Args:
        block_size: The chosen block size.
        tokens_left: Tokens that may still be emitted, at least 1.
    """
    return min(block_size, tokens_left + 1)


@dataclass(frozen=True)
class Pass:
    """One target pass.

    Attributes:
        block_size: Tokens it verified, the anchor included (1 for prefill and plain decoding). Near
            the end of the budget it is smaller than the chosen size.
        tokens: Tokens it emitted.
        seconds: Its time, drafting and the decisions of a controller included.
        drafted: Length of the block that was drafted, the anchor included; 1 without drafts. It
            exceeds `block_size` if a controller verified only a part of the drafts.
    """

    block_size: int
    tokens: tuple[int, ...]
    seconds: float
    drafted: int = 1


class Chosen(NamedTuple):
    """How one request is decoded.

    Attributes:
        controller: Chooses the lengths of each round; `FixedLength` for a block size.
        seconds: Time that the choice took; 0 for a fixed size.
        confidence: How sure the policy was, in 0..1; None if it does not know.
    """

    controller: Controller
    seconds: float = 0.0
    confidence: float | None = None

    @property
    def block_size(self) -> int | None:
        """The block size; None if lengths are chosen in each round."""
        return self.controller.length if isinstance(self.controller, FixedLength) else None


@dataclass
class Prefill:
    """A prompt that the target has read. It can be decoded any number of times.

    Attributes:
        prompt_tokens: Length of the prompt.
        logits: The target's logits for the first token, `[vocab]`.
        last_hidden: Final-norm hidden state of the last prompt token, `[hidden]`.
        first_token: The first emitted token.
        sampler: Chooses tokens; its noise depends only on seed and position.
        features: The prompt's features for the drafter, `[1, prompt, layers * hidden]`.
        seconds: Time that prefill took.
        max_new_tokens: Budget that the caches were made for.
        max_block_size: Block size that the caches were made for.
        target: The target's pass that has read the prompt.
        cache: The target's cache.
        draft_cache: The drafter's cache, or None without a drafter.
        drafter_read: Whether the drafter has read the prompt for the state, so that every decode
            starts from there. Context that a decode has read is not kept, so that the next one,
            with another block size, is timed as if it were the first.
        stream: Identifies the latest stream, the only one that may use the caches.
    """

    prompt_tokens: int
    logits: torch.Tensor
    last_hidden: torch.Tensor
    first_token: int
    sampler: Sampler
    features: torch.Tensor
    seconds: float
    max_new_tokens: int
    max_block_size: int
    target: Any
    cache: Any
    draft_cache: Any
    drafter_read: bool = False
    stream: object = None


@dataclass(frozen=True)
class Generation:
    """A finished text with a record of every target pass.

    The first pass is prefill, which emits the first token, so the accepted lengths sum to the
    number of emitted tokens.

    Attributes:
        tokens: Emitted tokens, up to and including the first stop token.
        passes: Every target pass, prefill first.
        policy_seconds: Time of the policy's choice (0 for a fixed size).
        finish_reason: `stop` or `length`.
        template: Chat-template options of the prompt; None if they are not known.
        block_size: The block size of `Decoder.generate`, fixed or chosen; None for other callers,
            and if a controller chose lengths for each round.
        prompt_tokens: Length of the prompt; None if unknown.
        confidence: How sure the policy was, in 0..1; None for fixed sizes and for policies that do
            not know.
        text: The emitted text without special tokens, if the prompt was a text.
    """

    tokens: list[int]
    passes: list[Pass] = field(repr=False)
    policy_seconds: float
    finish_reason: str
    template: Mapping[str, Any] | None = None
    block_size: int | None = None
    prompt_tokens: int | None = None
    text: str | None = None
    confidence: float | None = None

    @property
    def block_sizes(self) -> list[int]:
        """Tokens that each target pass verified, prefill (1) first."""
        return [item.block_size for item in self.passes]

    @property
    def drafted(self) -> list[int]:
        """Draft length of each target pass, prefill (1) first; 1 is a plain round."""
        return [item.drafted for item in self.passes]

    @property
    def accepted(self) -> list[int]:
        """Tokens of each target pass, prefill (1) first; they sum to `len(tokens)`."""
        return [len(item.tokens) for item in self.passes]

    @property
    def prefill_seconds(self) -> float:
        """Time until the first token."""
        return self.passes[0].seconds

    @property
    def decode_seconds(self) -> float:
        """Time after prefill: every draft and verify pass, and the policy."""
        return sum(item.seconds for item in self.passes[1:]) + self.policy_seconds

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second after prefill (0 if there are none)."""
        return (len(self.tokens) - 1) / self.decode_seconds if len(self.passes) > 1 else 0.0

    @property
    def acceptance_length(self) -> float:
        """Mean tokens per target pass after prefill (1 if there is none)."""
        decoded = len(self.passes) - 1
        return (len(self.tokens) - 1) / decoded if decoded else 1.0
