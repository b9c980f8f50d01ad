"""Speedups with less luck in them: what all arms of an answer tell about its acceptance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blockpilot_rl.sweeps.table import Sweep


def pooled_speedups(table: Sweep) -> np.ndarray:
    """Speedups over plain decoding, with acceptance lengths that all arms of a row agree on.

    An arm takes few passes over a short answer, and where its blocks happen to fall decides much of
    what it gains. But how far drafts are right hardly depends on the arm. A pass keeps what its
    row's passes of this arm take on average.

    Returns:
        `[n, arms]`.
    """
    tokens = np.array([pooled_acceptance(row, table.arms) for row in table.accepted])
    cost = table.seconds / table.passes
    speedups: np.ndarray = cost[:, :1] / cost * tokens
    return speedups


def pooled_acceptance(row: Sequence[np.ndarray], arms: Sequence[int]) -> np.ndarray:
    """Acceptance length of every arm by one survival curve of drafts.

    A pass that emits more than k tokens had its first k drafts right. The share of such passes,
    among those of all arms with blocks longer than k, is the curve; its sum up to a block size is
    the expected number of tokens of a pass.

    Args:
        row: Tokens emitted by each pass of each arm.
        arms: Their block sizes.

    Returns:
        `[arms]`.
    """
    right, tried = np.zeros((2, max(arms)))
    for size, emitted in zip(arms, row, strict=True):
        right[:size] += (emitted[:, None] > np.arange(size)).sum(axis=0)
        tried[:size] += len(emitted)
    lengths: np.ndarray = np.cumsum(right / tried)[np.asarray(arms) - 1]
    return lengths
