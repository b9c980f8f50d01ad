"""Proximal policy optimisation (Schulman et al., arXiv 1707.06347) by Stable-Baselines3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stable_baselines3 import PPO

from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.sb3 import SB3Agent, SB3Hyperparams


@dataclass(frozen=True)
class PPOHyperparams(SB3Hyperparams):
    """Hyperparameters of PPO, with the names of Stable-Baselines3.

    Attributes:
        n_steps: Environment steps per update.
        batch_size: Decisions per gradient step.
        n_epochs: Passes over the decisions of an update.
        clip_range: Clipping of the probability ratio.
        ent_coef: Weight of the entropy bonus; without it the policy settles too early.
        vf_coef: Weight of the value loss.
    """

    n_steps: int
    batch_size: int
    n_epochs: int
    clip_range: float
    ent_coef: float
    vf_coef: float

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require(self.n_steps >= 1, "n_steps must be at least 1")
        require(self.n_epochs >= 1, "n_epochs must be at least 1")
        require(self.clip_range > 0, "clip_range must be positive")
        require(self.ent_coef >= 0, "ent_coef must be 0 or more")
        require(self.vf_coef >= 0, "vf_coef must be 0 or more")
        per_update = self.n_envs * self.n_steps
        require(
            self.batch_size >= 2 and per_update % self.batch_size == 0,
            f"batch_size must be at least 2 and divide n_envs * n_steps = {per_update}",
        )


class PPOAgent(SB3Agent[PPOHyperparams]):
    """PPO: small clipped steps of an actor, several passes over each batch of decisions."""

    algorithm = "ppo"
    Hyperparams = PPOHyperparams
    Model = PPO

    def _settings(self) -> dict[str, Any]:
        settings = self.hyperparams
        return {
            "gae_lambda": 1.0,
            "n_steps": settings.n_steps,
            "batch_size": settings.batch_size,
            "n_epochs": settings.n_epochs,
            "clip_range": settings.clip_range,
            "ent_coef": settings.ent_coef,
            "vf_coef": settings.vf_coef,
        }
