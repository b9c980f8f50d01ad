from __future__ import annotations

import numpy as np
import pytest

from blockpilot_rl.control.requests import TracedRequests
from blockpilot_rl.control.traces import acceptance_rate
from blockpilot_rl.control.tuning import baselines, speedup, tune
from blockpilot_rl.decoding.replay import Trace
from blockpilot_rl.policies.rules import FixedRule
from tests.control.traced import COSTS, SIZES, padded, some_traces


def requests(seed: int = 0) -> TracedRequests:
    traces = some_traces(rows=20, seed=seed)
    return TracedRequests.alike(traces, 0.6, COSTS)


@pytest.mark.parametrize("criterion", ["mean", "total"])
def test_the_best_fixed_length_is_found(criterion):
    train = requests()
    plain = train.seconds(FixedRule(1))
    speedups = [speedup(plain, train.seconds(FixedRule(size)), criterion) for size in SIZES]
    rule, best = tune(baselines(SIZES)["fixed"].rules(), train, criterion)
    assert rule == FixedRule(SIZES[int(np.argmax(speedups))])
    assert best == max(speedups)


@pytest.mark.parametrize("name", baselines(SIZES))
def test_every_baseline_decodes_every_token(name):
    baseline, found = baselines(SIZES)[name], requests()
    rules = baseline.rules()
    assert len(rules) == np.prod([len(values) for values in baseline.grid.values()])
    for rule in (rules[0], rules[-1]):
        done = found.simulate(rule, record=True)
        for row, anchors in enumerate(found.traces.anchors):
            assert sum(accepted for _, _, accepted in done.of(row)) == anchors


def test_another_price_changes_seconds_alone():
    found = requests()
    costs = COSTS.with_chain(0.01)
    again = found.priced(costs)
    assert again.costs is costs
    assert again.traces is found.traces


def test_the_rate_of_acceptance():
    """Blocks of 4 that emit 4, 2 and 1 judge 3, 2 and 1 drafts, of which 3, 1 and 0 are right."""
    first = Trace(np.array([[1, 2, 2], [1, 1, 1]], np.int16), np.ones((2, 3), np.float16))
    whole = Trace(
        np.array([[1, 2, 4], [1, 2, 3], [1, 2, 2], [1, 1, 1]], np.int16),
        np.ones((4, 3), np.float16),
    )
    accepted = [1, 0, 3, 2, 1, 0]
    rejected = [1, 1, 0, 1, 1, 1]
    rate = sum(accepted) / (sum(accepted) + sum(rejected))
    assert acceptance_rate(padded([first, whole], [5, 5])) == pytest.approx(rate)
