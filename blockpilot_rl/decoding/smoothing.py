"""Smooth measured step times, so that noise does not decide the best block size.

Medians are smoothed in two ways, each as far as the measurement supports it:

- Along the context, times follow a line whose slope is linear in the block size and never negative:
  a pass reads the whole cache once, and each of its tokens attends to all of it. A common slope is
  far less noisy than one per block size.
- Along the block size, a straight line would be wrong: kernels change with the shape, so that on
  CPUs in float32 blocks of 2 or 3 can cost more than blocks of 5, and on GPUs the cost rises in
  tiles. A free level for each size would be wrong too: a millisecond of noise would then decide the
  best size. So the deviation of each size from the line is multiplied by the share of the total
  variance of the deviations that noise does not explain (Efron and Morris 1975, positive-part
  shrinkage). The noise is estimated by resampling whole rounds, which leaves out what all sizes
  have in common. Deviations as small as the noise vanish, and larger ones stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import nnls
from scipy.stats import bootstrap

_CONFIDENCE = 0.95
_RESAMPLES = 999


def smooth_lines(
    block_sizes: Sequence[int], contexts: Sequence[int], samples: np.ndarray
) -> np.ndarray:
    """Fit a line in the context length to every block size, as this module describes.

    Args:
        block_sizes: The sizes.
        contexts: The context lengths.
        samples: Measured seconds, `[contexts, sizes, rounds]`.

    Returns:
        `[sizes, 2]`: seconds at context 0 and per context token, none of them negative.
    """
    sizes, lengths = np.asarray(block_sizes, dtype=float), np.asarray(contexts, dtype=float)
    medians = np.median(samples, axis=2)
    levels, middle = medians.mean(axis=0), lengths.mean()
    centred = np.repeat(lengths - middle, len(sizes))
    design = np.stack([centred, centred * np.tile(sizes, len(lengths))], axis=1)
    common, per_token = nnls(design, (medians - levels).ravel())[0]
    resampled = _resample(samples)
    if resampled is not None:
        levels = _shrink(sizes, levels, resampled.mean(axis=0))
    # A slope too steep for a level would make the line negative at context 0.
    slopes = np.minimum(common + per_token * sizes, levels / middle)
    # Rounding can still give -1e-19.
    return np.stack([np.maximum(levels - slopes * middle, 0.0), slopes], axis=1)


def fit_line(places: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Fit a straight line by least squares, with neither part negative.

    Args:
        places: Positions of the measurements, `[n]`.
        levels: Measured values, `[n]`.

    Returns:
        Level at 0 and slope, `[2]`.
    """
    design = np.stack([np.ones_like(places), places], axis=1)
    return np.asarray(nnls(design, levels)[0])


def _shrink(sizes: np.ndarray, levels: np.ndarray, resampled: np.ndarray) -> np.ndarray:
    """Shrink the levels towards their straight line as far as noise explains their deviations.

    Args:
        sizes: Block sizes, `[n]`.
        levels: Measured level of each, `[n]`.
        resampled: The levels of resampled rounds, `[n, resamples]`.
    """
    design = np.stack([np.ones_like(sizes), sizes], axis=1)
    # Neither part is negative, so values between the line and the measurement are not either.
    line = design @ fit_line(sizes, levels)
    deviations = levels - line
    leftover = resampled - design @ (np.linalg.pinv(design) @ resampled)
    noise, total = leftover.var(axis=1).sum(), float(deviations @ deviations)
    kept = max(0.0, 1 - noise / total) if total > 0 else 0.0
    return np.asarray(line + kept * deviations)


def _resample(samples: np.ndarray) -> np.ndarray | None:
    """Medians of resampled rounds, `[contexts, sizes, resamples]`; None for a single round.

    A resample uses the same rounds for every cell.
    """
    if samples.shape[-1] < 2:
        return None
    result = bootstrap(
        (samples,),
        np.median,
        axis=-1,
        n_resamples=_RESAMPLES,
        confidence_level=_CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return np.asarray(result.bootstrap_distribution)


def medians_with_intervals(name: str, samples: np.ndarray) -> dict[str, Any]:
    """Compute the medians of a measurement and their intervals.

    Args:
        name: Name of the measurement.
        samples: Measured seconds, `[contexts, sizes, rounds]`.

    Returns:
        `name`: medians over the rounds, `[contexts, sizes]`; after two rounds or more also
        `name_intervals`: their 95% percentile bootstrap intervals, `[contexts, sizes, 2]`.
    """
    described = {name: np.median(samples, axis=2).tolist()}
    resampled = _resample(samples)
    if resampled is not None:
        tail = (1 - _CONFIDENCE) / 2
        bounds = np.quantile(resampled, [tail, 1 - tail], axis=-1)
        described[f"{name}_intervals"] = np.moveaxis(bounds, 0, -1).tolist()
    return described
