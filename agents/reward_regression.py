"""Regression of every arm's reward, and the arm with the highest prediction."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from blockpilot_rl.agents.base import PolicyAgent, standardisation
from blockpilot_rl.agents.full_information import FullInformationAgent, NetworkHyperparams
from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.agents.pooling import pooled_speedups
from blockpilot_rl.agents.ridge_path import RidgePath
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep

MODELS = ("ridge", "mlp")
TARGETS = ("pooled", "recorded")


@dataclass(frozen=True)
class RewardRegressionHyperparams(NetworkHyperparams):
    """Hyperparameters of the regression; those of the network are for the model `mlp` alone.

    Attributes:
        model: `ridge`, in closed form, or `mlp`.
        target: What the ridge regression is fitted to: speedups as `recorded`, or with the
            acceptance of all arms of a row `pooled`.
        alphas: Penalties of the ridge regression to choose among, on standardised states; at least
            0.001.
        folds: Parts of the prompts that the choice is cross-validated on, 2 to 1000.
        repeats: Times that the prompts are parted anew for it, at most 1000.
    """

    model: str
    target: str
    alphas: tuple[float, ...]
    folds: int
    repeats: int

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require(self.model in MODELS, f"model must be {' or '.join(MODELS)}, not {self.model!r}")
        require(
            self.target in TARGETS, f"target must be {' or '.join(TARGETS)}, not {self.target!r}"
        )
        require(len(self.alphas) > 0, "alphas must hold at least one value")
        # Weaker ones interpolate wide states, and rounding hides what rows left out are wrong by.
        require(all(alpha >= 1e-3 for alpha in self.alphas), "alphas must be at least 0.001")
        require(2 <= self.folds <= 1000, "folds must be at least 2, at most 1000")
        require(1 <= self.repeats <= 1000, "repeats must be at least 1, at most 1000")


class RewardRegressionAgent(FullInformationAgent[RewardRegressionHyperparams]):
    """Predicts every arm's gain over the best fixed size and takes the best.

    The ridge regression learns from the training and the validation prompts, as cross-validation on
    them does all that a validation split is for. It chooses the penalty: by the mean reward of the
    choices on the prompts left out, not by the error of the predictions. Of equally good penalties
    the strongest is taken; a very strong one leaves the best fixed size. And it gives the score:
    that of the choices for prompts which were left out.
    """

    algorithm = "reward-regression"
    Hyperparams = RewardRegressionHyperparams

    _left_out_arms: np.ndarray

    @property
    def planned_timesteps(self) -> int:
        """Epochs of the network; the ridge regression has a closed form."""
        return 0 if self._closed_form else super().planned_timesteps

    @property
    def learns_from_validation(self) -> bool:
        """The ridge regression is fitted to the validation rows too, the network is not."""
        return self._closed_form

    @property
    def _closed_form(self) -> bool:
        return self.hyperparams.model == "ridge"

    def _targets(self, train: Sweep) -> np.ndarray:
        return self.problem.gains(train).astype(np.float32)

    def _loss(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.mse_loss(scores, targets)

    def _parts(
        self, train: Sweep, validation: Sweep | None, monitor: Monitor
    ) -> tuple[Sweep, Sweep]:
        if not self._closed_form:
            return super()._parts(train, validation, monitor)
        prompts = "training prompts" if validation is None else "training and validation prompts"
        monitor.note(
            f"the ridge regression learns from all {prompts}; its penalty and its score are "
            "cross-validated on them"
        )
        return train, train if validation is None else validation

    def _fit(self, train: Sweep, validation: Sweep, monitor: Monitor, until: int) -> None:
        if not self._closed_form:
            super()._fit(train, validation, monitor, until)
            return
        tables = [train] if validation is train else [train, validation]
        states = np.concatenate([self.problem.states(table) for table in tables])
        mean, scale = standardisation(states)
        inputs = states.astype(np.float64)
        inputs -= mean.numpy()
        inputs /= scale.numpy()
        gains = np.concatenate([self.problem.gains(table) for table in tables])
        path = RidgePath.of(inputs, self._ridge_targets(tables, gains))
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
        if not self._closed_form:
            super()._conclude(validation, monitor)
            return
        arms = self._left_out_arms
        rows = np.tile(np.arange(len(validation)), len(arms))
        monitor.conclude(self, validation.select_rows(rows), arms.ravel())

    def _ridge_targets(self, tables: list[Sweep], gains: np.ndarray) -> np.ndarray:
        """What to fit, `[n, arms]`; predictions are moved to the mean of the recorded gains."""
        if self.hyperparams.target == "recorded":
            return gains
        speedups = np.concatenate([pooled_speedups(table) for table in tables])
        return np.asarray(speedups - speedups[:, [self.problem.best_fixed_arm]])

    def _cross_validate(
        self, path: RidgePath, gains: np.ndarray, ids: np.ndarray, monitor: Monitor
    ) -> tuple[float, np.ndarray]:
        """Choose the penalty by the gain of its choices on prompts it was not fitted to.

        Returns:
            The penalty, and its choices of each repeat for every row when it was left out,
            `[repeats, n]`.
        """
        settings, rng = self.hyperparams, np.random.default_rng(self.seed)
        alphas = np.array(sorted(settings.alphas, reverse=True))
        prompts, prompt = np.unique(ids, return_inverse=True)
        if len(prompts) < 2:
            # Nothing can be left out, and a single state tells nothing.
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

    def _save_model(self, folder: Path) -> None:
        if self._closed_form:
            PolicyAgent._save_model(self, folder)
        else:
            super()._save_model(folder)

    def _load_model(self, folder: Path) -> None:
        if self._closed_form:
            PolicyAgent._load_model(self, folder)
        else:
            super()._load_model(folder)
