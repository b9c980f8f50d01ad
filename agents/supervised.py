"""The paper's classifier: a network that predicts the best arm of each prompt from its state."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from blockpilot_rl.agents.base import PolicyAgent, standardisation
from blockpilot_rl.agents.hyperparameters import require, require_network
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.evaluation.oracle import oracle_arms
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import SweepTable


@dataclass(frozen=True)
class SupervisedHyperparams:
    """Hyperparameters of the classifier.

    Attributes:
        hidden: Widths of the hidden layers.
        activation: `tanh` or `relu`.
        epochs: Passes over the training prompts.
        batch_size: Prompts per update.
        learning_rate: Of AdamW.
        weight_decay: Of AdamW.
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


class SupervisedAgent(PolicyAgent[SupervisedHyperparams]):
    """Learns each prompt's best arm by cross-entropy and takes the most probable one.

    A label needs every arm of its prompt decoded, and says nothing about how much the other arms
    lose. The epoch whose choices have the highest mean reward on the validation split is kept.
    """

    algorithm = "supervised"
    Hyperparams = SupervisedHyperparams

    def _fit(self, train: SweepTable, validation: SweepTable, monitor: Monitor) -> None:
        settings = self.hyperparams
        states = self.problem.states(train)
        generator = torch.Generator().manual_seed(self.seed)
        network = self._untrained(states, generator).to(self.device).train()
        inputs = torch.as_tensor(states, device=self.device)
        labels = torch.as_tensor(oracle_arms(train), device=self.device)
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        best = -np.inf
        for epoch in range(1, settings.epochs + 1):
            losses = []
            for rows in torch.randperm(len(inputs), generator=generator).split(settings.batch_size):
                loss = nn.functional.cross_entropy(network(inputs[rows]), labels[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            self.policy = copy.deepcopy(network).cpu().eval()
            reward = monitor.evaluate(self, validation, epoch, settings.epochs)
            monitor.scalar("train/loss", float(np.mean(losses)), epoch)
            if reward > best:
                best, kept = reward, self.policy
        self.policy = kept

    def action_probabilities(self, states: np.ndarray) -> np.ndarray:
        """Predicted probability that each arm is the best, `[n, arms]`."""
        with torch.inference_mode():
            scores = self.policy(torch.as_tensor(states))
        probabilities: np.ndarray = scores.double().softmax(dim=1).numpy()
        return probabilities

    def _untrained(self, states: np.ndarray, generator: torch.Generator) -> BlockSizePolicy:
        """Build the network with initial weights that depend on the agent's seed alone."""
        settings = self.hyperparams
        network = BlockSizePolicy(self._policy_config(settings.hidden, settings.activation))
        mean, scale = standardisation(states)
        network.mean.copy_(mean)
        network.scale.copy_(scale)
        for layer in network.net:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight, generator=generator)
                nn.init.zeros_(layer.bias)
        return network
