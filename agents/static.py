"""Choices that learn nothing about single requests: the yardsticks of the comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch

from blockpilot_rl.agents.base import Agent, PolicyAgent
from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.oracle import oracle_arms
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


@dataclass(frozen=True)
class NoHyperparams:
    """An algorithm without hyperparameters."""


class FixedAgent(PolicyAgent[FixedHyperparams]):
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


class RandomAgent(Agent[NoHyperparams]):
    """A uniformly random block size, the same for the same seed and number of requests."""

    algorithm = "random"
    Hyperparams = NoHyperparams

    def _fit(self, train: Sweep, validation: Sweep, monitor: Monitor, until: int) -> None:
        """There is nothing to learn."""

    def predict(self, states: np.ndarray) -> np.ndarray:
        """Draw an arm for each state."""
        generator = np.random.default_rng(self.seed)
        return generator.integers(len(self.problem.arms), size=len(states))

    def action_probabilities(self, states: np.ndarray) -> np.ndarray:
        """Equal probabilities, `[n, arms]`."""
        arms = len(self.problem.arms)
        return np.full((len(states), arms), 1 / arms)

    def to_policy(self, provenance: Mapping[str, Any] | None = None) -> NoReturn:
        """Refuse.

        Raises:
            BlockPilotError: Always.
        """
        raise BlockPilotError(
            "random cannot be exported: it chooses by chance and is only a yardstick; export "
            "'fixed' or a learned agent"
        )


class OracleAgent(Agent[NoHyperparams]):
    """The best block size of every prompt, read off its recorded rewards: an upper bound."""

    algorithm = "oracle"
    Hyperparams = NoHyperparams

    def _fit(self, train: Sweep, validation: Sweep, monitor: Monitor, until: int) -> None:
        """There is nothing to learn."""

    def choose(self, table: Sweep) -> np.ndarray:
        """Choose the arm with the highest recorded reward for each prompt."""
        self.problem.states(table)
        return oracle_arms(table)

    def predict(self, states: np.ndarray) -> NoReturn:
        """Refuse.

        Raises:
            BlockPilotError: Always.
        """
        raise BlockPilotError(
            "oracle cannot choose from states: it reads each prompt's recorded rewards"
        )

    def to_policy(self, provenance: Mapping[str, Any] | None = None) -> NoReturn:
        """Refuse.

        Raises:
            BlockPilotError: Always.
        """
        raise BlockPilotError(
            "oracle cannot be exported: it reads each prompt's recorded rewards, which a live "
            "request does not have; export 'fixed' or a learned agent"
        )
