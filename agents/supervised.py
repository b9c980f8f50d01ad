"""The paper's classifier: a network that predicts the best arm of each prompt from its state."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from blockpilot_rl.agents.network import NetworkAgent, NetworkHyperparams
from blockpilot_rl.evaluation.oracle import oracle_arms
from blockpilot_rl.sweeps.table import Sweep


class SupervisedAgent(NetworkAgent[NetworkHyperparams]):
    """Learns each prompt's best arm by cross-entropy and takes the most probable one.

    A label does not contain how much the other arms lose. If many arms are nearly as good as the
    best, the labels are mostly noise. BlockPilot (arXiv 2606.31315) trains on them.
    """

    algorithm = "supervised"
    Hyperparams = NetworkHyperparams

    def _targets(self, train: Sweep) -> np.ndarray:
        return oracle_arms(train)

    def _loss(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(scores, targets)

    def _probabilities(self, states: np.ndarray) -> np.ndarray:
        """Predicted probability that each arm is the best, `[n, arms]`."""
        return self._softmax(states)
