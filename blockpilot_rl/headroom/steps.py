"""Headroom of deciding at every step: simple rules and oracles on recorded traces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from blockpilot_rl.control.oracle import oracle_seconds
from blockpilot_rl.control.requests import TracedRequests
from blockpilot_rl.control.traces import StepTraces, acceptance_rate
from blockpilot_rl.control.tuning import tune
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.round_costs import RoundCosts
from blockpilot_rl.evaluation.measure import Requests
from blockpilot_rl.headroom.results import Steps
from blockpilot_rl.policies.rules import PrefixRule, RateRule, Rule

THRESHOLDS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)
MEMORIES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
PRIOR_WEIGHTS = (1.0, 4.0, 16.0)


def measure_steps(
    requests: Requests, profile: LatencyProfile, train: StepTraces, test: StepTraces
) -> tuple[Steps, dict[str, np.ndarray]]:
    """Measure oracles and rules that decide at every step.

    Args:
        requests: The test rows with a trace.
        profile: Cost of the passes.
        train: Traces to tune the rules on.
        test: Traces of the test rows.

    Returns:
        The result, and the seconds of every rule on the test rows.
    """
    costs, rate = RoundCosts.from_profile(profile), acceptance_rate(train)
    known, unseen = (TracedRequests.alike(traces, rate, costs) for traces in (train, test))
    rules, seconds = {}, {}
    for name, candidates, settings in _rules(test.block_sizes[-1]):
        rule, _ = tune(candidates, known)
        seconds[name] = unseen.seconds(rule)
        tuned = {setting: float(getattr(rule, setting)) for setting in settings}
        rules[name] = requests.measure(seconds[name], settings=tuned)
    longest = test.block_sizes[-1:]
    steps = Steps(
        rows=len(requests),
        prompts=requests.prompts,
        best_fixed=requests.measure(requests.fixed),
        size_oracle=requests.measure(requests.oracle),
        step_oracle=requests.measure(oracle_seconds(test, costs, verify="block")),
        prefix_oracle=requests.measure(oracle_seconds(test, costs, longest)),
        rules=rules,
    )
    return steps, seconds


def _rules(longest: int) -> tuple[tuple[str, Sequence[Rule], tuple[str, ...]], ...]:
    """List the rules: name, rules to try, and the settings to report.

    Args:
        longest: The longest block.
    """
    recent = [
        RateRule(memory, weight, threshold=0.0, plain_memory=memory)
        for memory, weight in product(MEMORIES, PRIOR_WEIGHTS)
    ]
    return (
        ("confident prefix", [PrefixRule(longest, t) for t in THRESHOLDS], ("threshold",)),
        ("recent acceptance", recent, ("memory", "prior_weight")),
    )
