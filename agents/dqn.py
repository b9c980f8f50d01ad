"""Deep Q-network (Mnih et al., arXiv 1312.5602) by Stable-Baselines3."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import DQN

from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.agents.sb3 import SB3Agent, SB3Hyperparams
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.sweeps.table import Sweep

REPLAY_FILE = "replay_buffer.pt"
MAX_BUFFER_BYTES = 40 * 2**20
_REPLAYED = ("observations", "actions", "rewards", "dones")


@dataclass(frozen=True)
class DQNHyperparams(SB3Hyperparams):
    """Hyperparameters of DQN, with the names of Stable-Baselines3.

    Episodes have one step, so neither the target network nor the discount has an effect.

    Attributes:
        learning_starts: Random decisions before learning begins.
        buffer_size: Latest decisions to learn from; fewer if their states would take more than
            `MAX_BUFFER_BYTES`, which 16,384 states of 640 numbers do.
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


class PlannedDQN(DQN):
    """DQN whose exploration falls over all planned decisions, not over those of one call."""

    planned_timesteps: int

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
            "buffer_size": self._buffer_size,
            "batch_size": settings.batch_size,
            "gradient_steps": settings.gradient_steps,
            "exploration_initial_eps": settings.exploration_initial_eps,
            "exploration_final_eps": settings.exploration_final_eps,
            "exploration_fraction": settings.exploration_fraction,
            # Nothing follows a one-step episode, so next states need not be stored.
            "optimize_memory_usage": True,
            "replay_buffer_kwargs": {"handle_timeout_termination": False},
        }

    @property
    def _buffer_size(self) -> int:
        """Decisions to keep: `buffer_size`, or fewer to fit into `MAX_BUFFER_BYTES`."""
        settings = self.hyperparams
        fitting = MAX_BUFFER_BYTES // (np.dtype(np.float32).itemsize * self.problem.state.width)
        return max(2 * settings.n_envs, min(settings.buffer_size, fitting))

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
        buffer = self.model.replay_buffer
        if buffer is None:
            return
        used = slice(None) if buffer.full else slice(buffer.pos)
        arrays = {name: torch.from_numpy(getattr(buffer, name)[used].copy()) for name in _REPLAYED}
        torch.save({**arrays, "pos": buffer.pos, "full": buffer.full}, folder / REPLAY_FILE)

    def _load_model(self, folder: Path) -> None:
        super()._load_model(folder)
        path = folder / REPLAY_FILE
        if not path.exists() and path.with_suffix(".pkl").exists():
            # Release 0.1 pickled the buffer, and reading a pickle can run code.
            self.model.replay_buffer = None
            return
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
            buffer = self.model.replay_buffer
            assert buffer is not None
            rows = len(saved["rewards"])
            for name in _REPLAYED:
                getattr(buffer, name)[:rows] = saved[name].numpy()
            buffer.pos, buffer.full = int(saved["pos"]), bool(saved["full"])
        # A damaged archive can raise any error and hold any value.
        except Exception as error:
            raise BlockPilotError(
                f"{path} is missing or corrupt ({type(error).__name__}); train the agent again"
            ) from error
