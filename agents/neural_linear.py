"""Neural-linear bandit (Riquelme, Tucker and Snoek, arXiv 1802.09127)."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from blockpilot_rl.agents.bandit import BanditAgent, BanditHyperparams, one_hot, sampled_shares
from blockpilot_rl.agents.hyperparameters import require, require_network
from blockpilot_rl.agents.ridge_models import RewardModel, RidgeModels
from blockpilot_rl.agents.training_loop import BiasSparingAdamW, Snapshot
from blockpilot_rl.policies.config import ACTIVATIONS
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep

# Features, arms and rewards of some decisions.
Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class NeuralLinearHyperparams(BanditHyperparams):
    """Hyperparameters of the neural-linear bandit.

    Attributes:
        hidden: Widths of the hidden layers, at least one.
        activation: `tanh` or `relu`.
        train_freq: Decisions between two trainings of the network.
        gradient_steps: Gradient steps per training.
        minibatch_size: Decisions per gradient step.
        buffer_size: Latest decisions to train on and to keep for the linear models.
        learning_rate: Of AdamW.
        weight_decay: Of AdamW, for weights but not for biases.
        noise: Standard deviation of the reward that the posterior assumes.
        posterior_draws: Draws that the propensities are estimated from.
    """

    hidden: tuple[int, ...]
    activation: str
    train_freq: int
    gradient_steps: int
    minibatch_size: int
    buffer_size: int
    learning_rate: float
    weight_decay: float
    noise: float
    posterior_draws: int

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require_network(self.hidden, self.activation)
        require(len(self.hidden) >= 1, "hidden must hold at least one width")
        for name in ("train_freq", "gradient_steps", "minibatch_size", "posterior_draws"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        require(self.buffer_size >= self.batch_size, "buffer_size must be at least batch_size")
        require(self.learning_rate > 0, "learning_rate must be positive")
        require(self.weight_decay >= 0, "weight_decay must be 0 or more")
        require(self.noise > 0, "noise must be positive")


class NeuralLinearModel(RewardModel):
    """A network, and a ridge regression per arm on its last hidden layer."""

    def __init__(self, width: int, arms: int, settings: NeuralLinearHyperparams) -> None:
        super().__init__()
        widths = (width, *settings.hidden)
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            layers += [
                nn.utils.skip_init(nn.Linear, inputs, outputs),
                ACTIVATIONS[settings.activation](),
            ]
        self.body = nn.Sequential(*layers)
        self.readout = nn.utils.skip_init(nn.Linear, widths[-1], arms)
        self.heads = RidgeModels(arms, widths[-1] + 1, settings.alpha)

    @torch.no_grad()
    def represent(self, features: torch.Tensor) -> torch.Tensor:
        """Last hidden layer and a constant, `[n, width + 1]`, of projected states."""
        hidden = self.body(features[:, :-1].float()).double()
        return torch.cat([hidden, features[:, -1:]], dim=1)

    def add(self, features: torch.Tensor, counts: torch.Tensor, targets: torch.Tensor) -> None:
        """Update the linear models with observations."""
        self.heads.add(self.represent(features), counts, targets)

    def predict(self, features: torch.Tensor) -> torch.Tensor:
        """Posterior means of the targets."""
        return self.heads.predict(self.represent(features))

    def posterior(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Posterior means, and standard deviations for unit noise, of the targets."""
        return self.heads.posterior(self.represent(features))


class NeuralLinearAgent(BanditAgent[NeuralLinearHyperparams]):
    """Thompson sampling on linear models over a representation that a network learns.

    At intervals the network is trained to predict the rewards of the logged decisions, and the
    linear models are fitted to these decisions again. They are deployed as the last layer.
    """

    algorithm = "neural-linear"
    Hyperparams = NeuralLinearHyperparams

    model: NeuralLinearModel

    def initialize(self, train: Sweep) -> None:
        """Create a network with random weights."""
        super().initialize(train)
        for layer in self.model.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight, generator=self._generator)
                nn.init.zeros_(layer.bias)
        self._optimizer = self._new_optimizer()
        self._memory = self._new_memory()

    def policy_from(self, snapshot: Snapshot) -> BlockSizePolicy:
        """Build the policy of the network with the linear models as its last layer."""
        settings = self.hyperparams
        hidden = [
            (snapshot[name], snapshot[name.removesuffix("weight") + "bias"])
            for name in snapshot
            if name.startswith("body.") and name.endswith("weight")
        ]
        first, *others = hidden
        heads = snapshot["heads.weights"]
        return BlockSizePolicy.from_layers(
            self._policy_config(settings.hidden, settings.activation),
            [(self.projection.unfold(first[0]), first[1]), *others, (heads[:, :-1], heads[:, -1])],
            self.projection.mean,
            self.projection.scale,
        )

    def rewind(self, snapshot: Snapshot) -> None:
        """Go back to the weights of a snapshot, with a new optimizer."""
        super().rewind(snapshot)
        self._optimizer = self._new_optimizer()

    def training_state(self) -> dict[str, Any]:
        """Everything that further training depends on."""
        return {
            **super().training_state(),
            "optimizer": self._optimizer.state_dict(),
            "memory": self._remembered(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `training_state`."""
        super().restore(state)
        self._optimizer = self._new_optimizer()
        self._optimizer.load_state_dict(state["optimizer"])
        self._memory = self._new_memory()
        batches = (column.split(self.hyperparams.batch_size) for column in state["memory"])
        self._memory.extend(zip(*batches, strict=True))

    def _explore(
        self, model: RewardModel, features: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        settings = self.hyperparams
        mean, spread = model.posterior(features)
        return sampled_shares(mean, settings.noise * spread, settings.posterior_draws, generator)

    def _update(self, features: torch.Tensor, arms: torch.Tensor, rewards: torch.Tensor) -> None:
        self._memory.append((features, arms, rewards))
        period = self.hyperparams.train_freq
        if self.num_timesteps // period > (self.num_timesteps - len(arms)) // period:
            features, arms, rewards = self._remembered()
            self._train_network(features, arms, rewards)
            self.model.heads = self._new_model().heads
        self.model.add(features, one_hot(arms, len(self.problem.arms)), rewards)

    def _new_model(self) -> NeuralLinearModel:
        width = self.projection.width - 1
        return NeuralLinearModel(width, len(self.problem.arms), self.hyperparams)

    def _new_optimizer(self) -> torch.optim.Optimizer:
        settings = self.hyperparams
        return BiasSparingAdamW(
            [*self.model.body.parameters(), *self.model.readout.parameters()],
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
        )

    def _new_memory(self) -> deque[Batch]:
        settings = self.hyperparams
        return deque(maxlen=settings.buffer_size // settings.batch_size)

    def _remembered(self) -> Batch:
        features, arms, rewards = zip(*self._memory, strict=True)
        return torch.cat(features), torch.cat(arms), torch.cat(rewards)

    def _train_network(
        self, features: torch.Tensor, arms: torch.Tensor, rewards: torch.Tensor
    ) -> None:
        inputs, targets = features[:, :-1].float(), rewards.float()
        for _ in range(self.hyperparams.gradient_steps):
            rows = torch.randint(
                len(arms), (self.hyperparams.minibatch_size,), generator=self._generator
            )
            predicted = self.model.readout(self.model.body(inputs[rows]))
            loss = nn.functional.mse_loss(
                predicted.gather(1, arms[rows][:, None])[:, 0], targets[rows]
            )
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
