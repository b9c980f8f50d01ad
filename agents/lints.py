"""Linear Thompson sampling (Agrawal and Goyal, arXiv 1209.3352)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from blockpilot_rl.agents.bandit import BanditHyperparams, LinearBanditAgent, sampled_shares
from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.ridge_models import RidgeModels


@dataclass(frozen=True)
class LinTSHyperparams(BanditHyperparams):
    """Hyperparameters of linear Thompson sampling.

    Attributes:
        noise: Standard deviation of the reward that the posterior assumes.
        posterior_draws: Draws that the propensities are estimated by.
    """

    noise: float
    posterior_draws: int

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require(self.noise > 0, "noise must be positive")
        require(self.posterior_draws >= 1, "posterior_draws must be at least 1")


class LinTSAgent(LinearBanditAgent[LinTSHyperparams]):
    """Draws the weights of every arm from their posterior and takes the arm that is best in it."""

    algorithm = "lints"
    Hyperparams = LinTSHyperparams

    def _explore(
        self, model: RidgeModels, features: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        spread = self.hyperparams.noise * model.spread(features)
        draws = self.hyperparams.posterior_draws
        return sampled_shares(model.predict(features), spread, draws, generator)
