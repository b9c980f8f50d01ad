"""The base of the networks that learn from the outcomes of all arms."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from blockpilot_rl.agents.base import Agent, standardisation
from blockpilot_rl.agents.hyperparameters import require, require_network
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.agents.training_loop import BiasSparingAdamW, Snapshot, TrainingLoop
from blockpilot_rl.policies.config import PolicyConfig
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True)
class NetworkHyperparams:
    """Hyperparameters of a network.

    Attributes:
        hidden: Widths of the hidden layers; empty for a linear network.
        activation: `tanh` or `relu`.
        epochs: Passes over the training prompts.
        batch_size: Prompts per update.
        learning_rate: Of AdamW.
        weight_decay: Of AdamW, for weights but not for biases.
    """

    hidden: tuple[int, ...]
    activation: str
    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float

    def __post_init__(self) -> None:
        """Check the values."""
        require_network(self.hidden, self.activation)
        require(self.epochs >= 1, "epochs must be at least 1")
        require(self.batch_size >= 1, "batch_size must be at least 1")
        require(self.learning_rate > 0, "learning_rate must be positive")
        require(self.weight_decay >= 0, "weight_decay must be 0 or more")


N = TypeVar("N", bound=NetworkHyperparams)


class NetworkAgent(Agent[N]):
    """Trains a network by gradient descent on the outcomes of all arms; a step is one epoch.

    Nothing has to be explored, but each prompt costs as many decodes as there are arms.
    """

    network: BlockSizePolicy
    optimizer: torch.optim.Optimizer
    _loop: TrainingLoop

    @abstractmethod
    def _targets(self, train: Sweep) -> np.ndarray:
        """Targets of the loss for each prompt, `[n, …]`."""

    @abstractmethod
    def _loss(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Loss of the scores `[n, arms]` of a batch."""

    @property
    def planned_timesteps(self) -> int:
        """Epochs that `learn` takes by default."""
        return self.hyperparams.epochs

    @property
    def eval_freq(self) -> int:
        """Every epoch is evaluated."""
        return 1

    @property
    def default_save_freq(self) -> int:
        """Epochs between two checkpoints by default."""
        return 10

    def initialize(self, train: Sweep) -> None:
        """Create a network with random hidden layers and a last layer of zeros."""
        self._generator = torch.Generator().manual_seed(self.seed)
        network = BlockSizePolicy(self._network_config())
        mean, scale = standardisation(self.problem.states(train))
        network.mean.copy_(mean)
        network.scale.copy_(scale)
        *hidden, last = (layer for layer in network.net if isinstance(layer, nn.Linear))
        for layer in hidden:
            nn.init.xavier_uniform_(layer.weight, generator=self._generator)
            nn.init.zeros_(layer.bias)
        # All arms start equal, for any scale of the rewards.
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self._set_network(network)

    def attach(self, train: Sweep, monitor: Monitor) -> None:
        """Move the training data to the device."""
        self._inputs = torch.as_tensor(self.problem.states(train), device=self.device)
        self._answers = torch.as_tensor(self._targets(train), device=self.device)

    def advance(self, until: int, monitor: Monitor) -> None:
        """Train until `num_timesteps` epochs are done."""
        for epoch in range(self.num_timesteps + 1, until + 1):
            order = torch.randperm(len(self._inputs), generator=self._generator)
            losses = []
            for rows in order.to(self.device).split(self.hyperparams.batch_size):
                loss = self._loss(self.network(self._inputs[rows]), self._answers[rows])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                losses.append(loss.item())
            monitor.scalar("train/loss", float(np.mean(losses)), epoch)
            self.num_timesteps = epoch

    def snapshot(self) -> Snapshot:
        """Copy the network's weights."""
        return {name: value.cpu().clone() for name, value in self.network.state_dict().items()}

    def policy_from(self, snapshot: Snapshot) -> BlockSizePolicy:
        """Build the policy that takes the arm with the highest score."""
        policy = BlockSizePolicy(self._network_config())
        policy.load_state_dict(snapshot)
        return policy.eval()

    def rewind(self, snapshot: Snapshot) -> None:
        """Go back to the weights of a snapshot, with a new optimizer."""
        self._set_network(self.policy_from(snapshot))

    def training_state(self) -> dict[str, Any]:
        """Everything that further training depends on."""
        return {
            "network": self.snapshot(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self._generator.get_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `training_state`."""
        self._set_network(self.policy_from(state["network"]))
        self.optimizer.load_state_dict(state["optimizer"])
        self._generator = torch.Generator()
        self._generator.set_state(state["generator"])

    def _new_loop(self) -> TrainingLoop:
        return TrainingLoop(self)

    def _fit(self, train: Sweep, validation: Sweep, monitor: Monitor, until: int) -> None:
        self._loop.run(train, validation, monitor, until)

    def _network_config(self) -> PolicyConfig:
        return self._policy_config(self.hyperparams.hidden, self.hyperparams.activation)

    def _set_network(self, network: BlockSizePolicy) -> None:
        self.network = network.to(self.device).train()
        self.optimizer = BiasSparingAdamW(
            self.network.parameters(),
            lr=self.hyperparams.learning_rate,
            weight_decay=self.hyperparams.weight_decay,
        )
