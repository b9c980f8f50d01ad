from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap

from blockpilot_rl.evaluation.statistics import RESAMPLES, ratio_of_sums, relative_gain


def paired_rows(n: int, seed: int, gain: float = 0.03) -> tuple[np.ndarray, np.ndarray]:
    """Speedups that vary much between prompts, and a noisy gain on each of them."""
    rng = np.random.default_rng(seed)
    fixed = rng.uniform(1, 4, size=n)
    return fixed * (1 + gain + 0.05 * rng.normal(size=n)), fixed


def test_a_constant_ratio_has_no_uncertainty():
    fixed = np.random.default_rng(0).uniform(1, 4, size=50)
    gain = relative_gain(1.03 * fixed, fixed, np.arange(50))
    assert gain == pytest.approx((0.03, 0.03, 0.03))


def test_equal_rows_gain_exactly_nothing():
    fixed = np.random.default_rng(0).uniform(1, 4, size=50)
    assert relative_gain(fixed, fixed, np.arange(50)) == (0, 0, 0)


def test_the_value_is_the_ratio_of_sums():
    gain = relative_gain(np.array([3.0, 1.0]), np.array([1.0, 1.0]), np.arange(2))
    assert gain.value == 1.0
    assert (gain.low, gain.high) == (0.0, 2.0)


def test_pairing_cancels_the_difficulty_of_prompts():
    mine, fixed = paired_rows(200, seed=1)
    paired = relative_gain(mine, fixed, np.arange(200))
    mismatched = relative_gain(np.roll(mine, 1), fixed, np.arange(200))
    assert paired.low > 0
    assert paired.high - paired.low < (mismatched.high - mismatched.low) / 4


def test_the_interval_covers_the_truth_as_often_as_it_says():
    covered = 0
    for trial in range(150):
        mine, fixed = paired_rows(40, seed=100 + trial)
        _, low, high = relative_gain(mine, fixed, np.arange(40), confidence=0.8)
        covered += low <= 0.03 <= high
    assert 0.7 <= covered / 150 <= 0.9


def test_a_repeated_prompt_is_one_cluster_and_adds_no_certainty():
    mine, fixed = paired_rows(60, seed=2)
    ids = np.array([f"prompt-{i}" for i in range(60)], dtype=object)
    once = relative_gain(mine, fixed, ids)
    repeated = relative_gain(np.tile(mine, 9), np.tile(fixed, 9), np.tile(ids, 9))
    taken_apart = relative_gain(np.tile(mine, 9), np.tile(fixed, 9), np.arange(9 * 60))
    assert repeated == pytest.approx(once)
    assert taken_apart.high - taken_apart.low < (once.high - once.low) / 2


def test_a_higher_confidence_widens_the_interval():
    mine, fixed = paired_rows(60, seed=3)
    narrow = relative_gain(mine, fixed, np.arange(60), confidence=0.8)
    wide = relative_gain(mine, fixed, np.arange(60), confidence=0.99)
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high


def test_the_seed_decides_and_no_global_state_is_touched():
    mine, fixed = paired_rows(60, seed=4)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = relative_gain(mine, fixed, np.arange(60), seed=5)
    assert relative_gain(mine, fixed, np.arange(60), seed=5) == first
    assert relative_gain(mine, fixed, np.arange(60), seed=6) != first
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_equals_scipys_bootstrap():
    mine, fixed = paired_rows(80, seed=5)
    expected = bootstrap(
        (mine, fixed),
        lambda above, below, axis: above.sum(axis=axis) / below.sum(axis=axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=RESAMPLES,
        rng=np.random.default_rng(1),
    ).confidence_interval
    value, low, high = ratio_of_sums(mine, fixed, np.arange(80))
    assert value == pytest.approx(mine.sum() / fixed.sum())
    width = expected.high - expected.low
    assert low == pytest.approx(expected.low, abs=0.05 * width)
    assert high == pytest.approx(expected.high, abs=0.05 * width)


def test_a_zero_denominator_has_no_ratio():
    nothing = ratio_of_sums(np.ones(3), np.zeros(3), np.arange(3))
    assert np.isnan(nothing).all()
    # Some resamples of these have no gap, so their ratio is NaN.
    some = ratio_of_sums(np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.0, 2.0]), np.arange(3))
    assert some.value == 0.5
    assert np.isnan(some.low)


def test_one_prompt_has_a_value_but_no_interval():
    gain = relative_gain(np.array([1.2, 1.1]), np.array([1.0, 1.0]), np.array(["a", "a"]))
    assert gain.value == pytest.approx(0.15)
    assert np.isnan(gain.low)
    assert np.isnan(gain.high)
