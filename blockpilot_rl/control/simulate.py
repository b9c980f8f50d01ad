"""Exact simulation of step control: any schedule of rounds, walked over recorded traces.

The text does not depend on the schedule, so the tokens that a round emits are those of the trace:
a round that drafts `d` and verifies `v` tokens emits as many as the traced block of `d`, and at
most `v`. Seconds come from a latency profile. They equal `LatencyProfile.decode_seconds` where
every round has the same length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blockpilot_rl.control.traces import StepTraces
from blockpilot_rl.decoding.control import BatchController
from blockpilot_rl.decoding.round_costs import RoundCosts


@dataclass(frozen=True, eq=False)
class Round:
    """One round of several requests, `[n]` each.

    Attributes:
        rows: The requests.
        positions: Output tokens that anchor the rounds, counted from 0.
        drafted: Draft lengths, shortened near the end of a budget.
        verified: Verify lengths.
        accepted: Tokens that the rounds emit.
        seconds: Their time.
    """

    rows: np.ndarray
    positions: np.ndarray
    drafted: np.ndarray
    verified: np.ndarray
    accepted: np.ndarray
    seconds: np.ndarray


class Walk:
    """Requests on their way through their traces.

    Attributes:
        answers: Answer of the traces that each request walks, `[rows]`.
        positions: Output token that anchors the next round of each request, `[rows]`.
    """

    def __init__(
        self, traces: StepTraces, costs: RoundCosts, answers: np.ndarray | None = None
    ) -> None:
        """Start every request after prefill.

        Args:
            traces: The answers.
            costs: Seconds of the parts of a round.
            answers: Answer of each request; None for each answer once.
        """
        self.traces, self.costs = traces, costs
        self.answers = np.arange(len(traces)) if answers is None else answers
        count = len(self.answers)
        self.positions = np.zeros(count, dtype=np.int64)
        # Tokens that the drafter has to read before its next draft, beyond those of one round.
        self._unread = np.zeros(count, dtype=np.int64)
        self._has_read = np.zeros(count, dtype=bool)
        self._reached = np.zeros(count, dtype=np.int64)

    def restart(self, rows: np.ndarray, answers: np.ndarray) -> None:
        """Replace some requests by new ones, which walk the given answers."""
        self.answers[rows] = answers
        for values in (self.positions, self._unread, self._has_read, self._reached):
            values[rows] = 0

    def active(self) -> np.ndarray:
        """Return the numbers of the requests that have not ended."""
        return np.flatnonzero(self.positions < self.traces.anchors[self.answers])

    def contexts(self, rows: np.ndarray) -> np.ndarray:
        """Tokens before the anchors of some requests, `[n]`."""
        return np.asarray(self.traces.prompt_tokens[self.answers[rows]] + self.positions[rows])

    def shortened(self, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Draft lengths as the decoder shortens them near the end of a budget, `[n]`."""
        return self.traces.shortened(self.answers[rows], self.positions[rows], lengths)

    def confidences(self, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The drafter's probabilities of its drafts, 0 after the last one, `[n, longest]`.

        Args:
            rows: The requests.
            lengths: Chosen draft lengths, before they are shortened, `[n]`.
        """
        found = self._at(self.traces.confidences, rows, lengths)
        drafts = self.shortened(rows, lengths) - 1
        return np.where(np.arange(found.shape[1]) < drafts[:, None], found, 0.0)

    def next_token(self, rows: np.ndarray) -> np.ndarray:
        """The target's distributions that the anchors were chosen from, `[n, 3]`.

        They are entropy, top-1 probability and top-2 margin; 0 if they were not traced.
        """
        found = self.traces.next_token
        if found is None:
            return np.zeros((len(rows), 3))
        return np.asarray(found[self.answers[rows], self.positions[rows]], dtype=np.float64)

    def _at(self, values: np.ndarray, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Values of the drafts that a length would make now, `[n, longest]`."""
        columns = np.minimum(self.traces.find(lengths), values.shape[2] - 1)
        found = values[self.answers[rows], self.positions[rows], columns]
        return np.asarray(found, dtype=np.float64)

    def advance(
        self, rows: np.ndarray, lengths: np.ndarray, verified: np.ndarray, made: np.ndarray
    ) -> Round:
        """Decode one round of some requests.

        Args:
            rows: The requests.
            lengths: Chosen draft lengths, before they are shortened, `[n]`.
            verified: Verify lengths, from 1 to one more than the drafts, `[n]`.
            made: Drafts that were made, `[n]`; fewer than the length has if drafting ended early.
        """
        traces, costs, at = self.traces, self.costs, self.positions[rows]
        answers, contexts = self.answers[rows], self.contexts(rows)
        sampled = traces.sampled[answers]
        drafted = self.shortened(rows, lengths)
        drafts = drafted > 1
        accepted = np.minimum(traces.accepted[answers, at, traces.find(lengths)], verified)
        seconds = costs.draft_seconds(drafted, contexts, sampled)
        seconds += costs.verify_seconds(verified, contexts, sampled)
        seconds -= costs.chain * (drafted - 1 - made)
        seconds += drafts * self._reading(rows)
        seconds += sampled * costs.noise * self._reach(rows, at + np.maximum(drafted, verified))
        self._has_read[rows] |= drafts
        self._unread[rows] = np.where(drafts, 0, self._unread[rows] + 1)
        self.positions[rows] += accepted
        return Round(rows, at, drafted, verified, accepted, seconds)

    def _reading(self, rows: np.ndarray) -> np.ndarray:
        """Seconds that the drafter takes to read what plain rounds and the prompt have left."""
        offset, slope = self.costs.read
        prompt = offset + slope * self.traces.prompt_tokens[self.answers[rows]]
        return np.asarray(np.where(self._has_read[rows], 0.0, prompt) + slope * self._unread[rows])

    def _reach(self, rows: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Count the positions before `ends` that no earlier round has reached, `[n]`."""
        before = self._reached[rows]
        self._reached[rows] = np.maximum(before, ends)
        return np.asarray(self._reached[rows] - before)


@dataclass(frozen=True, eq=False)
class Simulated:
    """Simulated requests.

    Attributes:
        seconds: Decode time of each request after prefill, `[rows]`.
        rounds: Number of rounds of each request, `[rows]`.
        record: Every round, in order; empty if it was not asked for.
    """

    seconds: np.ndarray
    rounds: np.ndarray
    record: list[Round]

    def of(self, row: int) -> list[tuple[int, int, int]]:
        """Return draft length, verify length and emitted tokens of every round of a request."""
        found = []
        for item in self.record:
            for index in np.flatnonzero(item.rows == row):
                lengths = (item.drafted[index], item.verified[index], item.accepted[index])
                found.append((int(lengths[0]), int(lengths[1]), int(lengths[2])))
        return found


def simulate(
    traces: StepTraces, controller: BatchController, costs: RoundCosts, *, record: bool = False
) -> Simulated:
    """Decode every answer with a controller.

    Args:
        traces: The answers.
        controller: Decides their rounds; its rows are those of the traces.
        costs: Seconds of the parts of a round.
        record: Whether to keep every round.

    Raises:
        BlockPilotError: If the controller chooses a draft length that was not traced.
    """
    walk = Walk(traces, costs)
    seconds, rounds = np.zeros(len(traces)), np.zeros(len(traces), dtype=np.int64)
    kept: list[Round] = []
    while len(rows := walk.active()):
        done = play_round(walk, controller, rows)
        seconds[rows] += done.seconds
        rounds[rows] += 1
        if record:
            kept.append(done)
    return Simulated(seconds, rounds, kept)


def play_round(walk: Walk, controller: BatchController, rows: np.ndarray) -> Round:
    """Let a controller decide one round of some requests, and decode it."""
    if controller.reads_target:
        controller.read_target(rows, walk.next_token(rows))
    lengths = controller.draft_lengths(rows, walk.contexts(rows))
    drafted = walk.shortened(rows, lengths)
    made = drafted - 1
    confidences = np.zeros((len(rows), 0))
    if controller.reads_confidences or controller.stops_early:
        confidences = walk.confidences(rows, lengths)
    if controller.stops_early:
        made = _made(controller, rows, confidences, made)
        confidences = np.where(np.arange(confidences.shape[1]) < made[:, None], confidences, 0.0)
    verified = np.ones_like(drafted)
    drafting = np.flatnonzero(made > 0)
    if len(drafting):
        chosen = controller.verify_lengths(rows[drafting], confidences[drafting], made[drafting])
        verified[drafting] = np.clip(chosen, 1, made[drafting] + 1)
    done = walk.advance(rows, lengths, verified, made)
    controller.observe(rows, done.drafted, done.verified, done.accepted)
    return done


def _made(
    controller: BatchController, rows: np.ndarray, confidences: np.ndarray, drafts: np.ndarray
) -> np.ndarray:
    """Count the drafts that are made before drafting ends, `[n]`."""
    made: np.ndarray = np.minimum(drafts, 1)
    going = np.flatnonzero(drafts > 1)
    while len(going):
        so_far = int(made[going[0]])
        goes_on = controller.keeps_drafting(rows[going], confidences[going, :so_far])
        going = going[goes_on]
        made[going] += 1
        going = going[drafts[going] > so_far + 1]
    return made
