"""Maximises the expected reward of a softmax policy, known exactly when all arms are recorded."""

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
        ent_coef: Weight of the entropy bonus, without which the policy settles on the best fixed
            size, where the gradient of a softmax vanishes, before it has looked at the states.
    """

    ent_coef: float

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require(self.ent_coef >= 0, "ent_coef must be 0 or more")


class ExpectedRewardAgent(NetworkAgent[ExpectedRewardHyperparams]):
    """Ascends Σ_a π(a|x) r(x, a) without sampling an arm.

    This is what policy gradients estimate from one arm per prompt, free of their variance. Unlike
    the classifier it knows how much every arm loses, and unlike a regression it spends nothing on
    arms that no prompt should get.
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
