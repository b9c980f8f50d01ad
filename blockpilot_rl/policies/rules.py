"""Rules that control every round from a few numbers.

A rule is a small config. `begin` starts a controller for many requests; the decoder runs it with
one request, the simulator with all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from blockpilot_rl.decoding.control import BatchController
from blockpilot_rl.decoding.round_costs import RoundCosts


@dataclass(frozen=True, eq=False)
class Start:
    """Requests after prefill.

    Attributes:
        rates: Acceptance rate that a prior expects of each request, between 0 and 1, `[rows]`.
        sampled: Whether a request has a temperature above 0, `[rows]`.
        arms: Draft lengths to choose from, increasing from 1.
        costs: Seconds of the parts of a round.
    """

    rates: np.ndarray
    sampled: np.ndarray
    arms: tuple[int, ...]
    costs: RoundCosts

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.rates)


class Rule(Protocol):
    """A config that starts controllers."""

    def begin(self, start: Start) -> BatchController:
        """Start a controller for some requests."""


class WholeBlocks:
    """Base of controllers that verify all drafts and learn nothing."""

    reads_confidences = False
    stops_early = False
    reads_target = False

    def read_target(self, rows: np.ndarray, next_token: np.ndarray) -> None:
        """Ignore the target's distributions."""

    def keeps_drafting(self, rows: np.ndarray, confidences: np.ndarray) -> np.ndarray:
        """Draft the whole block."""
        return np.ones(len(rows), dtype=bool)

    def verify_lengths(
        self, rows: np.ndarray, confidences: np.ndarray, drafts: np.ndarray
    ) -> np.ndarray:
        """Verify all drafts."""
        return np.asarray(drafts + 1)

    def observe(
        self, rows: np.ndarray, drafted: np.ndarray, verified: np.ndarray, accepted: np.ndarray
    ) -> None:
        """Ignore the outcome."""


@dataclass(frozen=True)
class FixedRule:
    """Drafts and verifies the same length in every round.

    Attributes:
        length: The length, 1 for plain decoding.
    """

    length: int

    def begin(self, start: Start) -> BatchController:
        """Start some requests."""
        return FixedLengths(np.full(len(start), self.length))


class FixedLengths(WholeBlocks):
    """One draft length for each request, as a policy that decides once chooses it."""

    def __init__(self, lengths: np.ndarray) -> None:
        """Keep the length of each request, `[rows]`."""
        self._lengths = lengths

    def draft_lengths(self, rows: np.ndarray, contexts: np.ndarray) -> np.ndarray:
        """Return the lengths."""
        return np.asarray(self._lengths[rows])


@dataclass(frozen=True)
class PrefixRule:
    """Drafts one length, and verifies drafts while the drafter is confident.

    A draft is verified if the product of the drafter's probabilities up to it is at least the
    threshold.

    Attributes:
        length: Length of every draft, at least 2.
        threshold: Between 0 (verify all) and 1.
        stops_early: Whether drafting ends where verifying would.
    """

    length: int
    threshold: float
    stops_early: bool = False

    def begin(self, start: Start) -> BatchController:
        """Start some requests."""
        return ConfidentPrefix(np.full(len(start), self.length), self.threshold, self.stops_early)


class ConfidentPrefix(FixedLengths):
    """Controller of a `PrefixRule`."""

    reads_confidences = True

    def __init__(self, lengths: np.ndarray, threshold: float, stops_early: bool) -> None:
        """Keep the lengths, `[rows]`, and the threshold."""
        super().__init__(lengths)
        self._threshold, self.stops_early = threshold, stops_early

    def keeps_drafting(self, rows: np.ndarray, confidences: np.ndarray) -> np.ndarray:
        """Draft while the drafts so far are confident."""
        return np.asarray(confidences.prod(axis=1) >= self._threshold)

    def verify_lengths(
        self, rows: np.ndarray, confidences: np.ndarray, drafts: np.ndarray
    ) -> np.ndarray:
        """Verify the confident drafts."""
        return confident_lengths(confidences, self._threshold)


def confident_lengths(confidences: np.ndarray, threshold: float | np.ndarray) -> np.ndarray:
    """Verify lengths of the drafts whose cumulative probability is at least a threshold.

    Args:
        confidences: `[n, drafts]`.
        threshold: One for all, or one for each row, `[n, 1]`. 0 gives the longest length.
    """
    return np.asarray(1 + (confidences.cumprod(axis=1) >= threshold).sum(axis=1))


@dataclass(frozen=True)
class RateRule:
    """Follows the acceptance rate of the request, and verifies while the drafter is confident.

    The rate starts at the prior's and moves with the accepted and rejected drafts, which are
    counted with exponential decay. If drafts are accepted independently at rate `q`, a round that
    verifies `k` of them emits `(1 - q^(k+1)) / (1 - q)` tokens on average (Leviathan et al. 2023,
    eq. 1). About `ln(threshold) / ln(q)` drafts are confident, so a draft length `d` is expected to
    verify `k = min(d - 1, ⌊ln(threshold) / ln(q)⌋)`. The rule takes the draft length with the most
    expected tokens per second.

    Attributes:
        memory: Weight of a round relative to the next one, from 0 (only the last counts) to 1.
        prior_weight: Number of drafts that the prior's rate counts for, above 0. Infinity ignores
            the rounds of the request.
        threshold: Smallest cumulative probability of a draft that is verified; 0 verifies all.
        plain_memory: Weight of what was counted after a plain round, which judges no draft. Below
            1, plain rounds lead back to the prior, and so to drafting again.
    """

    memory: float = 0.9
    prior_weight: float = 4.0
    threshold: float = 0.04
    plain_memory: float = 1.0

    def begin(self, start: Start) -> BatchController:
        """Start some requests."""
        return RateController(self, start)


class RateController(WholeBlocks):
    """Controller of a `RateRule`."""

    def __init__(self, rule: RateRule, start: Start) -> None:
        """Start every request at the prior's rate."""
        self._rule, self._costs = rule, start.costs
        self.reads_confidences = rule.threshold > 0
        self._sampled = start.sampled
        # Rates of 0 and 1 would never change and never end a block.
        self._rates = np.clip(start.rates, 0.001, 0.999)
        self._arms = np.array(start.arms)
        self._accepted, self._rejected = np.zeros(len(start)), np.zeros(len(start))

    def rates(self, rows: np.ndarray) -> np.ndarray:
        """Acceptance rates that the requests are at, `[n]`."""
        weight, prior = self._rule.prior_weight, self._rates[rows]
        if np.isinf(weight):
            return np.asarray(prior)
        accepted, rejected = self._accepted[rows], self._rejected[rows]
        return np.asarray((weight * prior + accepted) / (weight + accepted + rejected))

    def draft_lengths(self, rows: np.ndarray, contexts: np.ndarray) -> np.ndarray:
        """Choose the length with the most expected tokens per second."""
        rate, sampled = self.rates(rows)[:, None], self._sampled[rows, None]
        drafts = np.broadcast_to(self._arms - 1, (len(rows), len(self._arms)))
        if self._rule.threshold > 0:
            confident = np.floor(np.log(self._rule.threshold) / np.log(rate))
            drafts = np.minimum(drafts, confident).astype(np.int64)
        tokens = (1 - rate ** (drafts + 1)) / (1 - rate)
        seconds = self._costs.draft_seconds(self._arms, contexts[:, None], sampled)
        seconds = seconds + self._costs.verify_seconds(drafts + 1, contexts[:, None], sampled)
        return np.asarray(self._arms[(tokens / seconds).argmax(axis=1)])

    def verify_lengths(
        self, rows: np.ndarray, confidences: np.ndarray, drafts: np.ndarray
    ) -> np.ndarray:
        """Verify the confident drafts."""
        if self._rule.threshold == 0:
            return np.asarray(drafts + 1)
        return confident_lengths(confidences, self._rule.threshold)

    def observe(
        self, rows: np.ndarray, drafted: np.ndarray, verified: np.ndarray, accepted: np.ndarray
    ) -> None:
        """Count accepted drafts, and the rejected one after them if more were verified."""
        kept = np.where(drafted > 1, self._rule.memory, self._rule.plain_memory)
        self._accepted[rows] = kept * self._accepted[rows] + accepted - 1
        self._rejected[rows] = kept * self._rejected[rows] + (accepted < verified)


@dataclass(frozen=True)
class EntropyRule:
    """Drafts and verifies while an entropy bound on acceptance is high (after AdaEDL).

    Agrawal et al. (AdaEDL, 2024) bound the acceptance of a draft from below by
    `1 - sqrt(scale * H)` with the entropy `H` of the drafter, and end the draft where the bound is
    below a threshold that follows the request's acceptance. `H` is estimated here from the
    probability `p` of the draft as that of a coin, `-p ln p - (1 - p) ln(1 - p)`, which the traces
    hold for every draft.

    Attributes:
        length: Length of every draft, at least 2.
        scale: Scale of the entropy.
        threshold: Threshold at the start of a request.
        target_rate: Acceptance rate that the threshold aims at.
        step: Change of the threshold after a round.
        rate_memory: Weight of the acceptance rate so far after a round.
        memory: Weight of the threshold so far after a round.
        stops_early: Whether drafting ends where verifying would.
    """

    length: int
    scale: float = 0.2
    threshold: float = 0.4
    target_rate: float = 0.6
    step: float = 0.01
    rate_memory: float = 0.5
    memory: float = 0.9
    stops_early: bool = False

    def begin(self, start: Start) -> BatchController:
        """Start some requests."""
        return EntropyBound(self, np.full(len(start), self.length))


class EntropyBound(FixedLengths):
    """Controller of an `EntropyRule`."""

    reads_confidences = True

    def __init__(self, rule: EntropyRule, lengths: np.ndarray) -> None:
        """Start every request at the rule's threshold."""
        super().__init__(lengths)
        self._rule, self.stops_early = rule, rule.stops_early
        self._thresholds = np.full(len(lengths), rule.threshold)
        self._rates = np.full(len(lengths), rule.target_rate)

    def _bounds(self, confidences: np.ndarray) -> np.ndarray:
        p = np.clip(confidences, 1e-6, 1 - 1e-6)
        entropy = -p * np.log(p) - (1 - p) * np.log1p(-p)
        # Below one half a coin's entropy falls again, while the draft gets worse.
        entropy = np.where(p < 0.5, 2 * np.log(2) - entropy, entropy)
        return np.asarray(1 - np.sqrt(self._rule.scale * entropy))

    def keeps_drafting(self, rows: np.ndarray, confidences: np.ndarray) -> np.ndarray:
        """Draft while the bound of the last draft is high."""
        return np.asarray(self._bounds(confidences[:, -1]) >= self._thresholds[rows])

    def verify_lengths(
        self, rows: np.ndarray, confidences: np.ndarray, drafts: np.ndarray
    ) -> np.ndarray:
        """Verify the drafts up to the first one whose bound is low."""
        high = self._bounds(confidences) >= self._thresholds[rows, None]
        high &= np.arange(high.shape[1]) < drafts[:, None]
        return np.asarray(1 + np.logical_and.accumulate(high, axis=1).sum(axis=1))

    def observe(
        self, rows: np.ndarray, drafted: np.ndarray, verified: np.ndarray, accepted: np.ndarray
    ) -> None:
        """Raise the threshold after rounds with few accepted drafts, and lower it after others."""
        rule, judged = self._rule, verified > 1
        rows = rows[judged]
        rate = (accepted[judged] - 1) / (verified[judged] - 1)
        smooth = rule.rate_memory * self._rates[rows] + (1 - rule.rate_memory) * rate
        self._rates[rows] = smooth
        moved = self._thresholds[rows] + rule.step * np.sign(rule.target_rate - smooth)
        self._thresholds[rows] = rule.memory * self._thresholds[rows] + (1 - rule.memory) * moved
