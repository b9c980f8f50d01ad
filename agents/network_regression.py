"""Regression of every arm's reward by a network, and the arm with the highest prediction."""

from __future__ import annotations

import numpy as np
import torch

from blockpilot_rl.agents.network import NetworkAgent, NetworkHyperparams
from blockpilot_rl.sweeps.table import Sweep


class NetworkRegressionAgent(NetworkAgent[NetworkHyperparams]):
    """Predicts every arm's gain over the best fixed size by a network and takes the best."""

    algorithm = "network-regression"
    Hyperparams = NetworkHyperparams

    def _targets(self, train: Sweep) -> np.ndarray:
        return self.problem.gains(train).astype(np.float32)

    def _loss(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.mse_loss(scores, targets)
