"""The interface of every agent."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch

from blockpilot_rl.agents.exploring import DECISIONS_FILE, DecisionLog
from blockpilot_rl.agents.hyperparameters import resolve_alias, resolve_hyperparams, to_dict
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.agents.problem import Problem
from blockpilot_rl.agents.training_loop import TrainingLoop
from blockpilot_rl.decoding.state import DEFAULT_GROUPS, validate_groups
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import read_json, write_json, writing
from blockpilot_rl.models.devices import check_device, one_thread
from blockpilot_rl.policies.config import PolicyConfig
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep

AGENT_FILE = "agent.json"
MIN_VALIDATION = 20
MAX_SEED = 2**32 - 1

H = TypeVar("H")
AgentT = TypeVar("AgentT", bound="Agent[Any]")


class Agent(ABC, Generic[H]):
    """Learns from a recorded sweep which block size suits each request.

    Args:
        seed: Random seed.
        state_groups: State groups to read, in order.
        hyperparams: Values that replace those of the algorithm's YAML file.
        device: Where to train networks.

    Attributes:
        policy: The policy that it chooses by.
        decisions: Every decision that it learned from; None if it learns from the outcomes of all
            arms.
        num_timesteps: Steps learned so far: decisions of bandits and RL, epochs of networks. Closed
            forms take no steps.

    Raises:
        BlockPilotError: If a state group, hyperparameter, seed or device is unknown or invalid.
    """

    algorithm: ClassVar[str]
    Hyperparams: ClassVar[type[Any]]

    policy: BlockSizePolicy
    decisions: DecisionLog | None = None

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
        check_device(device)
        self.seed = seed
        self.state_groups = tuple(state_groups)
        self.device = device
        self.hyperparams: H = resolve_hyperparams(
            self.algorithm, self.Hyperparams, hyperparams or {}
        )
        self.num_timesteps = 0
        self._problem: Problem | None = None
        self._loop = self._new_loop()

    @property
    def planned_timesteps(self) -> int:
        """Steps that `learn` takes by default."""
        return 0

    @property
    def default_save_freq(self) -> int | None:
        """Steps between two checkpoints by default; None if the agent takes no steps."""
        return None

    @property
    def decodes_per_decision(self) -> int:
        """Decodes that one decision costs; 0 if the agent learns from the outcomes of all arms."""
        return 0

    @property
    def learns_from_validation(self) -> bool:
        """Whether the agent is also fitted to the validation rows, not only selected by them."""
        return False

    @property
    def problem(self) -> Problem:
        """The decision problem that the agent has learned.

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

        Computes on one CPU thread, so that the result does not depend on the number of cores.

        With `reset_num_timesteps=False` an agent resumes where it stopped, also after `save` and
        `load`, and ends as if there had been no break.

        Args:
            train: Prompts to learn from.
            validation: Prompts to select candidates on. If there are too few of them, a fifth of
                the training prompts takes their place. Agents that cross-validate learn from them
                too.
            monitor: Watches the training.
            total_timesteps: Steps to take in this call; None for `planned_timesteps`. Closed forms
                take none.
            reset_num_timesteps: Whether to start from scratch.
            baseline: Prompts to choose the best fixed size on, when starting from scratch; None
                for `train`.

        Returns:
            The agent itself.

        Raises:
            BlockPilotError: If the steps are not positive, or the sweep to resume on has other
                arms, states or another pair.
        """
        if total_timesteps is not None and total_timesteps < 1:
            raise BlockPilotError(f"total_timesteps must be at least 1, got {total_timesteps}")
        monitor = monitor or Monitor()
        if reset_num_timesteps or self._problem is None:
            self._problem = Problem.from_sweep(train, self.state_groups, baseline)
            self.num_timesteps = 0
        else:
            self._problem.states(train)
        train, validation = self._divide(train, validation, monitor)
        steps = self.planned_timesteps if total_timesteps is None else total_timesteps
        with one_thread():
            self._fit(train, validation, monitor, self.num_timesteps + steps)
            self._conclude(validation, monitor)
        return self

    def predict(self, states: np.ndarray) -> np.ndarray:
        """Choose the best arm for each state.

        Args:
            states: The state groups `state_groups`, as recorded, `[n, width]`.

        Returns:
            Arm indices, `[n]`.
        """
        return self.policy.predict(states)

    def action_probabilities(self, states: np.ndarray) -> np.ndarray:
        """Probability of each arm under the agent's own policy, exploration included.

        Args:
            states: The state groups `state_groups`, as recorded, `[n, width]`.

        Returns:
            `[n, arms]`; rows sum to 1. States that are not finite get the fallback with
            probability 1.
        """
        probabilities: np.ndarray = np.eye(len(self.problem.arms))[self.predict(states)]
        usable = self.policy.usable(states)
        if usable.any():
            probabilities[usable] = self._probabilities(states[usable])
        return probabilities

    def choose(self, table: Sweep) -> np.ndarray:
        """Choose an arm for each prompt of a sweep.

        Args:
            table: A sweep with the pair, arms and states that the agent learned on.

        Returns:
            Arm indices, `[n]`.

        Raises:
            BlockPilotError: If the sweep is of another kind.
        """
        return self.predict(self.problem.states(table))

    def to_policy(self, provenance: Mapping[str, Any] | None = None) -> BlockSizePolicy:
        """Copy the policy, which can be deployed without the agent.

        Args:
            provenance: Origin of the policy, to be recorded in it.
        """
        return self.policy.with_provenance(provenance)

    def save(self, folder: str | Path) -> None:
        """Write the agent to a folder; `agent.json` is written last and marks it complete.

        Raises:
            BlockPilotError: If the folder cannot be written, or a weight is not finite.
        """
        path = Path(folder)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            self._save_model(path)
            if self.decisions is not None:
                self.decisions.save(path / DECISIONS_FILE)
        write_agent_file(
            path,
            self.algorithm,
            seed=self.seed,
            hyperparams=to_dict(self.hyperparams),
            num_timesteps=self.num_timesteps,
            problem=self.problem,
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
        if agent.decodes_per_decision:
            agent.decisions = DecisionLog.load(path / DECISIONS_FILE)
        return agent

    def _new_loop(self) -> TrainingLoop | None:
        """Create the training loop; None if the agent has a closed form."""
        return None

    @abstractmethod
    def _fit(self, train: Sweep, validation: Sweep, monitor: Monitor, until: int) -> None:
        """Learn until `num_timesteps` reaches `until`, from scratch if it is 0."""

    def _divide(
        self, train: Sweep, validation: Sweep | None, monitor: Monitor
    ) -> tuple[Sweep, Sweep]:
        """Return the rows to learn from and the rows to select candidates on."""
        return divide_rows(train, validation, self.seed, monitor)

    def _conclude(self, validation: Sweep, monitor: Monitor) -> None:
        """Score the result on rows that it was not fitted to."""
        monitor.conclude(self, validation, self.choose(validation))

    def _probabilities(self, states: np.ndarray) -> np.ndarray:
        """Probabilities of the arms for usable states; by default those of the greedy choice."""
        return np.asarray(np.eye(len(self.problem.arms))[self.policy.predict(states)])

    def _softmax(self, states: np.ndarray) -> np.ndarray:
        """Probabilities of the arms if the policy's scores are logits."""
        with torch.inference_mode():
            scores = self.policy(torch.as_tensor(states, dtype=torch.float32))
        probabilities: np.ndarray = scores.double().softmax(dim=1).numpy()
        return probabilities

    def _save_model(self, folder: Path) -> None:
        """Write everything that `agent.json` cannot hold."""
        self.policy.save_pretrained(folder / "model", overwrite=True)
        if self._loop is not None:
            self._loop.save(folder)

    def _load_model(self, folder: Path) -> None:
        """Read what `_save_model` wrote."""
        self.policy = BlockSizePolicy.from_pretrained((folder / "model").resolve())
        self._check_shape(folder)
        if self._loop is not None:
            self._loop.load(folder)

    def _check_shape(self, folder: Path) -> None:
        """Check `agent.json` against the loaded policy before anything of its sizes is created.

        Raises:
            BlockPilotError: If they do not describe the same network.
        """
        config, problem = self.policy.config, self.problem
        hidden = getattr(self.hyperparams, "hidden", config.hidden)
        if (config.arms, config.state, config.hidden) != (problem.arms, problem.state, hidden):
            raise BlockPilotError(
                f"{folder / AGENT_FILE} does not fit the policy in {folder / 'model'}: their arms, "
                "states or hidden layers differ; train the agent again"
            )

    @property
    def diverged(self) -> bool:
        """Whether its training has diverged, so that it is the best candidate before that."""
        return self._loop is not None and self._loop.diverged_at is not None

    def _policy_config(self, hidden: Sequence[int] = (), activation: str = "relu") -> PolicyConfig:
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
            trained_on=problem.trained_on,
            prices=problem.prices,
        )


def check_seed(seed: int) -> None:
    """Check a random seed.

    Raises:
        BlockPilotError: If it is out of range.
    """
    if not 0 <= seed <= MAX_SEED:
        raise BlockPilotError(f"seed must be 0 or more and at most {MAX_SEED}, got {seed}")


def divide_rows(
    train: Sweep, validation: Sweep | None, seed: int, monitor: Monitor
) -> tuple[Sweep, Sweep]:
    """Return the rows to learn from and the rows to select candidates on.

    With fewer than `MIN_VALIDATION` validation prompts a fifth of the training prompts is held out
    instead. All rows of a prompt, which share its state, stay together.

    Args:
        train: Training rows.
        validation: Validation rows, if there are any.
        seed: Random seed of the held-out prompts.
        monitor: Gets a note if training prompts are held out.
    """
    if validation is not None and validation.rows["id"].nunique() >= MIN_VALIDATION:
        return train, validation
    prompts = train.rows["id"].unique()
    held = len(prompts) // 5
    if held == 0:
        monitor.note(
            "there are too few prompts to hold any out: candidates are selected on the training "
            "prompts"
        )
        return train, train
    monitor.note(
        f"fewer than {MIN_VALIDATION} validation prompts: candidates are selected on {held} "
        "held-out training prompts instead"
    )
    drawn = np.random.default_rng(seed).permutation(prompts)[:held]
    out = train.rows["id"].isin(drawn).to_numpy()
    return train.select_rows(~out), train.select_rows(out)


def standardisation(states: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of states; constant columns get scale 1.

    Args:
        states: `[n, width]`.

    Returns:
        Mean and scale, `[width]`, float32.
    """
    mean: np.ndarray = states.mean(axis=0, dtype=np.float64)
    scale: np.ndarray = states.std(axis=0, dtype=np.float64)
    # Rounding errors of a constant column must not become a feature.
    scale[scale <= 1e-6 * np.abs(states).max(axis=0)] = 1.0
    return torch.tensor(mean, dtype=torch.float32), torch.tensor(scale, dtype=torch.float32)


def write_agent_file(
    folder: Path,
    algorithm: str,
    *,
    seed: int,
    hyperparams: Mapping[str, Any],
    num_timesteps: int,
    problem: Problem,
) -> None:
    """Write the `agent.json` of a run."""
    values = {
        "algorithm": algorithm,
        "seed": seed,
        "hyperparams": hyperparams,
        "num_timesteps": num_timesteps,
        "problem": problem.to_dict(),
    }
    write_json(folder / AGENT_FILE, values)


def read_agent_file(folder: Path) -> dict[str, Any]:
    """Read the `agent.json` of a run.

    Raises:
        BlockPilotError: If the folder or file is missing or corrupt.
    """
    path = folder / AGENT_FILE
    if folder.is_file():
        raise BlockPilotError(f"{folder} is a file; name its run folder, {folder.parent}")
    if not folder.is_dir():
        raise BlockPilotError(f"no run at {folder}; train one with `blockpilot train-agent`")
    try:
        values = read_json(path)
    except FileNotFoundError:
        raise BlockPilotError(
            f"run {folder} is incomplete ({AGENT_FILE} is missing): its training did not finish; "
            f"finish it with `blockpilot train-agent -i {folder}`"
        ) from None
    if not isinstance(values, dict) or not _SAVED.keys() <= values.keys():
        raise BlockPilotError(f"{path} lacks one of {sorted(_SAVED)}; train the agent again")
    for name, kind in _SAVED.items():
        # `isinstance` would accept a boolean as an int.
        if type(values[name]) is not kind:
            raise BlockPilotError(
                f"{path} has no valid {name} ({json.dumps(values[name])[:40]}); train the agent "
                "again"
            )
    if not 0 <= values["num_timesteps"] < 2**63:
        raise BlockPilotError(f"{path} has an impossible num_timesteps; train the agent again")
    algorithm, hyperparams = resolve_alias(values["algorithm"], values["hyperparams"])
    return {**values, "algorithm": algorithm, "hyperparams": hyperparams}


_SAVED = {"algorithm": str, "seed": int, "hyperparams": dict, "num_timesteps": int, "problem": dict}
