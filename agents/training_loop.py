"""The training loop of agents that learn step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from blockpilot_rl.agents.monitor import Monitor, Scored
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep

TRAINING_FILE = "training.pt"

Snapshot = dict[str, torch.Tensor]


class StepLearner(Scored, Protocol):
    """What the training loop needs from an agent.

    Attributes:
        num_timesteps: Steps learned so far.
        policy: The policy that the agent chooses by.
    """

    num_timesteps: int
    policy: BlockSizePolicy

    @property
    def eval_freq(self) -> int:
        """Steps between two evaluations on the validation split."""

    def initialize(self, train: Sweep) -> None:
        """Create an untrained learner."""

    def attach(self, train: Sweep, monitor: Monitor) -> None:
        """Prepare the training rows so that learning continues after `num_timesteps` steps."""

    def advance(self, until: int, monitor: Monitor) -> None:
        """Learn until `num_timesteps` is at least `until`."""

    def snapshot(self) -> Snapshot:
        """Copy the current weights."""

    def policy_from(self, snapshot: Snapshot) -> BlockSizePolicy:
        """Build the greedy policy of a snapshot."""

    def training_state(self) -> dict[str, Any]:
        """Everything that further training depends on, as tensors and plain values."""

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `training_state`."""


class TrainingLoop:
    """Trains an agent step by step and keeps the candidate that does best on the validation split.

    Each time `num_timesteps` passes a multiple of `eval_freq`, the greedy choices of the current
    weights are scored on the whole validation split. The best candidate becomes the agent's policy.
    If a call ends between two multiples, its last candidate is scored too and is used if it is
    better, but later calls do not remember it. Training with a break therefore equals training
    without one.

    Args:
        agent: The agent to train.

    Attributes:
        best: Weights of the best candidate; None before the first.
        best_reward: Its mean speedup on the validation split.
        used: Weights of the candidate that the agent's policy is built from.
    """

    best: Snapshot | None
    best_reward: float
    used: Snapshot

    def __init__(self, agent: StepLearner) -> None:
        self._agent = agent

    def run(self, train: Sweep, validation: Sweep, monitor: Monitor, until: int) -> None:
        """Train until `num_timesteps` reaches `until`; from the beginning if it is 0."""
        agent = self._agent
        if agent.num_timesteps == 0:
            self.best, self.best_reward = None, -np.inf
            agent.initialize(train)
        agent.attach(train, monitor)
        reward = -np.inf
        while agent.num_timesteps < until:
            due = (agent.num_timesteps // agent.eval_freq + 1) * agent.eval_freq
            agent.advance(min(due, until), monitor)
            self._use(agent.snapshot())
            reward = monitor.evaluate(agent, validation, agent.num_timesteps, until)
            if agent.num_timesteps >= due and reward > self.best_reward:
                self.best, self.best_reward = self.used, reward
        if self.best is not None and reward <= self.best_reward:
            self._use(self.best)

    def save(self, folder: Path) -> None:
        """Write what further training needs."""
        state = {
            "best": self.best,
            "best_reward": self.best_reward,
            "used": self.used,
            "learner": self._agent.training_state(),
        }
        torch.save(state, folder / TRAINING_FILE)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote.

        Raises:
            BlockPilotError: If the file is missing or corrupt.
        """
        path = folder / TRAINING_FILE
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            self.best, self.best_reward = state["best"], state["best_reward"]
            self.used = state["used"]
            self._agent.restore(state["learner"])
        # A damaged archive can raise any error and hold any value.
        except Exception as error:
            raise BlockPilotError(
                f"{path} is missing or corrupt ({type(error).__name__}); train the agent again"
            ) from error

    def _use(self, snapshot: Snapshot) -> None:
        self.used = snapshot
        self._agent.policy = self._agent.policy_from(snapshot)
