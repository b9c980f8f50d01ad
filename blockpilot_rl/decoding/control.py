"""Step control: what decides the lengths of every round of a decode.

A round drafts a block and verifies a part of it in one target pass. Lengths count the anchor: a
draft length of 1 is a plain round, which drafts nothing, and a verify length of `v` verifies the
first `v - 1` drafts. A round that verifies `v` tokens emits 1 to `v` of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from blockpilot_rl.decoding.sampling import Sampling


class Controller(Protocol):
    """Decides the rounds of one request."""

    @property
    def reads_confidences(self) -> bool:
        """Whether `verify_length` reads confidences, which take time to compute."""

    @property
    def stops_early(self) -> bool:
        """Whether `keeps_drafting` can end a draft early."""

    @property
    def reads_target(self) -> bool:
        """Whether `read_target` reads the target's distribution, which takes time to compute."""

    def read_target(self, next_token: Sequence[float]) -> None:
        """Read the distribution that the anchor was chosen from, before `draft_length`.

        Args:
            next_token: Entropy in nats, top-1 probability and top-2 margin of the target at
                temperature 1.
        """

    def draft_length(self, context: int) -> int:
        """Choose the length to draft, 1 for a plain round.

        Args:
            context: Tokens before the anchor.
        """

    def keeps_drafting(self, confidences: Sequence[float]) -> bool:
        """Decide after each draft but the last whether to make the next one.

        Args:
            confidences: The drafter's probabilities of the drafts so far.
        """

    def verify_length(self, confidences: Sequence[float]) -> int:
        """Choose how much of the block to verify, from 1 to one more than the drafts.

        What is outside this range is clipped to it.

        Args:
            confidences: The drafter's probability of each draft, at the temperature of the request;
                empty if `reads_confidences` is False.
        """

    def observe(self, drafted: int, verified: int, accepted: int) -> None:
        """Observe a round.

        Args:
            drafted: Its draft length. Near the end of the budget it is less than the chosen one.
            verified: Its verify length.
            accepted: Tokens that it emitted.
        """


class BatchController(Protocol):
    """Decides the rounds of many requests at once; see `Controller`.

    `rows` are the numbers of the requests that a call is about, `[n]`.
    """

    @property
    def reads_confidences(self) -> bool:
        """Whether `verify_lengths` reads confidences."""

    @property
    def stops_early(self) -> bool:
        """Whether `keeps_drafting` can end a draft early."""

    @property
    def reads_target(self) -> bool:
        """Whether `read_target` reads the target's distribution."""

    def read_target(self, rows: np.ndarray, next_token: np.ndarray) -> None:
        """Read the distributions that the anchors were chosen from, `[n, 3]`."""

    def draft_lengths(self, rows: np.ndarray, contexts: np.ndarray) -> np.ndarray:
        """Choose the lengths to draft after `contexts` tokens, `[n]`."""

    def keeps_drafting(self, rows: np.ndarray, confidences: np.ndarray) -> np.ndarray:
        """Decide whether to draft on after the drafts so far, `[n, drafts]`; booleans, `[n]`."""

    def verify_lengths(
        self, rows: np.ndarray, confidences: np.ndarray, drafts: np.ndarray
    ) -> np.ndarray:
        """Choose how much to verify, `[n]`.

        Args:
            rows: The requests.
            confidences: The drafter's probability of each draft, 0 after the last one,
                `[n, longest]`.
            drafts: Number of drafts of each request, `[n]`.
        """

    def observe(
        self, rows: np.ndarray, drafted: np.ndarray, verified: np.ndarray, accepted: np.ndarray
    ) -> None:
        """Observe a round of each request, `[n]` each."""


class RequestPolicy(Protocol):
    """What every policy has that looks at a request after prefill."""

    @property
    def arms(self) -> tuple[int, ...]:
        """Block sizes or draft lengths to choose from."""

    @property
    def state_groups(self) -> tuple[str, ...]:
        """State groups that the policy reads, in order; empty if it reads none."""

    def check_pair(self, fingerprint: str, template: Mapping[str, Any] | None) -> None:
        """Refuse another pair, or other chat-template options if they are known."""

    def check_request(self, temperature: float, prompt_tokens: int) -> None:
        """Warn once about requests that are unlike those it was made for."""


@runtime_checkable
class StepPolicy(RequestPolicy, Protocol):
    """Starts a controller for each request.

    A policy that chooses one block size after prefill starts a `FixedLength`.
    """

    def start(self, state: torch.Tensor, sampling: Sampling) -> Controller:
        """Start a request.

        Args:
            state: Its prefill state, `[width]`.
            sampling: How its tokens are chosen.
        """


class FixedLength:
    """Drafts and verifies the same length in every round."""

    reads_confidences = False
    stops_early = False
    reads_target = False

    def __init__(self, length: int) -> None:
        """Keep the length, 1 for plain decoding."""
        self.length = length

    def read_target(self, next_token: Sequence[float]) -> None:
        """Ignore the distribution."""

    def draft_length(self, context: int) -> int:
        """Return the length."""
        return self.length

    def keeps_drafting(self, confidences: Sequence[float]) -> bool:
        """Draft the whole block."""
        return True

    def verify_length(self, confidences: Sequence[float]) -> int:
        """Verify the whole block."""
        return self.length

    def observe(self, drafted: int, verified: int, accepted: int) -> None:
        """Ignore the outcome."""


class OneRequest:
    """The only request of a batch controller, for the decoder."""

    def __init__(self, batch: BatchController) -> None:
        """Decide as `batch` does for its row 0."""
        self._batch = batch
        self._rows = np.zeros(1, dtype=np.int64)
        self._drafts = 0
        self.reads_confidences = batch.reads_confidences
        self.stops_early = batch.stops_early
        self.reads_target = batch.reads_target

    def read_target(self, next_token: Sequence[float]) -> None:
        """Read the distribution that the anchor was chosen from."""
        self._batch.read_target(self._rows, np.array([next_token]))

    def draft_length(self, context: int) -> int:
        """Choose the length to draft."""
        length = int(self._batch.draft_lengths(self._rows, np.array([context]))[0])
        self._drafts = length - 1
        return length

    def keeps_drafting(self, confidences: Sequence[float]) -> bool:
        """Decide whether to make the next draft."""
        return bool(self._batch.keeps_drafting(self._rows, np.array([confidences]))[0])

    def verify_length(self, confidences: Sequence[float]) -> int:
        """Choose how much of the block to verify."""
        # Without confidences all drafts were made.
        drafts = np.array([len(confidences) or self._drafts])
        return int(self._batch.verify_lengths(self._rows, np.array([confidences]), drafts)[0])

    def observe(self, drafted: int, verified: int, accepted: int) -> None:
        """Observe a round."""
        outcome = np.array([[drafted], [verified], [accepted]])
        self._batch.observe(self._rows, *outcome)
