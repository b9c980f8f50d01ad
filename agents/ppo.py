"""Proximal policy optimisation (Schulman et al., arXiv 1707.06347) by Stable-Baselines3."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from zipfile import BadZipFile

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger, configure
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecMonitor
from torch import nn

from blockpilot_rl.agents.base import Agent, standardisation
from blockpilot_rl.agents.hyperparameters import ACTIVATIONS, require, require_network
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.envs.vector import BlockSizeVecEnv
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import SweepTable

MODEL_FILE = "best_model.zip"


@dataclass(frozen=True)
class PPOHyperparams:
    """Hyperparameters of PPO, named as in Stable-Baselines3.

    Episodes have one step, so the discount and the trace of advantages have no effect.

    Attributes:
        n_timesteps: Decisions to learn from.
        n_envs: Decisions per environment step.
        n_steps: Environment steps per update.
        batch_size: Decisions per gradient step.
        n_epochs: Passes over the decisions of an update.
        learning_rate: Of AdamW.
        weight_decay: Of AdamW.
        clip_range: Clipping of the probability ratio.
        ent_coef: Weight of the entropy bonus, without which the policy settles too early.
        vf_coef: Weight of the value loss.
        max_grad_norm: Clipping of the gradient.
        hidden: Widths of the hidden layers of actor and critic.
        activation: `tanh` or `relu`.
        eval_freq: Decisions between two walks over the validation split.
    """

    n_timesteps: int
    n_envs: int
    n_steps: int
    batch_size: int
    n_epochs: int
    learning_rate: float
    weight_decay: float
    clip_range: float
    ent_coef: float
    vf_coef: float
    max_grad_norm: float
    hidden: tuple[int, ...]
    activation: str
    eval_freq: int

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("n_timesteps", "n_envs", "n_steps", "n_epochs", "eval_freq"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        for name in ("learning_rate", "clip_range", "max_grad_norm"):
            require(getattr(self, name) > 0, f"{name} must be positive")
        for name in ("weight_decay", "ent_coef", "vf_coef"):
            require(getattr(self, name) >= 0, f"{name} must be 0 or more")
        per_update = self.n_envs * self.n_steps
        require(
            self.batch_size >= 2 and per_update % self.batch_size == 0,
            f"batch_size must be at least 2 and divide n_envs * n_steps = {per_update}",
        )
        require_network(self.hidden, self.activation)


class Standardise(BaseFeaturesExtractor):
    """Standardises the observed state, so that the saved model takes states as they are."""

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


class PPOAgent(Agent[PPOHyperparams]):
    """PPO on the replayed sweep; sees one arm's reward per decision, as online learning would.

    Rewards are differences to the best fixed size, since how fast a prompt decodes with any arm
    says nothing about the choice. The parameters whose greedy choices have the highest mean reward
    on the whole validation split are kept.
    """

    algorithm = "ppo"
    Hyperparams = PPOHyperparams

    model: PPO

    def _fit(self, train: SweepTable, validation: SweepTable, monitor: Monitor) -> None:
        settings = self.hyperparams
        env = VecMonitor(
            BlockSizeVecEnv(
                settings.n_envs,
                train,
                split=None,
                features=self.features,
                baseline=self.problem.best_fixed,
            )
        )
        self.model = PPO(
            "MlpPolicy",
            env,
            seed=self.seed,
            device=self.device,
            gamma=1.0,
            gae_lambda=1.0,
            policy_kwargs={
                "net_arch": list(settings.hidden),
                "activation_fn": ACTIVATIONS[settings.activation],
                "features_extractor_class": Standardise,
                "optimizer_class": torch.optim.AdamW,
                "optimizer_kwargs": {"weight_decay": settings.weight_decay},
            },
            **{
                name: getattr(settings, name)
                for name in (
                    "n_steps",
                    "batch_size",
                    "n_epochs",
                    "learning_rate",
                    "clip_range",
                    "ent_coef",
                    "vf_coef",
                    "max_grad_norm",
                )
            },
        )
        mean, scale = standardisation(self.problem.states(train))
        self._scaler.mean.copy_(mean)
        self._scaler.scale.copy_(scale)
        folder = monitor.log_folder
        self.model.set_logger(
            configure(str(folder), ["tensorboard"]) if folder else Logger(None, [])
        )
        best = KeepBest(self, validation, monitor)
        self.model.learn(settings.n_timesteps, callback=best)
        self.model.policy.load_state_dict(best.parameters)

    def predict(self, states: np.ndarray) -> np.ndarray:
        """Choose the most probable arm for each state."""
        choices, _ = self.model.predict(states, deterministic=True)
        return choices

    def action_probabilities(self, states: np.ndarray) -> np.ndarray:
        """Probability of each arm under the stochastic actor, `[n, arms]`."""
        with torch.inference_mode():
            observations, _ = self.model.policy.obs_to_tensor(states)
            distribution = self.model.policy.get_distribution(observations).distribution
        assert isinstance(distribution, torch.distributions.Categorical)
        probabilities: np.ndarray = distribution.logits.double().softmax(dim=1).cpu().numpy()
        return probabilities

    def to_policy(self, provenance: Mapping[str, Any] | None = None) -> BlockSizePolicy:
        """Extract the actor."""
        policy = self.model.policy
        settings = self.hyperparams
        layers = [*policy.mlp_extractor.policy_net, policy.action_net]
        return BlockSizePolicy.from_layers(
            self._policy_config(settings.hidden, settings.activation, provenance),
            [(layer.weight, layer.bias) for layer in layers if isinstance(layer, nn.Linear)],
            self._scaler.mean,
            self._scaler.scale,
        )

    @property
    def _scaler(self) -> Standardise:
        return cast(Standardise, self.model.policy.features_extractor)

    def _save_model(self, folder: Path) -> None:
        self.model.save(folder / MODEL_FILE)

    def _load_model(self, folder: Path) -> None:
        path = folder / MODEL_FILE
        try:
            self.model = PPO.load(path, device=self.device)
        except (OSError, ValueError, KeyError, RuntimeError, BadZipFile) as error:
            raise BlockPilotError(
                f"{path} is missing or corrupt ({type(error).__name__}); train the agent again"
            ) from error


class KeepBest(BaseCallback):
    """Walks the whole validation split between updates and keeps the best parameters.

    Args:
        agent: The agent that learns.
        validation: The prompts to walk.
        monitor: Keeps the record.
    """

    def __init__(self, agent: PPOAgent, validation: SweepTable, monitor: Monitor) -> None:
        super().__init__()
        self.parameters: dict[str, torch.Tensor] = {}
        self._agent = agent
        self._validation = validation
        self._monitor = monitor
        self._best = -np.inf
        self._due = agent.hyperparams.eval_freq

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self._due:
            self._evaluate()
            self._due = self.num_timesteps + self._agent.hyperparams.eval_freq

    def _on_training_end(self) -> None:
        self._evaluate()

    def _evaluate(self) -> None:
        total = self._agent.hyperparams.n_timesteps
        reward = self._monitor.evaluate(self._agent, self._validation, self.num_timesteps, total)
        if reward > self._best:
            self._best = reward
            self.parameters = copy.deepcopy(self.model.policy.state_dict())
