"""Headroom: how much there is to win by adapting the block size, before anything is trained.

Fixed sizes are chosen on training prompts and, like everything else, judged on test prompts. Above
them stand what knowing a request's group gives, simple rules that decide at every step, and oracles
that know the outcome. Intervals are paired bootstraps over prompts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.replay import Trace
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.halves import half_oracle
from blockpilot_rl.evaluation.measure import (
    GROUPINGS,
    Measured,
    Requests,
    group_labels,
    group_masks,
)
from blockpilot_rl.evaluation.oracle import (
    best_fixed_by_mean,
    best_fixed_by_total,
    crossfit_oracle,
    mixed_arms,
)
from blockpilot_rl.headroom.results import CostPoint, Group, Headroom, Steps
from blockpilot_rl.headroom.step_rules import StepTraces
from blockpilot_rl.headroom.steps import measure_steps
from blockpilot_rl.headroom.worth import Candidate, judge_worth
from blockpilot_rl.sweeps.reprice import predict_seconds
from blockpilot_rl.sweeps.table import Sweep

COST_FACTORS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class HeadroomSettings:
    """How headroom is measured.

    Attributes:
        confidence: Level of the intervals.
        min_gain: Gain below which adapting is not worth its trouble, as a fraction.
        seed: Seed of the bootstrap.
    """

    confidence: float = 0.95
    min_gain: float = 0.02
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If one is out of range.
        """
        if not 0 < self.confidence < 1:
            raise BlockPilotError(
                f"confidence {self.confidence:g} must lie between 0 and 1, such as 0.95"
            )
        if not self.min_gain >= 0:
            raise BlockPilotError(f"min_gain must be 0 or more, got {self.min_gain:g}")
        if self.seed < 0:
            raise BlockPilotError(f"seed must be 0 or more, got {self.seed}")


def measure_headroom(
    table: Sweep,
    traces: Mapping[int, Trace] | None = None,
    settings: HeadroomSettings | None = None,
) -> Headroom:
    """Measure how much there is to win on a sweep.

    Args:
        table: The sweep, with train and test rows.
        traces: Traces of some rows, by row number. They are of use only if rows of both splits have
            one.
        settings: How to measure.

    Raises:
        BlockPilotError: If a split is missing, or the test split has a single prompt.
    """
    settings = settings or HeadroomSettings()
    train, test = table.split("train"), table.split("test")
    if test.rows["id"].nunique() < 2:
        raise BlockPilotError(
            "the test split has a single prompt and an interval needs two or more; "
            "record more prompts with scripts/collect_sweep.py"
        )
    fixed, total = best_fixed_by_mean(train), best_fixed_by_total(train)
    requests = Requests.from_sweep(
        test, fixed, total, confidence=settings.confidence, seed=settings.seed
    )
    default = table.metadata.default_block_size
    by_group = {name: _ByGroup.of(name, requests, train, test, fixed) for name in GROUPINGS}
    candidates = [
        Candidate(f"the best size of each {name}", requests, found.seconds)
        for name, found in by_group.items()
        if len(set(found.overall.block_sizes.values())) > 1
    ]
    profile = LatencyProfile.from_dict(table.metadata.latency) if table.metadata.latency else None
    steps = None
    if profile is not None and traces:
        steps, rules = _steps(table, requests, profile, traces)
        candidates += rules
    best_fixed = _fixed(requests, test, fixed)
    oracle = requests.measure(test.seconds.min(axis=1))
    resampling: dict[str, Any] = {"confidence": settings.confidence, "seed": settings.seed}
    crossfit = crossfit_oracle(test, fixed, **resampling)
    return Headroom(
        rows=len(test),
        prompts=requests.prompts,
        train_prompts=int(train.rows["id"].nunique()),
        speedups=dict(zip(test.arms, test.speedups.mean(axis=0).tolist(), strict=True)),
        default=_fixed(requests, test, test.arm_index(default)) if default in test.arms else None,
        best_fixed=best_fixed,
        best_fixed_total=_fixed(requests, test, total),
        per_family=by_group["family"].overall,
        per_language=by_group["language"].overall,
        per_temperature=by_group["temperature"].overall,
        oracle=oracle,
        oracle_crossfit=crossfit,
        oracle_halves=half_oracle(test, fixed, **resampling),
        steps=steps,
        families=by_group["family"].groups,
        languages=by_group["language"].groups,
        temperatures=by_group["temperature"].groups,
        costs=_costs(profile, train, test, settings),
        verdict=judge_worth(
            best_fixed,
            oracle,
            requests.gain(_take(test.seconds, mixed_arms(test))),
            crossfit,
            steps,
            candidates,
            confidence=settings.confidence,
            min_gain=settings.min_gain,
        ),
        pair={
            name: getattr(table.metadata, name)
            for name in ("target", "drafter", "fingerprint", "device", "latency_dtype")
        },
        settings=dataclasses.asdict(settings),
    )


@dataclass(frozen=True, eq=False)
class _ByGroup:
    """The best size of each family, language or temperature.

    Attributes:
        overall: Measured on all test rows.
        groups: Measured within each group.
        seconds: Seconds of the test rows, `[n]`.
    """

    overall: Measured
    groups: dict[str, Group]
    seconds: np.ndarray

    @classmethod
    def of(cls, name: str, requests: Requests, train: Sweep, test: Sweep, fixed: int) -> _ByGroup:
        """Choose on the training rows and measure on the test rows."""
        arms = _best_by_group(name, train, test, fixed)
        seconds = _take(test.seconds, arms)
        groups: dict[str, Group] = {}
        sizes: dict[str, int] = {}
        for label, mask in group_masks(test, name).items():
            inner, sizes[label] = requests.select(mask), test.arms[arms[mask][0]]
            groups[label] = Group(
                rows=len(inner),
                best_fixed=inner.measure(seconds[mask], block_size=sizes[label]),
                overall_fixed=inner.measure(inner.fixed, block_size=test.arms[fixed]),
                oracle=inner.measure(test.seconds[mask].min(axis=1)),
            )
        return cls(requests.measure(seconds, block_sizes=sizes), groups, seconds)


def _best_by_group(name: str, train: Sweep, test: Sweep, fixed: int) -> np.ndarray:
    """Arm of every test row that is best in mean speedup on its group's training rows, `[n]`.

    A group without training rows gets the best fixed size.
    """
    seen, labels = group_labels(train, name), group_labels(test, name)
    arms = np.full(len(test), fixed)
    for label in np.intersect1d(seen, labels):
        arms[labels == label] = train.speedups[seen == label].mean(axis=0).argmax()
    return arms


def _take(seconds: np.ndarray, arms: np.ndarray) -> np.ndarray:
    return np.asarray(seconds[np.arange(len(seconds)), arms])


def _fixed(requests: Requests, test: Sweep, arm: int) -> Measured:
    return requests.measure(test.seconds[:, arm], block_size=test.arms[arm])


def _costs(
    profile: LatencyProfile | None,
    train: Sweep,
    test: Sweep,
    settings: HeadroomSettings,
) -> list[CostPoint]:
    if profile is None:
        return []
    return [_cost_point(factor, profile, train, test, settings) for factor in COST_FACTORS]


def _cost_point(
    factor: float,
    profile: LatencyProfile,
    train: Sweep,
    test: Sweep,
    settings: HeadroomSettings,
) -> CostPoint:
    """Price the sweep anew with dearer or cheaper further tokens, and choose and judge again."""
    scaled = profile.scaled(factor)
    train, test = (
        dataclasses.replace(part, seconds=predict_seconds(part, scaled)) for part in (train, test)
    )
    fixed, default = best_fixed_by_mean(train), test.metadata.default_block_size
    requests = Requests.from_sweep(
        test, fixed, fixed, confidence=settings.confidence, seed=settings.seed
    )
    means = test.speedups.mean(axis=0)
    return CostPoint(
        factor=factor,
        token_cost=scaled.token_cost(float(test.rows["prompt_tokens"].mean())),
        best_fixed=test.arms[fixed],
        best_fixed_speedup=float(means[fixed]),
        default_speedup=float(means[test.arm_index(default)]) if default in test.arms else None,
        per_family=requests.gain(_take(test.seconds, _best_by_group("family", train, test, fixed))),
        oracle=requests.gain(test.seconds.min(axis=1)),
    )


def _steps(
    table: Sweep, requests: Requests, profile: LatencyProfile, traces: Mapping[int, Trace]
) -> tuple[Steps | None, list[Candidate]]:
    """Measure deciding at every step on the rows that have a trace.

    Returns:
        What was found and the rules; nothing if a split has no trace.
    """
    split = table.rows["split"].to_numpy()
    has_trace = np.isin(np.arange(len(table)), list(traces))
    by_split = {name: np.flatnonzero((split == name) & has_trace) for name in ("train", "test")}
    if not all(map(len, by_split.values())):
        return None, []
    train, test = (
        StepTraces.pad(
            table.arms,
            [traces[int(row)] for row in rows],
            table.rows["prompt_tokens"].to_numpy()[rows],
            table.temperatures[rows] > 0,
        )
        for rows in by_split.values()
    )
    traced = requests.select(has_trace[split == "test"])
    steps, seconds = measure_steps(traced, table.seconds[by_split["test"]], profile, train, test)
    rules = [Candidate(f"the step rule “{name}”", traced, took) for name, took in seconds.items()]
    return steps, rules
