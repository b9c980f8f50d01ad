"""Headroom: how much adapting the block size could gain, before anything is trained.

Fixed sizes are chosen on training prompts. Fixed sizes, simple choices without learning, and
oracles that know the outcome are measured on test prompts. Intervals are paired bootstraps over
prompts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blockpilot_rl.control.traces import StepTraces
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.replay import Trace
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.measure import (
    GROUPINGS,
    LOOPS,
    SOURCE,
    Measured,
    Requests,
    group_labels,
    group_masks,
)
from blockpilot_rl.evaluation.oracle import (
    CrossFit,
    best_fixed_by_mean,
    best_fixed_by_total,
    crossfit_oracle,
    half_oracle,
    mixed_arms,
)
from blockpilot_rl.evaluation.statistics import Interval
from blockpilot_rl.headroom.results import CostPoint, Group, Headroom, HeadroomVerdict, Steps
from blockpilot_rl.headroom.steps import measure_steps
from blockpilot_rl.options import check_options, option
from blockpilot_rl.sweeps.reprice import predict_seconds
from blockpilot_rl.sweeps.selection import check_temperature, select_temperature
from blockpilot_rl.sweeps.table import BUNDLED_SWEEP, Sweep
from blockpilot_rl.sweeps.traces import TRACE_FILE, load_traces

COST_FACTORS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class HeadroomSettings:
    """How headroom is measured."""

    confidence: float = option(0.95, help="level of the intervals", above=0, below=1)
    min_gain: float = option(
        0.02,
        help="smallest gain in mean speedup that justifies adapting, as a fraction",
        minimum=0,
    )
    seed: int = option(0, help="seed of the bootstrap", minimum=0)
    temperature: str | None = option(
        None,
        metavar="T",
        help="use the rows of this temperature, or all; by default the greedy rows of a sweep that "
        "has several temperatures",
    )

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If one is out of range.
        """
        check_options(self)
        check_temperature(self.temperature)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A way to choose the block size without learning.

    Attributes:
        kind: `"group"` for the best size of each group, `"rule"` for a rule at every step.
        name: What the groups are, or the name of the rule.
        requests: The requests that it was measured on.
        seconds: Their seconds, `[n]`.
    """

    kind: str
    name: str
    requests: Requests
    seconds: np.ndarray


def measure_headroom(
    sweep: Sweep | str | Path | None = None,
    traces: Mapping[int, Trace] | None = None,
    settings: HeadroomSettings | None = None,
) -> Headroom:
    """Measure how much adapting the block size could gain on a sweep.

    Args:
        sweep: A sweep with train and test rows, or its folder; None for the bundled sweep. For a
            folder, the rows of `settings.temperature` and the folder's traces are used.
        traces: Traces of some rows, by row number. They are used if training and test rows have
            some. None for those of the folder.
        settings: How to measure.

    Returns:
        The gains, with a verdict in words.

    Raises:
        BlockPilotError: If a split is missing, the test split has a single prompt, or a temperature
            is given with a sweep that is not a folder.
    """
    settings = settings or HeadroomSettings()
    if not isinstance(sweep, Sweep):
        rows, folder_traces, notes = _load(sweep, settings.temperature)
        found = _measure(rows, folder_traces if traces is None else traces, settings)
        return dataclasses.replace(found, notes=notes)
    if settings.temperature is not None:
        raise BlockPilotError(
            "temperature selects rows of a sweep's folder; select the rows of a Sweep with "
            "select_temperature"
        )
    return _measure(sweep, traces, settings)


def _load(
    sweep: str | Path | None, temperature: str | None
) -> tuple[Sweep, dict[int, Trace] | None, list[str]]:
    """Read the rows of a folder, their traces if there are any, and notes for the reader."""
    folder = BUNDLED_SWEEP if sweep is None else Path(sweep)
    rows, note = select_temperature(Sweep.load(folder), temperature)
    traces = load_traces(folder, rows) if (folder / TRACE_FILE).exists() else None
    return rows, traces, [] if note is None else [note]


def _measure(
    table: Sweep, traces: Mapping[int, Trace] | None, settings: HeadroomSettings
) -> Headroom:
    train, test = _split(table)
    fixed, total = best_fixed_by_mean(train), best_fixed_by_total(train)
    resampling: dict[str, Any] = {"confidence": settings.confidence, "seed": settings.seed}
    requests = Requests.from_sweep(test, fixed, total, **resampling)
    default = table.metadata.default_block_size
    by_group = {name: _by_group(name, requests, train, test, fixed) for name in GROUPINGS}
    profile = LatencyProfile.from_dict(table.metadata.latency) if table.metadata.latency else None
    steps, rules = _steps(table, requests, profile, traces)
    best_fixed = _fixed(requests, test, fixed)
    oracle = requests.measure(requests.oracle)
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
        sources=_by_group(SOURCE, requests, train, test, fixed).groups,
        halves_by_source=_halves_by_source(test, fixed, resampling),
        loops=_by_group(LOOPS, requests, train, test, fixed).groups,
        costs=_costs(profile, train, test, resampling),
        verdict=judge_headroom(
            best_fixed,
            oracle,
            requests.gain(_take(test.seconds, mixed_arms(test))),
            crossfit,
            steps,
            [*_group_candidates(by_group, requests), *rules],
            confidence=settings.confidence,
            min_gain=settings.min_gain,
        ),
        pair={
            name: getattr(table.metadata, name)
            for name in ("target", "drafter", "fingerprint", "device", "latency_dtype")
        },
        settings=dataclasses.asdict(settings),
    )


def _split(table: Sweep) -> tuple[Sweep, Sweep]:
    """Return the train and test rows.

    Raises:
        BlockPilotError: If a split is missing, or the test split has a single prompt.
    """
    train, test = table.split("train"), table.split("test")
    if test.rows["id"].nunique() < 2:
        raise BlockPilotError(
            "the test split has a single prompt and an interval needs two or more; "
            "record more prompts with `blockpilot collect-sweep`"
        )
    return train, test


@dataclass(frozen=True, eq=False)
class _ByGroup:
    """The best size of each group.

    Attributes:
        overall: Measured on all test rows.
        groups: Measured within each group.
        seconds: Seconds of the test rows, `[n]`.
    """

    overall: Measured
    groups: dict[str, Group]
    seconds: np.ndarray


def _by_group(grouping: str, requests: Requests, train: Sweep, test: Sweep, fixed: int) -> _ByGroup:
    """Choose the best size of each group on training rows and measure it on test rows."""
    arms = _best_by_group(grouping, train, test, fixed)
    seconds = _take(test.seconds, arms)
    groups: dict[str, Group] = {}
    sizes: dict[str, int] = {}
    for label, mask in group_masks(test, grouping).items():
        inner, sizes[label] = requests.select(mask), test.arms[arms[mask][0]]
        groups[label] = Group(
            rows=len(inner),
            best_fixed=inner.measure(seconds[mask], block_size=sizes[label]),
            overall_fixed=inner.measure(inner.fixed, block_size=test.arms[fixed]),
            oracle=inner.measure(inner.oracle),
        )
    return _ByGroup(requests.measure(seconds, block_sizes=sizes), groups, seconds)


def _halves_by_source(
    test: Sweep, fixed: int, resampling: Mapping[str, Any]
) -> dict[str, CrossFit]:
    """The oracle of one half of each answer on seen and on unseen sources, if there are both."""
    masks = group_masks(test, SOURCE)
    found = {
        name: half_oracle(test.select_rows(mask), fixed, **resampling)
        for name, mask in masks.items()
        if len(masks) > 1
    }
    return {name: halves for name, halves in found.items() if halves is not None}


def _group_candidates(by_group: Mapping[str, _ByGroup], requests: Requests) -> list[Candidate]:
    """List the groupings whose groups have different best sizes."""
    return [
        Candidate("group", name, requests, found.seconds)
        for name, found in by_group.items()
        if len(set(found.overall.block_sizes.values())) > 1
    ]


def _best_by_group(grouping: str, train: Sweep, test: Sweep, fixed: int) -> np.ndarray:
    """Arm of every test row with the largest mean speedup on its group's training rows, `[n]`.

    Groups without training rows get the best fixed size.
    """
    seen, labels = group_labels(train, grouping), group_labels(test, grouping)
    arms = np.full(len(test), fixed)
    for label in np.intersect1d(seen, labels):
        arms[labels == label] = train.speedups[seen == label].mean(axis=0).argmax()
    return arms


def _take(seconds: np.ndarray, arms: np.ndarray) -> np.ndarray:
    return np.asarray(seconds[np.arange(len(seconds)), arms])


def _fixed(requests: Requests, test: Sweep, arm: int) -> Measured:
    return requests.measure(test.seconds[:, arm], block_size=test.arms[arm])


def _costs(
    profile: LatencyProfile | None, train: Sweep, test: Sweep, resampling: Mapping[str, Any]
) -> list[CostPoint]:
    if profile is None:
        return []
    return [_cost_point(factor, profile, train, test, resampling) for factor in COST_FACTORS]


def _cost_point(
    factor: float,
    profile: LatencyProfile,
    train: Sweep,
    test: Sweep,
    resampling: Mapping[str, Any],
) -> CostPoint:
    """Price the sweep with cheaper or more expensive further tokens, and choose and judge again."""
    scaled = profile.scaled(factor)
    train, test = (
        dataclasses.replace(part, seconds=predict_seconds(part, scaled)) for part in (train, test)
    )
    fixed, default = best_fixed_by_mean(train), test.metadata.default_block_size
    requests = Requests.from_sweep(test, fixed, fixed, **resampling)
    means = test.speedups.mean(axis=0)
    return CostPoint(
        factor=factor,
        token_cost=scaled.token_cost(float(test.rows["prompt_tokens"].mean())),
        best_fixed=test.arms[fixed],
        best_fixed_speedup=float(means[fixed]),
        default_speedup=float(means[test.arm_index(default)]) if default in test.arms else None,
        per_family=requests.gain(_take(test.seconds, _best_by_group("family", train, test, fixed))),
        oracle=requests.gain(requests.oracle),
    )


def _steps(
    table: Sweep,
    requests: Requests,
    profile: LatencyProfile | None,
    traces: Mapping[int, Trace] | None,
) -> tuple[Steps | None, list[Candidate]]:
    """Measure deciding at every step on the rows with a trace.

    Returns:
        The result and the rules; nothing without a latency profile, or if a split has no trace.
    """
    if profile is None or not traces:
        return None, []
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
    steps, seconds = measure_steps(traced, profile, train, test)
    return steps, [Candidate("rule", name, traced, took) for name, took in seconds.items()]


def judge_headroom(
    best_fixed: Measured,
    oracle: Measured,
    mixed: Interval,
    crossfit: CrossFit | None,
    steps: Steps | None,
    candidates: Sequence[Candidate],
    *,
    confidence: float,
    min_gain: float,
) -> HeadroomVerdict:
    """Decide whether adapting is worth it.

    Yes, if a candidate gains at least `min_gain` over the best fixed size and its interval is above
    0, at a level adjusted for the number of candidates (Bonferroni). No, if even choices that know
    the outcome have intervals below `min_gain`: the fastest size of each request, and the best
    prefix at every step. Otherwise maybe: only training can show it. The cross-fitted oracle is not
    a bound, since it chooses by a few other samples, which a good predictor can beat.

    Args:
        best_fixed: The best fixed size.
        oracle: The fastest size of each request.
        mixed: Gain of the fastest size of each request, cross-fitted where a prompt has several
            answers.
        crossfit: The cross-fitted oracle alone, if there is one.
        steps: Deciding at every step, if it was measured.
        candidates: Choices without learning.
        confidence: Level of the intervals, before adjustment.
        min_gain: Smallest gain that makes adapting worth it, as a fraction.
    """
    largest = oracle.gain.high
    if steps is not None:
        largest = max(largest, steps.prefix_oracle.gain.high)
    replicated = crossfit is not None and crossfit.source == "replicates"
    verdict = HeadroomVerdict(
        worth="no" if largest < min_gain else "maybe",
        min_gain=min_gain,
        block_size=best_fixed.block_size,
        oracle_gain=oracle.gain,
        largest_gain=largest,
        crossfit_gain=mixed if replicated else None,
        crossfit_prompts=crossfit.prompts if crossfit is not None and replicated else None,
        prefix_gain=None if steps is None else steps.prefix_oracle.gain,
    )
    level = 1 - (1 - confidence) / max(1, len(candidates))
    gains = [(each, each.requests.gain(each.seconds, level)) for each in candidates]
    enough = [found for found in gains if found[1].low > 0 and found[1].value >= min_gain]
    if not enough:
        return verdict
    best, gain = max(enough, key=lambda found: found[1].low)
    return dataclasses.replace(
        verdict,
        worth="yes",
        candidate=best.name,
        candidate_kind=best.kind,
        candidate_gain=gain,
        candidate_confidence=level,
    )
