"""Hyperparameters with which each algorithm learns the synthetic sweeps in a second or two."""

from __future__ import annotations

from typing import Any

QUICK: dict[str, dict[str, Any]] = {
    "ppo": {
        "n_timesteps": 24576,
        "n_envs": 128,
        "n_steps": 4,
        "batch_size": 128,
        "learning_rate": 0.003,
        "weight_decay": 0.01,
        "eval_freq": 4096,
    },
    "supervised": {"epochs": 15},
    "reward-regression": {},
    "fixed": {},
    "random": {},
    "oracle": {},
}
