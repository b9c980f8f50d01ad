"""What deciding at every step could win: oracles, and simple rules tuned on training traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

import numpy as np

from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.evaluation.measure import Requests
from blockpilot_rl.headroom.results import Steps
from blockpilot_rl.headroom.step_rules import (
    Always,
    ConfidentPrefix,
    RecentAcceptance,
    Rounds,
    StepTraces,
    acceptance_rate,
)

THRESHOLDS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)
MEMORIES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
PRIOR_WEIGHTS = (1.0, 4.0, 16.0)

Settings = dict[str, float]
Decode = Callable[[StepTraces, Settings], np.ndarray]


def measure_steps(
    requests: Requests,
    sizes: np.ndarray,
    profile: LatencyProfile,
    train: StepTraces,
    test: StepTraces,
) -> tuple[Steps, dict[str, np.ndarray]]:
    """Measure oracles and rules that decide at every step.

    Args:
        requests: The test rows that have a trace.
        sizes: Their seconds under every fixed size, `[n, arms]`.
        profile: What the passes cost.
        train: Traces to tune the rules on.
        test: Traces of the test rows.

    Returns:
        What was found, and the seconds of every rule on the test rows.
    """
    blocks, prefixes = Rounds.of_blocks(test, profile), Rounds.of_prefixes(test, profile)
    rules, seconds = {}, {}
    for name, decode, grid in _rules(profile, acceptance_rate(train)):
        settings = _tune(train, profile, decode, grid)
        seconds[name] = decode(test, settings)
        rules[name] = requests.measure(seconds[name], settings=settings)
    steps = Steps(
        rows=len(requests),
        prompts=requests.prompts,
        best_fixed=requests.measure(requests.fixed),
        size_oracle=requests.measure(sizes.min(axis=1)),
        step_oracle=requests.measure(blocks.oracle()),
        prefix_oracle=requests.measure(prefixes.oracle()),
        rules=rules,
    )
    return steps, seconds


def _rules(
    profile: LatencyProfile, rate: float
) -> tuple[tuple[str, Decode, Iterable[Settings]], ...]:
    """Name, decode times and settings to try of each rule.

    Args:
        profile: What the passes cost.
        rate: Acceptance rate of the training traces, where the average of each answer starts.
    """

    def confident_prefix(traces: StepTraces, settings: Settings) -> np.ndarray:
        rule = ConfidentPrefix(traces, settings["threshold"])
        return Rounds.of_prefixes(traces, profile).walk(rule)

    def recent_acceptance(traces: StepTraces, settings: Settings) -> np.ndarray:
        rounds, weight = Rounds.of_blocks(traces, profile), settings["prior_weight"]
        # The rate of certain drafts would have no odds.
        start = float(np.clip(rate, 0.001, 0.999))
        prior = (weight * start, weight * (1 - start))
        return rounds.walk(RecentAcceptance(rounds, settings["memory"], prior))

    return (
        ("confident prefix", confident_prefix, [{"threshold": t} for t in THRESHOLDS]),
        (
            "recent acceptance",
            recent_acceptance,
            [{"memory": m, "prior_weight": w} for m, w in product(MEMORIES, PRIOR_WEIGHTS)],
        ),
    )


def _tune(
    train: StepTraces, profile: LatencyProfile, decode: Decode, grid: Iterable[Settings]
) -> Settings:
    """Settings with the largest mean speedup over the training traces."""
    plain = Rounds.of_blocks(train, profile).walk(Always(0))
    return max(grid, key=lambda settings: float((plain / decode(train, settings)).mean()))
