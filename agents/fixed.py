"""One block size for every request."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from blockpilot_rl.agents.base import Agent
from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True)
class FixedHyperparams:
    """Hyperparameters of a fixed size.

    Attributes:
        block_size: The size; None for the best on the training prompts.
    """

    block_size: int | None

    def __post_init__(self) -> None:
        """Check the values."""
        require(self.block_size is None or self.block_size >= 1, "block_size must be at least 1")


class FixedAgent(Agent[FixedHyperparams]):
    """One block size for every request: the best on the training prompts, or a given one."""

    algorithm = "fixed"
    Hyperparams = FixedHyperparams

    def _fit(self, train: Sweep, validation: Sweep, monitor: Monitor, until: int) -> None:
        size = self.hyperparams.block_size or self.problem.best_fixed
        width, arms = self.problem.state.width, len(train.arms)
        scores = torch.zeros(arms)
        scores[train.arm_index(size)] = 1.0
        self.policy = BlockSizePolicy.from_layers(
            self._policy_config(),
            [(torch.zeros(arms, width), scores)],
            torch.zeros(width),
            torch.ones(width),
        )
