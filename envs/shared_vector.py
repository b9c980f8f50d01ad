"""What environments for Stable-Baselines3 share if one object holds the requests of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices

from blockpilot_rl.envs.arguments import read_seed


class SharedVecEnv(VecEnv):
    """Environments whose attributes and methods are those of one shared object.

    Args:
        shared: The object.
        num_envs: Number of environments.
        observation_space: Observations of one environment.
        action_space: Actions of one environment.
        seed: Random seed of the order of the prompts.
    """

    def __init__(
        self,
        shared: object,
        num_envs: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        seed: int | None,
    ) -> None:
        self._shared = shared
        super().__init__(num_envs, observation_space, action_space)
        self._generator = np.random.default_rng(read_seed(seed))
        self._actions = np.zeros(self.num_envs, dtype=np.int64)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed the order of the prompts; it takes effect at the next `reset`."""
        self._seeds = [read_seed(seed)] * self.num_envs
        return self._seeds

    def step_async(self, actions: np.ndarray) -> None:
        """Take the actions, `[num_envs]`."""
        self._actions = actions

    def close(self) -> None:
        """Nothing is held open."""

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return an attribute, which all environments share, once per environment."""
        value = None if attr_name == "render_mode" else getattr(self._shared, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Refuse: the environments are views of one recording.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError(f"cannot set {attr_name!r}: the environments share one recorded sweep")

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: VecEnvIndices = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Call a method of the shared object once per environment."""
        method = getattr(self._shared, method_name)
        return [method(*method_args, **method_kwargs) for _ in self._get_indices(indices)]

    def env_is_wrapped(
        self,
        wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]],
        indices: VecEnvIndices = None,
    ) -> list[bool]:
        """No environment is wrapped."""
        return [False for _ in self._get_indices(indices)]
