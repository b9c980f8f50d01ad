"""Bootstrap intervals of ratios, with prompts as the resampled unit."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.stats import bootstrap

RESAMPLES = 9999
_BLOCKS = 10


class Interval(NamedTuple):
    """A value with its confidence interval. The bounds are NaN if there is no interval."""

    value: float
    low: float
    high: float


def ratio_of_sums(
    numerator: np.ndarray,
    denominator: np.ndarray,
    clusters: np.ndarray,
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Estimate `sum(numerator) / sum(denominator)` with a paired percentile bootstrap.

    Whole prompts are resampled, each with both of its numbers. The difficulty of a prompt cancels
    out, and rows of one prompt (several seeds or temperatures) do not count as independent. The
    result equals `scipy.stats.bootstrap(…, paired=True, method="percentile")`, but the resamples
    are drawn once for all ratios of the same number of prompts, of which a comparison has hundreds.

    Args:
        numerator: One number per row, `[n]`.
        denominator: The numbers to compare with, `[n]`.
        clusters: Prompt of each row, `[n]`.
        confidence: Level of the two-sided interval.
        seed: Seed of the resampling. Equal seeds resample equal prompts.

    Returns:
        The ratio; NaN if the denominator sums to 0. The bounds are NaN with a single prompt, and if
        the denominator of a resample sums to 0.
    """
    (interval,) = ratios_of_sums(
        numerator[:, None], denominator[:, None], clusters, confidence=confidence, seed=seed
    )
    return interval


def ratios_of_sums(
    numerators: np.ndarray,
    denominators: np.ndarray,
    clusters: np.ndarray,
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[Interval]:
    """Estimate several ratios of the same rows like `ratio_of_sums`, at little extra cost.

    Args:
        numerators: One number per row and ratio, `[n, ratios]`.
        denominators: The numbers to compare with, `[n, ratios]`.
        clusters: Prompt of each row, `[n]`.
        confidence: Level of the two-sided intervals.
        seed: Seed of the resampling.
    """
    ids, cluster = np.unique(clusters, return_inverse=True)
    both = np.concatenate([numerators, denominators], axis=1, dtype=np.float64)
    sums = np.zeros((len(ids), both.shape[1]))
    np.add.at(sums, cluster, both)
    values = _ratio(sums.sum(axis=0))
    if len(sums) < 2:
        return [Interval(float(value), np.nan, np.nan) for value in values]
    # Unlike BCa, the percentile method works if policy and fixed size always choose the same.
    blocks = np.array_split(_draws(len(sums), seed), _BLOCKS)
    ratios = _ratio(np.concatenate([block.astype(np.float64) @ sums for block in blocks]))
    tail = (1 - confidence) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail], axis=0)
    return [Interval(*map(float, bounds)) for bounds in zip(values, low, high, strict=True)]


def relative_gain(
    numerator: np.ndarray,
    denominator: np.ndarray,
    clusters: np.ndarray,
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Estimate `sum(numerator) / sum(denominator) - 1` like `ratio_of_sums`.

    For the gain in mean speedup, divide the speedups of the policy by those of the fixed size; for
    the gain in total time, the seconds of the fixed size by those of the policy.

    Args:
        numerator: One positive number per row, `[n]`, averaged over seeds.
        denominator: The numbers to compare with, `[n]`.
        clusters: Prompt of each row, `[n]`.
        confidence: Level of the two-sided interval.
        seed: Seed of the resampling.

    Returns:
        The gain, as a fraction.
    """
    ratio = ratio_of_sums(numerator, denominator, clusters, confidence=confidence, seed=seed)
    return Interval(*(bound - 1 for bound in ratio))


def median_ratio(above: np.ndarray, below: np.ndarray) -> Interval:
    """Estimate the median ratio of paired measurements with a 95% bootstrap interval.

    Args:
        above: One positive number per measurement, `[n]`.
        below: The numbers to divide by, `[n]`.
    """
    ratios = above / below
    interval = bootstrap(
        (ratios,), np.median, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    return Interval(float(np.median(ratios)), float(interval.low), float(interval.high))


@lru_cache(maxsize=32)
def _draws(prompts: int, seed: int) -> np.ndarray:
    """Draw how often each prompt is in each resample, `[RESAMPLES, prompts]`."""
    rng = np.random.default_rng(seed)
    counts = np.empty((RESAMPLES, prompts), dtype=np.uint8)
    for block in np.array_split(counts, _BLOCKS):
        places = rng.integers(prompts, size=block.shape) + prompts * np.arange(len(block))[:, None]
        block[:] = np.bincount(places.ravel(), minlength=block.size).reshape(block.shape)
    return counts


def _ratio(sums: np.ndarray) -> np.ndarray:
    """Divide the first half of the columns by the second half; NaN where that is 0."""
    above, below = np.split(sums, 2, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below == 0, np.nan, above / below)
