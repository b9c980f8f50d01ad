"""LinUCB (Li et al., arXiv 1003.0146): the arm with the highest upper confidence bound."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from blockpilot_rl.agents.bandit import BanditAgent, BanditHyperparams, one_hot
from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.ridge_models import RewardModel


@dataclass(frozen=True)
class LinUCBHyperparams(BanditHyperparams):
    """Hyperparameters of LinUCB.

    Attributes:
        width: Weight of the uncertainty, in units of the reward.
    """

    width: float

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require(self.width >= 0, "width must be 0 or more")


class LinUCBAgent(BanditAgent[LinUCBHyperparams]):
    """Takes the arm with the highest upper confidence bound.

    Its propensities are 1, so its log alone cannot show what another policy would have earned.
    """

    algorithm = "linucb"
    Hyperparams = LinUCBHyperparams

    def _explore(
        self, model: RewardModel, features: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        mean, spread = model.posterior(features)
        bounds = mean + self.hyperparams.width * spread
        return one_hot(bounds.argmax(dim=1), len(self.problem.arms))
