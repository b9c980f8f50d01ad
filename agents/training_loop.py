"""The training loop of agents that learn step by step, and the optimiser of all networks."""

from __future__ import annotations

import re
from collections.abc import Iterable
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


# How errors of torch and Stable-Baselines3 describe numbers that are not finite.
_NOT_FINITE = re.compile(r"\bnan\b|\binf\b|invalid values|not positive-definite|converge", re.I)


class DivergedError(BlockPilotError):
    """Training has diverged before there was a candidate to keep."""


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

    def rewind(self, snapshot: Snapshot) -> None:
        """Go back to the weights of a snapshot after training has diverged."""

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
        diverged_at: Steps after which training diverged; None if it did not.
    """

    best: Snapshot | None
    best_reward: float
    used: Snapshot
    diverged_at: int | None = None

    def __init__(self, agent: StepLearner) -> None:
        self._agent = agent

    def run(self, train: Sweep, validation: Sweep, monitor: Monitor, until: int) -> None:
        """Train until `num_timesteps` reaches `until`, from scratch if it is 0.

        If training diverges, the best candidate is kept and the monitor gets a note.

        Raises:
            BlockPilotError: If training diverges before there is a candidate, or has diverged
                earlier.
        """
        agent = self._agent
        if agent.num_timesteps == 0:
            self.best, self.best_reward, self.diverged_at = None, -np.inf, None
            agent.initialize(train)
        if self.diverged_at is not None:
            raise BlockPilotError(
                f"the training of this {agent.algorithm} agent diverged after {self.diverged_at} "
                "steps and cannot be resumed; train it again with a lower learning rate"
            )
        agent.attach(train, monitor)
        reward = -np.inf
        while agent.num_timesteps < until:
            due = _next_multiple(agent.num_timesteps, agent.eval_freq)
            save = _next_multiple(agent.num_timesteps, monitor.save_freq or until)
            problem = self._advance(min(due, save, until), validation, monitor)
            if problem is not None:
                self._keep_best(problem, monitor)
                return
            if agent.num_timesteps >= min(due, until):
                reward = monitor.evaluate(agent, validation, agent.num_timesteps, until)
            if agent.num_timesteps >= due and reward > self.best_reward:
                self.best, self.best_reward = self.used, reward
            if save <= agent.num_timesteps < until:
                monitor.checkpoint(agent, until)
        if self.best is not None and reward <= self.best_reward:
            self._use(self.best)

    def save(self, folder: Path) -> None:
        """Write what further training needs."""
        state = {
            "best": self.best,
            "best_reward": self.best_reward,
            "used": self.used,
            "diverged_at": self.diverged_at,
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
            self.used, self.diverged_at = state["used"], state.get("diverged_at")
            self._agent.restore(state["learner"])
        # A damaged archive can raise any error and hold any value.
        except Exception as error:
            raise BlockPilotError(
                f"{path} is missing or corrupt ({type(error).__name__}); train the agent again"
            ) from error

    def _advance(self, until: int, validation: Sweep, monitor: Monitor) -> str | None:
        """Train, and use the new weights; if training has diverged, return how."""
        agent = self._agent
        try:
            agent.advance(until, monitor)
        except (ValueError, RuntimeError) as error:
            if not _NOT_FINITE.search(str(error)):
                raise
            return "its numbers are no longer finite"
        snapshot = agent.snapshot()
        for name, weights in snapshot.items():
            if not bool(weights.isfinite().all()):
                return f"{name} is not finite"
        self._use(snapshot)
        if not agent.policy.usable(agent.problem.states(validation)).all():
            return "scores overflow"
        return None

    def _keep_best(self, problem: str, monitor: Monitor) -> None:
        """End training that has diverged with the best candidate."""
        agent = self._agent
        what = f"the training of {agent.algorithm} diverged after {agent.num_timesteps} steps"
        remedy = "try a lower learning rate"
        if self.best is None:
            raise DivergedError(f"{what}, before its first evaluation ({problem}); {remedy}")
        agent.rewind(self.best)
        self.diverged_at = agent.num_timesteps
        self._use(self.best)
        monitor.note(f"{what} ({problem}); the best candidate so far is kept; {remedy}")

    def _use(self, snapshot: Snapshot) -> None:
        self.used = snapshot
        self._agent.policy = self._agent.policy_from(snapshot)


def _next_multiple(steps: int, period: int) -> int:
    """The first multiple of a period above a number of steps."""
    return (steps // period + 1) * period


class BiasSparingAdamW(torch.optim.AdamW):
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101) that decays weights but no biases.

    The bias of the last layer holds the mean reward of each arm. If it decayed too, a strong decay
    would make all arms equal instead of choosing the best fixed size.

    Args:
        params: Parameters to train.
        lr: Learning rate.
        weight_decay: Decay of parameters with two or more dimensions.
    """

    def __init__(
        self, params: Iterable[torch.nn.Parameter], lr: float, weight_decay: float
    ) -> None:
        everything = list(params)
        super().__init__(
            [
                {"params": [p for p in everything if p.ndim > 1], "weight_decay": weight_decay},
                {"params": [p for p in everything if p.ndim <= 1], "weight_decay": 0.0},
            ],
            lr=lr,
        )
