"""The one-step contextual bandit on the real decoder, `blockpilot_rl/BlockSizeLive-v0`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.generation import Generation, Prefill
from blockpilot_rl.decoding.latency import DEFAULT_ARMS, validate_arms
from blockpilot_rl.decoding.state import DEFAULT_GROUPS
from blockpilot_rl.envs.arguments import check_render_mode, read_index
from blockpilot_rl.envs.one_step import OneStepEnv, Step
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import Pair, load_pair
from blockpilot_rl.prompts import Prompt, builtin_suite

_BUILTIN_PROMPTS = 400


class BlockSizeLiveEnv(OneStepEnv):
    """One real request per episode: prefill, choose a block size, decode, get the speedup.

    The reward is the measured decode seconds of plain decoding over those of the chosen size, both
    from the same prefill. Which of the two is decoded first alternates from step to step, so that
    a machine that warms up or slows down favours neither. A reply that ends with the first token,
    which prefill gives, has nothing to decode; its reward is 1, as for plain decoding. With the
    state group `draft` the drafter passes that compute the state count towards the chosen size.

    Prompts come in epochs, as in `BlockSizeEnv`; `reset(options={"row": i})` picks one. `info` of
    a step holds `block_size`, `seconds`, `plain_seconds`, `acceptance_length` and `prompt_id`.
    Rewards are measured times, so the same seed gives the same prompts but not the same rewards.

    Args:
        pair: Target and drafter; None for the default pair.
        prompts: The requests; None for the built-in ones of policy training.
        max_new_tokens: Budget of each reply.
        arms: Block sizes to choose from, increasing from 1.
        state_groups: State groups to observe, in order.
        dtype: Dtype to load the default pair in.
        template: How prompts become tokens, over the `template` of the pair.
        render_mode: Must be None.

    Raises:
        BlockPilotError: If the pair cannot be loaded, or an argument is invalid.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    _prefill: Prefill
    _state: np.ndarray
    _draft_seconds: float

    def __init__(
        self,
        pair: Pair | None = None,
        prompts: Sequence[Prompt] | None = None,
        max_new_tokens: int = 96,
        arms: Sequence[int] = DEFAULT_ARMS,
        state_groups: Sequence[str] = DEFAULT_GROUPS,
        dtype: str = "bfloat16",
        template: dict[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        check_render_mode(render_mode)
        max_new_tokens = read_index(max_new_tokens, 2**31, "max_new_tokens")
        if max_new_tokens < 1:
            raise BlockPilotError(f"max_new_tokens must be at least 1, got {max_new_tokens}")
        validate_arms(tuple(arms))
        if prompts is None:
            prompts = builtin_suite(_BUILTIN_PROMPTS, splits=("train",))
        if not prompts:
            raise BlockPilotError("no prompts given; the environment needs at least one")
        self.state_groups = tuple(state_groups)
        self.prompts = list(prompts)
        self.max_new_tokens = max_new_tokens
        self.template = dict(template or {})
        self.pair = pair or load_pair(dtype=dtype)
        self.decoder = Decoder(self.pair)
        super().__init__(len(prompts), self.decoder.state_layout(self.state_groups).width, arms)
        self.decoder.warm_up(self.arms)
        self._plain_first = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Prefill the next prompt.

        Args:
            seed: Seeds the order of the prompts and starts a new epoch.
            options: `row` picks a prompt by its number.

        Returns:
            The state after prefill, float32 `[width]`, and the prompt's id.

        Raises:
            BlockPilotError: If there is no such row, or the prompt does not fit the pair.
        """
        prompt = self.prompts[self._begin(seed, options)]
        input_ids = self.pair.encode(prompt.chat(), **self.template)
        self._prefill = self.decoder.prefill(input_ids, self.max_new_tokens, max(self.arms))
        began = time.perf_counter()
        state = self.decoder.state(self._prefill, self.state_groups)
        self._state = state.float().cpu().numpy()
        self._draft_seconds = time.perf_counter() - began if "draft" in self.state_groups else 0.0
        return self._state.copy(), {"prompt_id": prompt.id}

    def step(self, action: Any) -> Step:
        """Decode plainly and with the chosen block size, which ends the episode.

        Args:
            action: Index of the block size, as a number or an array or tensor of one.

        Returns:
            The state again, the measured speedup, True, False, and the outcome.

        Raises:
            BlockPilotError: If the action is not an arm, or the episode has not begun.
        """
        row, arm = self._end(action)
        block_size = self.arms[arm]
        plain, chosen = self._decode(self._prefill, block_size)
        nothing_to_decode = len(plain.tokens) < 2
        seconds = chosen.decode_seconds + self._draft_seconds
        info = {
            "block_size": block_size,
            "seconds": seconds,
            "plain_seconds": plain.decode_seconds,
            "acceptance_length": chosen.acceptance_length,
            "prompt_id": self.prompts[row].id,
        }
        reward = 1.0 if nothing_to_decode else plain.decode_seconds / seconds
        return self._state.copy(), reward, True, False, info

    def _decode(self, prefill: Prefill, block_size: int) -> tuple[Generation, Generation]:
        """Decode plainly and with a block size, in alternating order."""
        if block_size == 1:
            plain = self.decoder.decode(prefill, 1)
            return plain, plain
        order = (1, block_size) if self._plain_first else (block_size, 1)
        self._plain_first = not self._plain_first
        results = {size: self.decoder.decode(prefill, size) for size in order}
        return results[1], results[block_size]
