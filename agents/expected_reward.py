"""Maximises the expected reward of a softmax policy, exact because all arms are recorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.network import NetworkAgent, NetworkHyperparams
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True)
class ExpectedRewardHyperparams(NetworkHyperparams):
    """Hyperparameters of the expected reward.

    Attributes:
        ent_coef: Weight of the entropy bonus. Without it the policy settles on the best fixed size,
            where the gradient of a softmax vanishes, before it uses the states.
    """

    ent_coef: float

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require(self.ent_coef >= 0, "ent_coef must be 0 or more")


class ExpectedRewardAgent(NetworkAgent[ExpectedRewardHyperparams]):
    """Ascends Σ_a π(a|x) r(x, a) without sampling an arm.

    Policy gradients estimate the same from one arm per prompt, with variance. Unlike the
    classifier, the agent uses how much every arm loses; unlike a regression, it spends no capacity
    on arms that no prompt should get.
    """

    algorithm = "expected-reward"
    Hyperparams = ExpectedRewardHyperparams

    def _targets(self, train: Sweep) -> np.ndarray:
        return self.problem.gains(train).astype(np.float32)

    def _loss(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        log_probabilities = scores.log_softmax(dim=1)
        value = targets - self.hyperparams.ent_coef * log_probabilities
        return -(log_probabilities.exp() * value).sum(dim=1).mean()

    def _probabilities(self, states: np.ndarray) -> np.ndarray:
        """Probability of each arm under the softmax policy, `[n, arms]`."""
        return self._softmax(states)
