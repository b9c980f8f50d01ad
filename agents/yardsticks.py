"""Yardsticks: random choice and the oracle, which cannot be deployed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from blockpilot_rl.agents.base import check_seed, divide_rows, read_agent_file, write_agent_file
from blockpilot_rl.agents.hyperparameters import resolve_hyperparams
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.agents.problem import Problem
from blockpilot_rl.decoding.state import DEFAULT_GROUPS, validate_groups
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.oracle import oracle_arms
from blockpilot_rl.sweeps.table import Sweep

YardstickT = TypeVar("YardstickT", bound="Yardstick")


@dataclass(frozen=True)
class NoHyperparams:
    """Hyperparameters of a yardstick: there are none."""


class Yardstick(ABC):
    """Chooses arms for recorded prompts without learning, for comparison with agents.

    Args:
        seed: Random seed.
        state_groups: Recorded with the results; yardsticks read no states.
        hyperparams: Must be empty.
        device: Has no effect.

    Raises:
        BlockPilotError: If a state group or the seed is invalid, or a hyperparameter is given.
    """

    algorithm: ClassVar[str]
    not_deployable: ClassVar[str]
    planned_timesteps = 0
    num_timesteps = 0

    def __init__(
        self,
        *,
        seed: int = 0,
        state_groups: Sequence[str] = DEFAULT_GROUPS,
        hyperparams: Mapping[str, Any] | None = None,
        device: str = "cpu",
    ) -> None:
        validate_groups(state_groups)
        check_seed(seed)
        self.seed = seed
        self.state_groups = tuple(state_groups)
        self.hyperparams = resolve_hyperparams(self.algorithm, NoHyperparams, hyperparams or {})
        self._problem: Problem | None = None

    @property
    def problem(self) -> Problem:
        """The decision problem of the yardstick.

        Raises:
            BlockPilotError: If `learn` was not called.
        """
        if self._problem is None:
            raise BlockPilotError(f"{self.algorithm} has not learned yet; call learn")
        return self._problem

    def learn(
        self: YardstickT,
        train: Sweep,
        validation: Sweep | None = None,
        monitor: Monitor | None = None,
        *,
        total_timesteps: int | None = None,
        reset_num_timesteps: bool = True,
        baseline: Sweep | None = None,
    ) -> YardstickT:
        """Read the arms of a sweep and score the yardstick; the arguments are those of an agent."""
        monitor = monitor or Monitor()
        if reset_num_timesteps or self._problem is None:
            self._problem = Problem.from_sweep(train, self.state_groups, baseline)
        _, validation = divide_rows(train, validation, self.seed, monitor)
        monitor.conclude(self, validation, self.choose(validation))
        return self

    @abstractmethod
    def choose(self, table: Sweep) -> np.ndarray:
        """Choose an arm for each prompt of a sweep.

        Args:
            table: A sweep with the pair, arms and states of the training split.

        Returns:
            Arm indices, `[n]`.

        Raises:
            BlockPilotError: If the sweep is of another kind.
        """

    def save(self, folder: str | Path) -> None:
        """Write `agent.json`."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        write_agent_file(
            path,
            self.algorithm,
            seed=self.seed,
            hyperparams={},
            num_timesteps=0,
            problem=self.problem,
        )

    @classmethod
    def load(cls: type[YardstickT], folder: str | Path, device: str = "cpu") -> YardstickT:
        """Read what `save` wrote.

        Raises:
            BlockPilotError: If the folder holds no complete run.
        """
        saved = read_agent_file(Path(folder))
        problem = Problem.from_dict(saved["problem"])
        yardstick = cls(seed=saved["seed"], state_groups=problem.state.names)
        yardstick._problem = problem
        return yardstick


class RandomYardstick(Yardstick):
    """A uniformly random block size; the same seed and number of requests give the same choices."""

    algorithm = "random"
    not_deployable = "it chooses randomly and is only a yardstick"

    def choose(self, table: Sweep) -> np.ndarray:
        """Draw an arm for each prompt."""
        return self.predict(self.problem.states(table))

    def predict(self, states: np.ndarray) -> np.ndarray:
        """Draw an arm for each state, `[n]`."""
        generator = np.random.default_rng(self.seed)
        return generator.integers(len(self.problem.arms), size=len(states))

    def action_probabilities(self, states: np.ndarray) -> np.ndarray:
        """Equal probabilities, `[n, arms]`."""
        arms = len(self.problem.arms)
        return np.full((len(states), arms), 1 / arms)


class OracleYardstick(Yardstick):
    """The best recorded block size of every prompt: an upper bound."""

    algorithm = "oracle"
    not_deployable = "it reads each prompt's recorded speedups, which a live request does not have"

    def choose(self, table: Sweep) -> np.ndarray:
        """Choose the arm with the highest recorded speedup for each prompt."""
        self.problem.states(table)
        return oracle_arms(table)
