"""Step control of many requests at once, for Gymnasium and for Stable-Baselines3."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from blockpilot_rl.envs.arguments import check_render_mode, read_row, read_seed
from blockpilot_rl.envs.gymnasium_vector import VectorStep
from blockpilot_rl.envs.one_step import state_space
from blockpilot_rl.envs.shared_vector import SharedVecEnv
from blockpilot_rl.envs.step_batch import StepBatch, StepSource, list_actions, read_requests


class BlockSizeStepVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """`BlockSizeStepEnv` for `num_envs` requests at a time, with array operations for all of them.

    `gymnasium.make_vec("blockpilot_rl/BlockSizeStep-v0", num_envs=256)` makes it. The environments
    draw from one shared epoch. Where a text ends, the next one starts in the same step (SAME_STEP):
    the observation is the next prompt's, the last one of the text is in `final_obs` of the infos,
    and its outcome in `final_info`.

    Args:
        num_envs: Number of requests at a time.
        sweep: As for `BlockSizeStepEnv`.
        split: As for `BlockSizeStepEnv`.
        actions: As for `BlockSizeStepEnv`.
        render_mode: Must be None.

    Raises:
        BlockPilotError: If the traces cannot be read, or an argument is invalid.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        sweep: StepSource = None,
        split: str = "train",
        actions: str = "thresholds",
        render_mode: str | None = None,
    ) -> None:
        check_render_mode(render_mode)
        self.render_mode = render_mode
        requests = read_requests(sweep, split)
        sizes = requests.traces.block_sizes
        self.batch = StepBatch(requests, num_envs, list_actions(sizes, actions))
        num_envs = self.num_envs = self.batch.num_envs
        self.single_observation_space = state_space(self.batch.width)
        self.single_action_space = spaces.Discrete(len(self.batch.actions))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start with the next prompts.

        Args:
            seed: Seeds the order of the prompts and starts a new epoch.
            options: `row` picks prompts by their number in the split, one per environment or one
                for all.

        Returns:
            The observations, float32 `[num_envs, width]`, and the prompts' ids.

        Raises:
            BlockPilotError: If there is no such row.
        """
        super().reset(seed=read_seed(seed))
        if seed is not None:
            self.batch.restart_epoch()
        row = read_row(options)
        rows = None if row is None else _each(row, self.num_envs)
        self.batch.begin(self.np_random, answers=rows)
        everywhere = np.ones(self.num_envs, dtype=bool)
        ids = self.batch.requests.ids[self.batch.answers]
        return self.batch.observe(), {"prompt_id": ids, "_prompt_id": everywhere}

    def step(self, actions: np.ndarray) -> VectorStep:
        """Decode one round of every request, and start the next requests where a text ends.

        Args:
            actions: Numbers of the actions, `[num_envs]`.

        Returns:
            The observations, the rewards (float64), whether each text has ended, False everywhere
            (truncated), and the infos.

        Raises:
            BlockPilotError: If there is no such action, or `reset` was never called.
        """
        done = self.batch.step(actions)
        columns = done.info(self.batch.requests, self.batch.plain)
        running = {name: values for name, values in columns.items() if name != "prompt_id"}
        infos = _masked(running, ~done.ended)
        if done.ended.any():
            slots = np.flatnonzero(done.ended)
            last = np.full(self.num_envs, None, dtype=object)
            for slot, observation in zip(slots, self.batch.observe(slots), strict=True):
                last[slot] = observation
            final = _masked(columns, done.ended)
            infos |= _masked({"final_obs": last, "final_info": final}, done.ended)
            self.batch.begin(self.np_random, slots)
        everywhere = np.ones(self.num_envs, dtype=bool)
        infos |= _masked({"prompt_id": self.batch.requests.ids[self.batch.answers]}, everywhere)
        truncated = np.zeros(self.num_envs, dtype=bool)
        return self.batch.observe(), done.rewards, done.ended, truncated, infos


class BlockSizeStepVecEnv(SharedVecEnv):
    """`BlockSizeStepEnv` for `num_envs` requests at a time, in the form Stable-Baselines3 takes.

    Where a text ends, the next one starts in the same step; the last observation of the text is in
    `terminal_observation` of its info.

    Args:
        num_envs: Number of requests at a time.
        sweep: As for `BlockSizeStepEnv`.
        split: As for `BlockSizeStepEnv`.
        actions: As for `BlockSizeStepEnv`.
        seed: Random seed of the order of the prompts.

    Raises:
        BlockPilotError: If the traces cannot be read, or an argument is invalid.
    """

    def __init__(
        self,
        num_envs: int,
        sweep: StepSource = None,
        split: str = "train",
        actions: str = "thresholds",
        seed: int | None = None,
    ) -> None:
        requests = read_requests(sweep, split)
        sizes = requests.traces.block_sizes
        self.batch = StepBatch(requests, num_envs, list_actions(sizes, actions))
        super().__init__(
            self.batch,
            self.batch.num_envs,
            state_space(self.batch.width),
            spaces.Discrete(len(self.batch.actions)),
            seed,
        )

    def reset(self) -> np.ndarray:
        """Start with the next prompts, `[num_envs, width]`.

        The option `row`, given by `set_options`, picks prompts by their number in the split.
        """
        rows = [read_row(options) for options in self._options]
        if self._seeds[0] is not None:
            self._generator = np.random.default_rng(self._seeds[0])
            self.batch.restart_epoch()
            self._reset_seeds()
        self._reset_options()
        self.batch.begin(self._generator, answers=rows)
        return self.batch.observe()

    def step_wait(self) -> VecEnvStepReturn:
        """Decode one round of every request, and start the next requests where a text ends."""
        done = self.batch.step(self._actions)
        columns = done.info(self.batch.requests, self.batch.plain)
        values = zip(*(column.tolist() for column in columns.values()), strict=True)
        infos: list[dict[str, Any]] = [dict(zip(columns, row, strict=True)) for row in values]
        slots = np.flatnonzero(done.ended)
        for slot, observation in zip(slots.tolist(), self.batch.observe(slots), strict=True):
            infos[slot]["terminal_observation"] = observation
            infos[slot]["TimeLimit.truncated"] = False
        if len(slots):
            self.batch.begin(self._generator, slots)
        return self.batch.observe(), done.rewards.astype(np.float32), done.ended, infos


def _each(row: Any, count: int) -> list[Any]:
    """One number for each environment, from one for all or one each."""
    values = np.asarray(row)
    return [row] * count if values.size == 1 else list(values)


def _masked(columns: dict[str, Any], mask: np.ndarray) -> dict[str, Any]:
    """Add to each column the mask of the environments that have it."""
    return {**columns, **{f"_{name}": mask.copy() for name in columns}}
