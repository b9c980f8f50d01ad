"""A Bayesian logistic regression of draft hazards, and the counts that it learns from.

The hazard of a draft position is the probability that the draft is accepted when all drafts before
it were. `blockpilot_rl.policies.acceptance` deploys the result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from blockpilot_rl.agents.ridge_models import RewardModel
from blockpilot_rl.policies.acceptance import position_shapes
from blockpilot_rl.sweeps.table import Sweep

LOG_ODDS_PENALTY = 0.01
"""Prior precision of the intercepts, in units of counts."""

LARGEST_LOG_ODDS = 20.0


class DraftCounts(NamedTuple):
    """How often drafts were judged and accepted, by row, block size and position.

    Attributes:
        tried: Drafts that were judged after all drafts before them were accepted,
            `[n, arms, positions]`.
        accepted: Those that were accepted, same shape.
    """

    tried: torch.Tensor
    accepted: torch.Tensor

    def rows(self, rows: np.ndarray) -> DraftCounts:
        """Keep some rows."""
        return DraftCounts(self.tried[rows], self.accepted[rows])


def draft_counts(table: Sweep) -> DraftCounts:
    """Count the judged and the accepted drafts of every row under every block size.

    A pass that emits k tokens has accepted k - 1 drafts and rejected the next one, if its block
    has one. The last pass of an answer says nothing about the draft at which the answer ends.
    """
    arms, longest = table.arms, max(table.arms)
    counts = np.zeros((2, len(table), len(arms), longest - 1))
    for column, size in enumerate(arms):
        emitted = np.concatenate([row[column] for row in table.accepted]).astype(np.int64)
        lengths = table.passes[:, column]
        rows = np.repeat(np.arange(len(table)), lengths)
        last = np.zeros(len(emitted), dtype=bool)
        last[np.cumsum(lengths) - 1] = True
        passes = np.zeros((len(table), longest + 2))
        np.add.at(passes, (rows[~last], emitted[~last]), 1)
        at_least = passes[:, ::-1].cumsum(axis=1)[:, ::-1]
        before_end = np.arange(1, size) < emitted[last][:, None]
        counts[0, :, column, : size - 1] = at_least[:, 1:size] + before_end
        counts[1, :, column, : size - 1] = at_least[:, 2 : size + 1] + before_end
    return DraftCounts(*torch.from_numpy(counts))


class HazardModel(RewardModel):
    """Log odds of hazards, linear in the features, with their precision.

    The log odds of a position are its intercept, the offset of the block size, and the weights of
    the features times a few smooth shapes over the positions. `fit` finds the most probable
    parameters for all counts; `add` takes one Newton step for each further batch and keeps only the
    sums, an online Laplace approximation.

    Args:
        arms: Block sizes, increasing from 1.
        width: Number of features; the last one is constant and is not used.
        penalty: Prior precision of the weights and of the offsets.
    """

    theta: torch.Tensor
    precision: torch.Tensor

    def __init__(self, arms: tuple[int, ...], width: int, penalty: float) -> None:
        super().__init__()
        shapes = torch.from_numpy(position_shapes(max(arms) - 1))
        self._arms, self.penalty = arms, penalty
        self._sizes = (len(shapes), len(arms), shapes.shape[1], width - 1)
        positions, count, levels, components = self._sizes
        parameters = positions + count + levels * components
        self.register_buffer("theta", torch.zeros(parameters, dtype=torch.float64))
        self.register_buffer("precision", self._prior().diag())
        self.shapes = shapes

    @property
    def parts(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Intercepts `[positions]`, offsets `[arms]` and weights `[shapes, components]`."""
        return self.split(self.theta)

    def split(self, theta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Divide parameters `[…, p]` into intercepts, offsets and weights."""
        positions, count, levels, components = self._sizes
        intercept, offsets, weights = theta.split([positions, count, levels * components], dim=-1)
        return intercept, offsets, weights.unflatten(-1, (levels, components))

    @property
    def level_precision(self) -> torch.Tensor:
        """Precision of the weights of the first shape, the level, `[components, components]`."""
        positions, count, _, components = self._sizes
        level = slice(positions + count, positions + count + components)
        return self.precision[level, level]

    def hazards(self, features: torch.Tensor, theta: torch.Tensor | None = None) -> torch.Tensor:
        """Hazards of every block size, `[…, n, arms, positions]`.

        Args:
            features: `[n, width]`.
            theta: Parameters `[…, p]`; None for the most probable ones.
        """
        intercept, offsets, weights = self.split(self.theta if theta is None else theta)
        slopes = torch.einsum("nk,...mk->...nm", features[:, :-1], weights) @ self.shapes.T
        log_odds = (intercept[..., None, :] + slopes)[..., None, :] + offsets[..., None, :, None]
        return log_odds.clamp(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS).sigmoid()

    def fit(self, features: torch.Tensor, counts: DraftCounts, steps: int = 20) -> None:
        """Find the most probable parameters for all counts, from the present ones.

        Args:
            features: `[n, width]`.
            counts: Judged and accepted drafts of these rows.
            steps: Newton steps, at most.
        """
        prior = self._prior()
        for _ in range(steps):
            gradient, information = self._newton_terms(features, counts)
            self.precision.copy_(prior.diag() + information)
            change = torch.linalg.solve(self.precision, gradient - prior * self.theta)
            self.theta += change
            if float(change.abs().max()) < 1e-4:
                break

    def add(self, features: torch.Tensor, counts: torch.Tensor, targets: torch.Tensor) -> None:
        """Learn from further rows.

        Args:
            features: `[n, width]`.
            counts: Judged drafts, `[n, arms, positions]`.
            targets: Accepted drafts, same shape.
        """
        gradient, information = self._newton_terms(features, DraftCounts(counts, targets))
        self.precision += information
        self.theta += torch.linalg.solve(self.precision, gradient)

    def calibrate(
        self,
        features: torch.Tensor,
        tokens: torch.Tensor,
        weights: torch.Tensor,
        together: bool = False,
    ) -> None:
        """Move the offsets so that the mean expected tokens per pass of each block size are right.

        Hard prompts take more passes, so they dominate the counts. Speedups are averaged over
        prompts, and for that average each prompt counts once.

        Args:
            features: `[n, width]`.
            tokens: Tokens per pass of each row and block size, `[n, arms]`.
            weights: How much each of them counts, `[n, arms]`.
            together: Move all offsets by the same amount, so that the mean over all is right.
        """
        positions, count = self._sizes[:2]
        offsets = self.theta[positions : positions + count]
        for _ in range(30):
            hazards = self.hazards(features)
            survival = hazards.cumprod(dim=2) * self.in_block()
            slope = (survival * (1 - hazards).cumsum(dim=2)).sum(dim=2)
            missing = (weights * (tokens - 1 - survival.sum(dim=2))).sum(dim=0)
            slopes = (weights * slope).sum(dim=0)
            if together:
                missing, slopes = missing.sum(), slopes.sum()
            steps = missing / (slopes + 1e-9)
            offsets += steps.clamp(-1, 1)
            if float(steps.abs().max()) < 1e-6:
                break

    def predict(self, features: torch.Tensor) -> torch.Tensor:
        """Expected tokens per pass of every block size, `[n, arms]`."""
        return expected_tokens(self.hazards(features), self.in_block())

    def posterior(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Expected tokens per pass, and the standard deviation of the level's log odds."""
        tokens = self.predict(features)
        spread = level_variance(self.level_precision, features[:, :-1]).sqrt()
        return tokens, spread[:, None].expand_as(tokens)

    def draw_tokens(
        self, features: torch.Tensor, draws: int, noise: float, generator: torch.Generator
    ) -> torch.Tensor:
        """Expected tokens per pass under draws from the posterior, `[draws, n, arms]`.

        Args:
            features: `[n, width]`.
            draws: Number of draws.
            noise: Factor of the standard deviations.
            generator: Source of the draws.
        """
        factor = torch.linalg.cholesky(self.precision)
        normal = torch.randn(len(self.theta), draws, dtype=torch.float64, generator=generator)
        moved = torch.linalg.solve_triangular(factor.T, normal, upper=True).T
        return expected_tokens(self.hazards(features, self.theta + noise * moved), self.in_block())

    def _prior(self) -> torch.Tensor:
        prior = torch.full_like(self.theta, self.penalty)
        prior[: self._sizes[0]] = LOG_ODDS_PENALTY
        return prior

    def in_block(self) -> torch.Tensor:
        """Which draft positions each block size has, boolean `[arms, positions]`."""
        return torch.arange(1, max(self._arms)) < torch.tensor(self._arms)[:, None]

    def _newton_terms(
        self, features: torch.Tensor, counts: DraftCounts
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradient `[p]` and information `[p, p]` of the log likelihood at the parameters."""
        hazards, inputs = self.hazards(features), features[:, :-1]
        errors = counts.accepted - counts.tried * hazards
        weights = counts.tried * hazards * (1 - hazards)
        by_row = errors.sum(dim=1) @ self.shapes
        gradient = torch.cat(
            [errors.sum(dim=(0, 1)), errors.sum(dim=(0, 2)), (by_row.T @ inputs).flatten()]
        )
        positions, count, levels, components = self._sizes
        offsets, slopes = positions, positions + count
        information = torch.zeros_like(self.precision)
        information[:offsets, :offsets] = weights.sum(dim=(0, 1)).diag()
        information[offsets:slopes, offsets:slopes] = weights.sum(dim=(0, 2)).diag()
        information[:offsets, offsets:slopes] = weights.sum(dim=0).T
        by_position, by_size = weights.sum(dim=1), weights @ self.shapes
        for level in range(levels):
            here = slice(slopes + level * components, slopes + (level + 1) * components)
            information[:offsets, here] = (by_position * self.shapes[:, level]).T @ inputs
            information[offsets:slopes, here] = by_size[:, :, level].T @ inputs
            for other in range(level, levels):
                there = slice(slopes + other * components, slopes + (other + 1) * components)
                shared = by_position @ (self.shapes[:, level] * self.shapes[:, other])
                information[here, there] = inputs.T @ (shared[:, None] * inputs)
        upper = information.triu()
        return gradient, upper + upper.triu(1).T


def expected_tokens(hazards: torch.Tensor, in_block: torch.Tensor) -> torch.Tensor:
    """Expected tokens per pass, `[…, arms]`, by hazards `[…, arms, positions]`."""
    tokens: torch.Tensor = 1 + (hazards.cumprod(dim=-1) * in_block).sum(dim=-1)
    return tokens


def level_variance(precision: torch.Tensor, components: torch.Tensor) -> torch.Tensor:
    """Variance of the log odds' level, `[n]`.

    Args:
        precision: Precision of the level's weights, `[components, components]`.
        components: `[n, components]`.
    """
    factor = torch.linalg.cholesky(precision)
    whitened: torch.Tensor = torch.linalg.solve_triangular(factor, components.T, upper=False)
    return whitened.square().sum(dim=0)
