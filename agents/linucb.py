"""LinUCB (Li et al., arXiv 1003.0146): the arm that could be best, given what is not yet known."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from blockpilot_rl.agents.bandit import BanditHyperparams, LinearBanditAgent, one_hot
from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.ridge_models import RidgeModels


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


class LinUCBAgent(LinearBanditAgent[LinUCBHyperparams]):
    """Takes the arm with the highest upper confidence bound, with certainty.

    So its propensities are 1, and a log of its decisions alone cannot tell how another policy
    would have done.
    """

    algorithm = "linucb"
    Hyperparams = LinUCBHyperparams

    def _explore(
        self, model: RidgeModels, features: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        bounds = model.predict(features) + self.hyperparams.width * model.spread(features)
        return one_hot(bounds.argmax(dim=1), len(self.problem.arms))
