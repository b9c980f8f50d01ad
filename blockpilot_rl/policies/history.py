"""What learned controllers and environments observe before each round."""

from __future__ import annotations

import numpy as np

MEMORIES = (0.7, 0.95)
"""Weights of a round relative to the next one in the acceptance rates that are observed."""

_PRIOR_WEIGHT = 4.0
_LONG_AGO = 32


class History:
    """The rounds of many requests so far, as numbers.

    `names` lists the numbers of `features`.
    """

    def __init__(self, rates: np.ndarray, longest: int) -> None:
        """Start requests.

        Args:
            rates: Acceptance rate that a prior expects of each request, `[rows]`.
            longest: Longest draft length.
        """
        self.longest = longest
        self._prior = np.clip(rates, 0.01, 0.99).astype(np.float64)
        count = len(rates)
        self._accepted = np.zeros((count, len(MEMORIES)))
        self._rejected = np.zeros((count, len(MEMORIES)))
        self._since_full = np.full(count, _LONG_AGO)
        self._lengths = np.zeros((count, 3))
        self._confidences = np.zeros((count, longest - 1))
        self._target = np.zeros((count, 3))
        self._emitted = np.zeros(count)

    @property
    def names(self) -> list[str]:
        """Names of the numbers that are observed, in order."""
        return [
            "log odds of the prior",
            *(f"log odds of recent acceptance, memory {memory:g}" for memory in MEMORIES),
            "rounds since the last full block",
            *(f"{name} in the last round" for name in ("drafted", "verified", "accepted")),
            *(f"confidence of draft {index + 1}" for index in range(self.longest - 1)),
            *("entropy of the target", "top-1 probability", "top-2 margin"),
            *("log of the emitted tokens", "log of the context"),
        ]

    def restart(self, rows: np.ndarray, rates: np.ndarray) -> None:
        """Replace some requests by new ones."""
        self._prior[rows] = np.clip(rates, 0.01, 0.99)
        self._since_full[rows] = _LONG_AGO
        for values in (
            self._accepted,
            self._rejected,
            self._lengths,
            self._confidences,
            self._target,
            self._emitted,
        ):
            values[rows] = 0

    def read_target(self, rows: np.ndarray, next_token: np.ndarray) -> None:
        """Note the target's distributions that the anchors were chosen from, `[n, 3]`."""
        self._target[rows] = next_token

    def read_confidences(self, rows: np.ndarray, confidences: np.ndarray) -> None:
        """Note the drafter's probabilities of the last drafts, `[n, drafts]`."""
        self._confidences[rows] = 0
        self._confidences[rows, : confidences.shape[1]] = confidences

    def observe(
        self, rows: np.ndarray, drafted: np.ndarray, verified: np.ndarray, accepted: np.ndarray
    ) -> None:
        """Note a round of each request, `[n]` each."""
        memory = np.where(drafted[:, None] > 1, np.array(MEMORIES), 1.0)
        self._accepted[rows] = memory * self._accepted[rows] + (accepted - 1)[:, None]
        rejected = (accepted < verified)[:, None]
        self._rejected[rows] = memory * self._rejected[rows] + rejected
        full = (drafted > 1) & (accepted == drafted)
        self._since_full[rows] = np.where(
            full, 0, np.minimum(self._since_full[rows] + 1, _LONG_AGO)
        )
        self._lengths[rows] = np.stack([drafted, verified, accepted], axis=1)
        self._emitted[rows] += accepted

    def rates(self, rows: np.ndarray) -> np.ndarray:
        """Recent acceptance rates, `[n, memories]`."""
        prior, accepted = self._prior[rows, None], self._accepted[rows]
        judged = _PRIOR_WEIGHT + accepted + self._rejected[rows]
        return np.asarray((_PRIOR_WEIGHT * prior + accepted) / judged)

    def features(self, rows: np.ndarray, contexts: np.ndarray) -> np.ndarray:
        """Observe some requests, float32 `[n, len(names)]`.

        Args:
            rows: The requests.
            contexts: Tokens before the anchors, `[n]`.
        """
        return np.concatenate(
            [
                _log_odds(self._prior[rows, None]),
                _log_odds(self.rates(rows)),
                self._since_full[rows, None] / _LONG_AGO,
                self._lengths[rows] / self.longest,
                self._confidences[rows],
                self._target[rows],
                np.log1p(self._emitted[rows, None]) / 5,
                np.log1p(contexts[:, None]) / 7,
            ],
            axis=1,
            dtype=np.float32,
        )


def _log_odds(rates: np.ndarray) -> np.ndarray:
    rates = np.clip(rates, 0.001, 0.999)
    return np.asarray(np.log(rates / (1 - rates)))
