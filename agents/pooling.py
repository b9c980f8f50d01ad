"""Speedups with less noise: the acceptance of all arms of an answer is pooled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blockpilot_rl.sweeps.table import Sweep


def pooled_speedups(table: Sweep) -> np.ndarray:
    """Speedups over plain decoding, with acceptance lengths pooled over the arms of a row.

    An arm takes few passes over a short answer, so its speedup depends much on where its blocks
    happen to fall. How far drafts are correct hardly depends on the arm. The seconds per pass of
    each arm of a row stay as recorded.

    Returns:
        `[n, arms]`.
    """
    tokens = np.array([pooled_acceptance(row, table.arms) for row in table.accepted])
    cost = table.seconds / table.passes
    speedups: np.ndarray = cost[:, :1] / cost * tokens
    return speedups


def pooled_acceptance(row: Sequence[np.ndarray], arms: Sequence[int]) -> np.ndarray:
    """Acceptance length of every arm by one survival curve of drafts.

    In a pass that emits more than k tokens, the first k drafts were correct. The share of such
    passes, among those of all arms with blocks longer than k, is the curve. Its sum up to a block
    size is the expected number of tokens of a pass.

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
