"""Many requests at once on a recorded sweep: what the vectorised environments share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blockpilot_rl.envs.one_step import EpochSampler
from blockpilot_rl.envs.replay import Replay
from blockpilot_rl.errors import BlockPilotError


class Decided(NamedTuple):
    """Requests that ended with a decision.

    Attributes:
        rows: Numbers of their prompts, `[num_envs]`.
        arms: Indices of the chosen arms, `[num_envs]`.
        rewards: What the decisions earned, `[num_envs]`.
    """

    rows: np.ndarray
    arms: np.ndarray
    rewards: np.ndarray


class RequestBatch:
    """`num_envs` requests that are decided and replaced together, an array operation each.

    They draw from one shared epoch: together they see each prompt once before any comes again.

    Args:
        replay: The recorded outcomes.
        num_envs: Number of requests.

    Raises:
        BlockPilotError: If `num_envs` is not positive.
    """

    def __init__(self, replay: Replay, num_envs: int) -> None:
        if num_envs < 1:
            raise BlockPilotError(f"num_envs must be at least 1, got {num_envs}")
        self.replay = replay
        self.num_envs = num_envs
        self._sampler = EpochSampler(len(replay))
        self._rows: np.ndarray | None = None

    @property
    def prompt_ids(self) -> np.ndarray:
        """Ids of the prompts that wait for a decision, `[num_envs]`."""
        return np.asarray(self.replay.prompt_ids[self._waiting()])

    def restart(self) -> None:
        """Begin a new epoch with the next prompts."""
        self._sampler.restart()

    def begin(
        self, generator: np.random.Generator, rows: np.ndarray | int | None = None
    ) -> np.ndarray:
        """Take the next prompts.

        Args:
            generator: Decides the order of the prompts.
            rows: Numbers of the prompts to take instead, one per request or one for all.

        Returns:
            Their states, `[num_envs, width]`.

        Raises:
            BlockPilotError: If there is no such row.
        """
        if rows is None:
            self._rows = self._sampler.draw(self.num_envs, generator)
        else:
            self._rows = self._checked(rows, len(self.replay), "row")
        return np.asarray(self.replay.states[self._rows])

    def decide(self, actions: np.ndarray) -> Decided:
        """End every request with its decision.

        Args:
            actions: Indices of the block sizes, `[num_envs]`.

        Raises:
            BlockPilotError: If an action is no arm, or the requests have not begun.
        """
        rows = self._waiting()
        arms = self._checked(actions, len(self.replay.arms), "action")
        self._rows = None
        return Decided(rows, arms, self.replay.rewards[rows, arms])

    def _waiting(self) -> np.ndarray:
        if self._rows is None:
            raise BlockPilotError("no episode has begun; call reset before step")
        return self._rows

    def _checked(self, numbers: np.ndarray | int, count: int, what: str) -> np.ndarray:
        """Read one number per request, each in 0..count-1."""
        given = np.asarray(numbers)
        if given.dtype.kind not in "iu" or given.shape not in ((), (self.num_envs,)):
            raise BlockPilotError(
                f"{what}s must be {self.num_envs} whole numbers, got {given.dtype} of shape "
                f"{given.shape}"
            )
        if given.min() < 0 or given.max() >= count:
            wrong = given[(given < 0) | (given >= count)].ravel()[0]
            raise BlockPilotError(f"{what} {wrong} is outside 0..{count - 1}")
        return np.broadcast_to(given, (self.num_envs,))
