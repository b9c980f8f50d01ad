"""Advantage actor-critic (Mnih et al., arXiv 1602.01783) by Stable-Baselines3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stable_baselines3 import A2C

from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.sb3 import SB3Agent, SB3Hyperparams


@dataclass(frozen=True)
class A2CHyperparams(SB3Hyperparams):
    """Hyperparameters of A2C, with the names of Stable-Baselines3.

    Attributes:
        n_steps: Environment steps per update.
        ent_coef: Weight of the entropy bonus; without it the policy settles too early.
        vf_coef: Weight of the value loss.
    """

    n_steps: int
    ent_coef: float
    vf_coef: float

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require(self.n_steps >= 1, "n_steps must be at least 1")
        require(self.ent_coef >= 0, "ent_coef must be 0 or more")
        require(self.vf_coef >= 0, "vf_coef must be 0 or more")
        require(self.n_envs * self.n_steps >= 2, "n_envs * n_steps must be at least 2")


class A2CAgent(SB3Agent[A2CHyperparams]):
    """A2C: one gradient step of actor and critic per batch of decisions.

    Advantages are normalised, since rewards differ by only a few percent.
    """

    algorithm = "a2c"
    Hyperparams = A2CHyperparams
    Model = A2C

    def _settings(self) -> dict[str, Any]:
        settings = self.hyperparams
        return {
            "gae_lambda": 1.0,
            "normalize_advantage": True,
            "n_steps": settings.n_steps,
            "ent_coef": settings.ent_coef,
            "vf_coef": settings.vf_coef,
        }
