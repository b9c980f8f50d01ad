"""Choices of an agent on the test rows, and the time of its decisions."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch

from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.state import compute_state
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.devices import one_thread
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep

_DECISIONS = 50


@dataclass(frozen=True, eq=False)
class Choices:
    """Choices of one learned agent, trained with several seeds.

    Attributes:
        arms: Arm indices on the test rows, `[seeds, n]`.
        policy_seconds: Seconds of the decision on each row, `[seeds, n]`, or `[seeds]` if they
            are the same on every row. A request takes one decision, so they are added to its decode
            time.
        validation: Arm indices on the validation rows, `[seeds, m]`, for the guard against
            leakage; None if there are no such rows.
    """

    arms: np.ndarray
    policy_seconds: np.ndarray
    validation: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Check shapes and times, and expand the times to every row.

        Raises:
            BlockPilotError: If shapes do not match, or a time is negative or not finite.
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
        """Make choices that take no time, such as those of a fixed size, `[seeds, n]`."""
        return cls(arms, np.zeros(len(arms)))

    def select(self, rows: np.ndarray) -> Choices:
        """Keep the choices on some test rows, by their numbers or a boolean mask `[n]`."""
        return Choices(self.arms[:, rows], self.policy_seconds[:, rows])

    def shares(self, num_arms: int) -> np.ndarray:
        """Return the share of the seeds that chose each arm on each row, `[n, num_arms]`."""
        return np.asarray((self.arms[:, :, None] == np.arange(num_arms)).mean(axis=0))

    def check(self, name: str, table: Sweep) -> None:
        """Check that choices fit the rows and arms of a sweep.

        Raises:
            BlockPilotError: If their number differs from that of the rows, or an index is not an
                arm.
        """
        if self.arms.shape[1] != len(table):
            raise BlockPilotError(
                f"agent {name!r} made {self.arms.shape[1]} choices for {len(table)} test rows"
            )
        if not ((self.arms >= 0) & (self.arms < len(table.arms))).all():
            raise BlockPilotError(
                f"agent {name!r} chose an arm outside the {len(table.arms)} of the sweep"
            )


def decision_seconds(policy: BlockSizePolicy, table: Sweep, arms: np.ndarray) -> np.ndarray:
    """Compute the time of a policy's decisions, including passes that only its state needs.

    Args:
        policy: The policy as deployed.
        table: Sweep with the states that it decides on.
        arms: Arm indices that it chooses, `[n]`.

    Returns:
        Seconds of the decision on each row, `[n]`.

    Raises:
        BlockPilotError: If the sweep lacks a state group that the policy reads, or a latency
            profile that prices the group `draft`.
    """
    seconds = np.full(len(table), time_decisions(policy, table))
    return seconds + draft_seconds(table, arms) if "draft" in policy.state_groups else seconds


def draft_seconds(table: Sweep, arms: np.ndarray) -> np.ndarray:
    """Compute the time of the state group `draft` from the sweep's latency profile.

    Before the choice, the drafter reads the prompt and drafts a block of its own size. After the
    choice, it drafts again. It keeps what it read, so reading costs extra only if plain decoding is
    chosen, which does not need it.

    Args:
        table: The sweep.
        arms: Chosen arm indices, `[n]`.

    Returns:
        Seconds that the group adds to each row, `[n]`.

    Raises:
        BlockPilotError: If the sweep has no latency profile, or none of the drafter's block size.
    """
    metadata = table.metadata
    if not metadata.latency:
        raise BlockPilotError(
            "the sweep has no latency profile to price the state group 'draft'; "
            "leave the group out, or re-price the sweep with `blockpilot calibrate --sweep`"
        )
    profile = LatencyProfile.from_dict(metadata.latency)
    contexts = table.rows["prompt_tokens"].to_numpy()
    lines = np.stack([*profile.draft_lines((metadata.default_block_size,)), profile.read_prompt])
    drafting, reading = lines[:, :1] + lines[:, 1:] * contexts
    plain = np.asarray(table.arms)[arms] == 1
    return np.asarray(drafting + plain * reading)


def time_decisions(policy: BlockSizePolicy, table: Sweep) -> float:
    """Measure the time of one decision on this machine's CPU.

    A decision computes the state of a prefilled prompt and chooses by it, as in the decoder. It
    runs on one thread, which is as fast and much less noisy on a busy machine. The vocabulary is as
    large as the largest token id of the sweep's answers implies. `draft_seconds` adds the passes of
    the group `draft`.

    Args:
        policy: The policy as deployed.
        table: Sweep with the states that it decides on, one at a time.

    Returns:
        Median seconds of a decision, after a warm-up.

    Raises:
        BlockPilotError: If the sweep lacks a state group that the policy reads.
    """
    table = table.with_groups(policy.state_groups)
    columns = table.metadata.state.columns(policy.state_groups)
    states = torch.from_numpy(table.states[:_DECISIONS, columns])
    groups = [name for name in policy.state_groups if name != "draft"]
    hidden, features = (
        torch.zeros(dict(table.metadata.state.groups).get(name, 1))
        for name in ("last_hidden", "features")
    )
    vocabulary = 1 + max(int(tokens.max()) for tokens in table.output_tokens)
    logits = torch.randn(vocabulary, generator=torch.Generator().manual_seed(0))

    def decide(state: torch.Tensor) -> None:
        if groups:
            compute_state(
                groups, hidden, logits, 100, first_draft=lambda: logits, features=features
            )
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
