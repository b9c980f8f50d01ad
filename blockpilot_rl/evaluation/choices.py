"""What an agent hands in to be compared: its choices on the test prompts and their price."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import SweepTable

_DECISIONS = 200


@dataclass(frozen=True, eq=False)
class Choices:
    """Choices of one learned agent, trained with several seeds.

    Attributes:
        arms: Arm indices on the test rows, `[seeds, n]`.
        policy_seconds: Time of one decision of each seed's policy, `[seeds]`. A request makes one
            decision, so this is added to its decode time.
        validation: Arm indices on the validation rows, `[seeds, m]`, for the guard against
            leakage; None if there are no such rows.
    """

    arms: np.ndarray
    policy_seconds: np.ndarray
    validation: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Check the shapes and the times.

        Raises:
            BlockPilotError: If they do not fit, or a time is negative or not finite.
        """
        if self.arms.ndim != 2 or self.policy_seconds.shape != self.arms.shape[:1]:
            raise BlockPilotError(
                f"choices of shape {self.arms.shape} and policy times of shape "
                f"{self.policy_seconds.shape} must be [seeds, n] and [seeds]"
            )
        if not (np.isfinite(self.policy_seconds) & (self.policy_seconds >= 0)).all():
            raise BlockPilotError(f"policy times must be seconds, got {self.policy_seconds}")

    @classmethod
    def free(cls, arms: np.ndarray) -> Choices:
        """Choices that cost no time, `[seeds, n]`: of a fixed size, the oracle, or chance."""
        return cls(arms, np.zeros(len(arms)))

    def shares(self, num_arms: int) -> np.ndarray:
        """Share of the seeds that chose each arm on each row, `[n, num_arms]`."""
        return np.asarray((self.arms[:, :, None] == np.arange(num_arms)).mean(axis=0))

    def check(self, name: str, table: SweepTable) -> None:
        """Refuse choices that were not made on these rows and arms.

        Raises:
            BlockPilotError: If their number differs, or an index is no arm.
        """
        if self.arms.shape[1] != len(table):
            raise BlockPilotError(
                f"agent {name!r} made {self.arms.shape[1]} choices for {len(table)} test rows"
            )
        if not ((self.arms >= 0) & (self.arms < len(table.arms))).all():
            raise BlockPilotError(
                f"agent {name!r} chose an arm that is none of the {len(table.arms)}"
            )


def time_decisions(policy: BlockSizePolicy, table: SweepTable) -> float:
    """Time how long the policy takes to choose a block size for one request on this machine's CPU.

    Args:
        policy: The policy as deployed.
        table: Sweep whose states it is shown, one at a time.

    Returns:
        Median seconds of a decision, warmed up.

    Raises:
        BlockPilotError: If the sweep lacks a state group that the policy reads.
    """
    columns = table.metadata.state.columns(policy.state_groups)
    states = torch.from_numpy(table.states[:_DECISIONS, columns])
    for state in states:
        policy.select(state)
    seconds = []
    for state in states:
        start = time.perf_counter()
        policy.select(state)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))
