"""Algorithms by name."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from blockpilot_rl.agents.base import Agent, read_agent_file
from blockpilot_rl.agents.hyperparameters import read_yaml, resolve_alias
from blockpilot_rl.decoding.state import DEFAULT_GROUPS
from blockpilot_rl.errors import BlockPilotError, closest

if TYPE_CHECKING:
    from blockpilot_rl.agents.yardsticks import Yardstick

C = TypeVar("C")


class _Classes(Mapping[str, C]):
    """Classes by algorithm, imported when they are first used, since some load an RL library."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def __getitem__(self, algorithm: str) -> C:
        module, _, name = self._names[algorithm].partition(".")
        found: C = getattr(importlib.import_module(f"blockpilot_rl.agents.{module}"), name)
        return found

    def __contains__(self, algorithm: object) -> bool:
        return algorithm in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


_AGENTS = {
    "ppo": "ppo.PPOAgent",
    "a2c": "a2c.A2CAgent",
    "dqn": "dqn.DQNAgent",
    "epsilon-greedy": "epsilon_greedy.EpsilonGreedyAgent",
    "linucb": "linucb.LinUCBAgent",
    "lints": "lints.LinTSAgent",
    "squarecb": "squarecb.SquareCBAgent",
    "neural-linear": "neural_linear.NeuralLinearAgent",
    "bootstrapped": "bootstrapped.BootstrappedAgent",
    "supervised": "supervised.SupervisedAgent",
    "ridge-regression": "ridge_regression.RidgeRegressionAgent",
    "network-regression": "network_regression.NetworkRegressionAgent",
    "expected-reward": "expected_reward.ExpectedRewardAgent",
    "acceptance": "acceptance.AcceptanceAgent",
    "acceptance-bandit": "acceptance_bandit.AcceptanceBanditAgent",
    "fixed": "fixed.FixedAgent",
}
_YARDSTICKS = {"random": "yardsticks.RandomYardstick", "oracle": "yardsticks.OracleYardstick"}

AGENTS = _Classes[type[Agent[Any]]](_AGENTS)
YARDSTICKS = _Classes["type[Yardstick]"](_YARDSTICKS)
ALGORITHMS = _Classes["type[Agent[Any]] | type[Yardstick]"]({**_AGENTS, **_YARDSTICKS})


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
            is not a mapping.
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
