"""What the contextual bandits share: the stream of decisions, and linear models of the rewards."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import nn

from blockpilot_rl.agents.exploring import ExploringAgent, ExploringHyperparams
from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.iterative import Snapshot
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.agents.projection import Projection
from blockpilot_rl.agents.ridge_models import RidgeModels
from blockpilot_rl.envs.one_step import EpochSampler
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True)
class BanditHyperparams(ExploringHyperparams):
    """Hyperparameters of every contextual bandit.

    Attributes:
        batch_size: Decisions between two updates.
        learning_starts: Decisions by chance before the bandit takes over.
        components: Features that the state is reduced to.
        alpha: Ridge penalty on standardised states, that is, prior precision of the weights.
    """

    batch_size: int
    learning_starts: int
    components: int
    alpha: float

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require(self.batch_size >= 1, "batch_size must be at least 1")
        require(self.learning_starts >= 0, "learning_starts must be 0 or more")
        require(self.components >= 1, "components must be at least 1")
        require(self.alpha > 0, "alpha must be positive")


B = TypeVar("B", bound=BanditHyperparams)
M = TypeVar("M", bound=nn.Module)


class BanditAgent(ExploringAgent[B], Generic[B, M]):
    """Decides, sees the reward of the arm it chose, and learns, batch by batch.

    An algorithm says with which probability it takes each arm; the arm is drawn from these
    probabilities and the drawn one is logged as the propensity.

    Attributes:
        projection: From states to features.
        model: What has been learned of the rewards.
    """

    projection: Projection
    model: M

    @abstractmethod
    def _new_model(self) -> M:
        """Make the model of the rewards that has seen nothing."""

    @abstractmethod
    def _explore(
        self, model: M, features: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        """Probability of each arm, `[n, arms]`, for features `[n, width]`.

        For a sampling algorithm they are estimated by draws from its posterior. Drawing the arm
        from the estimate is the same as following one of these draws, picked by chance, so the
        estimate is also the exact propensity, given the draws.
        """

    @abstractmethod
    def _update(self, features: torch.Tensor, arms: torch.Tensor, rewards: torch.Tensor) -> None:
        """Learn from decisions `[n]`."""

    def _begin(self, train: Sweep) -> None:
        super()._begin(train)
        self._generator = torch.Generator().manual_seed(self.seed)
        self.projection = Projection.fit(
            self.problem.states(train), self.problem.state, self.hyperparams.components
        )
        self.model = self._new_model()

    def _attach(self, train: Sweep, monitor: Monitor) -> None:
        super()._attach(train, monitor)
        self._features = self.projection(self.problem.states(train))
        self._rewards = torch.from_numpy(
            self.problem.gains(train) if self._baseline is not None else train.speedups
        )
        self._sampler, self._order = EpochSampler(len(train)), np.random.default_rng(self.seed)
        # The order of the prompts depends on the seed alone, so drawing leads to where it was.
        self._sampler.draw(self.num_timesteps, self._order)

    def _advance(self, until: int, monitor: Monitor) -> None:
        settings = self.hyperparams
        count = len(self.problem.arms)
        earned = []
        while self.num_timesteps < until:
            rows = self._sampler.draw(settings.batch_size, self._order)
            features = self._features[rows]
            if self.num_timesteps < settings.learning_starts:
                probabilities = torch.full((len(rows), count), 1 / count).double()
            else:
                probabilities = self._explore(self.model, features, self._generator)
            arms = torch.multinomial(probabilities, 1, generator=self._generator)
            rewards = self._rewards[rows].gather(1, arms)[:, 0]
            propensities = probabilities.gather(1, arms)[:, 0]
            self.num_timesteps += len(rows)
            self._update(features, arms[:, 0], rewards)
            self.decisions.append(rows, arms[:, 0].numpy(), propensities.numpy())
            earned.append(rewards.mean().item())
        monitor.scalar("train/reward", float(np.mean(earned)), self.num_timesteps)

    def _probabilities(self, states: np.ndarray) -> np.ndarray:
        """Probability of each arm as the bandit explores, `[n, arms]`."""
        model = self._new_model()
        model.load_state_dict(self._used)
        generator = torch.Generator().manual_seed(self.seed)
        with torch.inference_mode():
            return self._explore(model, self.projection(states), generator).numpy()

    def _snapshot(self) -> Snapshot:
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def _learner_state(self) -> dict[str, Any]:
        return {
            "projection": vars(self.projection),
            "model": self.model.state_dict(),
            "generator": self._generator.get_state(),
        }

    def _restore_learner(self, state: dict[str, Any]) -> None:
        self.projection = Projection(**state["projection"])
        self.model = self._new_model()
        self.model.load_state_dict(state["model"])
        self._generator = torch.Generator()
        self._generator.set_state(state["generator"])


class LinearBanditAgent(BanditAgent[B, RidgeModels]):
    """A bandit with a ridge regression of the reward for every arm."""

    def _new_model(self) -> RidgeModels:
        return RidgeModels(len(self.problem.arms), self.projection.width, self.hyperparams.alpha)

    def _update(self, features: torch.Tensor, arms: torch.Tensor, rewards: torch.Tensor) -> None:
        self.model.add(features, one_hot(arms, len(self.problem.arms)), rewards)

    def _policy_of(self, snapshot: Snapshot) -> BlockSizePolicy:
        return self._linear_policy(snapshot["weights"])

    def _linear_policy(self, weights: torch.Tensor) -> BlockSizePolicy:
        """Fold weights on features `[arms, width]` and the projection into one linear layer."""
        return BlockSizePolicy.from_layers(
            self._policy_config(),
            [(self.projection.unfold(weights[:, :-1]), weights[:, -1])],
            self.projection.mean,
            self.projection.scale,
        )


def one_hot(arms: torch.Tensor, count: int) -> torch.Tensor:
    """Mark arms `[…]` among `count`, `[…, count]`, float64."""
    return nn.functional.one_hot(arms, count).double()


def sampled_shares(
    mean: torch.Tensor, spread: torch.Tensor, draws: int, generator: torch.Generator
) -> torch.Tensor:
    """Share of posterior draws in which each arm is best.

    The posteriors of the arms are independent, so the scores of one state are drawn instead of the
    weights.

    Args:
        mean: Posterior means, `[n, arms]`.
        spread: Posterior standard deviations, `[n, arms]`.
        draws: Number of draws.
        generator: Source of the draws.

    Returns:
        `[n, arms]`; rows sum to 1.
    """
    noise = torch.randn(draws, *mean.shape, dtype=mean.dtype, generator=generator)
    return one_hot((mean + spread * noise).argmax(dim=2), mean.shape[1]).mean(dim=0)
