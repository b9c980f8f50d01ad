"""Many requests on recorded traces, decided round by round: the core of the step environments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blockpilot_rl.control.requests import StepSplits, TracedRequests, load_step_splits
from blockpilot_rl.control.simulate import Walk
from blockpilot_rl.control.tuning import plain_seconds
from blockpilot_rl.envs.arguments import read_index, read_indices
from blockpilot_rl.envs.one_step import EpochSampler
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.policies.history import History
from blockpilot_rl.policies.rules import confident_lengths

StepSource = StepSplits | str | Path | None

ACTION_SETS: dict[str, tuple[float, ...]] = {
    "lengths": (0.0,),
    "thresholds": (0.0, 0.02, 0.08, 0.3),
}
"""Thresholds of each action set: with `lengths` all drafts are verified."""


class Action(NamedTuple):
    """What an action does in a round.

    Attributes:
        length: Draft length; 1 is a plain round.
        threshold: Drafts are verified while the product of the drafter's probabilities is at least
            this; 0 verifies all.
    """

    length: int
    threshold: float


def list_actions(lengths: Sequence[int], actions: str) -> tuple[Action, ...]:
    """List the actions of a set: the plain round, then each draft length with each threshold.

    Raises:
        BlockPilotError: If there is no such set.
    """
    if actions not in ACTION_SETS:
        raise BlockPilotError(
            f"unknown action set {actions!r}; choose from {', '.join(ACTION_SETS)}"
        )
    drafts = [length for length in lengths if length > 1]
    return (
        Action(1, 0.0),
        *(Action(length, each) for length in drafts for each in ACTION_SETS[actions]),
    )


class Outcome(NamedTuple):
    """What a round of every request led to, `[num_envs]` each.

    Attributes:
        rewards: Minus the round's seconds over the plain seconds of the request.
        ended: Whether the request ended with the round.
        answers: The requests, by their number.
        drafted: Draft lengths.
        verified: Verify lengths.
        accepted: Emitted tokens.
        seconds: Seconds of the rounds.
        total: Seconds of the requests so far.
    """

    rewards: np.ndarray
    ended: np.ndarray
    answers: np.ndarray
    drafted: np.ndarray
    verified: np.ndarray
    accepted: np.ndarray
    seconds: np.ndarray
    total: np.ndarray

    def info(self, requests: TracedRequests, plain: np.ndarray) -> dict[str, np.ndarray]:
        """Describe the rounds, one column per fact."""
        return {
            "drafted": self.drafted,
            "verified": self.verified,
            "accepted": self.accepted,
            "seconds": self.seconds,
            "speedup": plain[self.answers] / self.total,
            "prompt_id": requests.ids[self.answers],
        }


class StepBatch:
    """`num_envs` requests that are decoded together, one round at a time, with array operations.

    They draw from one shared epoch: together they see each prompt once before any is repeated.

    Args:
        requests: The traced requests.
        num_envs: Number of requests at a time.
        actions: What the actions do.

    Raises:
        BlockPilotError: If `num_envs` is not positive.
    """

    def __init__(self, requests: TracedRequests, num_envs: int, actions: Sequence[Action]) -> None:
        self.num_envs = read_index(num_envs, 2**31, "num_envs")
        if self.num_envs < 1:
            raise BlockPilotError(f"num_envs must be at least 1, got {num_envs}")
        self.requests, self.actions = requests, tuple(actions)
        self.plain = plain_seconds(requests)
        self._lengths = np.array([action.length for action in actions])
        self._thresholds = np.array([action.threshold for action in actions])
        self._sampler = EpochSampler(len(requests))
        none = np.zeros(self.num_envs, dtype=np.int64)
        self._walk = Walk(requests.traces, requests.costs, none)
        self._history = History(requests.rates[none], requests.traces.block_sizes[-1])
        self._total = np.zeros(self.num_envs)
        self._begun = False

    @property
    def width(self) -> int:
        """Length of an observation."""
        return len(self._history.names)

    @property
    def names(self) -> list[str]:
        """Names of the numbers of an observation."""
        return self._history.names

    @property
    def answers(self) -> np.ndarray:
        """Numbers of the requests that are decoded, `[num_envs]`."""
        return self._walk.answers.copy()

    def restart_epoch(self) -> None:
        """Start a new epoch with the next prompts."""
        self._sampler.restart()

    def begin(
        self,
        generator: np.random.Generator,
        slots: np.ndarray | None = None,
        answers: Sequence[Any] | None = None,
    ) -> None:
        """Start the next requests.

        Args:
            generator: Source of their order.
            slots: Environments to start one in; None for all.
            answers: Numbers of the requests to start instead, one per slot; None for the next.

        Raises:
            BlockPilotError: If there is no such request.
        """
        slots = np.arange(self.num_envs) if slots is None else slots
        given = [None] * len(slots) if answers is None else list(answers)
        numbers = [
            None if number is None else read_index(number, len(self.requests), "row")
            for number in given
        ]
        drawn = iter(self._sampler.draw(numbers.count(None), generator))
        chosen = np.array(
            [next(drawn) if number is None else number for number in numbers], dtype=np.int64
        )
        self._walk.restart(slots, chosen)
        self._history.restart(slots, self.requests.rates[chosen])
        self._history.read_target(slots, self._walk.next_token(slots))
        self._total[slots] = 0.0
        self._begun = True

    def observe(self, slots: np.ndarray | None = None) -> np.ndarray:
        """Observe some requests, float32 `[n, width]`; None for all."""
        rows = np.arange(self.num_envs) if slots is None else slots
        return self._history.features(rows, self._walk.contexts(rows))

    def step(self, actions: Any) -> Outcome:
        """Decode one round of every request.

        Args:
            actions: Numbers of the actions, `[num_envs]`.

        Raises:
            BlockPilotError: If an action is out of range, or no request has begun.
        """
        if not self._begun:
            raise BlockPilotError("no episode has begun; call reset before step")
        chosen = read_indices(actions, len(self.actions), "action", (self.num_envs,))
        rows, walk = np.arange(self.num_envs), self._walk
        lengths, thresholds = self._lengths[chosen], self._thresholds[chosen]
        made = walk.shortened(rows, lengths) - 1
        confidences = walk.confidences(rows, lengths)
        confident = confident_lengths(confidences, thresholds[:, None])
        done = walk.advance(rows, lengths, np.minimum(confident, made + 1), made)
        self._history.read_confidences(rows, confidences)
        self._history.observe(rows, done.drafted, done.verified, done.accepted)
        ended = np.ones(self.num_envs, dtype=bool)
        ended[active := walk.active()] = False
        self._history.read_target(active, walk.next_token(active))
        self._total += done.seconds
        return Outcome(
            rewards=-done.seconds / self.plain[walk.answers],
            ended=ended,
            answers=walk.answers.copy(),
            drafted=done.drafted,
            verified=done.verified,
            accepted=done.accepted,
            seconds=done.seconds,
            total=self._total.copy(),
        )


def read_requests(source: StepSource, split: str) -> TracedRequests:
    """Read the traced requests of one split.

    Args:
        source: Prepared splits, or a folder with a sweep and traces; None for the bundled one.
        split: `train`, `validation` or `test`.

    Raises:
        BlockPilotError: If they cannot be read, or the split has no trace.
    """
    splits = source if isinstance(source, StepSplits) else load_step_splits(source)
    found = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    requests = found.get(split)
    if requests is None:
        raise BlockPilotError(
            f"split {split!r} has no traced requests; choose from "
            f"{', '.join(name for name, part in found.items() if part is not None)}"
        )
    return requests
