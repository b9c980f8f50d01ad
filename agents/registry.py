"""Algorithms by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

from blockpilot_rl.agents.a2c import A2CAgent
from blockpilot_rl.agents.base import Agent, read_agent_file
from blockpilot_rl.agents.bootstrapped import BootstrappedAgent
from blockpilot_rl.agents.dqn import DQNAgent
from blockpilot_rl.agents.epsilon_greedy import EpsilonGreedyAgent
from blockpilot_rl.agents.expected_reward import ExpectedRewardAgent
from blockpilot_rl.agents.fixed import FixedAgent
from blockpilot_rl.agents.hyperparameters import read_yaml, resolve_alias
from blockpilot_rl.agents.lints import LinTSAgent
from blockpilot_rl.agents.linucb import LinUCBAgent
from blockpilot_rl.agents.network_regression import NetworkRegressionAgent
from blockpilot_rl.agents.neural_linear import NeuralLinearAgent
from blockpilot_rl.agents.ppo import PPOAgent
from blockpilot_rl.agents.ridge_regression import RidgeRegressionAgent
from blockpilot_rl.agents.squarecb import SquareCBAgent
from blockpilot_rl.agents.supervised import SupervisedAgent
from blockpilot_rl.agents.yardsticks import OracleYardstick, RandomYardstick, Yardstick
from blockpilot_rl.decoding.state import DEFAULT_GROUPS
from blockpilot_rl.errors import BlockPilotError, closest

AGENTS: dict[str, type[Agent[Any]]] = {
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
        RidgeRegressionAgent,
        NetworkRegressionAgent,
        ExpectedRewardAgent,
        FixedAgent,
    )
}
YARDSTICKS: dict[str, type[Yardstick]] = {
    yardstick.algorithm: yardstick for yardstick in (RandomYardstick, OracleYardstick)
}
ALGORITHMS: dict[str, type[Agent[Any]] | type[Yardstick]] = {**AGENTS, **YARDSTICKS}


@overload
def make_agent(  # type: ignore[overload-overlap]
    algorithm: Literal["random", "oracle"],
    *,
    seed: int = 0,
    state_groups: Sequence[str] = DEFAULT_GROUPS,
    hyperparams: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> Yardstick: ...
@overload
def make_agent(
    algorithm: str,
    *,
    seed: int = 0,
    state_groups: Sequence[str] = DEFAULT_GROUPS,
    hyperparams: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> Agent[Any]: ...
def make_agent(
    algorithm: str,
    *,
    seed: int = 0,
    state_groups: Sequence[str] = DEFAULT_GROUPS,
    hyperparams: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> Agent[Any] | Yardstick:
    """Create an agent that has not learned yet.

    Args:
        algorithm: A key of `ALGORITHMS`. `reward-regression`, an older name, creates a
            `ridge-regression`, or a `network-regression` if the hyperparameter `model` is `mlp`.
        seed: Random seed.
        state_groups: State groups to read, in order.
        hyperparams: Values that replace those of the algorithm's YAML file.
        device: Where to train networks.

    Returns:
        The agent; a `Yardstick` for `random` and `oracle`.

    Raises:
        BlockPilotError: If a name or value is unknown or invalid.
    """
    algorithm, hyperparams = resolve_alias(algorithm, hyperparams or {})
    return _find(algorithm)(
        seed=seed, state_groups=state_groups, hyperparams=hyperparams, device=device
    )


def load_agent(folder: str | Path, device: str = "cpu") -> Agent[Any] | Yardstick:
    """Load an agent, or a yardstick, from its run folder.

    Raises:
        BlockPilotError: If the folder holds no complete run.
    """
    return _find(read_agent_file(Path(folder))["algorithm"]).load(folder, device)


def read_hyperparams(path: str | Path) -> dict[str, dict[str, Any]]:
    """Read a YAML file with the hyperparameters of several algorithms.

    Args:
        path: A file with `key: value` lines, as in `agents/hyperparams`, below each algorithm's
            name.

    Returns:
        The hyperparameters to replace by algorithm, which `make_agent` checks.

    Raises:
        BlockPilotError: If the file cannot be read, an algorithm is unknown, or the entry of one
            is no mapping.
    """
    values = read_yaml(Path(path))
    for algorithm, hyperparams in values.items():
        if not isinstance(hyperparams, dict):
            raise BlockPilotError(
                f"hyperparameters {path}: {algorithm} must hold `key: value` lines below its name"
            )
        try:
            _find(resolve_alias(algorithm, hyperparams)[0])
        except BlockPilotError as error:
            raise BlockPilotError(f"hyperparameters {path}: {error}") from error
    return values


def _find(algorithm: str) -> type[Agent[Any]] | type[Yardstick]:
    if algorithm not in ALGORITHMS:
        raise BlockPilotError(
            f"unknown algorithm {algorithm!r}; choose from {', '.join(ALGORITHMS)}."
            f"{closest(algorithm, (*ALGORITHMS, 'reward-regression'))}"
        )
    return ALGORITHMS[algorithm]
