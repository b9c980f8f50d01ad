"""Headroom of deciding at every step: simple rules and oracles on recorded traces.

A trace records for every output token what a pass anchored there emits under every block size, so
any schedule can be simulated exactly, and the best one follows by dynamic programming. Time comes
from the latency profile; the short reading by the drafter after plain passes is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np

from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.replay import Trace
from blockpilot_rl.evaluation.measure import Requests
from blockpilot_rl.headroom.results import Steps

THRESHOLDS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)
MEMORIES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
PRIOR_WEIGHTS = (1.0, 4.0, 16.0)


@dataclass(frozen=True, eq=False)
class StepTraces:
    """Traces of several answers, padded to the longest.

    Attributes:
        block_sizes: Arms, increasing. Confidences belong to the last one.
        accepted: Tokens that a pass anchored at each output token emits under each arm, clipped to
            the end of the text, `[rows, steps, arms]`; 0 in the padding.
        confidences: The drafter's probabilities of its drafts in the largest block,
            `[rows, steps, block_sizes[-1] - 1]`; 0 in the padding.
        anchors: Number of output tokens that can be anchors (all but the last), `[rows]`.
        prompt_tokens: Length of each prompt, `[rows]`.
        sampled: Whether an answer has a temperature above 0, `[rows]`.
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
        """Pad traces of different lengths.

        Args:
            block_sizes: Arms of the traces.
            traces: The trace of each answer.
            prompt_tokens: Length of each prompt.
            sampled: Whether each answer has a temperature above 0.
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
        """Choose actions for answers `rows`, anchored at the output tokens `positions`."""

    def observe(self, rows: np.ndarray, actions: np.ndarray, emitted: np.ndarray) -> None:
        """Observe how many tokens the chosen actions emitted."""


@dataclass(frozen=True, eq=False)
class Rounds:
    """The actions at every step, with the tokens that they emit and their cost.

    Attributes:
        emitted: Tokens that each action emits at each anchor, `[rows, steps, actions]`.
        lines: Seconds of each action, as a line in the context length, `[rows, actions, 2]`.
        blocks: Size of the block that an action drafts, 1 if it does not, `[actions]`.
        reading: Seconds that the drafter takes to read the prompt before its first draft, `[rows]`.
        noise: Seconds of sampling noise for each position that a block reaches for the first time,
            `[rows]`; 0 for greedy answers.
        traces: The answers.
    """

    emitted: np.ndarray
    lines: np.ndarray
    blocks: np.ndarray
    reading: np.ndarray
    noise: np.ndarray
    traces: StepTraces

    @classmethod
    def from_blocks(cls, traces: StepTraces, profile: LatencyProfile) -> Rounds:
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
    def from_prefixes(cls, traces: StepTraces, profile: LatencyProfile) -> Rounds:
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
        """Simulate a rule and return the decode time of every answer, `[rows]`."""
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
        """Return the decode time of every answer under the best schedule, `[rows]`.

        Dynamic programming from the end of the text: the least time from an anchor is that of the
        best action there plus the least time from the next anchor. Noise is counted up to the end
        of the text, which every schedule needs.
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
        """Choose the action."""
        return np.full(len(rows), self.action)

    def observe(self, rows: np.ndarray, actions: np.ndarray, emitted: np.ndarray) -> None:
        """Ignore the outcome."""


@dataclass(frozen=True, eq=False)
class ConfidentPrefix:
    """Verify drafts while the drafter is confident (actions of `from_prefixes`).

    A draft is verified if the product of the drafter's probabilities up to it is at least the
    threshold.

    Attributes:
        traces: The answers.
        threshold: Between 0 (verify all) and 1.
    """

    traces: StepTraces
    threshold: float

    def choose(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the number of confident drafts."""
        reach = np.cumprod(self.traces.confidences[rows, positions], axis=1)
        return np.asarray((reach >= self.threshold).sum(axis=1))

    def observe(self, rows: np.ndarray, actions: np.ndarray, emitted: np.ndarray) -> None:
        """Ignore the outcome."""


class RecentAcceptance:
    """Take the fastest block size at the recent acceptance rate (actions of `from_blocks`).

    The rate is the share of judged drafts that were accepted, as an exponential average in which
    each pass weighs `memory` times the next one. A fully accepted block has no rejected draft, so
    the rate can exceed what the block shows. If drafts are accepted independently at rate p, a
    block of b emits (1 - p^b) / (1 - p) tokens on average (Leviathan et al. 2023, eq. 1).
    """

    def __init__(self, rounds: Rounds, memory: float, prior: tuple[float, float]) -> None:
        """Start every answer at the prior.

        Args:
            rounds: Actions by block size.
            memory: Weight of a pass relative to the next one, from 0 (only the last counts) to 1.
            prior: Accepted and rejected drafts, both positive, that are always added to those
                observed. With them, plain passes, which judge no draft, lead back to drafting.
        """
        self._rounds, self._memory, self._prior = rounds, memory, prior
        self._sizes = np.array(rounds.traces.block_sizes)
        self._accepted = np.zeros(len(rounds.traces))
        self._rejected = np.zeros(len(rounds.traces))

    def choose(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Choose the size with the most expected tokens per second."""
        accepted = self._prior[0] + self._accepted[rows]
        rejected = self._prior[1] + self._rejected[rows]
        rate = (accepted / (accepted + rejected))[:, None]
        tokens = (1 - rate**self._sizes) / (1 - rate)
        return np.asarray((tokens / self._rounds.seconds(rows, positions)).argmax(axis=1))

    def observe(self, rows: np.ndarray, actions: np.ndarray, emitted: np.ndarray) -> None:
        """Count accepted drafts, and the rejected one after them if the block had more."""
        rejected = emitted < self._sizes[actions]
        self._accepted[rows] = self._memory * self._accepted[rows] + emitted - 1
        self._rejected[rows] = self._memory * self._rejected[rows] + rejected


def acceptance_rate(traces: StepTraces) -> float:
    """Return the share of judged drafts that are accepted, for the largest block at all anchors."""
    real = np.arange(traces.accepted.shape[1]) < traces.anchors[:, None]
    emitted = traces.accepted[:, :, -1][real]
    accepted, rejected = (emitted - 1).sum(), (emitted < traces.block_sizes[-1]).sum()
    return float(accepted / (accepted + rejected))


def _by_row(
    traces: StepTraces, profile: LatencyProfile, lines: Callable[[LatencyProfile], np.ndarray]
) -> np.ndarray:
    """Cost lines of the actions for every answer, greedy or sampled, `[rows, actions, 2]`."""
    greedy, sampled = lines(profile), lines(profile.at_temperature())
    return np.where(traces.sampled[:, None, None], sampled, greedy)


def _reading(traces: StepTraces, profile: LatencyProfile) -> np.ndarray:
    offset, slope = profile.read_prompt
    return np.asarray(offset + slope * traces.prompt_tokens)


Settings = dict[str, float]
Decode = Callable[[StepTraces, Settings], np.ndarray]


def measure_steps(
    requests: Requests, profile: LatencyProfile, train: StepTraces, test: StepTraces
) -> tuple[Steps, dict[str, np.ndarray]]:
    """Measure oracles and rules that decide at every step.

    Args:
        requests: The test rows with a trace.
        profile: Cost of the passes.
        train: Traces to tune the rules on.
        test: Traces of the test rows.

    Returns:
        The result, and the seconds of every rule on the test rows.
    """
    blocks, prefixes = Rounds.from_blocks(test, profile), Rounds.from_prefixes(test, profile)
    rules, seconds = {}, {}
    for name, decode, grid in _rules(profile, acceptance_rate(train)):
        settings = _tune(train, profile, decode, grid)
        seconds[name] = decode(test, settings)
        rules[name] = requests.measure(seconds[name], settings=settings)
    steps = Steps(
        rows=len(requests),
        prompts=requests.prompts,
        best_fixed=requests.measure(requests.fixed),
        size_oracle=requests.measure(requests.oracle),
        step_oracle=requests.measure(blocks.oracle()),
        prefix_oracle=requests.measure(prefixes.oracle()),
        rules=rules,
    )
    return steps, seconds


def _rules(
    profile: LatencyProfile, rate: float
) -> tuple[tuple[str, Decode, Iterable[Settings]], ...]:
    """List the rules: name, function that decodes with it, and settings to try.

    Args:
        profile: Cost of the passes.
        rate: Acceptance rate of the training traces, at which every answer starts.
    """

    def confident_prefix(traces: StepTraces, settings: Settings) -> np.ndarray:
        rule = ConfidentPrefix(traces, settings["threshold"])
        return Rounds.from_prefixes(traces, profile).walk(rule)

    def recent_acceptance(traces: StepTraces, settings: Settings) -> np.ndarray:
        rounds, weight = Rounds.from_blocks(traces, profile), settings["prior_weight"]
        # Both counts of the prior must be positive.
        start = float(np.clip(rate, 0.001, 0.999))
        prior = (weight * start, weight * (1 - start))
        return rounds.walk(RecentAcceptance(rounds, settings["memory"], prior))

    return (
        ("confident prefix", confident_prefix, [{"threshold": t} for t in THRESHOLDS]),
        (
            "recent acceptance",
            recent_acceptance,
            [{"memory": m, "prior_weight": w} for m, w in product(MEMORIES, PRIOR_WEIGHTS)],
        ),
    )


def _tune(
    train: StepTraces, profile: LatencyProfile, decode: Decode, grid: Iterable[Settings]
) -> Settings:
    """Find the settings with the largest mean speedup over the training traces."""
    plain = Rounds.from_blocks(train, profile).walk(Always(0))
    return max(grid, key=lambda settings: float((plain / decode(train, settings)).mean()))
