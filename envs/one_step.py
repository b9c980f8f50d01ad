"""The base of the one-step environments: spaces, the order of the prompts, and the episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from blockpilot_rl.envs.arguments import read_index, read_row, read_seed
from blockpilot_rl.errors import BlockPilotError

Step = tuple[np.ndarray, float, bool, bool, dict[str, Any]]


class EpochSampler:
    """Draws rows so that each comes once per epoch, in an order that is shuffled in every epoch.

    Args:
        rows: Number of rows.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._queue = np.empty(0, dtype=np.int64)

    def draw(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Draw the next rows, `[count]`."""
        while len(self._queue) < count:
            self._queue = np.concatenate([self._queue, generator.permutation(self._rows)])
        drawn, self._queue = self._queue[:count], self._queue[count:]
        return drawn

    def restart(self) -> None:
        """Forget the rest of the epoch, so that later draws depend on the generator alone."""
        self._queue = self._queue[:0]


def state_space(width: int) -> spaces.Box:
    """Observation space of a state: any finite float32 numbers, `[width]`."""
    limit = np.finfo(np.float32).max
    return spaces.Box(-limit, limit, (width,), np.float32)


class OneStepEnv(gymnasium.Env[np.ndarray, np.int64]):
    """An environment whose episodes are one prompt and one choice of a block size.

    Args:
        prompts: Number of prompts.
        width: Length of a state.
        arms: Block sizes that the actions stand for.
    """

    def __init__(self, prompts: int, width: int, arms: Sequence[int]) -> None:
        self.arms = tuple(arms)
        self.observation_space = state_space(width)
        self.action_space = spaces.Discrete(len(self.arms))
        self._prompts = prompts
        self._sampler = EpochSampler(prompts)
        self._row: int | None = None

    def __len__(self) -> int:
        """Number of prompts."""
        return self._prompts

    def _begin(self, seed: int | None, options: dict[str, Any] | None) -> int:
        """Start an episode and return the row of its prompt.

        Args:
            seed: Seeds the order of the prompts and starts a new epoch.
            options: `row` picks a prompt by its number.

        Raises:
            BlockPilotError: If there is no such row.
        """
        super().reset(seed=read_seed(seed))
        if seed is not None:
            self._sampler.restart()
        row = read_row(options)
        if row is None:
            row = self._sampler.draw(1, self.np_random)
        self._row = read_index(row, len(self), "row")
        return self._row

    def _end(self, action: Any) -> tuple[int, int]:
        """End the episode and return the row of its prompt and the chosen arm's index.

        Raises:
            BlockPilotError: If the action is not an arm, or no episode has begun.
        """
        if self._row is None:
            raise BlockPilotError("the episode is over; call reset before step")
        arm = read_index(action, len(self.arms), "action")
        row, self._row = self._row, None
        return row, arm
