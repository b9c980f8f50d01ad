"""Ridge regressions with many penalties on the same rows, and their leave-out predictions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh, solve


@dataclass(frozen=True, eq=False)
class RidgePath:
    """Ridge regressions with an unpenalised intercept, of any penalty on the sum of squared errors.

    One eigendecomposition, of the smaller of the two Gram matrices, serves all of them. In its
    basis an input is a row of `features`, and their Gram matrix is diagonal.

    Attributes:
        features: Inputs in the basis, and a constant, `[n, rank + 1]`.
        powers: Sums of squares of the features but the constant, `[rank]`.
        to_inputs: Turns weights on features into weights on inputs, `[width, rank]`.
        targets: `[n, outputs]`.
        input_mean: `[width]`.
    """

    features: np.ndarray
    powers: np.ndarray
    to_inputs: np.ndarray
    targets: np.ndarray
    input_mean: np.ndarray

    @classmethod
    def from_data(cls, inputs: np.ndarray, targets: np.ndarray) -> RidgePath:
        """Prepare the regressions of targets `[n, outputs]` on inputs `[n, width]`."""
        input_mean = inputs.mean(axis=0)
        centred = inputs - input_mean
        wide = centred.shape[1] > centred.shape[0]
        powers, vectors = eigh(centred @ centred.T if wide else centred.T @ centred)
        # Directions without inputs, which differ from 0 only by rounding, get no weight.
        real = powers > 1e-12 * powers.max(initial=0.0)
        powers, vectors = powers[real], vectors[:, real]
        to_inputs = centred.T @ (vectors / np.sqrt(powers)) if wide else vectors
        features = vectors * np.sqrt(powers) if wide else centred @ vectors
        with_constant = np.concatenate([features, np.ones((len(features), 1))], axis=1)
        return cls(with_constant, powers, to_inputs, targets, input_mean)

    def fit(self, penalty: float) -> tuple[np.ndarray, np.ndarray]:
        """Weights `[width, outputs]` and intercept `[outputs]` of a penalty."""
        moment = self.features.T @ self.targets
        in_basis = moment[:-1] / (self.powers + penalty)[:, None]
        weights = self.to_inputs @ in_basis
        return weights, self.targets.mean(axis=0) - self.input_mean @ weights

    def predict_left_out(self, penalties: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Predict some rows by regressions on all the others.

        No new fit is needed: with the hat matrix H of all rows, the predictions for the rows left
        out are wrong by (1 - H_oo)^-1 times their residuals (Hastie, Tibshirani and
        Friedman, The Elements of Statistical Learning, section 7.10, for one row).

        Args:
            penalties: `[penalties]`, not too small: with more inputs than rows, a penalty of 1e-9
                leaves two correct digits.
            rows: Boolean `[n]`, the rows to leave out; at least one row must be left.

        Returns:
            `[penalties, rows, outputs]`.
        """
        out, targets = self.features[rows], self.targets[rows]
        moment = self.features.T @ self.targets
        predictions = []
        for penalty in penalties:
            # The constant, in the last place, is not penalised.
            inverse = 1 / np.append(self.powers + penalty, len(self.features))
            hat = (out * inverse) @ out.T
            residuals = targets - out @ (inverse[:, None] * moment)
            wrong_by = solve(np.eye(len(out)) - hat, residuals, assume_a="pos")
            predictions.append(targets - wrong_by)
        return np.stack(predictions)
