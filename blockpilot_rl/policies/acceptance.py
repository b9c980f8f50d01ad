"""The acceptance head: how far drafts survive after a prompt, and how sure that is.

A hazard is the probability that a draft is accepted when all drafts before it were. The head
predicts the hazard of every draft position by a logistic regression on a few components of the
state. The product of the hazards is the survival curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

SHAPES = 3
"""Shapes over the draft positions, at most: the level of the hazards, their slope and curvature."""

SMALLEST_VARIANCE = 1e-12
"""Variances below this count as this; that at a single training state is 0."""


class Survival(NamedTuple):
    """Predicted survival of drafts.

    Attributes:
        curves: Probability that at least the first k drafts of a block are accepted, for every
            block size and k = 1, 2, …, `[n, arms, positions]`; 0 beyond the block.
        confidence: Weight of the prompt's own prediction in these curves, in 0..1; the rest is the
            average curve, `[n]`.
    """

    curves: torch.Tensor
    confidence: torch.Tensor

    @property
    def tokens(self) -> torch.Tensor:
        """Expected tokens per pass of every block size, `[n, arms]`."""
        return 1 + self.curves.sum(dim=2)


class AcceptanceHead(nn.Module):
    """Predicts survival curves from standardised states.

    The variance of a prediction is that of a Bayesian regression: small where training states were
    dense, and growing with the distance from them, also in directions that the components leave
    out. Where it exceeds `variance_limit`, the average curve replaces the prediction in proportion:
    twice the variance gives the prediction half of the weight.

    Args:
        width: Length of a state.
        components: Components that it is reduced to.
        arms: Block sizes, increasing.

    Attributes:
        projection: Map of a standardised state to components, with orthonormal columns,
            `[width, components]`.
        intercept: Log odds of the hazards at the mean state, `[positions]`.
        weights: Change of the log odds with the components, by shape, `[shapes, components]`.
        offsets: What a block size adds to all log odds, `[arms]`. Short blocks begin more often in
            easy stretches of a text.
        average: The average curves, `[arms, positions]`.
        spread: Map of components whose squared norm is the variance, `[components, components]`.
        residual_variance: Variance for each unit of the squared norm that the components leave out.
        variance_limit: Largest variance with full confidence.
        answer_tokens: Mean length of the training answers.
        prompt_tokens: Mean length of the training prompts.
    """

    projection: torch.Tensor
    intercept: torch.Tensor
    weights: torch.Tensor
    offsets: torch.Tensor
    average: torch.Tensor
    spread: torch.Tensor
    residual_variance: torch.Tensor
    variance_limit: torch.Tensor
    answer_tokens: torch.Tensor
    prompt_tokens: torch.Tensor
    _shapes: torch.Tensor
    _in_block: torch.Tensor

    def __init__(self, width: int, components: int, arms: Sequence[int]) -> None:
        super().__init__()
        for name, shape in buffer_shapes(width, components, arms).items():
            self.register_buffer(name, torch.zeros(shape))
        positions = max(arms) - 1
        shapes = torch.from_numpy(position_shapes(positions)).float()
        self.register_buffer("_shapes", shapes, persistent=False)
        in_block = torch.arange(1, max(arms)) < torch.tensor(arms)[:, None]
        self.register_buffer("_in_block", in_block.float(), persistent=False)

    def forward(self, standardised: torch.Tensor) -> Survival:
        """Predict the survival curves of standardised states, `[n, width]`."""
        components = standardised @ self.projection
        log_odds = self.intercept + components @ self.weights.T @ self._shapes.T
        hazards = torch.sigmoid(log_odds[:, None] + self.offsets[:, None])
        own = hazards.cumprod(dim=2) * self._in_block
        confidence = self.confidence(standardised, components)
        share = confidence[:, None, None]
        return Survival(share * own + (1 - share) * self.average, confidence)

    def confidence(self, standardised: torch.Tensor, components: torch.Tensor) -> torch.Tensor:
        """Weight of the prompt's own prediction, `[n]`, by the variance of the prediction."""
        left_out = standardised.square().sum(dim=1) - components.square().sum(dim=1)
        variance = (components @ self.spread.T).square().sum(dim=1)
        variance = variance + self.residual_variance * left_out.clamp(min=0)
        return (self.variance_limit / variance.clamp(min=SMALLEST_VARIANCE)).clamp(max=1)

    def problem(self) -> str | None:
        """Describe a value that no fitted head has, if there is one."""
        for name in ("residual_variance", "variance_limit", "answer_tokens", "prompt_tokens"):
            if not bool(getattr(self, name) > 0):
                return f"acceptance.{name} is not positive"
        if not bool(((self.average >= 0) & (self.average <= 1)).all()):
            return "acceptance.average holds a number that is no probability"
        return None


def buffer_shapes(width: int, components: int, arms: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Shapes of the buffers of an `AcceptanceHead`, by name."""
    positions = max(arms) - 1
    return {
        "projection": (width, components),
        "intercept": (positions,),
        "weights": (min(SHAPES, positions), components),
        "offsets": (len(arms),),
        "average": (len(arms), positions),
        "spread": (components, components),
        "residual_variance": (),
        "variance_limit": (),
        "answer_tokens": (),
        "prompt_tokens": (),
    }


def position_shapes(positions: int) -> np.ndarray:
    """Smooth shapes over the draft positions: powers of the logarithm of the position.

    They are orthonormal if position j counts 1 / j, as later drafts are tried less often.

    Args:
        positions: Number of drafts of the largest block.

    Returns:
        `[positions, shapes]`, float64; the first shape is 1 everywhere.
    """
    places = np.arange(1, positions + 1)
    counts = np.sqrt((1 / places) / (1 / places).sum())
    powers = np.log(places)[:, None] ** np.arange(min(SHAPES, positions))
    orthonormal, triangle = np.linalg.qr(counts[:, None] * powers)
    shapes: np.ndarray = orthonormal * np.sign(np.diag(triangle)) / counts[:, None]
    return shapes
