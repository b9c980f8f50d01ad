"""The interface of every learner of block-size policies."""

from __future__ import annotations

import copy
import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch

from blockpilot_rl.agents.hyperparameters import resolve_hyperparams, to_dict
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.decoding.state import DEFAULT_GROUPS, StateLayout, validate_groups
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.oracle import best_fixed_by_mean
from blockpilot_rl.files import write_json
from blockpilot_rl.policies.policy import BlockSizePolicy, PolicyConfig
from blockpilot_rl.sweeps.table import SweepTable

AGENT_FILE = "agent.json"
MIN_VALIDATION = 20

H = TypeVar("H")
AgentT = TypeVar("AgentT", bound="Agent[Any]")


@dataclass(frozen=True)
class Problem:
    """What an agent has learned to decide; other sweeps and states are refused.

    Attributes:
        arms: Block sizes to choose from.
        state: State groups it reads, in order.
        best_fixed: Block size with the best mean speedup on the training prompts.
        fingerprint: Digest of the pair.
        target: Name of the target.
        drafter: Name of the drafter.
        template: Chat-template options of the states.
    """

    arms: tuple[int, ...]
    state: StateLayout
    best_fixed: int
    fingerprint: str
    target: str
    drafter: str
    template: dict[str, Any]

    @classmethod
    def of(cls, train: SweepTable, features: Sequence[str]) -> Problem:
        """Describe the problem that a training split poses."""
        metadata = train.metadata
        return cls(
            arms=train.arms,
            state=metadata.state.select(features),
            best_fixed=train.arms[best_fixed_by_mean(train)],
            fingerprint=metadata.fingerprint,
            target=metadata.target,
            drafter=metadata.drafter,
            template=metadata.template,
        )

    @property
    def best_fixed_arm(self) -> int:
        """Index of the best fixed block size."""
        return self.arms.index(self.best_fixed)

    def states(self, table: SweepTable) -> np.ndarray:
        """Cut the states that the agent reads out of a sweep, `[n, width]`.

        Raises:
            BlockPilotError: If the sweep is of other arms, another pair or other states.
        """
        metadata = table.metadata
        if table.arms != self.arms:
            raise BlockPilotError(
                f"the agent chooses among the arms {self.arms}, the sweep has {table.arms}"
            )
        if metadata.fingerprint != self.fingerprint:
            raise BlockPilotError(
                f"the agent was trained on the pair {self.target} + {self.drafter} "
                f"(fingerprint {self.fingerprint}), the sweep is of {metadata.target} + "
                f"{metadata.drafter} ({metadata.fingerprint}); train on a sweep of that pair"
            )
        if metadata.state.select(self.state.names) != self.state:
            raise BlockPilotError(
                f"the agent reads states {self.state.groups}, the sweep has {metadata.state.groups}"
            )
        return table.states[:, metadata.state.columns(self.state.names)]

    def to_dict(self) -> dict[str, Any]:
        """Render as JSON-ready values."""
        return {**dataclasses.asdict(self), "state": [list(group) for group in self.state.groups]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Problem:
        """Read what `to_dict` gave.

        Raises:
            BlockPilotError: If a key is missing or unknown, or a value of a wrong type.
        """
        try:
            groups = tuple((str(name), int(width)) for name, width in values["state"])
            return cls(**{**values, "arms": tuple(values["arms"]), "state": StateLayout(groups)})
        except (KeyError, TypeError, ValueError) as error:
            raise BlockPilotError(
                f"{AGENT_FILE} describes no valid problem ({error}); train the agent again"
            ) from error


class Agent(ABC, Generic[H]):
    """Learns from a recorded sweep to choose a block size for each request.

    Args:
        seed: Decides everything random about it.
        features: State groups to read, in order.
        hyperparams: Values that replace those of the algorithm's YAML file.
        device: Where to train networks.

    Raises:
        BlockPilotError: If a state group, hyperparameter, seed or device is unknown or invalid.
    """

    algorithm: ClassVar[str]
    Hyperparams: ClassVar[type[Any]]

    def __init__(
        self,
        *,
        seed: int = 0,
        features: Sequence[str] = DEFAULT_GROUPS,
        hyperparams: Mapping[str, Any] | None = None,
        device: str = "cpu",
    ) -> None:
        validate_groups(features)
        if seed < 0:
            raise BlockPilotError(f"seed must be 0 or more, got {seed}")
        try:
            torch.empty(0, device=device)
        except (AssertionError, RuntimeError):
            raise BlockPilotError(f"device {device!r} is not available here; try cpu") from None
        self.seed = seed
        self.features = tuple(features)
        self.device = device
        self.hyperparams: H = resolve_hyperparams(
            self.algorithm, self.Hyperparams, hyperparams or {}
        )
        self._problem: Problem | None = None

    @property
    def problem(self) -> Problem:
        """What it has learned to decide.

        Raises:
            BlockPilotError: If it has not learned yet.
        """
        if self._problem is None:
            raise BlockPilotError(f"the {self.algorithm} agent has not learned yet; call learn")
        return self._problem

    def learn(
        self: AgentT,
        train: SweepTable,
        validation: SweepTable | None = None,
        monitor: Monitor | None = None,
    ) -> AgentT:
        """Learn from recorded prompts.

        Args:
            train: Prompts to learn from.
            validation: Prompts to choose among candidates by. Without enough of them a fifth of
                the training prompts takes their place.
            monitor: Watches the learning.

        Returns:
            The agent itself.
        """
        monitor = monitor or Monitor()
        self._problem = Problem.of(train, self.features)
        if validation is None or len(validation) < MIN_VALIDATION:
            train, validation = self._hold_out(train, monitor)
        self._fit(train, validation, monitor)
        monitor.conclude(self, validation)
        return self

    @abstractmethod
    def _fit(self, train: SweepTable, validation: SweepTable, monitor: Monitor) -> None:
        """Learn; `problem` is already known."""

    @abstractmethod
    def predict(self, states: np.ndarray) -> np.ndarray:
        """Choose the best arm for each state.

        Args:
            states: The state groups `features`, as recorded, `[n, width]`.

        Returns:
            Arm indices, `[n]`.
        """

    def action_probabilities(self, states: np.ndarray) -> np.ndarray:
        """Probability of each arm under the agent's own policy, exploration included.

        Args:
            states: The state groups `features`, as recorded, `[n, width]`.

        Returns:
            `[n, arms]`; rows sum to 1.
        """
        return np.asarray(np.eye(len(self.problem.arms))[self.predict(states)])

    def choose(self, table: SweepTable) -> np.ndarray:
        """Choose an arm for each prompt of a sweep.

        Args:
            table: A sweep of the pair, arms and states that the agent learned on.

        Returns:
            Arm indices, `[n]`.

        Raises:
            BlockPilotError: If the sweep is another.
        """
        return self.predict(self.problem.states(table))

    @abstractmethod
    def to_policy(self, provenance: Mapping[str, Any] | None = None) -> BlockSizePolicy:
        """Turn what was learned into a policy that can be deployed without the learner.

        Args:
            provenance: Where it comes from, to be recorded in it.

        Raises:
            BlockPilotError: If the agent cannot be deployed.
        """

    def save(self, folder: str | Path) -> None:
        """Write the agent to a folder; `agent.json` is written last and marks it complete."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        self._save_model(path)
        write_json(
            path / AGENT_FILE,
            {
                "algorithm": self.algorithm,
                "seed": self.seed,
                "hyperparams": to_dict(self.hyperparams),
                "problem": self.problem.to_dict(),
            },
        )

    @classmethod
    def load(cls: type[AgentT], folder: str | Path, device: str = "cpu") -> AgentT:
        """Read what `save` wrote.

        Raises:
            BlockPilotError: If the folder holds no complete agent, or one of another algorithm.
        """
        path = Path(folder)
        saved = read_agent_file(path)
        if saved["algorithm"] != cls.algorithm:
            raise BlockPilotError(f"{path} holds a {saved['algorithm']}, not a {cls.algorithm}")
        problem = Problem.from_dict(saved["problem"])
        agent = cls(
            seed=saved["seed"],
            features=problem.state.names,
            hyperparams=saved["hyperparams"],
            device=device,
        )
        agent._problem = problem
        agent._load_model(path)
        return agent

    def _save_model(self, folder: Path) -> None:
        """Write what `agent.json` cannot hold; nothing by default."""

    def _load_model(self, folder: Path) -> None:
        """Read what `_save_model` wrote."""

    def _policy_config(
        self,
        hidden: Sequence[int] = (),
        activation: str = "relu",
        provenance: Mapping[str, Any] | None = None,
    ) -> PolicyConfig:
        problem = self.problem
        return PolicyConfig(
            arms=problem.arms,
            state=problem.state,
            hidden=tuple(hidden),
            activation=activation,
            fallback=problem.best_fixed,
            fingerprint=problem.fingerprint,
            target=problem.target,
            drafter=problem.drafter,
            template=problem.template,
            algorithm=self.algorithm,
            provenance=dict(provenance or {}),
        )

    def _hold_out(self, train: SweepTable, monitor: Monitor) -> tuple[SweepTable, SweepTable]:
        order = np.random.default_rng(self.seed).permutation(len(train))
        held = len(train) // 5
        if held == 0:
            monitor.note("too few prompts to hold any out: candidates are chosen on training ones")
            return train, train
        monitor.note(
            f"fewer than {MIN_VALIDATION} validation prompts: candidates are chosen on {held} "
            "held-out training prompts instead"
        )
        return train.select_rows(order[held:]), train.select_rows(order[:held])


class PolicyAgent(Agent[H]):
    """An agent whose whole knowledge is a policy network over the standardised state."""

    policy: BlockSizePolicy

    def predict(self, states: np.ndarray) -> np.ndarray:
        """Choose the arm that the policy scores highest."""
        return self.policy.predict(states)

    def to_policy(self, provenance: Mapping[str, Any] | None = None) -> BlockSizePolicy:
        """Copy the policy."""
        policy = copy.deepcopy(self.policy)
        policy.config = dataclasses.replace(policy.config, provenance=dict(provenance or {}))
        return policy

    def _save_model(self, folder: Path) -> None:
        self.policy.save_pretrained(folder / "model", overwrite=True)

    def _load_model(self, folder: Path) -> None:
        self.policy = BlockSizePolicy.from_pretrained((folder / "model").resolve())


def standardisation(states: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of states, to scale by; constant columns get scale 1.

    Args:
        states: `[n, width]`.

    Returns:
        Mean and scale, `[width]`, float32.
    """
    wide = states.astype(np.float64)
    mean, scale = wide.mean(axis=0), wide.std(axis=0)
    # What rounding leaves of a constant must not be blown up to a feature.
    scale[scale <= 1e-6 * np.abs(wide).max(axis=0)] = 1.0
    return torch.tensor(mean, dtype=torch.float32), torch.tensor(scale, dtype=torch.float32)


def read_agent_file(folder: Path) -> dict[str, Any]:
    """Read the `agent.json` of a run.

    Raises:
        BlockPilotError: If the folder or file is missing or corrupt.
    """
    path = folder / AGENT_FILE
    if not folder.is_dir():
        raise BlockPilotError(f"no run at {folder}; train one with scripts/train_agent.py")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BlockPilotError(
            f"run {folder} is incomplete ({AGENT_FILE} is missing): its training did not finish"
        ) from None
    except (OSError, ValueError) as error:
        raise BlockPilotError(f"{path} cannot be read as JSON: {error}") from error
    wanted = {"algorithm", "seed", "hyperparams", "problem"}
    if not isinstance(values, dict) or not wanted <= values.keys():
        raise BlockPilotError(f"{path} lacks one of {sorted(wanted)}; train the agent again")
    return values
