"""SquareCB (Foster and Rakhlin, arXiv 2002.04926): inverse gap weighting of a regression."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from blockpilot_rl.agents.bandit import BanditAgent, BanditHyperparams
from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.ridge_models import RewardModel, RidgeModels


@dataclass(frozen=True)
class SquareCBHyperparams(BanditHyperparams):
    """Hyperparameters of SquareCB; γ is `gamma_scale` × decisions ^ `gamma_exponent`.

    Attributes:
        gamma_scale: The larger, the greedier.
        gamma_exponent: How fast exploration fades.
    """

    gamma_scale: float
    gamma_exponent: float

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require(self.gamma_scale > 0, "gamma_scale must be positive")
        require(self.gamma_exponent >= 0, "gamma_exponent must be 0 or more")


class SquareCBAgent(BanditAgent[SquareCBHyperparams]):
    """Takes an arm less often the further its predicted reward is below the best."""

    algorithm = "squarecb"
    Hyperparams = SquareCBHyperparams

    def _explore(
        self, model: RewardModel, features: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        assert isinstance(model, RidgeModels)
        settings = self.hyperparams
        gamma = settings.gamma_scale * float(model.observations) ** settings.gamma_exponent
        predicted = model.predict(features)
        best = predicted.argmax(dim=1, keepdim=True)
        gaps = predicted.gather(1, best) - predicted
        probabilities = 1 / (predicted.shape[1] + gamma * gaps)
        others = probabilities.scatter(1, best, 0.0).sum(dim=1, keepdim=True)
        complete: torch.Tensor = probabilities.scatter(1, best, 1 - others)
        return complete
