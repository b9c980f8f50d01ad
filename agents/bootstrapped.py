"""Bootstrapped Thompson sampling (Eckles and Kaptein, arXiv 1410.4009)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from blockpilot_rl.agents.bandit import BanditAgent, BanditHyperparams, one_hot
from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.ridge_models import RewardModel, RidgeModels
from blockpilot_rl.agents.training_loop import Snapshot
from blockpilot_rl.policies.policy import BlockSizePolicy


@dataclass(frozen=True)
class BootstrappedHyperparams(BanditHyperparams):
    """Hyperparameters of bootstrapped Thompson sampling.

    Attributes:
        n_heads: Number of resampled models.
    """

    n_heads: int

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require(self.n_heads >= 2, "n_heads must be at least 2")


class BootstrappedAgent(BanditAgent[BootstrappedHyperparams]):
    """Follows one of several models, drawn for each decision.

    Each decision counts for each model as often as a Poisson(1) draw says, which is the bootstrap
    of a stream. The mean of the models is deployed.
    """

    algorithm = "bootstrapped"
    Hyperparams = BootstrappedHyperparams

    def policy_from(self, snapshot: Snapshot) -> BlockSizePolicy:
        """Build the policy of the mean of the models."""
        heads = snapshot["weights"].unflatten(0, (self.hyperparams.n_heads, -1))
        return self._linear_policy(heads.mean(dim=0))

    def _new_model(self) -> RewardModel:
        models = self.hyperparams.n_heads * len(self.problem.arms)
        return RidgeModels(models, self.projection.width, self.hyperparams.alpha)

    def _explore(
        self, model: RewardModel, features: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        arms = len(self.problem.arms)
        scores = model.predict(features).unflatten(1, (self.hyperparams.n_heads, arms))
        return one_hot(scores.argmax(dim=2), arms).mean(dim=1)

    def _update(self, features: torch.Tensor, arms: torch.Tensor, rewards: torch.Tensor) -> None:
        ones = torch.ones(len(arms), self.hyperparams.n_heads, 1, dtype=torch.float64)
        counts = torch.poisson(ones, generator=self._generator)
        chosen = one_hot(arms, len(self.problem.arms))[:, None, :]
        self.model.add(features, (counts * chosen).flatten(1), rewards)
