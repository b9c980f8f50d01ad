"""Many requests at once on a recorded sweep: the base of the vectorised environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from blockpilot_rl.envs.arguments import read_index, read_indices
from blockpilot_rl.envs.one_step import EpochSampler
from blockpilot_rl.envs.replay import Replay
from blockpilot_rl.errors import BlockPilotError


class Decided(NamedTuple):
    """Requests that ended with a decision.

    Attributes:
        rows: Numbers of their prompts, `[num_envs]`.
        arms: Indices of the chosen arms, `[num_envs]`.
        rewards: Their rewards, `[num_envs]`.
    """

    rows: np.ndarray
    arms: np.ndarray
    rewards: np.ndarray


class RequestBatch:
    """`num_envs` requests that are decided and replaced together, with array operations.

    They draw from one shared epoch: together they see each prompt once before any is repeated.

    Args:
        replay: The recorded outcomes.
        num_envs: Number of requests.

    Raises:
        BlockPilotError: If `num_envs` is not positive.
    """

    def __init__(self, replay: Replay, num_envs: int) -> None:
        self.num_envs = read_index(num_envs, 2**31, "num_envs")
        if self.num_envs < 1:
            raise BlockPilotError(f"num_envs must be at least 1, got {num_envs}")
        self.replay = replay
        self._sampler = EpochSampler(len(replay))
        self._rows: np.ndarray | None = None

    @property
    def prompt_ids(self) -> np.ndarray:
        """Ids of the prompts to decide on, `[num_envs]`."""
        return np.asarray(self.replay.prompt_ids[self._waiting()])

    def restart(self) -> None:
        """Start a new epoch with the next prompts."""
        self._sampler.restart()

    def begin(
        self, generator: np.random.Generator, rows: Sequence[Any] | np.ndarray | int | None = None
    ) -> np.ndarray:
        """Take the next prompts.

        Args:
            generator: Source of the order of the prompts.
            rows: Numbers of the prompts to take instead, one per request or one for all. In a list
                None stands for the next prompt.

        Returns:
            Their states, `[num_envs, width]`.

        Raises:
            BlockPilotError: If there is no such row.
        """
        if rows is None:
            self._rows = self._sampler.draw(self.num_envs, generator)
        elif isinstance(rows, list) and len(rows) == self.num_envs:
            numbers = [None if row is None else self._read_row(row) for row in rows]
            # Prompts are drawn only for requests without a row.
            drawn = iter(self._sampler.draw(numbers.count(None), generator))
            self._rows = np.array([next(drawn) if row is None else row for row in numbers])
        else:
            self._rows = self._read(rows, len(self.replay), "row")
        return np.asarray(self.replay.states[self._rows])

    def decide(self, actions: np.ndarray) -> Decided:
        """End every request with its decision.

        Args:
            actions: Indices of the block sizes, `[num_envs]`.

        Raises:
            BlockPilotError: If an action is not an arm, or the requests have not begun.
        """
        rows = self._waiting()
        arms = self._read(actions, len(self.replay.arms), "action")
        self._rows = None
        return Decided(rows, arms, self.replay.rewards[rows, arms])

    def _waiting(self) -> np.ndarray:
        if self._rows is None:
            raise BlockPilotError("no episode has begun; call reset before step")
        return self._rows

    def _read_row(self, row: Any) -> int:
        return read_index(row, len(self.replay), "row")

    def _read(self, numbers: Any, count: int, name: str) -> np.ndarray:
        """Read one number per request, each in 0..count-1."""
        return read_indices(numbers, count, name, (self.num_envs,))
