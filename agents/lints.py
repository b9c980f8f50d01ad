"""Linear Thompson sampling (Agrawal and Goyal, arXiv 1209.3352)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from blockpilot_rl.agents.bandit import BanditAgent, BanditHyperparams, sampled_shares
from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.ridge_models import RewardModel


@dataclass(frozen=True)
class LinTSHyperparams(BanditHyperparams):
    """Hyperparameters of linear Thompson sampling.

    Attributes:
        noise: Standard deviation of the reward that the posterior assumes.
        posterior_draws: Draws that the propensities are estimated from.
    """

    noise: float
    posterior_draws: int

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require(self.noise > 0, "noise must be positive")
        require(self.posterior_draws >= 1, "posterior_draws must be at least 1")


class LinTSAgent(BanditAgent[LinTSHyperparams]):
    """Draws the weights of every arm from the posterior and takes the best arm of the draw."""

    algorithm = "lints"
    Hyperparams = LinTSHyperparams

    def _explore(
        self, model: RewardModel, features: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        settings = self.hyperparams
        mean, spread = model.posterior(features)
        return sampled_shares(mean, settings.noise * spread, settings.posterior_draws, generator)
