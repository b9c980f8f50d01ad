"""Hyperparameters with which each algorithm learns the synthetic sweeps in a second or two."""

from __future__ import annotations

from typing import Any

_ON_POLICY = {
    "n_timesteps": 24576,
    "n_envs": 128,
    "learning_rate": 0.003,
    "weight_decay": 0.01,
    "eval_freq": 4096,
}
_BANDIT = {"n_timesteps": 6400, "eval_freq": 1600, "learning_starts": 640, "alpha": 1}

QUICK: dict[str, dict[str, Any]] = {
    "ppo": {**_ON_POLICY, "n_steps": 4, "batch_size": 128},
    "a2c": {**_ON_POLICY, "n_envs": 64, "learning_rate": 0.01},
    "dqn": {
        "n_timesteps": 12000,
        "n_envs": 16,
        "learning_starts": 1000,
        "learning_rate": 0.003,
        "eval_freq": 2000,
        "exploration_final_eps": 0.3,
    },
    "epsilon-greedy": _BANDIT,
    "linucb": _BANDIT,
    "lints": {**_BANDIT, "noise": 0.5},
    "squarecb": _BANDIT,
    "bootstrapped": {**_BANDIT, "n_heads": 5},
    "neural-linear": {
        **_BANDIT,
        "alpha": 100,
        "train_freq": 1600,
        "learning_rate": 0.003,
        "weight_decay": 0.01,
        "noise": 0.5,
    },
    "supervised": {"epochs": 15},
    "ridge-regression": {},
    "network-regression": {"epochs": 15},
    "expected-reward": {
        "epochs": 15,
        "learning_rate": 0.003,
        "weight_decay": 0.01,
        "ent_coef": 0.1,
    },
    "acceptance": {"alphas": "1,10,100"},
    "acceptance-bandit": {**_BANDIT, "alpha": 1000},
    "fixed": {},
    "random": {},
    "oracle": {},
}

# A few steps, for tests that need little training.
_STEPS = {"n_timesteps": 1280, "eval_freq": 512}
BRIEF: dict[str, dict[str, Any]] = {
    **QUICK,
    "ppo": {**QUICK["ppo"], **_STEPS, "n_envs": 32, "n_steps": 2, "batch_size": 32},
    "a2c": {**QUICK["a2c"], **_STEPS, "n_envs": 32},
    **{
        name: {**QUICK[name], **_STEPS, "learning_starts": 256}
        for name in (
            "dqn",
            "epsilon-greedy",
            "linucb",
            "lints",
            "squarecb",
            "bootstrapped",
            "acceptance-bandit",
        )
    },
    "neural-linear": {
        **QUICK["neural-linear"],
        **_STEPS,
        "learning_starts": 256,
        "train_freq": 512,
        "gradient_steps": 20,
    },
    "supervised": {"epochs": 4},
    "network-regression": {"epochs": 4},
    "expected-reward": {"epochs": 4},
}
