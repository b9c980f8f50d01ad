"""Deep Q-network (Mnih et al., arXiv 1312.5602) by Stable-Baselines3."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.agents.sb3 import SB3Agent, SB3Hyperparams
from blockpilot_rl.envs.vector import BlockSizeVecEnv
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.sweeps.table import Sweep

REPLAY_FILE = "replay_buffer.pt"
_REPLAYED = ("observations", "actions", "rewards", "dones")


@dataclass(frozen=True)
class DQNHyperparams(SB3Hyperparams):
    """Hyperparameters of DQN, with the names of Stable-Baselines3.

    Episodes have one step, so neither the target network nor the discount has an effect.

    Attributes:
        learning_starts: Random decisions before learning begins.
        buffer_size: Latest decisions to learn from.
        batch_size: Decisions per gradient step.
        gradient_steps: Gradient steps per environment step.
        exploration_initial_eps: Share of random decisions at the beginning.
        exploration_final_eps: Share of random decisions at the end.
        exploration_fraction: Part of `n_timesteps` over which that share falls.
    """

    learning_starts: int
    buffer_size: int
    batch_size: int
    gradient_steps: int
    exploration_initial_eps: float
    exploration_final_eps: float
    exploration_fraction: float

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require(self.learning_starts >= 1, "learning_starts must be at least 1")
        require(self.buffer_size >= 2 * self.n_envs, "buffer_size must be at least 2 * n_envs")
        require(self.batch_size >= 1, "batch_size must be at least 1")
        require(self.gradient_steps >= 1, "gradient_steps must be at least 1")
        for name in ("exploration_initial_eps", "exploration_final_eps", "exploration_fraction"):
            require(0 < getattr(self, name) <= 1, f"{name} must lie in (0, 1]")


class RowBuffer(ReplayBuffer):
    """A replay buffer that stores rows of the training sweep, whose states are in memory anyway.

    One-step episodes have no next state, so a sample holds any one state in place of them all.

    Attributes:
        states: The states that the stored rows point to, `[rows, width]`.
    """

    states: np.ndarray

    def __init__(
        self, buffer_size: int, observation_space: spaces.Box, *args: Any, **kwargs: Any
    ) -> None:
        rows = spaces.Box(0, np.iinfo(np.int64).max, (1,), np.int64)
        super().__init__(buffer_size, rows, *args, **kwargs)
        self.states = np.zeros((0, *observation_space.shape), np.float32)

    def attach(self, env: BlockSizeVecEnv) -> None:
        """Store the following decisions of an environment, beside those of an earlier sweep."""
        self._env, self._first = env, 0
        states = env.replay.states
        if len(self.states) and not np.array_equal(self.states, states):
            self._first = len(self.states)
            states = np.concatenate([self.states, states])
        self.states = states

    def add(
        self,
        obs: np.ndarray,
        next_obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """Store the last decisions of the environment."""
        rows = self._first + self._env.decided[0][:, None]
        super().add(rows, rows, action, reward, done, infos)

    def _get_samples(self, batch_inds: np.ndarray, env: Any = None) -> ReplayBufferSamples:
        found = super()._get_samples(batch_inds, env)
        rows = found.observations[:, 0].cpu().numpy()
        states = torch.as_tensor(self.states[rows], device=self.device)
        return found._replace(observations=states, next_observations=states[:1])

    def to_dict(self) -> dict[str, Any]:
        """Return the stored decisions and their states, as tensors and plain values."""
        used = slice(None) if self.full else slice(self.pos)
        arrays = {name: getattr(self, name)[used] for name in _REPLAYED}
        rows, numbers = np.unique(arrays["observations"], return_inverse=True)
        arrays["observations"] = numbers.reshape(arrays["observations"].shape)
        arrays["states"] = self.states[rows]
        tensors = {name: torch.tensor(values) for name, values in arrays.items()}
        return {**tensors, "pos": self.pos, "full": self.full}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore the result of `to_dict`.

        Raises:
            Exception: Many kinds, if it is damaged.
        """
        states, rows = saved["states"].numpy(), saved["observations"].numpy()
        if states.shape[1:] != self.states.shape[1:]:
            raise ValueError("the states have another width")
        if rows.size and not 0 <= rows.min() <= rows.max() < len(states):
            raise ValueError("a row has no state")
        for name in _REPLAYED:
            getattr(self, name)[: len(rows)] = saved[name].numpy()
        self.states, self.pos, self.full = states, int(saved["pos"]), bool(saved["full"])


class PlannedDQN(DQN):
    """DQN whose exploration falls over all planned decisions, not over those of one call."""

    planned_timesteps: int
    replay_buffer: RowBuffer | None

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
        super()._update_current_progress_remaining(num_timesteps, self.planned_timesteps)


class DQNAgent(SB3Agent[DQNHyperparams]):
    """DQN: regression of the chosen arm's reward on replayed decisions, ε-greedy exploration."""

    algorithm = "dqn"
    Hyperparams = DQNHyperparams
    Model = PlannedDQN
    scaler_prefix = "q_net.features_extractor"
    layer_prefixes = ("q_net.q_net.",)

    model: PlannedDQN

    def _settings(self) -> dict[str, Any]:
        settings = self.hyperparams
        return {
            "train_freq": 1,
            "learning_starts": settings.learning_starts,
            "buffer_size": settings.buffer_size,
            "batch_size": settings.batch_size,
            "gradient_steps": settings.gradient_steps,
            "exploration_initial_eps": settings.exploration_initial_eps,
            "exploration_final_eps": settings.exploration_final_eps,
            "exploration_fraction": settings.exploration_fraction,
            "replay_buffer_class": RowBuffer,
            "optimize_memory_usage": True,
            "replay_buffer_kwargs": {"handle_timeout_termination": False},
        }

    @property
    def _log_interval(self) -> int:
        """Episodes between two entries in the curves of Stable-Baselines3."""
        return self.eval_freq

    def attach(self, train: Sweep, monitor: Monitor) -> None:
        """Connect the model to an environment that has seen `num_timesteps` decisions."""
        if self.model.replay_buffer is None:
            raise BlockPilotError(
                "release 0.1 saved this dqn agent, and its replay_buffer.pkl could run code: it "
                "can be exported but not trained further; train it again"
            )
        super().attach(train, monitor)
        env = self.model.get_env()
        assert env is not None
        assert isinstance(env.unwrapped, BlockSizeVecEnv)
        self.model.replay_buffer.attach(env.unwrapped)

    def advance(self, until: int, monitor: Monitor) -> None:
        """Train until `num_timesteps` is at least `until`."""
        self.model.planned_timesteps = self.hyperparams.n_timesteps
        super().advance(until, monitor)

    def propensities(self, step: dict[str, Any], arms: np.ndarray) -> np.ndarray:
        """Probabilities of ε-greedy choice with which arms were chosen, `[n_envs]`."""
        count = len(self.problem.arms)
        if self.model.num_timesteps - len(arms) < self.hyperparams.learning_starts:
            return np.full(len(arms), 1 / count)
        assert self.model._last_obs is not None
        with torch.inference_mode():
            states, _ = self.model.policy.obs_to_tensor(self.model._last_obs)
            greedy = self.model.q_net(states).argmax(dim=1).cpu().numpy()
        epsilon = self.model.exploration_rate
        return np.asarray(epsilon / count + (1 - epsilon) * (arms == greedy))

    def _probabilities(self, states: np.ndarray) -> np.ndarray:
        """Probability of each arm under ε-greedy choice, `[n, arms]`."""
        greedy = np.eye(len(self.problem.arms))[self.policy.predict(states)]
        epsilon = self.model.exploration_rate
        return np.asarray(epsilon / greedy.shape[1] + (1 - epsilon) * greedy)

    def _save_model(self, folder: Path) -> None:
        super()._save_model(folder)
        if self.model.replay_buffer is not None:
            torch.save(self.model.replay_buffer.to_dict(), folder / REPLAY_FILE)

    def _load_model(self, folder: Path) -> None:
        super()._load_model(folder)
        path = folder / REPLAY_FILE
        if not path.exists() and path.with_suffix(".pkl").exists():
            # Release 0.1 pickled the buffer, and reading a pickle can run code.
            self.model.replay_buffer = None
            return
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
            assert self.model.replay_buffer is not None
            self.model.replay_buffer.restore(saved)
        # A damaged archive can raise any error and hold any value.
        except Exception as error:
            raise BlockPilotError(
                f"{path} is missing or corrupt ({type(error).__name__}); train the agent again"
            ) from error
