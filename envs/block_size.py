"""The one-step contextual bandit on a recorded sweep, `blockpilot_rl/BlockSize-v0`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from blockpilot_rl.decoding.state import DEFAULT_GROUPS
from blockpilot_rl.envs.arguments import check_render_mode
from blockpilot_rl.envs.one_step import OneStepEnv, Step
from blockpilot_rl.envs.replay import Replay, SweepSource


class BlockSizeEnv(OneStepEnv):
    """One request per episode: observe the prefill state, choose a block size, get the speedup.

    The observation is the prompt's recorded state, the action the index of a block size, the
    reward the seconds of plain decoding over those of the chosen size. Every episode ends after
    its one step. Prompts come in epochs: each once, in an order that is shuffled every time.
    `reset(options={"row": i})` picks one prompt of the split, so that an evaluation can visit all.

    `info` of a step holds `block_size`, `seconds` (of decoding after prefill, without
    `policy_seconds`), `acceptance_length` and `prompt_id`; that of a reset holds `prompt_id`.

    Args:
        sweep: A sweep, or its folder; None for the bundled one. If a folder holds several
            temperatures, the greedy rows are used; a `Sweep` is used as it is.
        split: The split whose prompts to use; None for all.
        state_groups: State groups to observe, in order.
        arms: Block sizes to choose from, 1 among them; None for all that were recorded.
        baseline: Block size whose reward is subtracted from every reward, to remove the difficulty
            of the prompt from it; None for the plain speedup.
        policy_seconds: Seconds that the policy itself takes, added to every arm's seconds.
        render_mode: `ansi` renders the last decision as text.

    Raises:
        BlockPilotError: If the sweep cannot be read, or lacks the split, a state group or an arm.

    Example:
        >>> import gymnasium, blockpilot_rl.envs
        >>> env = gymnasium.make("blockpilot_rl/BlockSize-v0")  # doctest: +SKIP
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012

    def __init__(
        self,
        sweep: SweepSource = None,
        split: str | None = "train",
        state_groups: Sequence[str] = DEFAULT_GROUPS,
        arms: Sequence[int] | None = None,
        baseline: int | None = None,
        policy_seconds: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        self.replay = Replay.from_sweep(sweep, split, state_groups, arms, baseline, policy_seconds)
        super().__init__(len(self.replay), self.replay.states.shape[1], self.replay.arms)
        check_render_mode(render_mode, ("ansi",))
        self.render_mode = render_mode
        self._last = "no decision yet"

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start with the next prompt.

        Args:
            seed: Seeds the order of the prompts and starts a new epoch.
            options: `row` picks a prompt by its number in the split.

        Returns:
            The prompt's state, float32 `[width]`, and its id.

        Raises:
            BlockPilotError: If there is no such row.
        """
        row = self._begin(seed, options)
        return self.replay.states[row].copy(), {"prompt_id": self.replay.prompt_ids[row]}

    def step(self, action: Any) -> Step:
        """Decode the prompt with the chosen block size, which ends the episode.

        Args:
            action: Index of the block size, as a number or an array or tensor of one.

        Returns:
            The state again, the reward, True, False, and the outcome.

        Raises:
            BlockPilotError: If the action is not an arm, or the episode has not begun.
        """
        row, arm = self._end(action)
        info = self.replay.info(row, arm)
        reward = float(self.replay.rewards[row, arm])
        self._last = f"{info['prompt_id']}: block size {info['block_size']}, reward {reward:.3f}"
        return self.replay.states[row].copy(), reward, True, False, info

    def render(self) -> str | None:
        """Render the last decision as a line of text."""
        return self._last if self.render_mode == "ansi" else None
