"""Many requests at once on a recorded sweep, in the form Stable-Baselines3 takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from blockpilot_rl.decoding.state import DEFAULT_GROUPS
from blockpilot_rl.envs.arguments import check_render_mode, read_row
from blockpilot_rl.envs.batch import Decided, RequestBatch
from blockpilot_rl.envs.one_step import state_space
from blockpilot_rl.envs.replay import Replay, SweepSource
from blockpilot_rl.envs.shared_vector import SharedVecEnv


class BlockSizeVecEnv(SharedVecEnv):
    """`BlockSizeEnv` for `num_envs` requests at a time, with one array operation for all of them.

    The environments draw from one shared epoch: together they see each prompt once before any is
    repeated. As every episode has one step, each `step` also resets all of them; the state of
    the decision is in the `terminal_observation` of the infos.

    Args:
        num_envs: Number of requests per step.
        sweep: A sweep, or its folder; None for the bundled one. If a folder holds several
            temperatures, the greedy rows are used; a `Sweep` is used as it is.
        split: The split whose prompts to use; None for all.
        state_groups: State groups to observe, in order.
        arms: Block sizes to choose from, 1 among them; None for all that were recorded.
        baseline: Block size whose reward is subtracted from every reward; None for the plain
            speedup.
        policy_seconds: Seconds that the policy itself takes, added to every arm's seconds.
        seed: Random seed of the order of the prompts.
        render_mode: Must be None.

    Attributes:
        decided: The decisions of the last step, for logs that distinguish the rows of a prompt.

    Raises:
        BlockPilotError: If the sweep cannot be read, or lacks the split, a state group or an arm,
            or another argument is invalid.
    """

    decided: Decided

    def __init__(
        self,
        num_envs: int,
        sweep: SweepSource = None,
        split: str | None = "train",
        state_groups: Sequence[str] = DEFAULT_GROUPS,
        arms: Sequence[int] | None = None,
        baseline: int | None = None,
        policy_seconds: float = 0.0,
        seed: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        check_render_mode(render_mode)
        self.replay = Replay.from_sweep(sweep, split, state_groups, arms, baseline, policy_seconds)
        self._batch = RequestBatch(self.replay, num_envs)
        super().__init__(
            self.replay,
            self._batch.num_envs,
            state_space(self.replay.states.shape[1]),
            spaces.Discrete(len(self.replay.arms)),
            seed,
        )
        self._infos = _all_infos(self.replay)

    def reset(self) -> np.ndarray:
        """Start with the next prompts, `[num_envs, width]`.

        The option `row`, given by `set_options` to all environments or to some, picks prompts by
        their number in the split.

        Raises:
            BlockPilotError: If there is no such row, or an option is unknown.
        """
        rows = [read_row(options) for options in self._options]
        if self._seeds[0] is not None:
            self._generator = np.random.default_rng(self._seeds[0])
            self._batch.restart()
            self._reset_seeds()
        self._reset_options()
        picked = any(row is not None for row in rows)
        return self._batch.begin(self._generator, rows if picked else None)

    def step_wait(self) -> VecEnvStepReturn:
        """Finish every episode and start the next ones.

        Raises:
            BlockPilotError: If an action is not an arm, or `reset` was never called.
        """
        self.decided = self._batch.decide(self._actions)
        rows, arms, rewards = self.decided
        pairs = rows * len(self.replay.arms) + arms
        infos = [self._infos[pair].copy() for pair in pairs.tolist()]
        following = self._batch.begin(self._generator)
        return following, rewards.astype(np.float32), np.ones(self.num_envs, dtype=bool), infos


def _all_infos(replay: Replay) -> list[dict[str, Any]]:
    """The info of every prompt and arm, which a step only copies."""
    rows, arms = np.divmod(np.arange(replay.rewards.size), len(replay.arms))
    columns: dict[str, Any] = {
        **{name: values.tolist() for name, values in replay.outcomes(rows, arms).items()},
        "terminal_observation": replay.state_views[rows].tolist(),
        "TimeLimit.truncated": [False] * len(rows),
    }
    values = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in values]
