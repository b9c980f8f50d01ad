"""The base of the contextual bandits."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from blockpilot_rl.agents.base import Agent
from blockpilot_rl.agents.exploring import DecisionLog, Exploring, ExploringHyperparams
from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.agents.projection import Projection
from blockpilot_rl.agents.ridge_models import RewardModel, RidgeModels
from blockpilot_rl.agents.training_loop import Snapshot, TrainingLoop
from blockpilot_rl.envs.one_step import EpochSampler
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True)
class BanditHyperparams(ExploringHyperparams):
    """Hyperparameters of every contextual bandit.

    Attributes:
        batch_size: Decisions between two updates.
        learning_starts: Random decisions before the bandit takes over.
        components: Features that the state is reduced to.
        alpha: Ridge penalty on standardised states, which is the prior precision of the weights.
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


class BanditAgent(Exploring[B], Agent[B]):
    """A contextual bandit: decides, sees the reward of the chosen arm, and learns, in batches.

    An algorithm gives each arm a probability. The arm is drawn from these probabilities, and the
    probability of the drawn arm is logged as the propensity. A step is one decision. The training
    prompts come in shuffled epochs, whose order depends on the seed alone.

    By default the model of the rewards is a ridge regression for every arm.

    Attributes:
        projection: Map from states to features.
        model: Model of the rewards.
    """

    decisions: DecisionLog
    projection: Projection
    model: RewardModel
    _loop: TrainingLoop

    @abstractmethod
    def _explore(
        self, model: RewardModel, features: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        """Probability of each arm, `[n, arms]`, for features `[n, width]`.

        A sampling algorithm estimates them by draws from its posterior. Drawing the arm from the
        estimate equals following one of these draws, picked randomly, so the estimate is also the
        exact propensity, given the draws.
        """

    def initialize(self, train: Sweep) -> None:
        """Create an untrained model."""
        self.decisions = DecisionLog()
        self._generator = torch.Generator().manual_seed(self.seed)
        self.projection = Projection.fit(
            self.problem.states(train), self.problem.state, self.hyperparams.components
        )
        self.model = self._new_model()

    def attach(self, train: Sweep, monitor: Monitor) -> None:
        """Project the training states and go to the current place in the order of the prompts."""
        self.decisions.attach(train)
        self._features = self.projection(self.problem.states(train))
        plain = self.hyperparams.reward_baseline == "none"
        self._rewards = torch.from_numpy(train.speedups if plain else self.problem.gains(train))
        self._sampler, self._order = EpochSampler(len(train)), np.random.default_rng(self.seed)
        # The order of the prompts depends on the seed alone: skip what was already seen.
        self._sampler.draw(self.num_timesteps, self._order)

    def advance(self, until: int, monitor: Monitor) -> None:
        """Decide and learn until `num_timesteps` is at least `until`."""
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
            self._learn(rows, features, arms[:, 0], rewards)
            self.decisions.append(rows, arms[:, 0].numpy(), propensities.numpy())
            earned.append(rewards.mean().item())
        monitor.scalar("train/reward", float(np.mean(earned)), self.num_timesteps)

    def snapshot(self) -> Snapshot:
        """Copy the model's state."""
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def policy_from(self, snapshot: Snapshot) -> BlockSizePolicy:
        """Build the policy that takes the arm with the highest predicted reward."""
        return self._linear_policy(snapshot["weights"])

    def rewind(self, snapshot: Snapshot) -> None:
        """Go back to the weights of a snapshot."""
        self.model = self._model_from(snapshot)

    def training_state(self) -> dict[str, Any]:
        """Everything that further training depends on."""
        return {
            "projection": vars(self.projection),
            "model": self.model.state_dict(),
            "generator": self._generator.get_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `training_state`."""
        self.projection = Projection(**state["projection"])
        self.model = self._model_from(state["model"])
        self._generator = torch.Generator()
        self._generator.set_state(state["generator"])

    def _new_model(self) -> RewardModel:
        """Create an untrained model of the rewards."""
        return RidgeModels(len(self.problem.arms), self.projection.width, self.hyperparams.alpha)

    def _model_from(self, state: Snapshot) -> RewardModel:
        """Create a model from its state; memory is allocated only if the shapes agree."""
        with torch.device("meta"):
            model = self._new_model()
        model.load_state_dict({name: value.clone() for name, value in state.items()}, assign=True)
        return model

    def _learn(
        self, rows: np.ndarray, features: torch.Tensor, arms: torch.Tensor, rewards: torch.Tensor
    ) -> None:
        """Learn from decisions on some rows of the training sweep, `[n]` each."""
        self._update(features, arms, rewards)

    def _update(self, features: torch.Tensor, arms: torch.Tensor, rewards: torch.Tensor) -> None:
        """Learn from decisions `[n]`."""
        self.model.add(features, one_hot(arms, len(self.problem.arms)), rewards)

    def _linear_policy(self, weights: torch.Tensor) -> BlockSizePolicy:
        """Fold weights on features `[arms, width]` and the projection into one linear layer."""
        return BlockSizePolicy.from_layers(
            self._policy_config(),
            [(self.projection.unfold(weights[:, :-1]), weights[:, -1])],
            self.projection.mean,
            self.projection.scale,
        )

    def _probabilities(self, states: np.ndarray) -> np.ndarray:
        """Probability of each arm as the bandit explores, `[n, arms]`."""
        model = self._model_from(self._loop.used)
        generator = torch.Generator().manual_seed(self.seed)
        with torch.inference_mode():
            return self._explore(model, self.projection(states), generator).numpy()

    def _new_loop(self) -> TrainingLoop:
        return TrainingLoop(self)

    def _fit(self, train: Sweep, validation: Sweep, monitor: Monitor, until: int) -> None:
        self._loop.run(train, validation, monitor, until)


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
