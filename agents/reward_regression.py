"""Ridge regression of every arm's reward, and the arm with the highest prediction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from blockpilot_rl.agents.base import PolicyAgent, standardisation
from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import SweepTable


@dataclass(frozen=True)
class RewardRegressionHyperparams:
    """Hyperparameters of the ridge regression.

    Attributes:
        alphas: Strengths of the penalty to choose among.
    """

    alphas: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check the values."""
        require(len(self.alphas) > 0, "alphas must hold at least one value")
        require(all(alpha > 0 for alpha in self.alphas), "alphas must be positive")


class RewardRegressionAgent(PolicyAgent[RewardRegressionHyperparams]):
    """Predicts every arm's gain over the best fixed size and takes the best.

    All arms of a prompt are known, so nothing has to be explored. The penalty is chosen by the
    mean reward of the choices on the validation split, not by the error of the predictions; of
    equally good ones the strongest is taken.
    """

    algorithm = "reward-regression"
    Hyperparams = RewardRegressionHyperparams

    def _fit(self, train: SweepTable, validation: SweepTable, monitor: Monitor) -> None:
        states = self.problem.states(train)
        mean, scale = standardisation(states)
        inputs = ((states - mean.numpy()) / scale.numpy()).astype(np.float64)
        gains = train.rewards - train.rewards[:, [self.problem.best_fixed_arm]]
        intercept = gains.mean(axis=0)
        gram = inputs.T @ inputs
        moment = inputs.T @ (gains - intercept)
        best = -np.inf
        alphas = sorted(self.hyperparams.alphas, reverse=True)
        for step, alpha in enumerate(alphas, 1):
            weights = np.linalg.solve(gram + alpha * np.eye(len(gram)), moment)
            candidate = BlockSizePolicy.from_layers(
                self._policy_config(),
                [(torch.from_numpy(weights.T), torch.from_numpy(intercept))],
                mean,
                scale,
            )
            self.policy = candidate
            reward = monitor.evaluate(self, validation, step, len(alphas))
            monitor.scalar("train/alpha", alpha, step)
            if reward > best:
                best, kept = reward, candidate
        self.policy = kept
