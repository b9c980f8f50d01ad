"""The base of the Stable-Baselines3 agents: one-step episodes, exact resuming, export."""

from __future__ import annotations

import io
import json
import random
import zipfile
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger, configure
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecMonitor

from blockpilot_rl.agents.base import Agent, standardisation
from blockpilot_rl.agents.exploring import DecisionLog, Exploring, ExploringHyperparams
from blockpilot_rl.agents.hyperparameters import require, require_network
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.agents.training_loop import BiasSparingAdamW, Snapshot, TrainingLoop
from blockpilot_rl.envs.one_step import state_space
from blockpilot_rl.envs.vector import BlockSizeVecEnv
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.policies.config import ACTIVATIONS
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep

BEST_FILE = "best_model.zip"
LAST_FILE = "last_model.zip"


@dataclass(frozen=True)
class SB3Hyperparams(ExploringHyperparams):
    """Hyperparameters of every Stable-Baselines3 agent, with the names that it uses.

    Episodes have one step, so the discount has no effect.

    Attributes:
        n_envs: Decisions per environment step.
        learning_rate: Of AdamW.
        weight_decay: Of AdamW, for weights but not for biases.
        max_grad_norm: Clipping of the gradient.
        hidden: Widths of the hidden layers.
        activation: `tanh` or `relu`.
    """

    n_envs: int
    learning_rate: float
    weight_decay: float
    max_grad_norm: float
    hidden: tuple[int, ...]
    activation: str

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require(self.n_envs >= 1, "n_envs must be at least 1")
        require(self.learning_rate > 0, "learning_rate must be positive")
        require(self.weight_decay >= 0, "weight_decay must be 0 or more")
        require(self.max_grad_norm > 0, "max_grad_norm must be positive")
        require_network(self.hidden, self.activation)


S = TypeVar("S", bound=SB3Hyperparams)


class Standardise(BaseFeaturesExtractor):
    """Standardises the observed state, so that the saved model takes recorded states."""

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, observation_space: spaces.Box) -> None:
        width = observation_space.shape[0]
        super().__init__(observation_space, features_dim=width)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Standardise states, `[n, width]`."""
        return (observations - self.mean) / self.scale


class SB3Agent(Exploring[S], Agent[S]):
    """A learner of Stable-Baselines3 on the replayed sweep; a step is one decision.

    The defaults are those of an actor that samples arms from a softmax. In a saved run
    `best_model.zip` is the model that the policy was made from, for use with Stable-Baselines3
    alone; `last_model.zip` is the model at the end of training.
    """

    Model: ClassVar[type[Any]]
    scaler_prefix: ClassVar[str] = "features_extractor"
    layer_prefixes: ClassVar[tuple[str, ...]] = ("mlp_extractor.policy_net.", "action_net.")

    decisions: DecisionLog
    model: Any
    _loop: TrainingLoop

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """Arguments of the model that are specific to the algorithm."""

    def propensities(self, step: dict[str, Any], arms: np.ndarray) -> np.ndarray:
        """Probabilities with which the arms of an environment step were chosen, `[n_envs]`.

        Args:
            step: Local variables of the step, as Stable-Baselines3 passes them to callbacks.
            arms: The chosen arms, `[n_envs]`.
        """
        probabilities: np.ndarray = step["log_probs"].double().exp().cpu().numpy()
        return probabilities

    def initialize(self, train: Sweep) -> None:
        """Create an untrained model."""
        self.decisions = DecisionLog()
        self._random_state: dict[str, Any] | None = None
        with self._own_randomness():
            self.model = self._new_model()
        mean, scale = standardisation(self.problem.states(train))
        for module in self.model.policy.modules():
            if isinstance(module, Standardise):
                module.mean.copy_(mean)
                module.scale.copy_(scale)

    def attach(self, train: Sweep, monitor: Monitor) -> None:
        """Connect the model to an environment that has seen `num_timesteps` decisions."""
        self.decisions.attach(train)
        env = self._environment(train)
        env.seed(self.seed)
        states: Any = env.reset()
        idle = np.zeros(env.num_envs, dtype=np.int64)
        # The order of the prompts depends on the seed alone: skip what was already seen.
        for _ in range(self.num_timesteps // env.num_envs):
            states, *_ = env.step(idle)
        self.model.set_env(VecMonitor(env), force_reset=False)
        self.model._last_obs = states
        self.model._last_episode_starts = np.ones(env.num_envs, dtype=bool)
        folder = monitor.log_folder
        self.model.set_logger(
            configure(str(folder), ["tensorboard"]) if folder else Logger(None, [])
        )

    def advance(self, until: int, monitor: Monitor) -> None:
        """Train until `num_timesteps` is at least `until`."""
        with self._own_randomness():
            self.model.learn(
                until - self.num_timesteps,
                callback=_LogDecisions(self),
                log_interval=self._log_interval,
                reset_num_timesteps=False,
            )
        self.num_timesteps = self.model.num_timesteps

    def snapshot(self) -> Snapshot:
        """Copy the weights of the model's policy."""
        state = self.model.policy.state_dict()
        return {name: value.cpu().clone() for name, value in state.items()}

    def policy_from(self, snapshot: Snapshot) -> BlockSizePolicy:
        """Build the policy that takes the arm with the highest score."""
        settings = self.hyperparams
        layers = [
            (weight, snapshot[name.removesuffix("weight") + "bias"])
            for name, weight in snapshot.items()
            if name.startswith(self.layer_prefixes) and name.endswith("weight")
        ]
        return BlockSizePolicy.from_layers(
            self._policy_config(settings.hidden, settings.activation),
            layers,
            snapshot[f"{self.scaler_prefix}.mean"],
            snapshot[f"{self.scaler_prefix}.scale"],
        )

    def rewind(self, snapshot: Snapshot) -> None:
        """Go back to the weights of a snapshot, with a new optimizer state."""
        self.num_timesteps = self.model.num_timesteps
        self.model.policy.load_state_dict(snapshot)
        self.model.policy.optimizer.state.clear()

    def training_state(self) -> dict[str, Any]:
        """The random state; `last_model.zip` holds the weights and the optimizer."""
        space = self.model.action_space.np_random.bit_generator.state
        return {"random": self._random_state, "action_space": space}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `training_state`."""
        with _callers_randomness():
            self.model = self._new_model()
        self._random_state = state["random"]
        self.model.action_space.np_random.bit_generator.state = state["action_space"]

    @property
    def _log_interval(self) -> int:
        """Updates between two entries in the curves of Stable-Baselines3: one per evaluation."""
        per_update: int = self.model.n_envs * self.model.n_steps
        return max(1, self.eval_freq // per_update)

    def _probabilities(self, states: np.ndarray) -> np.ndarray:
        """Probability of each arm under the stochastic actor, `[n, arms]`."""
        return self._softmax(states)

    def _new_loop(self) -> TrainingLoop:
        return TrainingLoop(self)

    def _fit(self, train: Sweep, validation: Sweep, monitor: Monitor, until: int) -> None:
        self._loop.run(train, validation, monitor, until)

    def _new_model(self) -> Any:
        """Create a model without an environment, as Stable-Baselines3 does to load one."""
        settings = self.hyperparams
        model = self.Model(
            "MlpPolicy",
            None,
            seed=self.seed,
            device=self.device,
            gamma=1.0,
            learning_rate=settings.learning_rate,
            max_grad_norm=settings.max_grad_norm,
            policy_kwargs={
                "net_arch": list(settings.hidden),
                "activation_fn": ACTIVATIONS[settings.activation],
                "features_extractor_class": Standardise,
                "optimizer_class": BiasSparingAdamW,
                "optimizer_kwargs": {"weight_decay": settings.weight_decay},
            },
            _init_setup_model=False,
            **self._settings(),
        )
        model.observation_space = state_space(self.problem.state.width)
        model.action_space = spaces.Discrete(len(self.problem.arms))
        model.n_envs = settings.n_envs
        model._setup_model()
        return model

    def _environment(self, train: Sweep) -> BlockSizeVecEnv:
        plain = self.hyperparams.reward_baseline == "none"
        return BlockSizeVecEnv(
            self.hyperparams.n_envs,
            train,
            split=None,
            state_groups=self.state_groups,
            baseline=None if plain else self.problem.best_fixed,
        )

    @contextmanager
    def _own_randomness(self) -> Iterator[None]:
        """Swap the agent's random state into the global generators that SB3 draws from."""
        with _callers_randomness():
            if self._random_state is not None:
                _set_global_random_state(self._random_state)
            try:
                yield
            finally:
                self._random_state = _global_random_state()

    def _save_model(self, folder: Path) -> None:
        super()._save_model(folder)
        self.model.save(folder / LAST_FILE)
        now = self.snapshot()
        self.model.policy.load_state_dict(self._loop.used)
        self.model.save(folder / BEST_FILE)
        self.model.policy.load_state_dict(now)

    def _load_model(self, folder: Path) -> None:
        super()._load_model(folder)
        path = folder / LAST_FILE
        try:
            parameters, counters = read_sb3_archive(path)
            self.model.set_parameters(parameters, device=self.device)
            for name, value in counters.items():
                setattr(self.model, name, value)
        # A damaged archive can raise any error and hold any value.
        except Exception as error:
            raise BlockPilotError(
                f"{path} is missing or corrupt ({type(error).__name__}); train the agent again"
            ) from error


class _LogDecisions(BaseCallback):
    """Logs every decision with its propensity."""

    def __init__(self, agent: SB3Agent[Any]) -> None:
        super().__init__()
        self._agent = agent

    def _on_step(self) -> bool:
        env = self.training_env.unwrapped
        assert isinstance(env, BlockSizeVecEnv)
        rows, arms, _ = env.decided
        self._agent.decisions.append(rows, arms, self._agent.propensities(self.locals, arms))
        return True


def read_sb3_archive(path: Path) -> tuple[dict[str, Any], dict[str, int | float]]:
    """Read a model that Stable-Baselines3 saved, without running code that the file may hold.

    Stable-Baselines3 unpickles some entries of the archive. Here only tensors and plain numbers are
    read; everything else follows from the agent's hyperparameters.

    Args:
        path: The archive.

    Returns:
        The state dicts by name, and the counters that training continues from.

    Raises:
        Exception: Many kinds, if the archive is damaged.
    """
    with zipfile.ZipFile(path) as archive:
        # Stable-Baselines3 stores without compression, so larger sizes are not genuine.
        if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:
            raise ValueError("the archive is compressed")
        parameters = {
            name: torch.load(
                io.BytesIO(archive.read(f"{name}.pth")), map_location="cpu", weights_only=True
            )
            for name in _PARAMETERS
        }
        data = json.loads(archive.read("data"))
    counters = {name: kind(data[name]) for name, kind in _COUNTERS.items() if name in data}
    return parameters, counters


_PARAMETERS = ("policy", "policy.optimizer")
_COUNTERS: dict[str, Callable[[Any], int | float]] = {
    "num_timesteps": int,
    "_n_updates": int,
    "_episode_num": int,
    "_n_calls": int,
    "exploration_rate": float,
}


@contextmanager
def _callers_randomness() -> Iterator[None]:
    """Restore the global generators afterwards."""
    callers = _global_random_state()
    try:
        yield
    finally:
        _set_global_random_state(callers)


def _global_random_state() -> dict[str, Any]:
    """State of the global generators, in types that `torch.load` reads without pickled code."""
    numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002
    key = torch.from_numpy(numpy_state["state"]["key"].astype(np.int64))
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": {**numpy_state, "state": {**numpy_state["state"], "key": key}},
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def _set_global_random_state(state: dict[str, Any]) -> None:
    numpy_state = state["numpy"]
    key = numpy_state["state"]["key"].numpy().astype(np.uint32)
    random.setstate(state["python"])
    np.random.set_state(  # noqa: NPY002
        {**numpy_state, "state": {**numpy_state["state"], "key": key}}
    )
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
