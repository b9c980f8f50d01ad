"""ε-greedy: the best arm by a linear model, and sometimes a random one."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from blockpilot_rl.agents.bandit import BanditAgent, BanditHyperparams, one_hot
from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.ridge_models import RewardModel


@dataclass(frozen=True)
class EpsilonGreedyHyperparams(BanditHyperparams):
    """Hyperparameters of ε-greedy.

    Attributes:
        epsilon: Share of random decisions.
    """

    epsilon: float

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require(0 <= self.epsilon <= 1, "epsilon must lie in [0, 1]")


class EpsilonGreedyAgent(BanditAgent[EpsilonGreedyHyperparams]):
    """Takes the arm with the highest predicted reward, or with probability ε any arm."""

    algorithm = "epsilon-greedy"
    Hyperparams = EpsilonGreedyHyperparams

    def _explore(
        self, model: RewardModel, features: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        arms, epsilon = len(self.problem.arms), self.hyperparams.epsilon
        greedy = one_hot(model.predict(features).argmax(dim=1), arms)
        return epsilon / arms + (1 - epsilon) * greedy
