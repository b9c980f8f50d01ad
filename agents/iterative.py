"""What learners that go step by step share: the best candidate is kept, and learning can go on."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from blockpilot_rl.agents.base import H, PolicyAgent
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep

TRAINING_FILE = "training.pt"

Snapshot = dict[str, torch.Tensor]


class IterativeAgent(PolicyAgent[H]):
    """Learns in steps, keeps what did best on the validation split, and can go on later.

    Whenever `num_timesteps` passes a multiple of `eval_freq`, what was learned so far is judged by
    its greedy choices on the whole validation split. The best of these candidates is used in the
    end. When a call ends between two multiples, its last candidate is judged too and used if it is
    better, but a later call does not remember it: so learning with a break equals learning without.
    """

    _best: Snapshot | None
    _best_reward: float
    _used: Snapshot

    @property
    @abstractmethod
    def eval_freq(self) -> int:
        """Steps between two walks over the validation split."""

    @abstractmethod
    def _begin(self, train: Sweep) -> None:
        """Make the untrained learner."""

    @abstractmethod
    def _attach(self, train: Sweep, monitor: Monitor) -> None:
        """Prepare the prompts to learn from, behind `num_timesteps` steps."""

    @abstractmethod
    def _advance(self, until: int, monitor: Monitor) -> None:
        """Learn until `num_timesteps` is at least `until`."""

    @abstractmethod
    def _snapshot(self) -> Snapshot:
        """Copy what the learner knows now."""

    @abstractmethod
    def _policy_of(self, snapshot: Snapshot) -> BlockSizePolicy:
        """Turn a snapshot into the policy that chooses greedily."""

    @abstractmethod
    def _learner_state(self) -> dict[str, Any]:
        """Everything that going on depends on, as tensors and plain values."""

    @abstractmethod
    def _restore_learner(self, state: dict[str, Any]) -> None:
        """Put back what `_learner_state` gave."""

    def _fit(self, train: Sweep, validation: Sweep, monitor: Monitor, until: int) -> None:
        if self.num_timesteps == 0:
            self._best, self._best_reward = None, -np.inf
            self._begin(train)
        self._attach(train, monitor)
        reward = -np.inf
        while self.num_timesteps < until:
            due = (self.num_timesteps // self.eval_freq + 1) * self.eval_freq
            self._advance(min(due, until), monitor)
            self._use(self._snapshot())
            reward = monitor.evaluate(self, validation, self.num_timesteps, until)
            if self.num_timesteps >= due and reward > self._best_reward:
                self._best, self._best_reward = self._used, reward
        if self._best is not None and reward <= self._best_reward:
            self._use(self._best)

    def _use(self, snapshot: Snapshot) -> None:
        self._used = snapshot
        self.policy = self._policy_of(snapshot)

    def _save_model(self, folder: Path) -> None:
        super()._save_model(folder)
        state = {
            "best": self._best,
            "best_reward": self._best_reward,
            "used": self._used,
            "learner": self._learner_state(),
        }
        torch.save(state, folder / TRAINING_FILE)

    def _load_model(self, folder: Path) -> None:
        super()._load_model(folder)
        path = folder / TRAINING_FILE
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            self._best, self._best_reward = state["best"], state["best_reward"]
            self._used = state["used"]
            self._restore_learner(state["learner"])
        # A damaged archive can raise anything, and hold anything.
        except Exception as error:
            raise BlockPilotError(
                f"{path} is missing or corrupt ({type(error).__name__}); train the agent again"
            ) from error
