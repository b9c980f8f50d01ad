"""Ridge regression of every arm's reward, and the arm with the highest prediction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from blockpilot_rl.agents.base import standardisation
from blockpilot_rl.agents.cross_validated import CrossValidatedAgent
from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.agents.pooling import pooled_speedups
from blockpilot_rl.agents.ridge_path import RidgePath
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep

TARGETS = ("pooled", "recorded")


@dataclass(frozen=True)
class RidgeRegressionHyperparams:
    """Hyperparameters of the ridge regression.

    Attributes:
        target: What the regression is fitted to: the `recorded` speedups, or speedups with the
            acceptance of all arms of a row `pooled`.
        alphas: Penalties to choose among, on standardised states; at least 0.001.
        folds: Parts of the prompts for cross-validation, 2 to 1000.
        repeats: Number of random divisions into folds, at most 1000.
    """

    target: str
    alphas: tuple[float, ...]
    folds: int
    repeats: int

    def __post_init__(self) -> None:
        """Check the values."""
        require(
            self.target in TARGETS, f"target must be {' or '.join(TARGETS)}, not {self.target!r}"
        )
        require(len(self.alphas) > 0, "alphas must hold at least one value")
        # Weaker penalties interpolate wide states; rounding then hides the errors on rows left out.
        require(all(alpha >= 1e-3 for alpha in self.alphas), "alphas must be at least 0.001")
        require(2 <= self.folds <= 1000, "folds must be at least 2, at most 1000")
        require(1 <= self.repeats <= 1000, "repeats must be at least 1, at most 1000")


class RidgeRegressionAgent(CrossValidatedAgent[RidgeRegressionHyperparams]):
    """Predicts every arm's gain over the best fixed size by ridge regression and takes the best.

    The agent learns from the training and the validation prompts together, because cross-validation
    replaces a validation split. It chooses the penalty by the mean reward of the choices on the
    prompts left out, not by the error of the predictions. Of equally good penalties it takes the
    strongest; a very strong one always chooses the best fixed size. The score is that of the
    choices for prompts that were left out.
    """

    algorithm = "ridge-regression"
    Hyperparams = RidgeRegressionHyperparams
    title = "ridge regression"

    _left_out_arms: np.ndarray

    def _fit(self, train: Sweep, validation: Sweep, monitor: Monitor, until: int) -> None:
        tables = [train] if validation is train else [train, validation]
        states = np.concatenate([self.problem.states(table) for table in tables])
        mean, scale = standardisation(states)
        inputs = states.astype(np.float64)
        inputs -= mean.numpy()
        inputs /= scale.numpy()
        gains = np.concatenate([self.problem.gains(table) for table in tables])
        path = RidgePath.from_data(inputs, self._regression_targets(tables, gains))
        ids = np.concatenate([table.rows["id"].to_numpy() for table in tables])
        alpha, left_out = self._cross_validate(path, gains, ids, monitor)
        self._left_out_arms = left_out[:, len(gains) - len(validation) :]
        weights, intercept = path.fit(alpha)
        intercept += (gains - path.targets).mean(axis=0)
        self.policy = BlockSizePolicy.from_layers(
            self._policy_config(),
            [(torch.from_numpy(weights.T), torch.from_numpy(intercept))],
            mean,
            scale,
        )

    def _conclude(self, validation: Sweep, monitor: Monitor) -> None:
        arms = self._left_out_arms
        rows = np.tile(np.arange(len(validation)), len(arms))
        monitor.conclude(self, validation.select_rows(rows), arms.ravel())

    def _regression_targets(self, tables: list[Sweep], gains: np.ndarray) -> np.ndarray:
        """Targets of the fit, `[n, arms]`; predictions are moved to the mean recorded gains."""
        if self.hyperparams.target == "recorded":
            return gains
        speedups = np.concatenate([pooled_speedups(table) for table in tables])
        return np.asarray(speedups - speedups[:, [self.problem.best_fixed_arm]])

    def _cross_validate(
        self, path: RidgePath, gains: np.ndarray, ids: np.ndarray, monitor: Monitor
    ) -> tuple[float, np.ndarray]:
        """Choose the penalty by the gain of its choices on prompts that it was not fitted to.

        Returns:
            The penalty, and its choices for every row when it was left out, `[repeats, n]`.
        """
        settings, rng = self.hyperparams, np.random.default_rng(self.seed)
        alphas = np.array(sorted(settings.alphas, reverse=True))
        prompts, prompt = np.unique(ids, return_inverse=True)
        if len(prompts) < 2:
            # Nothing can be left out, and a single state carries no information.
            return float(alphas[0]), np.full((1, len(gains)), gains.mean(axis=0).argmax())
        arms = np.zeros((len(alphas), settings.repeats, len(gains)), dtype=np.int64)
        for repeat in range(settings.repeats):
            fold = (rng.permutation(len(prompts)) % settings.folds)[prompt]
            for part in np.unique(fold):
                rows = fold == part
                move = (gains - path.targets)[~rows].mean(axis=0)
                predicted = path.predict_left_out(alphas, rows) + move
                arms[:, repeat, rows] = predicted.argmax(axis=2)
        earned = gains[np.arange(len(gains)), arms].mean(axis=(1, 2))
        for step, gain in enumerate(earned):
            monitor.scalar("train/cross_validated_gain", float(gain), step)
        best = int(earned.argmax())
        monitor.scalar("train/alpha", float(alphas[best]), 0)
        return float(alphas[best]), arms[best]
