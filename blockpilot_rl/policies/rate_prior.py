"""The acceptance rate that a prefill state lets expect, before anything is drafted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_LEAST, _MOST = 0.01, 0.99
"""Rates beyond these come from states unlike those of the training."""


@dataclass(frozen=True, eq=False)
class RatePrior:
    """A ridge regression from the prefill state to the log odds of acceptance.

    Attributes:
        mean: Mean of the states, `[width]`.
        scale: Their standard deviation, positive, `[width]`.
        weights: Weights of the standardised state, `[width]`.
        log_odds: Log odds of acceptance of the average state.
    """

    mean: np.ndarray
    scale: np.ndarray
    weights: np.ndarray
    log_odds: float

    @classmethod
    def constant(cls, rate: float) -> RatePrior:
        """Make a prior that expects the same rate of every request and reads no state."""
        rate = float(np.clip(rate, _LEAST, _MOST))
        none = np.zeros(0)
        return cls(none, np.ones(0), none, float(np.log(rate / (1 - rate))))

    @classmethod
    def fit(
        cls,
        states: np.ndarray,
        accepted: np.ndarray,
        rejected: np.ndarray,
        penalty: float = 1000.0,
    ) -> RatePrior:
        """Fit the prior to the drafts of training requests.

        Requests count in proportion to their judged drafts.

        Args:
            states: Prefill states, `[n, width]`.
            accepted: Accepted drafts of each request, `[n]`.
            rejected: Rejected drafts that were judged, at most one a block, `[n]`.
            penalty: Ridge penalty on the weights of the standardised state.
        """
        judged = accepted + rejected
        weights = judged / max(float(judged.mean()), 1e-12)
        target = np.log((accepted + 0.5) / (rejected + 0.5))
        mean, scale = states.mean(axis=0), states.std(axis=0)
        scale = np.where(scale > 1e-8, scale, 1.0)
        centre = float(np.average(target, weights=weights))
        standard = (states - mean) / scale
        gram = standard.T @ (weights[:, None] * standard)
        gram[np.diag_indices(len(gram))] += penalty
        slopes = np.linalg.solve(gram, standard.T @ (weights * (target - centre)))
        return cls(mean, scale, slopes, centre)

    def rates(self, states: np.ndarray) -> np.ndarray:
        """Expected acceptance rates, `[n]`.

        A state that is not finite gets the rate of the average state.

        Args:
            states: `[n, width]`; anything with `n` rows for a constant prior.
        """
        if len(self.weights) == 0:
            log_odds = np.full(len(states), self.log_odds)
        else:
            with np.errstate(invalid="ignore", over="ignore"):
                moved = ((states - self.mean) / self.scale) @ self.weights
            log_odds = self.log_odds + np.where(np.isfinite(moved), moved, 0.0)
        rates = 1 / (1 + np.exp(-np.clip(log_odds, -30, 30)))
        return np.asarray(np.clip(rates, _LEAST, _MOST))
