"""Families estimated together: known cases, planted families, and the shapes of the result."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from blockpilot_rl.evaluation.measure import Requests
from blockpilot_rl.evaluation.pooling import (
    PooledFamilies,
    pool_families,
    posterior,
    spread_posterior,
)

MARGIN = 0.01


def planted(
    effects: np.ndarray, rng: np.random.Generator, prompts: tuple[int, int] = (30, 100)
) -> PooledFamilies:
    """Pool families whose true gains are planted; a prompt's gain varies by 7 points."""
    counts = rng.integers(*prompts, size=len(effects))
    family = np.repeat(np.arange(len(effects)), counts)
    size = len(family)
    fixed = rng.uniform(1, 2.5, size=size)
    speedups = fixed * np.maximum(1 + effects[family] + rng.normal(0, 0.07, size=size), 0.3)
    requests = Requests(
        plain=np.ones(size),
        fixed=1 / fixed,
        fixed_total=1 / fixed,
        oracle=1 / np.maximum(fixed, speedups),
        ids=np.arange(size).astype(str),
        groups={"family": np.array([f"family {number:02}" for number in family])},
    )
    return pool_families(requests, 1 / speedups, margin=MARGIN)


def judged(effects: list[float] | np.ndarray, repeats: int = 60) -> list[PooledFamilies]:
    rng = np.random.default_rng(1)
    return [planted(np.asarray(effects), rng) for _ in range(repeats)]


def test_families_that_all_gain_are_hardly_ever_refused() -> None:
    found = judged(np.linspace(0.005, 0.03, 19))
    raw = [min(family.gain for family in each.families.values()) for each in found]
    assert np.mean([gain < -MARGIN for gain in raw]) > 0.2
    assert np.mean([bool(each.losing) for each in found]) <= 0.05


@pytest.mark.parametrize(("loss", "least"), [(0.05, 0.95), (0.10, 0.98)])
def test_one_bad_family_among_good_ones_is_found(loss: float, least: float) -> None:
    effects = np.linspace(0.005, 0.03, 19)
    effects[7] = -loss
    found = judged(effects)
    assert np.mean(["family 07" in each.losing for each in found]) >= least
    assert np.mean([each.worst == "family 07" for each in found]) >= least


def test_families_that_all_lose_less_than_the_margin_have_a_mean_below_zero() -> None:
    found = judged(np.full(19, -0.005))
    means = [each.mean for each in found]
    assert np.mean([mean.value for mean in means]) == pytest.approx(-0.005, abs=0.001)
    assert np.mean([mean.low < -0.005 < mean.high for mean in means]) > 0.9
    # Each is drawn to the mean, so the worst estimate is near the truth.
    worst = [min(f.pooled.value for f in each.families.values()) for each in found]
    raw = [min(f.gain for f in each.families.values()) for each in found]
    assert np.mean(worst) > -0.012 > np.mean(raw) + 0.005


def test_families_that_all_lose_more_than_the_margin_are_found() -> None:
    assert all(each.losing for each in judged(np.full(19, -0.03), repeats=20))


def test_intervals_contain_the_planted_gains() -> None:
    rng = np.random.default_rng(3)
    inside = []
    for _ in range(40):
        effects = rng.normal(0.01, 0.015, size=20)
        found = planted(effects, rng)
        inside += [
            family.pooled.low < effect < family.pooled.high
            for effect, family in zip(effects, found.families.values(), strict=True)
        ]
    assert 0.92 < np.mean(inside) < 0.98


def test_equal_errors_follow_the_formula_at_each_spread() -> None:
    gains, errors = np.array([0.01, 0.03, -0.02, 0.04]), np.full(4, 0.02)
    spreads, weights, mean = spread_posterior(gains, errors)
    total = errors[0] ** 2 + spreads**2
    expected = norm.logpdf(gains[:, None], gains.mean(), np.sqrt(total)).sum(axis=0) + 0.5 * np.log(
        total / 4
    )
    expected = np.exp(expected - expected.max())
    assert weights == pytest.approx(expected / expected.sum())
    assert mean.mean[0] == pytest.approx(gains.mean())
    shrinkage = weights @ (errors[0] ** 2 / total)
    pooled = posterior(gains, errors).mean
    assert pooled == pytest.approx(gains.mean() * shrinkage + gains * (1 - shrinkage))


def test_probabilities_and_quantiles_agree() -> None:
    pooled = posterior(np.array([0.01, 0.05, -0.03]), np.array([0.01, 0.02, 0.015]))
    for probability in (0.025, 0.2, 0.5, 0.9):
        assert pooled.below(pooled.quantile(probability)) == pytest.approx(probability)


@pytest.mark.parametrize("families", [1, 2, 3])
def test_few_families_stay_near_their_own_gains(families: int) -> None:
    found = planted(np.linspace(0.02, 0.1, families), np.random.default_rng(0))
    for family in found.families.values():
        assert abs(family.pooled.value - family.gain) < 1.2 * family.standard_error
    assert (found.spread == 0) == (families == 1)


def test_a_choice_that_equals_the_fixed_size_loses_nowhere() -> None:
    one = np.ones(12)
    groups = {"family": np.repeat(["a", "b", "c", "d"], 3)}
    requests = Requests(one, one, one, one, np.arange(12).astype(str), groups)
    found = pool_families(requests, one, margin=MARGIN)
    assert not found.losing
    assert all(abs(family.pooled.value) < 1e-6 for family in found.families.values())


def test_a_family_of_one_prompt_gets_the_variance_of_the_others() -> None:
    rng = np.random.default_rng(0)
    seconds = rng.uniform(0.9, 1.1, size=41)
    family = np.array(["large"] * 40 + ["single"])
    one = np.ones(41)
    requests = Requests(one, one, one, one, np.arange(41).astype(str), {"family": family})
    found = pool_families(requests, seconds, margin=MARGIN).families
    assert found["single"].prompts == 1
    ratio = found["single"].standard_error / found["large"].standard_error
    assert ratio == pytest.approx(np.sqrt(40), rel=0.2)
    assert 0 < found["single"].loss_probability < 1
