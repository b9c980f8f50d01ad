"""Off-policy evaluation: the reward of a policy, estimated from decisions of another policy.

Every logged decision has the state, the chosen arm, the probability with which it was chosen (its
propensity) and the reward of that arm alone. With `w = π(arm | state) / propensity`, `r` the reward
and `q̂` a model of the rewards:

- IPS averages `w r` (Horvitz and Thompson, 1952): unbiased, with high variance.
- SNIPS divides the sum of `w r` by that of `w` (Swaminathan and Joachims, 2015): much less
  variance, with a bias that vanishes as the number of decisions grows.
- DM averages `Σ_a π(a | state) q̂(state, a)`: low variance, with the bias of the model.
- DR adds the average of `w (r - q̂)` to DM (Dudík, Langford and Li, arXiv 1103.4601): unbiased if
  the propensities are right, with less variance the better the model is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.linalg import solve

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.statistics import Interval, ratios_of_sums
from blockpilot_rl.sweeps.parquet import KEY
from blockpilot_rl.sweeps.table import Sweep

_COLUMNS = ("prompt_id", "block_size", "reward", "propensity")


@dataclass(frozen=True, eq=False)
class LoggedDecisions:
    """Decisions of a logging policy, one row each.

    Attributes:
        states: States that were decided on, `[n, width]`.
        arms: Indices of the chosen arms, `[n]`.
        propensities: Probabilities with which they were chosen, `[n]`, in (0, 1].
        rewards: Rewards of the chosen arms, `[n]`.
        prompt_ids: Prompt of each decision, `[n]`. Those on one prompt are not independent.
        num_arms: Number of arms to choose from.
    """

    states: np.ndarray
    arms: np.ndarray
    propensities: np.ndarray
    rewards: np.ndarray
    prompt_ids: np.ndarray
    num_arms: int

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If lengths differ or a value is out of range; it names the row.
        """
        count = len(self.arms)
        columns = (self.states, self.propensities, self.rewards, self.prompt_ids)
        if count == 0 or any(len(column) != count for column in columns):
            raise BlockPilotError(
                f"logged decisions must be columns of one length above 0, got {count} arms and "
                f"{[len(column) for column in columns]} of the others"
            )
        checks = (
            ((self.arms < 0) | (self.arms >= self.num_arms), f"an arm outside 0..{self.num_arms}"),
            (~((self.propensities > 0) & (self.propensities <= 1)), "a propensity outside (0, 1]"),
            (~np.isfinite(self.rewards), "a reward that is not a finite number"),
            (~np.isfinite(self.states).all(axis=1), "a state with NaN or infinity"),
        )
        for bad, what in checks:
            if bad.any():
                raise BlockPilotError(f"logged decision {np.flatnonzero(bad)[0]} has {what}")

    def __len__(self) -> int:
        """Number of decisions."""
        return len(self.arms)

    @classmethod
    def from_frame(cls, decisions: pd.DataFrame, table: Sweep) -> LoggedDecisions:
        """Read decisions as agents log them, and take their states from a sweep.

        Args:
            decisions: Columns `prompt_id`, `block_size`, `reward` and `propensity`. The columns
                `temperature` and `seed` are needed if the rows of a prompt have different states,
                such as sampled rows with the state group `draft`.
            table: The sweep that the decisions were made on.

        Raises:
            BlockPilotError: If a column is missing, the sweep lacks a row or block size, or the
                row of a decision is ambiguous.
        """
        missing = [name for name in _COLUMNS if name not in decisions]
        if missing:
            raise BlockPilotError(f"logged decisions lack the columns {missing}")
        ids = decisions["prompt_id"].to_numpy()
        return cls(
            states=table.states[_rows_of(decisions, table)],
            arms=np.array([table.arm_index(size) for size in decisions["block_size"]]),
            propensities=decisions["propensity"].to_numpy(dtype=np.float64),
            rewards=decisions["reward"].to_numpy(dtype=np.float64),
            prompt_ids=ids,
            num_arms=len(table.arms),
        )


def _rows_of(decisions: pd.DataFrame, table: Sweep) -> np.ndarray:
    """Find the row of the sweep that each decision was made on, or one with the same state.

    Raises:
        BlockPilotError: If there is none, or several with different states.
    """
    named = ["prompt_id", *(name for name in ("temperature", "seed") if name in decisions)]
    rows = table.rows[KEY].set_axis(["prompt_id", "temperature", "seed"], axis=1)
    rows = rows.assign(row=np.arange(len(table)))
    first = rows.groupby(named)["row"].transform("first").to_numpy()
    found = decisions[named].merge(rows.drop_duplicates(named), "left", named)
    unknown = found.index[found["row"].isna()]
    if len(unknown):
        name = ", ".join(f"{key} {found[key][unknown[0]]}" for key in named)
        raise BlockPilotError(f"logged decisions name {name}, which the sweep lacks")
    # States of one prompt differ only by rounding.
    same = np.isclose(table.states, table.states[first], rtol=0.02, atol=0.02).all(axis=1)
    unclear = decisions["prompt_id"].isin(rows["prompt_id"][~same])
    if unclear.any():
        raise BlockPilotError(
            f"rows of prompt {decisions['prompt_id'][unclear].iloc[0]} have different states, and "
            "logged decisions do not say which row was decided on; log its temperature and seed too"
        )
    return found["row"].to_numpy(dtype=np.int64)


def log_decisions(
    table: Sweep, probabilities: np.ndarray, rng: np.random.Generator
) -> LoggedDecisions:
    """Simulate a log: draw one decision per row of a sweep from a logging policy.

    Args:
        table: The sweep, with the reward of every arm.
        probabilities: The logging policy, `[n, arms]`.
        rng: Draws the arms.
    """
    rows = np.arange(len(table))
    cumulative = probabilities.cumsum(axis=1)
    draws = rng.uniform(0, cumulative[:, -1])
    arms = (draws[:, None] >= cumulative[:, :-1]).sum(axis=1)
    return LoggedDecisions(
        states=table.states,
        arms=arms,
        propensities=probabilities[rows, arms],
        rewards=table.speedups[rows, arms],
        prompt_ids=table.rows["id"].to_numpy(),
        num_arms=len(table.arms),
    )


@dataclass(frozen=True)
class OffPolicyEstimate:
    """An estimate of the reward per decision of a policy.

    Attributes:
        reward: The estimate with a bootstrap interval over prompts. The interval does not include
            the bias of the reward model.
        effective_sample_size: Number of decisions of the policy itself that are as informative as
            the logged ones, `(Σ w)² / Σ w²`; None for the direct method, which has no weights.
    """

    reward: Interval
    effective_sample_size: float | None


@dataclass(frozen=True)
class EstimatorCheck:
    """Quality of an estimator over several logs.

    Attributes:
        mean: Mean of its estimates. The difference from the truth is its bias.
        rmse: Root mean square error.
        coverage: Share of the logs whose interval contains the truth.
        effective_sample_size: Mean over the logs; None for the direct method.
    """

    mean: float
    rmse: float
    coverage: float
    effective_sample_size: float | None


@dataclass(frozen=True)
class OffPolicyCheck:
    """Estimates compared with the truth, which the full sweep contains.

    Attributes:
        logs: Number of logs.
        decisions: Number of decisions in each.
        confidence: Level of the intervals.
        truth: Reward per decision of the policy.
        estimators: Quality of each estimator.
    """

    logs: int
    decisions: int
    confidence: float
    truth: float
    estimators: dict[str, EstimatorCheck]


def evaluate_off_policy(
    logged: LoggedDecisions,
    probabilities: np.ndarray,
    predictions: np.ndarray | None = None,
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, OffPolicyEstimate]:
    """Estimate the reward of a policy with every estimator.

    Args:
        logged: Decisions of the logging policy.
        probabilities: The policy's probability of each arm on the logged states, `[n, arms]`.
        predictions: Rewards of each arm on these states predicted by a model, `[n, arms]`, which
            must not have learned from these rewards; None for those of `predict_rewards`.
        confidence: Level of the intervals.
        seed: Seed of the bootstrap and of the model's folds.

    Returns:
        Estimates by `IPS`, `SNIPS`, `DM` and `DR`.

    Raises:
        BlockPilotError: If probabilities or predictions do not match the decisions.
    """
    if predictions is None:
        predictions = predict_rewards(logged, seed=seed)
    shape = (len(logged), logged.num_arms)
    if probabilities.shape != shape or predictions.shape != shape:
        raise BlockPilotError(
            f"probabilities of shape {probabilities.shape} and predictions of shape "
            f"{predictions.shape} must both be {shape}"
        )
    if (probabilities < 0).any() or not np.allclose(probabilities.sum(axis=1), 1):
        raise BlockPilotError("probabilities must be 0 or more and sum to 1 in every row")
    rows, ones = np.arange(len(logged)), np.ones(len(logged))
    weights = probabilities[rows, logged.arms] / logged.propensities
    direct = (probabilities * predictions).sum(axis=1)
    surprise = logged.rewards - predictions[rows, logged.arms]
    sums = {
        "IPS": (weights * logged.rewards, ones),
        "SNIPS": (weights * logged.rewards, weights),
        "DM": (direct, ones),
        "DR": (direct + weights * surprise, ones),
    }
    squares = float((weights**2).sum())
    size = float(weights.sum() ** 2 / squares) if squares else 0.0
    above, below = (np.stack(columns, axis=1) for columns in zip(*sums.values(), strict=True))
    rewards = ratios_of_sums(above, below, logged.prompt_ids, confidence=confidence, seed=seed)
    return {
        name: OffPolicyEstimate(reward, None if name == "DM" else size)
        for name, reward in zip(sums, rewards, strict=True)
    }


def check_off_policy(
    table: Sweep,
    probabilities: np.ndarray,
    *,
    logs: int = 20,
    confidence: float = 0.95,
    seed: int = 0,
) -> OffPolicyCheck:
    """Estimate the reward of a policy from simulated uniform logs, and compare with the truth.

    The error of one estimate is mostly noise, so several logs of the same prompts are drawn.

    Args:
        table: The sweep.
        probabilities: The policy's probability of each arm on each row, `[n, arms]`.
        logs: Number of logs.
        confidence: Level of the intervals.
        seed: Seed of the logs and of the bootstrap.

    Raises:
        BlockPilotError: If the probabilities do not match the sweep.
    """
    uniform = np.full(table.speedups.shape, 1 / len(table.arms))
    truth = float((probabilities * table.speedups).sum(axis=1).mean())
    found = [
        evaluate_off_policy(
            log_decisions(table, uniform, rng), probabilities, confidence=confidence, seed=seed
        )
        for rng in np.random.default_rng(seed).spawn(logs)
    ]
    return OffPolicyCheck(
        logs=logs,
        decisions=len(table),
        confidence=confidence,
        truth=truth,
        estimators={name: _check([one[name] for one in found], truth) for name in found[0]},
    )


def _check(estimates: Sequence[OffPolicyEstimate], truth: float) -> EstimatorCheck:
    rewards = np.array([estimate.reward for estimate in estimates])
    value, low, high = rewards.T
    sizes = [
        estimate.effective_sample_size
        for estimate in estimates
        if estimate.effective_sample_size is not None
    ]
    return EstimatorCheck(
        mean=float(value.mean()),
        rmse=float(np.sqrt(((value - truth) ** 2).mean())),
        coverage=float(((low <= truth) & (truth <= high)).mean()),
        effective_sample_size=float(np.mean(sizes)) if sizes else None,
    )


def predict_rewards(
    logged: LoggedDecisions, *, folds: int = 5, alpha: float = 100.0, seed: int = 0
) -> np.ndarray:
    """Predict the reward of every arm by cross-fitted ridge regressions.

    The prediction for a prompt is learned from decisions on other prompts, so that the direct and
    the doubly robust method do not use rewards that the model has memorised.

    Args:
        logged: The decisions.
        folds: Number of parts that the prompts are divided into.
        alpha: Penalty on the weights of standardised states.
        seed: Seed of the division.

    Returns:
        Predictions, `[n, arms]`. An arm that is never chosen in the other parts gets their mean
        reward.

    Raises:
        BlockPilotError: If there are fewer than two prompts.
    """
    ids, prompt = np.unique(logged.prompt_ids, return_inverse=True)
    if len(ids) < 2:
        raise BlockPilotError("a reward model needs decisions on two prompts or more")
    fold = np.random.default_rng(seed).permutation(len(ids))[prompt] % min(folds, len(ids))
    scale = logged.states.std(axis=0, dtype=np.float64)
    inputs = (logged.states - logged.states.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    predictions = np.empty((len(logged), logged.num_arms))
    for part in range(fold.max() + 1):
        held = fold == part
        for arm in range(logged.num_arms):
            seen = ~held & (logged.arms == arm)
            rewards = logged.rewards[seen] if seen.any() else logged.rewards[~held]
            predictions[held, arm] = rewards.mean()
            if seen.any():
                centre = inputs[seen].mean(axis=0)
                weights = _ridge(inputs[seen] - centre, rewards - rewards.mean(), alpha)
                predictions[held, arm] += (inputs[held] - centre) @ weights
    return predictions


def _ridge(inputs: np.ndarray, targets: np.ndarray, alpha: float) -> np.ndarray:
    """Solve a ridge regression by the smaller one of its two linear systems."""
    count, width = inputs.shape
    if count < width:
        kernel = inputs @ inputs.T + alpha * np.eye(count)
        return np.asarray(inputs.T @ solve(kernel, targets, assume_a="pos"))
    gram = inputs.T @ inputs + alpha * np.eye(width)
    return np.asarray(solve(gram, inputs.T @ targets, assume_a="pos"))
