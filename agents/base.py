"""The interface of every learner of block-size policies."""

from __future__ import annotations

import copy
import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch

from blockpilot_rl.agents.hyperparameters import resolve_hyperparams, to_dict
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.agents.problem import Problem
from blockpilot_rl.decoding.state import DEFAULT_GROUPS, validate_groups
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import read_json, write_json
from blockpilot_rl.models.devices import check_device
from blockpilot_rl.policies.config import PolicyConfig
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep
from blockpilot_rl.threads import one_thread

AGENT_FILE = "agent.json"
MIN_VALIDATION = 20
MAX_SEED = 2**32 - 1

H = TypeVar("H")
AgentT = TypeVar("AgentT", bound="Agent[Any]")


class Agent(ABC, Generic[H]):
    """Learns from a recorded sweep to choose a block size for each request.

    Args:
        seed: Decides everything random about it.
        state_groups: State groups to read, in order.
        hyperparams: Values that replace those of the algorithm's YAML file.
        device: Where to train networks.

    Attributes:
        num_timesteps: Steps learned so far, of what the algorithm counts: decisions of bandits and
            RL, epochs of networks. What has a closed form takes no steps.

    Raises:
        BlockPilotError: If a state group, hyperparameter, seed or device is unknown or invalid.
    """

    algorithm: ClassVar[str]
    Hyperparams: ClassVar[type[Any]]

    def __init__(
        self,
        *,
        seed: int = 0,
        state_groups: Sequence[str] = DEFAULT_GROUPS,
        hyperparams: Mapping[str, Any] | None = None,
        device: str = "cpu",
    ) -> None:
        validate_groups(state_groups)
        if not 0 <= seed <= MAX_SEED:
            raise BlockPilotError(f"seed must be 0 or more and at most {MAX_SEED}, got {seed}")
        check_device(device)
        self.seed = seed
        self.state_groups = tuple(state_groups)
        self.device = device
        self.hyperparams: H = resolve_hyperparams(
            self.algorithm, self.Hyperparams, hyperparams or {}
        )
        self.num_timesteps = 0
        self._problem: Problem | None = None

    @property
    def planned_timesteps(self) -> int:
        """Steps that `learn` takes by default, as the hyperparameters have it."""
        return 0

    @property
    def learns_from_validation(self) -> bool:
        """Whether it is fitted to the validation rows too, not only selected by them."""
        return False

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
        train: Sweep,
        validation: Sweep | None = None,
        monitor: Monitor | None = None,
        *,
        total_timesteps: int | None = None,
        reset_num_timesteps: bool = True,
        baseline: Sweep | None = None,
    ) -> AgentT:
        """Learn from recorded prompts.

        It computes on one CPU thread, so that what is learned does not depend on their number.

        With `reset_num_timesteps=False` an agent goes on where it stopped, also after it was saved
        and loaded, and ends as if there had been no break.

        Args:
            train: Prompts to learn from.
            validation: Prompts to choose among candidates by. Without enough of them a fifth of
                the training prompts takes their place. What chooses by cross-validation learns
                from them too.
            monitor: Watches the learning.
            total_timesteps: Steps to take in this call; None for `planned_timesteps`. Closed forms
                take none.
            reset_num_timesteps: Whether to begin anew.
            baseline: Prompts to choose the best fixed size on when it begins; None for `train`.

        Returns:
            The agent itself.

        Raises:
            BlockPilotError: If the steps are not positive, or the sweep to go on with is of other
                arms, states or another pair.
        """
        if total_timesteps is not None and total_timesteps < 1:
            raise BlockPilotError(f"total_timesteps must be at least 1, got {total_timesteps}")
        monitor = monitor or Monitor()
        if reset_num_timesteps or self._problem is None:
            self._problem = Problem.of(train, self.state_groups, baseline)
            self.num_timesteps = 0
        else:
            self._problem.states(train)
        train, validation = self._parts(train, validation, monitor)
        steps = self.planned_timesteps if total_timesteps is None else total_timesteps
        with one_thread():
            self._fit(train, validation, monitor, self.num_timesteps + steps)
            self._conclude(validation, monitor)
        return self

    @abstractmethod
    def _fit(self, train: Sweep, validation: Sweep, monitor: Monitor, until: int) -> None:
        """Learn until `num_timesteps` reaches `until`, anew if it is 0; `problem` is known."""

    def _parts(
        self, train: Sweep, validation: Sweep | None, monitor: Monitor
    ) -> tuple[Sweep, Sweep]:
        """The rows to learn from and those to choose among candidates by."""
        if validation is None or validation.rows["id"].nunique() < MIN_VALIDATION:
            return self._hold_out(train, monitor)
        return train, validation

    def _conclude(self, validation: Sweep, monitor: Monitor) -> None:
        """Score what was learned on rows that it was not fitted to."""
        monitor.conclude(self, validation, self.choose(validation))

    @abstractmethod
    def predict(self, states: np.ndarray) -> np.ndarray:
        """Choose the best arm for each state.

        Args:
            states: The state groups `state_groups`, as recorded, `[n, width]`.

        Returns:
            Arm indices, `[n]`.
        """

    def action_probabilities(self, states: np.ndarray) -> np.ndarray:
        """Probability of each arm under the agent's own policy, exploration included.

        Args:
            states: The state groups `state_groups`, as recorded, `[n, width]`.

        Returns:
            `[n, arms]`; rows sum to 1.
        """
        return np.asarray(np.eye(len(self.problem.arms))[self.predict(states)])

    def choose(self, table: Sweep) -> np.ndarray:
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
                "num_timesteps": self.num_timesteps,
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
        check_device(device)
        try:
            problem = Problem.from_dict(saved["problem"])
            agent = cls(
                seed=saved["seed"],
                state_groups=problem.state.names,
                hyperparams=saved["hyperparams"],
                device=device,
            )
        except BlockPilotError as error:
            raise BlockPilotError(f"{path / AGENT_FILE}: {error}") from error
        agent._problem = problem
        agent.num_timesteps = saved["num_timesteps"]
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

    def _hold_out(self, train: Sweep, monitor: Monitor) -> tuple[Sweep, Sweep]:
        """Part the training rows; all rows of a prompt, which share its state, stay together."""
        prompts = train.rows["id"].unique()
        held = len(prompts) // 5
        if held == 0:
            monitor.note("too few prompts to hold any out: candidates are chosen on training ones")
            return train, train
        monitor.note(
            f"fewer than {MIN_VALIDATION} validation prompts: candidates are chosen on {held} "
            "held-out training prompts instead"
        )
        drawn = np.random.default_rng(self.seed).permutation(prompts)[:held]
        out = train.rows["id"].isin(drawn).to_numpy()
        return train.select_rows(~out), train.select_rows(out)


class PolicyAgent(Agent[H]):
    """An agent that chooses by a policy network over the standardised state."""

    policy: BlockSizePolicy

    def predict(self, states: np.ndarray) -> np.ndarray:
        """Choose the arm that the policy scores highest."""
        return self.policy.predict(states)

    def action_probabilities(self, states: np.ndarray) -> np.ndarray:
        """Probability of each arm under the agent's own policy, exploration included.

        Args:
            states: The state groups `state_groups`, as recorded, `[n, width]`.

        Returns:
            `[n, arms]`; rows sum to 1. States that are not finite get the fallback for sure.
        """
        probabilities = super().action_probabilities(states)
        usable = self.policy.usable(states)
        if usable.any():
            probabilities[usable] = self._probabilities(states[usable])
        return probabilities

    def _probabilities(self, states: np.ndarray) -> np.ndarray:
        """Probabilities of the arms for usable states; the greedy choice by default."""
        return super().action_probabilities(states)

    def _softmax(self, states: np.ndarray) -> np.ndarray:
        """Probabilities of the arms if the policy's scores are logits."""
        with torch.inference_mode():
            scores = self.policy(torch.as_tensor(states, dtype=torch.float32))
        probabilities: np.ndarray = scores.double().softmax(dim=1).numpy()
        return probabilities

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
    mean: np.ndarray = states.mean(axis=0, dtype=np.float64)
    scale: np.ndarray = states.std(axis=0, dtype=np.float64)
    # What rounding leaves of a constant must not be blown up to a feature.
    scale[scale <= 1e-6 * np.abs(states).max(axis=0)] = 1.0
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
        values = read_json(path)
    except FileNotFoundError:
        raise BlockPilotError(
            f"run {folder} is incomplete ({AGENT_FILE} is missing): its training did not finish"
        ) from None
    if not isinstance(values, dict) or not _SAVED.keys() <= values.keys():
        raise BlockPilotError(f"{path} lacks one of {sorted(_SAVED)}; train the agent again")
    for name, kind in _SAVED.items():
        # A boolean is an int to `isinstance`.
        if type(values[name]) is not kind:
            raise BlockPilotError(
                f"{path} has no valid {name} ({json.dumps(values[name])[:40]}); train the agent "
                "again"
            )
    return values


_SAVED = {"algorithm": str, "seed": int, "hyperparams": dict, "num_timesteps": int, "problem": dict}
