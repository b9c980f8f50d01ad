"""Control of every round on recorded traces, `blockpilot_rl/BlockSizeStep-v0`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from blockpilot_rl.envs.arguments import check_render_mode, read_index, read_row, read_seed
from blockpilot_rl.envs.one_step import Step, state_space
from blockpilot_rl.envs.step_batch import StepBatch, StepSource, list_actions, read_requests
from blockpilot_rl.errors import BlockPilotError


class BlockSizeStepEnv(gymnasium.Env[np.ndarray, np.int64]):
    """One request per episode, one round of decoding per step, simulated exactly from a trace.

    An action is a draft length and a threshold: the drafts are verified whose cumulative
    probability is at least the threshold. `batch.actions` lists the actions. The reward is minus
    the round's seconds over the seconds that plain decoding takes for the whole request. Without
    discount (`gamma = 1`), the return of an episode is therefore minus the request's time relative
    to plain decoding, so policies are ordered by time. The episode ends with the text.

    The observation (`batch.names`) holds the log odds of acceptance that a prior reads from the
    prefill state, those of recent acceptance with two memories, the rounds since the last block
    that was accepted whole, the lengths of the last round, the drafter's probabilities of its
    drafts, the target's entropy, top-1 probability and top-2 margin where the anchor was chosen,
    and the logarithms of the emitted tokens and of the context.

    Prompts come in epochs: each once, in an order that is shuffled every time.
    `reset(options={"row": i})` picks one of the split.

    `info` of a step holds `drafted`, `verified`, `accepted` and `seconds` of the round, `speedup`
    over plain decoding (meaningful in the last step, where the request is complete) and
    `prompt_id`; that of a reset holds `prompt_id`.

    Args:
        sweep: A folder with a sweep and its traces, or prepared `StepSplits`; None for the bundled
            sweep.
        split: The split whose prompts to use.
        actions: Action set, `thresholds` (each draft length with each of four thresholds) or
            `lengths` (each draft length, verified whole); both begin with the plain round.
        render_mode: `ansi` renders the last round as text.

    Raises:
        BlockPilotError: If the traces cannot be read, or an argument is invalid.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012

    def __init__(
        self,
        sweep: StepSource = None,
        split: str = "train",
        actions: str = "thresholds",
        render_mode: str | None = None,
    ) -> None:
        check_render_mode(render_mode, ("ansi",))
        requests = read_requests(sweep, split)
        self.batch = StepBatch(requests, 1, list_actions(requests.traces.block_sizes, actions))
        self.observation_space = state_space(self.batch.width)
        self.action_space = spaces.Discrete(len(self.batch.actions))
        self.render_mode = render_mode
        self._running = False
        self._last = "no round yet"

    def __len__(self) -> int:
        """Number of prompts."""
        return len(self.batch.requests)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start with the next prompt.

        Args:
            seed: Seeds the order of the prompts and starts a new epoch.
            options: `row` picks a prompt by its number in the split.

        Returns:
            The observation, float32 `[width]`, and the prompt's id.

        Raises:
            BlockPilotError: If there is no such row.
        """
        super().reset(seed=read_seed(seed))
        if seed is not None:
            self.batch.restart_epoch()
        self.batch.begin(self.np_random, answers=[read_row(options)])
        self._running = True
        return self.batch.observe()[0], {"prompt_id": self._prompt_id()}

    def step(self, action: Any) -> Step:
        """Decode one round.

        Args:
            action: Number of the action, as a number or an array or tensor of one.

        Returns:
            The observation, the reward, whether the text has ended, False, and the outcome.

        Raises:
            BlockPilotError: If there is no such action, or the episode has not begun.
        """
        if not self._running:
            raise BlockPilotError("the episode is over; call reset before step")
        number = read_index(action, len(self.batch.actions), "action")
        done = self.batch.step(np.array([number]))
        self._running = not done.ended[0]
        columns = done.info(self.batch.requests, self.batch.plain)
        info = {name: np.asarray(values[0]).item() for name, values in columns.items()}
        self._last = (
            f"{info['prompt_id']}: drafted {info['drafted']}, verified {info['verified']}, "
            f"emitted {info['accepted']}"
        )
        ended = bool(done.ended[0])
        return self.batch.observe()[0], float(done.rewards[0]), ended, False, info

    def render(self) -> str | None:
        """Render the last round as a line of text."""
        return self._last if self.render_mode == "ansi" else None

    def _prompt_id(self) -> str:
        return str(self.batch.requests.ids[self.batch.answers[0]])
