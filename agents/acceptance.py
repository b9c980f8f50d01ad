"""Agents that learn how far drafts survive, and let a latency profile turn it into a block size."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from blockpilot_rl.agents.cross_validated import CrossValidatedAgent
from blockpilot_rl.agents.hazards import DraftCounts, HazardModel, draft_counts, level_variance
from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.agents.problem import Problem
from blockpilot_rl.agents.projection import Projection
from blockpilot_rl.policies.acceptance import SMALLEST_VARIANCE
from blockpilot_rl.policies.config import PolicyConfig
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True)
class AcceptanceHyperparams:
    """Hyperparameters of the acceptance agent.

    Attributes:
        components: Components that the state is reduced to, at most.
        alphas: Penalties to choose among, on components of standardised states.
        folds: Parts of the prompts for cross-validation; a family is in one part.
        trusted: Share of the training prompts that get full confidence.
    """

    components: int
    alphas: tuple[float, ...]
    folds: int
    trusted: float

    def __post_init__(self) -> None:
        """Check the values."""
        require(self.components >= 1, "components must be at least 1")
        require(len(self.alphas) > 0, "alphas must hold at least one value")
        require(all(alpha >= 1e-3 for alpha in self.alphas), "alphas must be at least 0.001")
        require(2 <= self.folds <= 1000, "folds must be at least 2, at most 1000")
        require(0 < self.trusted <= 1, "trusted must be above 0, at most 1")


class AcceptanceAgent(CrossValidatedAgent[AcceptanceHyperparams]):
    """Predicts the survival of drafts by logistic regression on the counts of all block sizes.

    The agent learns from the training and the validation prompts together. Cross-validation over
    families chooses the penalty, by the likelihood of the acceptances of the families left out, so
    neither the device nor its prices matter for what is learned. The score is that of the choices
    for prompts that were left out.
    """

    algorithm = "acceptance"
    Hyperparams = AcceptanceHyperparams
    title = "acceptance agent"

    _left_out_arms: np.ndarray

    def _fit(self, train: Sweep, validation: Sweep, monitor: Monitor, until: int) -> None:
        tables = [train] if validation is train else [train, validation]
        data = AcceptanceData.from_tables(self.problem, tables, self.hyperparams.components)
        # Every block size repeats the same answer, so they count together as often as one would.
        sizes = max(1, len(self.problem.arms) - 1)
        counts = [draft_counts(table) for table in tables]
        joined = DraftCounts(*(torch.cat(part) / sizes for part in zip(*counts, strict=True)))
        config = acceptance_config(self._policy_config((data.components,)))
        alpha, left_out = self._cross_validate(data, joined, config, monitor)
        model = self._fitted(data, joined, alpha)
        self.policy = data.policy(config, model, self.hyperparams.trusted, joined)
        if left_out is None:
            left_out = self.policy.predict(data.states)
        self._left_out_arms = left_out[len(left_out) - len(validation) :]

    def _conclude(self, validation: Sweep, monitor: Monitor) -> None:
        monitor.conclude(self, validation, self._left_out_arms)

    def _fitted(
        self,
        data: AcceptanceData,
        counts: DraftCounts,
        alpha: float,
        start: HazardModel | None = None,
    ) -> HazardModel:
        """Fit a model, from the parameters of another one."""
        model = HazardModel(self.problem.arms, data.components + 1, alpha)
        if start is not None:
            model.theta.copy_(start.theta)
        model.fit(data.features, counts)
        return model

    def _cross_validate(
        self, data: AcceptanceData, counts: DraftCounts, config: PolicyConfig, monitor: Monitor
    ) -> tuple[float, np.ndarray | None]:
        """Choose the penalty by the likelihood of prompts that it was not fitted to.

        Returns:
            The penalty, and its choices for every row when it was left out, `[n]`; None if nothing
            can be left out.
        """
        settings = self.hyperparams
        alphas = sorted(settings.alphas, reverse=True)
        folds = data.folds(settings.folds, self.seed)
        if len(np.unique(folds)) < 2:
            return alphas[0], None
        models: dict[tuple[int, float], HazardModel] = {}
        losses = np.zeros(len(alphas))
        for fold in np.unique(folds):
            inside, outside = data.rows(folds != fold), data.rows(folds == fold)
            model = None
            for index, alpha in enumerate(alphas):
                model = self._fitted(inside, counts.rows(folds != fold), alpha, model)
                models[int(fold), alpha] = model
                hazards = model.hazards(outside.features)
                losses[index] += _negative_log_likelihood(hazards, counts.rows(folds == fold))
        for step, loss in enumerate(losses):
            monitor.scalar("train/cross_validated_loss", float(loss), step)
        best = alphas[int(losses.argmin())]
        monitor.scalar("train/alpha", best, 0)
        arms = np.zeros(len(folds), dtype=np.int64)
        for fold in np.unique(folds):
            inside = data.rows(folds != fold)
            kept = counts.rows(folds != fold)
            policy = inside.policy(config, models[int(fold), best], settings.trusted, kept)
            arms[folds == fold] = policy.predict(data.states[folds == fold])
        return best, arms


@dataclass(frozen=True, eq=False)
class AcceptanceData:
    """Prompts that an acceptance model learns from.

    Attributes:
        states: `[n, width]`.
        features: Their components and a constant, `[n, components + 1]`.
        projection: The map between them.
        families: Family of each prompt, `[n]`.
        ids: Id of each prompt, `[n]`.
        prompt_tokens: Length of each prompt, `[n]`.
        answer_tokens: Length of each answer, `[n]`.
        tokens_per_pass: Mean tokens per pass of each block size, `[n, arms]`.
    """

    states: np.ndarray
    features: torch.Tensor
    projection: Projection
    families: np.ndarray
    ids: np.ndarray
    prompt_tokens: np.ndarray
    answer_tokens: np.ndarray
    tokens_per_pass: np.ndarray

    @classmethod
    def from_tables(
        cls,
        problem: Problem,
        tables: Sequence[Sweep],
        components: int,
        projection: Projection | None = None,
    ) -> AcceptanceData:
        """Take the rows of sweeps; None fits a projection to their states."""
        states = np.concatenate([problem.states(table) for table in tables])
        projection = projection or Projection.fit(states, problem.state, components)
        columns = {
            name: np.concatenate([table.rows[name].to_numpy() for table in tables])
            for name in ("family", "id", "prompt_tokens")
        }
        return cls(
            states=states,
            features=projection(states),
            projection=projection,
            families=columns["family"].astype(str),
            ids=columns["id"].astype(str),
            prompt_tokens=columns["prompt_tokens"],
            answer_tokens=np.concatenate([table.emitted for table in tables]),
            tokens_per_pass=np.concatenate([table.acceptance_lengths for table in tables]),
        )

    @property
    def components(self) -> int:
        """Number of components."""
        return self.projection.width - 1

    def rows(self, rows: np.ndarray) -> AcceptanceData:
        """Keep some rows, with the same projection."""
        kept = {
            field.name: getattr(self, field.name)[rows]
            for field in dataclasses.fields(self)
            if field.name != "projection"
        }
        return dataclasses.replace(self, **kept)

    def folds(self, count: int, seed: int) -> np.ndarray:
        """Divide the rows into parts, `[n]`: families stay together, or prompts if there is one."""
        families, group = np.unique(self.families, return_inverse=True)
        if len(families) < 2:
            families, group = np.unique(self.ids, return_inverse=True)
        places = np.random.default_rng(seed).permutation(len(families)) % count
        return np.asarray(places[group])

    def policy(
        self,
        config: PolicyConfig,
        model: HazardModel,
        trusted: float,
        counts: DraftCounts | None = None,
        weights: torch.Tensor | None = None,
    ) -> BlockSizePolicy:
        """Build the policy of a model that was fitted to these rows.

        Args:
            config: Description of the policy.
            model: The model.
            trusted: Share of the rows that get full confidence.
            counts: What the model was fitted to, if it was fitted to all block sizes: the variance
                of a row is then that of a model without it.
            weights: How much the outcome of each row and block size counts for the mean of the
                block size, `[n, arms]`, if they are few; None if all are known.
        """
        model = copy.deepcopy(model)
        tokens = torch.from_numpy(self.tokens_per_pass)
        counted = torch.ones_like(tokens) if weights is None else weights
        model.calibrate(self.features, tokens, counted, together=weights is not None)
        hazards = model.hazards(self.features)
        intercept, offsets, weights = model.parts
        components = self.features[:, :-1]
        variance = level_variance(model.level_precision, components)
        variance = variance + self._left_out_squares() / model.penalty
        if counts is not None:
            information = (counts.tried * hazards * (1 - hazards)).sum(dim=(1, 2))
            variance = variance / (1 - (information * variance).clamp(max=0.9))
        factor = torch.linalg.cholesky(model.level_precision)
        identity = torch.eye(self.components, dtype=torch.float64)
        head = {
            "projection": self.projection.matrix,
            # Only the sum of the two counts; the offset of the largest block is 0.
            "intercept": intercept + offsets[-1],
            "weights": weights,
            "offsets": offsets - offsets[-1],
            "average": (hazards.cumprod(dim=2) * model.in_block()).mean(dim=0),
            "spread": torch.linalg.solve_triangular(factor, identity, upper=False),
            "residual_variance": 1 / model.penalty,
            "variance_limit": variance.quantile(trusted).clamp(min=SMALLEST_VARIANCE),
            "answer_tokens": self.answer_tokens.mean(),
            "prompt_tokens": self.prompt_tokens.mean(),
        }
        values = {name: torch.as_tensor(value).float() for name, value in head.items()}
        mean, scale = self.projection.mean, self.projection.scale
        return BlockSizePolicy.from_acceptance(config, values, mean, scale)

    def _left_out_squares(self) -> torch.Tensor:
        """Squared norm of each standardised state that the components leave out, `[n]`."""
        states = torch.from_numpy(self.states).float()
        whole = ((states - self.projection.mean) / self.projection.scale).square().sum(dim=1)
        return (whole.double() - self.features[:, :-1].square().sum(dim=1)).clamp(min=0)


def acceptance_config(config: PolicyConfig) -> PolicyConfig:
    """Describe an acceptance policy by the config of a reward policy."""
    return dataclasses.replace(config, head="acceptance")


def _negative_log_likelihood(hazards: torch.Tensor, counts: DraftCounts) -> float:
    rejected = counts.tried - counts.accepted
    return -float((counts.accepted * hazards.log() + rejected * (1 - hazards).log()).sum())
