"""Gains of families, estimated together.

With many families of few prompts each, the smallest gain is far below zero by noise alone. A
hierarchical normal model separates the noise from the differences between families. With the gain
`g_i` of family `i`, its standard error `s_i`, and the true gain `θ_i`:

    g_i ~ Normal(θ_i, s_i²)        θ_i ~ Normal(μ, τ²)        p(μ, τ) ∝ 1

Given the spread `τ` between families, a family's gain is drawn towards the mean of all, the more so
the noisier it is. With `w_i = 1 / (s_i² + τ²)`:

    μ | τ    ~ Normal(Σ w_i g_i / Σ w_i, 1 / Σ w_i)
    θ_i | τ  ~ Normal(B_i μ_τ + (1 - B_i) g_i, (1 - B_i) s_i² + B_i² / Σ w_i)     B_i = w_i s_i²
    p(τ | g) ∝ (Σ w_i)^(-1/2) Π w_i^(1/2) exp(-w_i (g_i - μ_τ)² / 2)

The posterior of a family is the mixture of the second line over the third, on a grid of `τ`. This
is the model of Rubin (1981) in the form of Gelman et al., Bayesian Data Analysis (3rd edition),
section 5.4. Integrating over `τ` instead of inserting an estimate keeps families apart when the
estimate would be 0.

The standard error of a ratio of means is that of the delta method over prompts. A family of few
prompts can have a far too small one by accident, for example 0 if the policy always took the best
fixed size. So variances are moderated as in Smyth (2004): each is averaged with the mean variance
of all families, which counts like `PRIOR_PROMPTS` prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from blockpilot_rl.evaluation.measure import Requests
from blockpilot_rl.evaluation.statistics import Interval

PRIOR_PROMPTS = 4
"""Weight, in prompts, of the mean variance of all families in that of a family."""

FAMILY_RISK = 0.5
"""A family loses too much if it loses more than the margin with a higher probability than this.

At 0.5, the pooled gain of every family must be within the margin. A lower value refuses more
policies that gain in every family; a higher one misses more families that lose.
"""

_GRID = 400
_BISECTIONS = 60


class FamilyRule(NamedTuple):
    """When a family loses too much for an agent to be shipped.

    Attributes:
        margin: Loss against the best fixed size that is allowed, as a fraction.
        risk: Probability of a larger loss that is allowed.
    """

    margin: float = 0.01
    risk: float = FAMILY_RISK


@dataclass(frozen=True)
class PooledFamily:
    """The gain of one family.

    Attributes:
        prompts: Number of its prompts.
        gain: Its gain in mean speedup over the best fixed size, from its own prompts alone.
        standard_error: Standard error of that gain.
        pooled: Posterior mean and interval of its gain, estimated together with the others.
        loss_probability: Posterior probability that it loses more than the margin.
    """

    prompts: int
    gain: float
    standard_error: float
    pooled: Interval
    loss_probability: float


@dataclass(frozen=True)
class PooledFamilies:
    """The gains of all families, estimated together.

    Attributes:
        mean: Posterior mean and interval of the mean gain of families.
        spread: Posterior mean of the standard deviation between families.
        margin: Loss that a family is compared with, as a fraction.
        risk: Probability of a larger loss above which a family loses too much.
        families: The families, by name.
    """

    mean: Interval
    spread: float
    margin: float
    risk: float
    families: dict[str, PooledFamily]

    @property
    def losing(self) -> list[str]:
        """Families that lose more than the margin with a probability above `risk`."""
        return [name for name, found in self.families.items() if found.loss_probability > self.risk]

    @property
    def worst(self) -> str:
        """The family with the highest probability of a loss beyond the margin."""
        return max(self.families, key=lambda name: self.families[name].loss_probability)


@dataclass(frozen=True, eq=False)
class Posterior:
    """Mixture of normal distributions, one per value of the spread.

    Attributes:
        weights: Posterior probability of each spread, `[grid]`.
        means: Mean of each gain given the spread, `[grid, gains]`.
        deviations: Its standard deviation, `[grid, gains]`.
    """

    weights: np.ndarray
    means: np.ndarray
    deviations: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Posterior means, `[gains]`."""
        return np.asarray(self.weights @ self.means)

    def below(self, value: float | np.ndarray) -> np.ndarray:
        """Probability that each gain is below a value, `[gains]`."""
        return np.asarray(self.weights @ ndtr((value - self.means) / self.deviations))

    def quantile(self, probability: float) -> np.ndarray:
        """Quantile of each gain, `[gains]`, found by bisection."""
        low = (self.means - 9 * self.deviations).min(axis=0)
        high = (self.means + 9 * self.deviations).max(axis=0)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            short = self.below(middle) < probability
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        return np.asarray((low + high) / 2)

    def intervals(self, confidence: float) -> list[Interval]:
        """Mean and central interval of each gain."""
        tail = (1 - confidence) / 2
        columns = (self.mean, self.quantile(tail), self.quantile(1 - tail))
        return [Interval(*map(float, each)) for each in zip(*columns, strict=True)]


def pool_families(
    requests: Requests,
    seconds: np.ndarray,
    *,
    margin: float,
    risk: float = FAMILY_RISK,
    confidence: float = 0.95,
) -> PooledFamilies:
    """Estimate the gains of a choice in all families together.

    Args:
        requests: The requests, with their families.
        seconds: Seconds of each request, decisions included, `[n]` or `[seeds, n]`.
        margin: Loss that families are compared with, as a fraction.
        risk: Probability of a larger loss above which a family loses too much.
        confidence: Level of the posterior intervals.
    """
    names, family = np.unique(requests.groups["family"], return_inverse=True)
    speedups, fixed = requests.speedups(seconds), requests.speedups(requests.fixed)
    found = [
        _gain(speedups[mask], fixed[mask], requests.ids[mask])
        for mask in (family == number for number in range(len(names)))
    ]
    prompts, gains, variances = map(np.array, zip(*found, strict=True))
    errors = _moderated_errors(prompts, variances)
    # A choice that equals the fixed size everywhere has no noise and nothing to pool.
    errors = np.maximum(errors, 1e-9)
    spreads, weights, mean = spread_posterior(gains, errors)
    pooled = posterior(gains, errors)
    losses = pooled.below(-margin)
    return PooledFamilies(
        mean=mean.intervals(confidence)[0],
        spread=float(spreads @ weights),
        margin=margin,
        risk=risk,
        families={
            str(name): PooledFamily(int(count), float(gain), float(error), interval, float(loss))
            for name, count, gain, error, interval, loss in zip(
                names, prompts, gains, errors, pooled.intervals(confidence), losses, strict=True
            )
        },
    )


def posterior(gains: np.ndarray, errors: np.ndarray) -> Posterior:
    """Posterior of the true gains, given gains and their standard errors, `[families]` each."""
    spreads, weights, mean = spread_posterior(gains, errors)
    shrinkage = errors**2 / (errors**2 + spreads[:, None] ** 2)
    means = shrinkage * mean.means + (1 - shrinkage) * gains
    variances = (1 - shrinkage) * errors**2 + (shrinkage * mean.deviations) ** 2
    return Posterior(weights, means, np.sqrt(variances))


def spread_posterior(
    gains: np.ndarray, errors: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Posterior]:
    """Posterior of the spread between families, and of their mean gain.

    Args:
        gains: Gain of each family, `[families]`.
        errors: Their standard errors, positive, `[families]`.

    Returns:
        Spreads on a grid, `[grid]`, their probabilities, `[grid]`, and the posterior of the mean.
        One family alone says nothing about the spread, which is then 0.
    """
    few = len(gains) < 2
    widest = 0.0 if few else 4 * max(float(np.std(gains, ddof=1)), float(np.median(errors)))
    spreads = np.zeros(1) if few else widest * (np.arange(_GRID) + 0.5) / _GRID
    precision = 1 / (errors**2 + spreads[:, None] ** 2)
    total = precision.sum(axis=1)
    mean = (precision * gains).sum(axis=1) / total
    logs = (
        0.5 * np.log(precision).sum(axis=1)
        - 0.5 * np.log(total)
        - 0.5 * (precision * (gains - mean[:, None]) ** 2).sum(axis=1)
    )
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    return spreads, weights, Posterior(weights, mean[:, None], 1 / np.sqrt(total)[:, None])


def _gain(speedups: np.ndarray, fixed: np.ndarray, ids: np.ndarray) -> tuple[int, float, float]:
    """Number of prompts, gain, and variance of the gain of one prompt (NaN for a single prompt)."""
    _, prompt = np.unique(ids, return_inverse=True)
    above, below = np.bincount(prompt, speedups), np.bincount(prompt, fixed)
    ratio = above.sum() / below.sum()
    residuals = (above - ratio * below) / below.mean()
    count = len(above)
    variance = float((residuals**2).sum() / (count - 1)) if count > 1 else float("nan")
    return count, float(ratio - 1), variance


def _moderated_errors(prompts: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Standard errors of the gains, from variances averaged with the mean of all families."""
    freedom = np.where(np.isnan(variances), 0, prompts - 1)
    own = np.nan_to_num(variances)
    common = (freedom * own).sum() / max(1, freedom.sum())
    moderated = (freedom * own + PRIOR_PROMPTS * common) / (freedom + PRIOR_PROMPTS)
    return np.asarray(np.sqrt(moderated / prompts))
