"""Algorithms by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from blockpilot_rl.agents.a2c import A2CAgent
from blockpilot_rl.agents.base import Agent, read_agent_file
from blockpilot_rl.agents.bootstrapped import BootstrappedAgent
from blockpilot_rl.agents.dqn import DQNAgent
from blockpilot_rl.agents.epsilon_greedy import EpsilonGreedyAgent
from blockpilot_rl.agents.expected_reward import ExpectedRewardAgent
from blockpilot_rl.agents.hyperparameters import read_yaml
from blockpilot_rl.agents.lints import LinTSAgent
from blockpilot_rl.agents.linucb import LinUCBAgent
from blockpilot_rl.agents.neural_linear import NeuralLinearAgent
from blockpilot_rl.agents.ppo import PPOAgent
from blockpilot_rl.agents.reward_regression import RewardRegressionAgent
from blockpilot_rl.agents.squarecb import SquareCBAgent
from blockpilot_rl.agents.static import FixedAgent, OracleAgent, RandomAgent
from blockpilot_rl.agents.supervised import SupervisedAgent
from blockpilot_rl.decoding.state import DEFAULT_GROUPS
from blockpilot_rl.errors import BlockPilotError, closest

ALGORITHMS: dict[str, type[Agent[Any]]] = {
    agent.algorithm: agent
    for agent in (
        PPOAgent,
        A2CAgent,
        DQNAgent,
        EpsilonGreedyAgent,
        LinUCBAgent,
        LinTSAgent,
        SquareCBAgent,
        NeuralLinearAgent,
        BootstrappedAgent,
        SupervisedAgent,
        RewardRegressionAgent,
        ExpectedRewardAgent,
        FixedAgent,
        RandomAgent,
        OracleAgent,
    )
}


def make_agent(
    algorithm: str,
    *,
    seed: int = 0,
    state_groups: Sequence[str] = DEFAULT_GROUPS,
    hyperparams: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> Agent[Any]:
    """Make an agent that has not learned yet.

    Args:
        algorithm: A key of `ALGORITHMS`.
        seed: Decides everything random about it.
        state_groups: State groups to read, in order.
        hyperparams: Values that replace those of the algorithm's YAML file.
        device: Where to train networks.

    Raises:
        BlockPilotError: If a name or value is unknown or invalid.
    """
    return _find(algorithm)(
        seed=seed, state_groups=state_groups, hyperparams=hyperparams, device=device
    )


def load_agent(folder: str | Path, device: str = "cpu") -> Agent[Any]:
    """Load an agent of any algorithm from its run folder.

    Raises:
        BlockPilotError: If the folder holds no complete agent.
    """
    return _find(read_agent_file(Path(folder))["algorithm"]).load(folder, device)


def read_hyperparams(path: str | Path) -> dict[str, dict[str, Any]]:
    """Read a YAML file that gives hyperparameters to several algorithms.

    Args:
        path: A file of `key: value` lines, as in `agents/hyperparams`, below each algorithm's name.

    Returns:
        By algorithm the hyperparameters to replace, which `make_agent` checks.

    Raises:
        BlockPilotError: If the file cannot be read, an algorithm is unknown, or what stands below
            one is no mapping.
    """
    values = read_yaml(Path(path))
    for algorithm, hyperparams in values.items():
        try:
            _find(algorithm)
        except BlockPilotError as error:
            raise BlockPilotError(f"hyperparameters {path}: {error}") from error
        if not isinstance(hyperparams, dict):
            raise BlockPilotError(
                f"hyperparameters {path}: {algorithm} must hold `key: value` lines below its name"
            )
    return values


def _find(algorithm: str) -> type[Agent[Any]]:
    if algorithm not in ALGORITHMS:
        raise BlockPilotError(
            f"unknown algorithm {algorithm!r}; choose from {', '.join(ALGORITHMS)}."
            f"{closest(algorithm, ALGORITHMS)}"
        )
    return ALGORITHMS[algorithm]
