"""Comparison of rules that control every round, on test prompts of a traced sweep.

Everything is tuned on training prompts. Intervals are paired bootstraps over prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from blockpilot_rl.control.oracle import oracle_seconds
from blockpilot_rl.control.requests import StepSplits, TracedRequests
from blockpilot_rl.control.tuning import Baseline, Criterion, baselines, plain_seconds, tune
from blockpilot_rl.evaluation.measure import Measured, Requests
from blockpilot_rl.policies.rules import FixedRule, Rule
from blockpilot_rl.progress import ProgressCallback, no_progress


@dataclass(frozen=True, eq=False)
class StepComparison:
    """Rules that control every round, measured on test prompts.

    Attributes:
        best_fixed: The fixed size that is best in mean speedup on training prompts.
        best_fixed_total: The fixed size that is best in total time on training prompts.
        size_oracle: The fastest fixed size of each request.
        step_oracle: The best lengths of every round in hindsight.
        rules: What each rule achieves, by name.
        tuned: The rule that was tuned, by name.
        seconds: Seconds of each rule on the test requests, `[n]`, by name.
        requests: The test requests that everything was measured on.
    """

    best_fixed: Measured
    best_fixed_total: Measured
    size_oracle: Measured
    step_oracle: Measured
    rules: dict[str, Measured]
    tuned: dict[str, Rule]
    seconds: dict[str, np.ndarray]
    requests: Requests

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON, with the keys of `compare`'s record for agents."""
        return {
            "split": "test",
            "best_fixed": _record(self.best_fixed),
            "best_fixed_total": _record(self.best_fixed_total),
            "agents": {
                name: {**_record(found), "settings": asdict(self.tuned[name])}  # type: ignore[call-overload]
                for name, found in self.rules.items()
            },
            "oracle": _record(self.size_oracle),
            "step_oracle": _record(self.step_oracle),
        }


def _record(found: Measured) -> dict[str, Any]:
    values: dict[str, Any] = {
        "mean_speedup": found.mean_speedup,
        "total_speedup": found.total_speedup,
        "gain": list(found.gain),
        "total_gain": list(found.total_gain),
        "slower_share": found.slower_share,
    }
    if found.block_size is not None:
        values["block_size"] = found.block_size
    return values


def compare_rules(
    splits: StepSplits,
    candidates: Mapping[str, Baseline] | None = None,
    *,
    confidence: float = 0.95,
    seed: int = 0,
    progress: ProgressCallback = no_progress,
) -> StepComparison:
    """Tune rules on the training requests of a sweep and measure them on its test requests.

    Args:
        splits: The requests; see `load_step_splits`.
        candidates: Rules with the settings to try; None for the baselines.
        confidence: Level of the intervals.
        seed: Random seed of the bootstrap.
        progress: Called before each rule.
    """
    train, test = splits.train, splits.test
    lengths = test.traces.block_sizes
    fixed, total = best_fixed_length(train, "mean"), best_fixed_length(train, "total")
    requests = _requests(test, lengths, fixed, total, confidence, seed)
    rules, tuned, seconds = {}, {}, {}
    names = baselines(lengths) if candidates is None else dict(candidates)
    for done, name in enumerate(names):
        progress("rules", done, len(names))
        known, unseen = (
            part if names[name].reads_prior else part.without_prior(splits.rate)
            for part in (train, test)
        )
        tuned[name], _ = tune(names[name].rules(), known)
        seconds[name] = unseen.seconds(tuned[name])
        rules[name] = requests.measure(seconds[name])
    return StepComparison(
        best_fixed=requests.measure(requests.fixed, block_size=fixed),
        best_fixed_total=requests.measure(requests.fixed_total, block_size=total),
        size_oracle=requests.measure(requests.oracle),
        step_oracle=requests.measure(oracle_seconds(test.traces, test.costs)),
        rules=rules,
        tuned=tuned,
        seconds=seconds,
        requests=requests,
    )


def best_fixed_length(requests: TracedRequests, criterion: Criterion) -> int:
    """Find the fixed size that is best on some requests, in `mean` speedup or in `total` time."""
    rules = [FixedRule(length) for length in requests.traces.block_sizes]
    rule, _ = tune(rules, requests, criterion)
    assert isinstance(rule, FixedRule)
    return rule.length


def _requests(
    test: TracedRequests,
    lengths: Sequence[int],
    fixed: int,
    total: int,
    confidence: float,
    seed: int,
) -> Requests:
    every = {length: test.seconds(FixedRule(length)) for length in lengths}
    return Requests(
        plain=plain_seconds(test),
        fixed=every[fixed],
        fixed_total=every[total],
        oracle=np.min(list(every.values()), axis=0),
        ids=test.ids,
        confidence=confidence,
        seed=seed,
    )
