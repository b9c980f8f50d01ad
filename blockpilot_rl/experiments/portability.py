"""Portability: a policy that is trained once and priced for other devices.

An acceptance policy is trained on a sweep and then priced for devices where a further token of a
block costs more or less. A reward policy is trained again for each device, and another one keeps
the choices that it learned for the sweep's own device.
"""

from __future__ import annotations

import dataclasses
import math
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.state import DEFAULT_GROUPS
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import decision_seconds
from blockpilot_rl.evaluation.leakage import refuse_overlap
from blockpilot_rl.evaluation.measure import Requests
from blockpilot_rl.evaluation.oracle import best_fixed_by_mean, best_fixed_by_total
from blockpilot_rl.evaluation.results import Portability, PortabilityPoint
from blockpilot_rl.evaluation.statistics import Interval, ratio_of_sums
from blockpilot_rl.experiments.processes import process_map
from blockpilot_rl.experiments.seeds import SeedResult, Splits, Trainer
from blockpilot_rl.options import check_options, option
from blockpilot_rl.progress import ProgressCallback, no_progress
from blockpilot_rl.provenance import usable_cpus
from blockpilot_rl.sweeps.reprice import predict_seconds, sweep_latency
from blockpilot_rl.sweeps.selection import select_temperature, state_groups_for
from blockpilot_rl.sweeps.table import Sweep

DEFAULT_PRICES = (0.0, 0.7, 2.7, 5.3, 10.7)
"""Costs of a further token in percent of a plain pass: from a large GPU at batch size 1, through
CPUs, to a batch that fills the device."""

ACCEPTANCE, REWARD = "acceptance", "ridge-regression"


@dataclass(frozen=True)
class PortabilityConfig:
    """How portability is measured.

    Attributes:
        prices: Costs of a further token in percent of a plain pass.
        algorithm: Agent whose policy is trained once.
        reward_algorithm: Agent that is trained for each device.
        seeds: Number of seeds to train every agent with.
        seed: First seed, and seed of the bootstrap.
        state_groups: State groups that the agents see.
        temperature: Rows to use, as in `select_temperature`.
        confidence: Level of the intervals.
        jobs: Processes; None for one per processor, at most one per seed.
    """

    prices: tuple[float, ...] = DEFAULT_PRICES
    algorithm: str = ACCEPTANCE
    reward_algorithm: str = REWARD
    seeds: int = option(3, minimum=1, help="number of seeds to train with")
    seed: int = option(0, minimum=0, help="first seed")
    state_groups: tuple[str, ...] = DEFAULT_GROUPS
    temperature: float | str | None = None
    confidence: float = option(0.95, above=0, below=1, help="level of the intervals")
    jobs: int | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If one is out of range.
        """
        check_options(self)
        check_prices(self.prices)


def check_prices(prices: Sequence[float]) -> None:
    """Check costs of a further token.

    Raises:
        BlockPilotError: If there are none, or one is not a number of 0 or more.
    """
    if not prices or not all(0 <= price < math.inf for price in prices):
        raise BlockPilotError(
            f"prices must be percents of a plain pass of 0 or more, such as 0,2.7, got {prices}"
        )


def parse_prices(text: str) -> tuple[float, ...]:
    """Read costs of a further token, such as `0,2.7`.

    Raises:
        BlockPilotError: If the text is something else.
    """
    try:
        prices = tuple(float(word) for word in text.split(","))
    except ValueError:
        raise BlockPilotError(f"must be percents such as 0,2.7, got {text!r}") from None
    check_prices(prices)
    return prices


def evaluate_portability(
    sweep: Sweep | str | Path | None = None,
    config: PortabilityConfig | None = None,
    *,
    hyperparams: Mapping[str, Mapping[str, Any]] | None = None,
    progress: ProgressCallback | None = None,
) -> Portability:
    """Measure how much of its gain a policy keeps on devices with other prices.

    Args:
        sweep: The sweep, or its folder; None for the bundled one.
        config: What to measure; None for the defaults.
        hyperparams: For each algorithm, values that replace those of its YAML file.
        progress: Called with the agent that is trained, its trained seeds, and all its seeds.

    Raises:
        BlockPilotError: If an argument or the sweep is invalid, or its splits overlap.
    """
    config = config or PortabilityConfig()
    groups = state_groups_for(config.state_groups, config.temperature)
    table = sweep if isinstance(sweep, Sweep) else Sweep.load(sweep)
    rows, _ = select_temperature(table.with_groups(groups), config.temperature)
    splits = Splits.from_sweep(rows)
    refuse_overlap((splits.train, splits.validation), splits.test)
    trainer = Trainer(
        range(config.seed, config.seed + config.seeds),
        groups,
        hyperparams=hyperparams,
        progress=progress or no_progress,
    )
    with process_map(min(config.jobs or usable_cpus(), config.seeds)) as trainer.map_seeds:
        return measure_portability(
            trainer,
            splits,
            config.prices,
            config.algorithm,
            config.reward_algorithm,
            confidence=config.confidence,
            seed=config.seed,
        )


def measure_portability(
    trainer: Trainer,
    splits: Splits,
    prices: Sequence[float],
    algorithm: str,
    reward_algorithm: str,
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> Portability:
    """Train once and for each price, and judge on the test rows; see `evaluate_portability`.

    Args:
        trainer: Trains the agents.
        splits: The rows, at the prices of their sweep.
        prices: Costs of a further token in percent of a plain pass. The sweep's own cost is added.
        algorithm: Agent whose policy is trained once.
        reward_algorithm: Agent that is trained for each device.
        confidence: Level of the intervals.
        seed: Seed of the bootstrap.
    """
    profile = sweep_latency(splits.train)
    context = float(splits.train.rows["prompt_tokens"].mean())
    own = profile.token_cost(context)
    if own <= 0:
        raise BlockPilotError(
            "further tokens cost nothing in this sweep's latency profile, so other prices cannot "
            "be derived from it; re-price it with `blockpilot calibrate --sweep`"
        )
    carried = trainer.run(algorithm, splits, label="trained once")
    kept = trainer.run(reward_algorithm, splits, label="trained once")
    took = _decision_seconds(carried[0], splits.test), _decision_seconds(kept[0], splits.test)
    points: list[PortabilityPoint] = []
    for cost in sorted({own, *(price / 100 for price in prices)}):
        device = profile if cost == own else profile.scaled(cost / own)
        there = splits.map(partial(_repriced, profile=device))
        label = f"at {100 * cost:.3g}%"
        retrained = kept if cost == own else trainer.run(reward_algorithm, there, label=label)
        fixed = best_fixed_by_mean(there.train)
        requests = Requests.from_sweep(
            there.test, fixed, best_fixed_by_total(there.train), confidence=confidence, seed=seed
        )
        priced = np.stack([_choices(result, there.test, device) for result in carried])
        seconds = {
            "carried": _seconds(there.test, priced) + took[0],
            "carried_reward": _seconds(there.test, _arms(kept)) + took[1],
            "retrained": _seconds(there.test, _arms(retrained)) + took[1],
        }
        best = requests.speedups(requests.fixed)
        over = {name: requests.speedups(value) - best for name, value in seconds.items()}
        gains = {name: requests.gain(value) for name, value in seconds.items()}
        kept_share = ratio_of_sums(
            over["carried"], over["retrained"], requests.ids, confidence=confidence, seed=seed
        )
        points.append(
            PortabilityPoint(
                token_cost=cost,
                is_own=cost == own,
                best_fixed=there.test.arms[fixed],
                best_fixed_speedup=float(best.mean()),
                **gains,
                # A share of nothing says nothing.
                kept=kept_share if gains["retrained"].low > 0 else Interval(*[math.nan] * 3),
                oracle=requests.gain(requests.oracle),
            )
        )
    return Portability(algorithm, reward_algorithm, points)


def _repriced(table: Sweep, profile: LatencyProfile) -> Sweep:
    metadata = dataclasses.replace(table.metadata, latency=profile.to_dict())
    return dataclasses.replace(table, metadata=metadata, seconds=predict_seconds(table, profile))


def _choices(result: SeedResult, test: Sweep, profile: LatencyProfile) -> np.ndarray:
    """Arms that a trained acceptance policy chooses at the prices of a device, `[n]`."""
    policy = pickle.loads(result.policy).for_device(profile)
    columns = test.metadata.state.columns(policy.state_groups)
    chosen: np.ndarray = policy.predict(test.states[:, columns])
    return chosen


def _arms(results: Sequence[SeedResult]) -> np.ndarray:
    return np.stack([result.arms for result in results])


def _seconds(test: Sweep, arms: np.ndarray) -> np.ndarray:
    """Seconds of every row under choices `[seeds, n]`."""
    return np.asarray(test.seconds[np.arange(len(test)), arms])


def _decision_seconds(result: SeedResult, test: Sweep) -> np.ndarray:
    return decision_seconds(pickle.loads(result.policy), test, result.arms)
