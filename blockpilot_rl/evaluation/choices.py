"""What an agent hands in to be compared: its choices on the test prompts and their price."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch

from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.state import compute_state
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep
from blockpilot_rl.threads import one_thread

_DECISIONS = 50
_VOCABULARY = 151_936
"""Of Qwen3. A sweep does not tell its target's; with fewer tokens a state takes less time."""


@dataclass(frozen=True, eq=False)
class Choices:
    """Choices of one learned agent, trained with several seeds.

    Attributes:
        arms: Arm indices on the test rows, `[seeds, n]`.
        policy_seconds: Time of the decision on each row, `[seeds, n]`; given as `[seeds]` it is
            the same on every row. A request makes one decision, so this is added to its decode
            time.
        validation: Arm indices on the validation rows, `[seeds, m]`, for the guard against
            leakage; None if there are no such rows.
    """

    arms: np.ndarray
    policy_seconds: np.ndarray
    validation: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Check the shapes and the times, and give every row its time.

        Raises:
            BlockPilotError: If they do not fit, or a time is negative or not finite.
        """
        shape = self.policy_seconds.shape
        if self.arms.ndim != 2 or shape not in (self.arms.shape, self.arms.shape[:1]):
            raise BlockPilotError(
                f"choices of shape {self.arms.shape} and policy times of shape {shape} must be "
                "[seeds, n] and [seeds, n] or [seeds]"
            )
        if not (np.isfinite(self.policy_seconds) & (self.policy_seconds >= 0)).all():
            raise BlockPilotError(f"policy times must be seconds, got {self.policy_seconds}")
        if len(shape) == 1:
            each_row = np.broadcast_to(self.policy_seconds[:, None], self.arms.shape)
            object.__setattr__(self, "policy_seconds", each_row)

    @classmethod
    def free(cls, arms: np.ndarray) -> Choices:
        """Choices that cost no time, `[seeds, n]`: of a fixed size, the oracle, or chance."""
        return cls(arms, np.zeros(len(arms)))

    def shares(self, num_arms: int) -> np.ndarray:
        """Share of the seeds that chose each arm on each row, `[n, num_arms]`."""
        return np.asarray((self.arms[:, :, None] == np.arange(num_arms)).mean(axis=0))

    def check(self, name: str, table: Sweep) -> None:
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


def decision_seconds(policy: BlockSizePolicy, table: Sweep, arms: np.ndarray) -> np.ndarray:
    """Price a policy's decisions: its own time, and the passes that only its state needs.

    Args:
        policy: The policy as deployed.
        table: Sweep whose states it was shown.
        arms: Arm indices that it chose, `[n]`.

    Returns:
        Seconds of the decision on each row, `[n]`.

    Raises:
        BlockPilotError: If the sweep lacks a state group that the policy reads, or a latency
            profile to price the group `draft` by.
    """
    seconds = np.full(len(table), time_decisions(policy, table))
    return seconds + draft_seconds(table, arms) if "draft" in policy.state_groups else seconds


def draft_seconds(table: Sweep, arms: np.ndarray) -> np.ndarray:
    """Price the state group `draft` by the sweep's latency profile.

    Before anything is chosen, the drafter reads the prompt and drafts a block of its own size. The
    block is drafted anew once a size is chosen. What was read is kept, so reading costs extra only
    where plain decoding is chosen, which would have left it out.

    Args:
        table: The sweep.
        arms: Arm indices that were chosen, `[n]`.

    Returns:
        Seconds that the group adds to each row, `[n]`.

    Raises:
        BlockPilotError: If the sweep has no latency profile, or none of the drafter's block size.
    """
    metadata = table.metadata
    if not metadata.latency:
        raise BlockPilotError(
            "the sweep has no latency profile to price the state group 'draft' by; leave the group "
            "out, or re-price the sweep with scripts/calibrate.py --sweep"
        )
    profile = LatencyProfile.from_dict(metadata.latency)
    contexts = table.rows["prompt_tokens"].to_numpy()
    lines = np.stack([*profile.draft_lines((metadata.default_block_size,)), profile.read_prompt])
    drafting, reading = lines[:, :1] + lines[:, 1:] * contexts
    plain = np.asarray(table.arms)[arms] == 1
    return np.asarray(drafting + plain * reading)


def time_decisions(policy: BlockSizePolicy, table: Sweep) -> float:
    """Time how long the policy takes to choose a block size for one request on this machine's CPU.

    As in the decoder, that is to compute the state of a prefilled prompt and to choose by it; on
    one thread, which is as fast, and on a busy machine by far the steadier. The passes for the
    group `draft` are priced apart.

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
    groups = [name for name in policy.state_groups if name != "draft"]
    hidden = torch.zeros(dict(table.metadata.state.groups).get("last_hidden", 1))
    logits = torch.randn(_VOCABULARY, generator=torch.Generator().manual_seed(0))

    def decide(state: torch.Tensor) -> None:
        if groups:
            compute_state(groups, hidden, logits, 100, first_draft=lambda: logits)
        policy.select(state)

    seconds = []
    with one_thread():
        for state in states:
            decide(state)
        for state in states:
            start = time.perf_counter()
            decide(state)
            seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))
