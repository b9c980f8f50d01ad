"""Regression of every arm's reward, and the arm with the highest prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.linalg import eigh

from blockpilot_rl.agents.base import PolicyAgent, standardisation
from blockpilot_rl.agents.full_information import FullInformationAgent, NetworkHyperparams
from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import SweepTable

MODELS = ("ridge", "mlp")


@dataclass(frozen=True)
class RewardRegressionHyperparams(NetworkHyperparams):
    """Hyperparameters of the regression; those of the network are for the model `mlp` alone.

    Attributes:
        model: `ridge`, in closed form, or `mlp`.
        alphas: Penalties of the ridge regression to choose among, on standardised states.
        folds: Parts of the training prompts that the choice is cross-validated on.
    """

    model: str
    alphas: tuple[float, ...]
    folds: int

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require(self.model in MODELS, f"model must be {' or '.join(MODELS)}, not {self.model!r}")
        require(len(self.alphas) > 0, "alphas must hold at least one value")
        require(all(alpha > 0 for alpha in self.alphas), "alphas must be positive")
        require(self.folds >= 2, "folds must be at least 2")


class RewardRegressionAgent(FullInformationAgent[RewardRegressionHyperparams]):
    """Predicts every arm's gain over the best fixed size and takes the best.

    The ridge penalty is chosen by cross-validation on the training prompts: by the mean reward of
    the choices on the prompts left out, not by the error of the predictions. Of equally good
    penalties the strongest is taken; a very strong one leaves the best fixed size.
    """

    algorithm = "reward-regression"
    Hyperparams = RewardRegressionHyperparams

    @property
    def planned_timesteps(self) -> int:
        """Epochs of the network; the ridge regression has a closed form."""
        return 0 if self._closed_form else super().planned_timesteps

    @property
    def _closed_form(self) -> bool:
        return self.hyperparams.model == "ridge"

    def _targets(self, train: SweepTable) -> np.ndarray:
        return self.problem.gains(train).astype(np.float32)

    def _loss(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.mse_loss(scores, targets)

    def _fit(self, train: SweepTable, validation: SweepTable, monitor: Monitor, until: int) -> None:
        if not self._closed_form:
            super()._fit(train, validation, monitor, until)
            return
        states = self.problem.states(train)
        mean, scale = standardisation(states)
        inputs = ((states - mean.numpy()) / scale.numpy()).astype(np.float64)
        gains = self.problem.gains(train)
        alpha = self._choose_alpha(inputs, gains, train.rows["id"].to_numpy(), monitor)
        ((weights, intercept),) = ridge_path(inputs, gains, [alpha])
        self.policy = BlockSizePolicy.from_layers(
            self._policy_config(),
            [(torch.from_numpy(weights.T), torch.from_numpy(intercept))],
            mean,
            scale,
        )

    def _choose_alpha(
        self, inputs: np.ndarray, gains: np.ndarray, ids: np.ndarray, monitor: Monitor
    ) -> float:
        """Choose the penalty by the gain of its choices on prompts it was not fitted to."""
        alphas = sorted(self.hyperparams.alphas, reverse=True)
        prompts, prompt = np.unique(ids, return_inverse=True)
        if len(alphas) == 1 or len(prompts) < 2:
            return alphas[0]
        folds = min(self.hyperparams.folds, len(prompts))
        fold = (np.random.default_rng(self.seed).permutation(len(prompts)) % folds)[prompt]
        earned = np.zeros(len(alphas))
        for part in range(folds):
            inside, outside = fold != part, fold == part
            for index, (weights, intercept) in enumerate(
                ridge_path(inputs[inside], gains[inside], alphas)
            ):
                arms = (inputs[outside] @ weights + intercept).argmax(axis=1)
                earned[index] += gains[outside][np.arange(len(arms)), arms].sum()
        for step, gain in enumerate(earned / len(gains)):
            monitor.scalar("train/cross_validated_gain", float(gain), step)
        best = alphas[int(earned.argmax())]
        monitor.scalar("train/alpha", best, 0)
        return best

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


def ridge_path(
    inputs: np.ndarray, targets: np.ndarray, penalties: Sequence[float]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Fit ridge regressions with an unpenalised intercept, one per penalty.

    One eigendecomposition, of the smaller of the two Gram matrices, serves all of them.

    Args:
        inputs: `[n, width]`.
        targets: `[n, outputs]`.
        penalties: Strengths, on the sum of squared errors.

    Returns:
        Weights `[width, outputs]` and intercept `[outputs]` for each penalty.
    """
    input_mean, target_mean = inputs.mean(axis=0), targets.mean(axis=0)
    centred, wanted = inputs - input_mean, targets - target_mean
    wide = centred.shape[1] > centred.shape[0]
    values, vectors = eigh(centred @ centred.T if wide else centred.T @ centred)
    # The left factor turns coordinates in the eigenbasis into weights.
    left = centred.T @ vectors if wide else vectors
    moment = vectors.T @ (wanted if wide else centred.T @ wanted)
    path = []
    for penalty in penalties:
        weights = left @ (moment / (values.clip(min=0) + penalty)[:, None])
        path.append((weights, target_mean - input_mean @ weights))
    return path
