"""Confidence intervals for paired gains, with prompts as the unit of resampling."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import bootstrap

RESAMPLES = 9999
_BATCH_NUMBERS = 4_000_000


class Interval(NamedTuple):
    """A value with its confidence interval; the bounds are NaN where none can be had."""

    value: float
    low: float
    high: float


def relative_gain(
    numerator: np.ndarray,
    denominator: np.ndarray,
    clusters: np.ndarray,
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Estimate `sum(numerator) / sum(denominator) - 1` with a paired percentile bootstrap.

    The gain in mean speedup has the policy's speedups over those of the fixed size; the gain in
    total time has the seconds of the fixed size over those of the policy. Whole prompts are
    resampled, each with both of its numbers, so that the difficulty of a prompt cancels out and
    rows of one prompt are never taken for independent ones.

    Args:
        numerator: One positive number per row, `[n]`; several seeds are averaged beforehand.
        denominator: The same for what it is compared with, `[n]`.
        clusters: Identity of each row's prompt, `[n]`; equal ones form one cluster.
        confidence: Level of the two-sided interval.
        seed: Seed of the resampling; equal seeds resample equal prompts.

    Returns:
        The gain, as a fraction. With a single prompt the bounds are NaN.
    """
    _, cluster = np.unique(clusters, return_inverse=True)
    above = np.bincount(cluster, weights=numerator)
    below = np.bincount(cluster, weights=denominator)
    value = float(_gain(above, below))
    prompts = len(above)
    if prompts < 2:
        return Interval(value, np.nan, np.nan)
    # The percentile method, unlike BCa, holds when policy and fixed size choose alike everywhere.
    interval = bootstrap(
        (above, below),
        _gain,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, _BATCH_NUMBERS // prompts),
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(value, float(interval.low), float(interval.high))


def _gain(numerator: np.ndarray, denominator: np.ndarray, axis: int = -1) -> Any:
    return numerator.sum(axis=axis) / denominator.sum(axis=axis) - 1
