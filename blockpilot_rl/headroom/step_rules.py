"""Control at every step: what simple rules and a perfect choice would achieve on recorded traces.

A trace tells for every output token what a pass anchored there would emit under every block size,
so any schedule can be walked through exactly, and the best one follows by dynamic programming. Time
comes from the latency profile. Not in it is the little that the drafter must read behind plain
passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.replay import Trace


@dataclass(frozen=True, eq=False)
class StepTraces:
    """Traces of several answers, padded to the longest.

    Attributes:
        block_sizes: Arms, increasing; the last is the one that confidences belong to.
        accepted: Tokens that a pass anchored at each output token emits under each arm, clipped to
            the end of the text, `[rows, steps, arms]`; 0 in the padding.
        confidences: The drafter's probabilities of its drafts in the largest block,
            `[rows, steps, block_sizes[-1] - 1]`; 0 in the padding.
        anchors: Output tokens that can be anchors, all but the last, `[rows]`.
        prompt_tokens: Length of each prompt, `[rows]`.
        sampled: Whether an answer has a temperature, `[rows]`.
    """

    block_sizes: tuple[int, ...]
    accepted: np.ndarray
    confidences: np.ndarray
    anchors: np.ndarray
    prompt_tokens: np.ndarray
    sampled: np.ndarray

    @classmethod
    def pad(
        cls,
        block_sizes: tuple[int, ...],
        traces: Sequence[Trace],
        prompt_tokens: np.ndarray,
        sampled: np.ndarray,
    ) -> StepTraces:
        """Put traces of different lengths together.

        Args:
            block_sizes: Arms of the traces.
            traces: A trace of each answer.
            prompt_tokens: Length of each prompt.
            sampled: Whether each answer has a temperature.
        """
        anchors = np.array([len(trace.accepted) for trace in traces])
        shape = (len(traces), int(anchors.max(initial=0)))
        drafts = block_sizes[-1] - 1
        padded = cls(
            block_sizes,
            np.zeros((*shape, len(block_sizes)), np.int16),
            np.zeros((*shape, drafts), np.float32),
            anchors,
            np.asarray(prompt_tokens),
            np.asarray(sampled),
        )
        for row, (trace, steps) in enumerate(zip(traces, anchors, strict=True)):
            padded.accepted[row, :steps] = trace.accepted
            padded.confidences[row, :steps] = trace.confidences
        return padded

    def __len__(self) -> int:
        """Number of answers."""
        return len(self.anchors)

    def select(self, rows: np.ndarray) -> StepTraces:
        """Keep some answers, by number or by a boolean mask."""
        return StepTraces(
            self.block_sizes,
            self.accepted[rows],
            self.confidences[rows],
            self.anchors[rows],
            self.prompt_tokens[rows],
            self.sampled[rows],
        )


class Rule(Protocol):
    """Chooses an action for every answer at every step."""

    def choose(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Choose actions for answers `rows` whose anchors are the output tokens `positions`."""

    def observe(self, rows: np.ndarray, actions: np.ndarray, emitted: np.ndarray) -> None:
        """See what the chosen actions emitted."""


@dataclass(frozen=True, eq=False)
class Rounds:
    """What can be done at every step, and what it emits and costs.

    Attributes:
        emitted: Tokens that each action emits at each anchor, `[rows, steps, actions]`.
        lines: Seconds of each action, as a line in the context length, `[rows, actions, 2]`.
        blocks: Size of the block that an action drafts, 1 if it does not, `[actions]`.
        reading: Seconds of the drafter's reading of the prompt, before its first draft, `[rows]`.
        noise: Seconds for each position that a block reaches for the first time, `[rows]`; 0 for
            greedy answers.
        traces: Where it happens.
    """

    emitted: np.ndarray
    lines: np.ndarray
    blocks: np.ndarray
    reading: np.ndarray
    noise: np.ndarray
    traces: StepTraces

    @classmethod
    def of_blocks(cls, traces: StepTraces, profile: LatencyProfile) -> Rounds:
        """Actions are the block sizes: draft a block and verify all of it."""
        return cls(
            traces.accepted,
            _by_row(traces, profile, lambda costs: costs.step_lines(traces.block_sizes)),
            np.array(traces.block_sizes),
            _reading(traces, profile),
            traces.sampled * profile.noise_seconds,
            traces,
        )

    @classmethod
    def of_prefixes(cls, traces: StepTraces, profile: LatencyProfile) -> Rounds:
        """Actions are numbers of verified tokens: draft the largest block, verify a prefix of it.

        Action `k` verifies the anchor and `k` drafts, so it costs a draft of the largest block and
        a target pass over `k + 1` tokens.
        """
        largest = traces.block_sizes[-1]
        tokens = np.arange(1, largest + 1)

        def lines(costs: LatencyProfile) -> np.ndarray:
            verify: np.ndarray = costs.verify_lines(tokens.tolist())
            return np.asarray(costs.draft_lines((largest,)) + verify)

        return cls(
            np.minimum(traces.accepted[:, :, -1:], tokens.astype(np.int16)),
            _by_row(traces, profile, lines),
            np.full(largest, largest),
            _reading(traces, profile),
            traces.sampled * profile.noise_seconds,
            traces,
        )

    @property
    def drafts(self) -> np.ndarray:
        """Whether an action uses the drafter, `[actions]`."""
        return np.asarray(self.blocks > 1)

    def seconds(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Seconds of every action for answers `rows` anchored at `positions`, `[n, actions]`."""
        contexts = self.traces.prompt_tokens[rows] + positions
        lines = self.lines[rows]
        return np.asarray(lines[..., 0] + lines[..., 1] * contexts[:, None])

    def walk(self, rule: Rule) -> np.ndarray:
        """Decode time of every answer under a rule, `[rows]`."""
        traces = self.traces
        positions, seconds = np.zeros(len(traces), dtype=int), np.zeros(len(traces))
        drafted, reached = np.zeros(len(traces), dtype=bool), np.zeros(len(traces), dtype=int)
        while len(rows := np.flatnonzero(positions < traces.anchors)):
            at = positions[rows]
            actions = rule.choose(rows, at)
            emitted = self.emitted[rows, at, actions]
            seconds[rows] += self.seconds(rows, at)[np.arange(len(rows)), actions]
            drafted[rows] |= self.drafts[actions]
            reached[rows] = np.maximum(reached[rows], at + self.blocks[actions])
            rule.observe(rows, actions, emitted)
            positions[rows] += emitted
        return np.asarray(seconds + drafted * self.reading + reached * self.noise)

    def oracle(self) -> np.ndarray:
        """Decode time of every answer under the best schedule of all, `[rows]`.

        By dynamic programming from the end of the text: the least time from an anchor on is that of
        the best action there plus the least time from where it leads. Noise is counted to the end
        of the text, which no schedule can do without.
        """
        traces = self.traces
        rows, steps = self.emitted.shape[:2]
        least = np.zeros((rows, steps + 1))
        every = np.arange(rows)
        for at in range(steps - 1, -1, -1):
            total = self.seconds(every, np.full(rows, at))
            total += least[every[:, None], at + self.emitted[:, at]]
            least[:, at] = np.where(at < traces.anchors, total.min(axis=1), 0.0)
        best: np.ndarray = least[:, 0] + self.reading + traces.anchors * self.noise
        for plain in np.flatnonzero(~self.drafts):
            best = np.minimum(best, self.walk(Always(int(plain))))
        return best


@dataclass(frozen=True)
class Always:
    """The same action at every step.

    Attributes:
        action: Its index.
    """

    action: int

    def choose(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Choose it."""
        return np.full(len(rows), self.action)

    def observe(self, rows: np.ndarray, actions: np.ndarray, emitted: np.ndarray) -> None:
        """Learn nothing."""


@dataclass(frozen=True, eq=False)
class ConfidentPrefix:
    """Verify the drafts up to where the drafter's confidence runs out (over `of_prefixes`).

    A draft is verified while the product of the probabilities up to it is at least the threshold.

    Attributes:
        traces: The answers.
        threshold: Between 0 (verify all) and 1.
    """

    traces: StepTraces
    threshold: float

    def choose(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Count the confident drafts."""
        reach = np.cumprod(self.traces.confidences[rows, positions], axis=1)
        return np.asarray((reach >= self.threshold).sum(axis=1))

    def observe(self, rows: np.ndarray, actions: np.ndarray, emitted: np.ndarray) -> None:
        """Learn nothing."""


class RecentAcceptance:
    """Take the block size that pays best at the recent rate of acceptance (over `of_blocks`).

    The rate is the share of judged drafts that were accepted, in an average that forgets: each pass
    weighs `memory` times the one after it. A block accepted whole has no rejected draft, so that
    the rate can grow past what the block could show. If drafts are accepted independently at rate
    p, a block of b emits (1 - p^b) / (1 - p) tokens (Leviathan et al. 2023, eq. 1).
    """

    def __init__(self, rounds: Rounds, memory: float, prior: tuple[float, float]) -> None:
        """Start every answer from the prior.

        Args:
            rounds: Actions by block size.
            memory: Weight of a pass relative to the next one, from 0 (the last alone) to 1.
            prior: Accepted and rejected drafts, both positive, that are added to what was seen and
                never forgotten. So plain passes, which judge no draft, lead back to drafting.
        """
        self._rounds, self._memory, self._prior = rounds, memory, prior
        self._sizes = np.array(rounds.traces.block_sizes)
        self._accepted = np.zeros(len(rounds.traces))
        self._rejected = np.zeros(len(rounds.traces))

    def choose(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Choose the most tokens per second."""
        accepted = self._prior[0] + self._accepted[rows]
        rejected = self._prior[1] + self._rejected[rows]
        rate = (accepted / (accepted + rejected))[:, None]
        tokens = (1 - rate**self._sizes) / (1 - rate)
        return np.asarray((tokens / self._rounds.seconds(rows, positions)).argmax(axis=1))

    def observe(self, rows: np.ndarray, actions: np.ndarray, emitted: np.ndarray) -> None:
        """Count accepted drafts, and the rejected one behind them if the block had more."""
        rejected = emitted < self._sizes[actions]
        self._accepted[rows] = self._memory * self._accepted[rows] + emitted - 1
        self._rejected[rows] = self._memory * self._rejected[rows] + rejected


def acceptance_rate(traces: StepTraces) -> float:
    """Share of judged drafts that are accepted, over all anchors and the largest block."""
    real = np.arange(traces.accepted.shape[1]) < traces.anchors[:, None]
    emitted = traces.accepted[:, :, -1][real]
    accepted, rejected = (emitted - 1).sum(), (emitted < traces.block_sizes[-1]).sum()
    return float(accepted / (accepted + rejected))


def _by_row(
    traces: StepTraces, profile: LatencyProfile, lines: Callable[[LatencyProfile], np.ndarray]
) -> np.ndarray:
    """Lines of the actions for every answer, greedy or at a temperature, `[rows, actions, 2]`."""
    greedy, sampled = lines(profile), lines(profile.at_temperature())
    return np.where(traces.sampled[:, None, None], sampled, greedy)


def _reading(traces: StepTraces, profile: LatencyProfile) -> np.ndarray:
    offset, slope = profile.read_prompt
    return np.asarray(offset + slope * traces.prompt_tokens)
