"""The acceptance model with bandit feedback: it sees the drafts of the chosen block size alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from blockpilot_rl.agents.acceptance import AcceptanceData, acceptance_config
from blockpilot_rl.agents.bandit import BanditAgent, BanditHyperparams, one_hot
from blockpilot_rl.agents.exploring import LOGGED
from blockpilot_rl.agents.hazards import DraftCounts, HazardModel, draft_counts
from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.agents.ridge_models import RewardModel
from blockpilot_rl.agents.training_loop import Snapshot
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True)
class AcceptanceBanditHyperparams(BanditHyperparams):
    """Hyperparameters of the acceptance bandit.

    Attributes:
        noise: Factor of the posterior's standard deviations, which scales the exploration.
        posterior_draws: Draws that the propensities are estimated from.
        trusted: Share of the training prompts that get full confidence.
    """

    noise: float
    posterior_draws: int
    trusted: float

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require(self.noise > 0, "noise must be positive")
        require(self.posterior_draws >= 1, "posterior_draws must be at least 1")
        require(0 < self.trusted <= 1, "trusted must be above 0, at most 1")


class AcceptanceBanditAgent(BanditAgent[AcceptanceBanditHyperparams]):
    """Thompson sampling on the survival of drafts.

    Each decision draws survival curves from the posterior and takes the block size that is fastest
    under them, at the prices of the sweep. A decision shows how many drafts were accepted in every
    pass of the chosen size, which says more than one speedup. Which positions it shows depends on
    the state alone, so the likelihood needs no weights; the mean of each block size is estimated
    with the logged propensities.
    """

    algorithm = "acceptance-bandit"
    Hyperparams = AcceptanceBanditHyperparams

    model: HazardModel
    _data: AcceptanceData
    _counts: DraftCounts
    _rows: pd.MultiIndex

    def attach(self, train: Sweep, monitor: Monitor) -> None:
        """Count the drafts of the training rows."""
        super().attach(train, monitor)
        components = self.hyperparams.components
        self._data = AcceptanceData.from_tables(self.problem, [train], components, self.projection)
        self._counts = draft_counts(train)
        self._rows = pd.MultiIndex.from_tuples(train.keys)
        lengths = self._data.prompt_tokens.mean(), self._data.answer_tokens.mean()
        self._set_costs(*map(float, lengths))

    def policy_from(self, snapshot: Snapshot) -> BlockSizePolicy:
        """Build the policy of the most probable survival curves."""
        config = acceptance_config(self._policy_config((self._data.components,)))
        model = self._model_from(snapshot)
        assert isinstance(model, HazardModel)
        weights = self._inverse_propensities()
        return self._data.policy(config, model, self.hyperparams.trusted, weights=weights)

    def _inverse_propensities(self) -> torch.Tensor:
        """Sum of 1 / propensity over the decisions for each row and block size, `[n, arms]`.

        So weighted, the outcomes of the chosen sizes stand for those on all prompts.
        """
        weights = np.zeros((len(self._rows), len(self.problem.arms)))
        log = self.decisions.frame()
        rows = self._rows.get_indexer(pd.MultiIndex.from_frame(log[list(LOGGED[:3])]))
        arms = np.searchsorted(self.problem.arms, log["block_size"])
        known = rows >= 0
        np.add.at(weights, (rows[known], arms[known]), 1 / log["propensity"].to_numpy()[known])
        return torch.from_numpy(weights)

    def _explore(
        self, model: RewardModel, features: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        assert isinstance(model, HazardModel)
        settings = self.hyperparams
        tokens = model.draw_tokens(features, settings.posterior_draws, settings.noise, generator)
        seconds = self._steps / tokens + self._reading
        return one_hot(seconds.argmin(dim=2), len(self.problem.arms)).mean(dim=0)

    def _learn(
        self, rows: np.ndarray, features: torch.Tensor, arms: torch.Tensor, rewards: torch.Tensor
    ) -> None:
        shown = one_hot(arms, len(self.problem.arms))[:, :, None]
        counts = self._counts.rows(rows)
        self.model.add(features, counts.tried * shown, counts.accepted * shown)

    def _new_model(self) -> HazardModel:
        return HazardModel(self.problem.arms, self.projection.width, self.hyperparams.alpha)

    def _load_model(self, folder: Path) -> None:
        super()._load_model(folder)
        head = self.policy.acceptance
        self._set_costs(float(head.prompt_tokens), float(head.answer_tokens))

    def _set_costs(self, prompt_tokens: float, answer_tokens: float) -> None:
        """Price a step of every block size at a context length, and the drafter's first pass."""
        assert self.problem.prices is not None
        assert self.problem.trained_on is not None
        profile = self.problem.prices.latency
        if min(self.problem.trained_on.temperatures) > 0:
            profile = profile.at_temperature()
        lines = torch.from_numpy(profile.step_lines(self.problem.arms))
        self._steps = lines[:, 0] + lines[:, 1] * (prompt_tokens + answer_tokens / 2)
        reading = profile.read_prompt[0] + profile.read_prompt[1] * prompt_tokens
        drafts = torch.tensor(self.problem.arms) > 1
        self._reading = drafts * (reading / answer_tokens)
