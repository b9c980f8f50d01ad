"""The outcomes of a recorded sweep by prompt and arm, for the environments that replay it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.sweeps.table import Sweep

SweepSource = Sweep | str | Path | None


@dataclass(frozen=True, eq=False)
class Replay:
    """The outcome of every arm on every prompt, as arrays.

    Attributes:
        arms: Block sizes.
        states: State of each prompt, `[n, width]`, float32.
        rewards: Reward of each arm, `[n, arms]`.
        seconds: Decode seconds of each arm, `[n, arms]`.
        acceptance_lengths: Tokens per decode pass of each arm, `[n, arms]`.
        prompt_ids: Id of each prompt, `[n]`.
    """

    arms: tuple[int, ...]
    states: np.ndarray
    rewards: np.ndarray
    seconds: np.ndarray
    acceptance_lengths: np.ndarray
    prompt_ids: np.ndarray

    @classmethod
    def from_sweep(
        cls,
        sweep: SweepSource,
        split: str | None,
        state_groups: Sequence[str],
        arms: Sequence[int] | None,
        baseline: int | None,
        policy_seconds: float,
    ) -> Replay:
        """Prepare a sweep for replay; the arguments are those of `BlockSizeEnv`.

        Raises:
            BlockPilotError: If the sweep cannot be read, or lacks the split, a state group or an
                arm, or `policy_seconds` is invalid.
        """
        seconds: Any = policy_seconds
        if not (isinstance(seconds, Real) and 0 <= float(seconds) < math.inf):
            raise BlockPilotError(
                f"policy_seconds must be a finite number of 0 or more, got {policy_seconds!r}"
            )
        table = sweep if isinstance(sweep, Sweep) else Sweep.load(sweep).default_rows()
        if split is not None:
            table = table.split(split)
        if arms is not None:
            table = table.select_arms(tuple(arms))
        table = table.with_groups(state_groups)
        rewards = table.seconds[:, :1] / (table.seconds + policy_seconds)
        if baseline is not None:
            rewards = rewards - rewards[:, [table.arm_index(baseline)]]
        return cls(
            arms=table.arms,
            states=table.states[:, table.metadata.state.columns(state_groups)],
            rewards=rewards,
            seconds=table.seconds,
            acceptance_lengths=table.acceptance_lengths,
            prompt_ids=table.rows["id"].to_numpy(dtype=object),
        )

    def __len__(self) -> int:
        """Number of prompts."""
        return len(self.prompt_ids)

    @cached_property
    def state_views(self) -> np.ndarray:
        """The state of each prompt as a read-only array of its own, `[n]`.

        Vectorised environments return thousands of states that are rarely read, so they are not
        copied.
        """
        fixed = self.states.view()
        fixed.flags.writeable = False
        return np.fromiter(fixed, dtype=object, count=len(fixed))

    def outcomes(self, rows: np.ndarray | int, arms: np.ndarray | int) -> dict[str, np.ndarray]:
        """Describe the outcomes of arms on prompts, one column per fact.

        Args:
            rows: Numbers of the prompts, `[k]`.
            arms: The chosen arms' indices, `[k]`.
        """
        return {
            "block_size": np.array(self.arms)[arms],
            "seconds": self.seconds[rows, arms],
            "acceptance_length": self.acceptance_lengths[rows, arms],
            "prompt_id": self.prompt_ids[rows],
        }

    def info(self, row: int, arm: int) -> dict[str, Any]:
        """Describe the outcome of an arm on a prompt."""
        return {name: np.asarray(fact).item() for name, fact in self.outcomes(row, arm).items()}
