"""Narrow features of wide states, which keep the computations of bandits small."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import svd
from scipy.sparse.linalg import svds

from blockpilot_rl.agents.base import standardisation
from blockpilot_rl.decoding.state import StateLayout


@dataclass(frozen=True, eq=False)
class Projection:
    """A linear map of standardised states to a few features and a constant.

    A precision matrix of a 4,096-dimensional state takes 134 MB and milliseconds per decision for
    every arm (fidelity/mabwiser#95); of 64 features it takes 34 kB.

    Attributes:
        mean: Mean of the states, `[width]`.
        scale: Standard deviation of the states, `[width]`.
        matrix: The map, `[width, components]`, with orthonormal columns.
    """

    mean: torch.Tensor
    scale: torch.Tensor
    matrix: torch.Tensor

    @classmethod
    def fit(cls, states: np.ndarray, layout: StateLayout, components: int) -> Projection:
        """Fit to training states.

        Narrow state groups are kept as they are, narrowest first, up to half of the components.
        The principal components of the other groups fill the rest. States that fit as a whole are
        kept as a whole.

        Args:
            states: `[n, width]`.
            layout: Their groups.
            components: Features to keep at most, without the constant.
        """
        mean, scale = standardisation(states)
        kept = _kept_columns(layout, components)
        rest = np.setdiff1d(np.arange(layout.width), kept)
        matrix = np.zeros((layout.width, min(components, layout.width)), dtype=np.float32)
        matrix[kept, np.arange(len(kept))] = 1.0
        if len(rest):
            inputs = (states[:, rest] - mean.numpy()[rest]) / scale.numpy()[rest]
            directions = _principal_directions(inputs, components - len(kept))
            matrix[rest, len(kept) : len(kept) + directions.shape[1]] = directions
        return cls(mean, scale, torch.from_numpy(matrix))

    def __call__(self, states: np.ndarray) -> torch.Tensor:
        """Project states `[n, width]` to `[n, components + 1]`, float64; the last one is 1."""
        standardised = (torch.as_tensor(states, dtype=torch.float32) - self.mean) / self.scale
        features = (standardised @ self.matrix).double()
        return torch.cat([features, torch.ones(len(features), 1, dtype=torch.float64)], dim=1)

    @property
    def width(self) -> int:
        """Number of features, the constant included."""
        return self.matrix.shape[1] + 1

    def unfold(self, weight: torch.Tensor) -> torch.Tensor:
        """Turn weights on features `[outputs, components]` into weights on standardised states."""
        return weight.to(self.matrix) @ self.matrix.T


def _kept_columns(layout: StateLayout, components: int) -> np.ndarray:
    """Columns of the groups that are kept as they are."""
    if layout.width <= components:
        return np.arange(layout.width)
    names: list[str] = []
    room = components // 2
    for name, width in sorted(layout.groups, key=lambda group: group[1]):
        if width > room:
            break
        names.append(name)
        room -= width
    return layout.columns(names) if names else np.empty(0, dtype=np.int64)


def _principal_directions(inputs: np.ndarray, count: int) -> np.ndarray:
    """The directions along which inputs vary most, `[width, count]`, or fewer for few inputs."""
    if not inputs.any():
        return inputs[:0].T
    if count < min(inputs.shape):
        # A fixed seed of the start vector gives equal directions for equal states.
        _, values, rows = svds(inputs, k=count, rng=np.random.default_rng(0))
        return np.asarray(rows[np.argsort(-values)].T)
    _, _, rows = svd(inputs, full_matrices=False)
    return np.asarray(rows[:count].T)
