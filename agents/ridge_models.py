"""Ridge regressions over shared features that learn decision by decision."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import nn

INTERCEPT_PENALTY = 1.0


class RewardModel(nn.Module):
    """A model of the rewards that learns decision by decision."""

    @abstractmethod
    def add(self, features: torch.Tensor, counts: torch.Tensor, targets: torch.Tensor) -> None:
        """Learn from observations.

        Args:
            features: `[n, width]`.
            counts: How often each observation counts for each model, `[n, models]`.
            targets: `[n]`.
        """

    @abstractmethod
    def predict(self, features: torch.Tensor) -> torch.Tensor:
        """Posterior means of the targets of `[n, width]`, `[n, models]`."""

    @abstractmethod
    def posterior(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Posterior means, and standard deviations for unit noise, of the targets.

        Args:
            features: `[n, width]`.

        Returns:
            Two tensors `[n, models]`.
        """


class RidgeModels(RewardModel):
    """Several Bayesian linear models, each kept as its precision and its moment.

    Only sums over the observations are kept, so data can come in batches of any size. The weights
    are solved for after each batch, without the drift of repeated inverse updates. Everything is a
    buffer, so `state_dict` holds it all.

    Args:
        models: Number of models.
        width: Number of features; the last is constant and has its own penalty.
        penalty: Prior precision of the other weights.
    """

    precision: torch.Tensor
    moment: torch.Tensor
    factor: torch.Tensor
    weights: torch.Tensor
    observations: torch.Tensor

    def __init__(self, models: int, width: int, penalty: float) -> None:
        super().__init__()
        prior = torch.full((width,), penalty, dtype=torch.float64)
        prior[-1] = INTERCEPT_PENALTY
        self.register_buffer("precision", prior.diag().repeat(models, 1, 1))
        self.register_buffer("moment", torch.zeros(models, width, dtype=torch.float64))
        self.register_buffer("factor", prior.sqrt().diag().repeat(models, 1, 1))
        self.register_buffer("weights", torch.zeros(models, width, dtype=torch.float64))
        self.register_buffer("observations", torch.zeros((), dtype=torch.int64))

    def add(self, features: torch.Tensor, counts: torch.Tensor, targets: torch.Tensor) -> None:
        """Learn from observations; the arguments are those of `RewardModel.add`."""
        weighted = counts.T[:, :, None] * features
        self.precision += weighted.mT @ features
        self.moment += weighted.mT @ targets
        self.observations += len(features)
        self.factor.copy_(torch.linalg.cholesky(self.precision))
        self.weights.copy_(torch.cholesky_solve(self.moment[:, :, None], self.factor)[:, :, 0])

    def predict(self, features: torch.Tensor) -> torch.Tensor:
        """Posterior means of the targets of `[n, width]`, `[n, models]`."""
        return features @ self.weights.T

    def posterior(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Posterior means, and standard deviations for unit noise, of the targets."""
        return self.predict(features), self.spread(features)

    def spread(self, features: torch.Tensor) -> torch.Tensor:
        """Posterior standard deviations for unit noise, √(xᵀ A⁻¹ x), `[n, models]`."""
        inputs = features.T.expand(len(self.factor), -1, -1)
        whitened: torch.Tensor = torch.linalg.solve_triangular(self.factor, inputs, upper=False)
        norms: torch.Tensor = torch.linalg.vector_norm(whitened, dim=1)
        return norms.T
