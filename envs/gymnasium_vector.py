"""Many requests at once on a recorded sweep, in the form of Gymnasium's vector environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from blockpilot_rl.decoding.state import DEFAULT_GROUPS
from blockpilot_rl.envs.arguments import check_render_mode, read_row, read_seed
from blockpilot_rl.envs.batch import RequestBatch
from blockpilot_rl.envs.one_step import state_space
from blockpilot_rl.envs.replay import Replay, SweepSource

VectorStep = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class BlockSizeVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """`BlockSizeEnv` for `num_envs` requests at a time, with one array operation for all of them.

    `gymnasium.make_vec("blockpilot_rl/BlockSize-v0", num_envs=256)` makes it. The environments draw
    from one shared epoch: together they see each prompt once before any is repeated.

    Every episode ends with its one step and the next starts in the same step (SAME_STEP), so no
    step is spent on resets. The observation is then the next prompt's; the state of the decision
    is in `final_obs` of the infos, the outcome (`block_size`, `seconds`, `acceptance_length`,
    `prompt_id`) in `final_info`, and the next prompt's id in `prompt_id`.

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

        render_mode: Must be None.

    Raises:
        BlockPilotError: If the sweep cannot be read, or lacks the split, a state group or an arm,
            or another argument is invalid.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        sweep: SweepSource = None,
        split: str | None = "train",
        state_groups: Sequence[str] = DEFAULT_GROUPS,
        arms: Sequence[int] | None = None,
        baseline: int | None = None,
        policy_seconds: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        check_render_mode(render_mode)
        self.render_mode = render_mode
        self.replay = Replay.from_sweep(sweep, split, state_groups, arms, baseline, policy_seconds)
        self._batch = RequestBatch(self.replay, num_envs)
        num_envs = self.num_envs = self._batch.num_envs
        self.single_observation_space = state_space(self.replay.states.shape[1])
        self.single_action_space = spaces.Discrete(len(self.replay.arms))
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
            Their states, float32 `[num_envs, width]`, and ids.

        Raises:
            BlockPilotError: If there is no such row.
        """
        super().reset(seed=read_seed(seed))
        if seed is not None:
            self._batch.restart()
        states = self._batch.begin(self.np_random, read_row(options))
        return states, self._present({"prompt_id": self._batch.prompt_ids})

    def step(self, actions: np.ndarray) -> VectorStep:
        """Decode every prompt with its block size and start with the next ones.

        Args:
            actions: Indices of the block sizes, `[num_envs]`.

        Returns:
            The next states, the rewards (float64), True everywhere (terminated), False everywhere
            (truncated), and the infos.

        Raises:
            BlockPilotError: If an action is not an arm, or `reset` was never called.
        """
        rows, arms, rewards = self._batch.decide(actions)
        following = self._batch.begin(self.np_random)
        ended = np.ones(self.num_envs, dtype=bool)
        infos = self._present(
            {
                "final_obs": self.replay.state_views[rows],
                "final_info": self._present(self.replay.outcomes(rows, arms)),
                "prompt_id": self._batch.prompt_ids,
            }
        )
        return following, rewards, ended, ~ended, infos

    def _present(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Add to each column the mask of the environments that have it, which is all."""
        masks = {f"_{name}": np.ones(self.num_envs, dtype=bool) for name in columns}
        return {**columns, **masks}
