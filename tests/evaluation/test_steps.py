from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from blockpilot_rl.control.requests import (
    StepSplits,
    TracedRequests,
    judged_drafts,
    load_step_splits,
    step_splits,
)
from blockpilot_rl.control.tuning import Baseline, plain_seconds
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.round_costs import RoundCosts
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.steps import compare_rules
from blockpilot_rl.policies.rate_prior import RatePrior
from blockpilot_rl.policies.rules import FixedRule, RateRule
from tests.control.traced import COSTS, SIZES, some_traces
from tests.synthetic import ARMS, synthetic_table


@pytest.fixture(scope="module")
def splits():
    def requests(seed):
        return TracedRequests.alike(some_traces(25, seed), 0.6, COSTS)

    return StepSplits(
        requests(1), None, requests(2), RatePrior.constant(0.6), 0.6, synthetic_table(20)
    )


CANDIDATES = {
    "fixed": Baseline(FixedRule, {"length": SIZES}),
    "rate": Baseline(RateRule, {"memory": (0.5, 0.9), "threshold": (0.0, 0.2)}, reads_prior=True),
}


def test_rules_are_measured_against_the_best_fixed_size(splits):
    seen = []
    found = compare_rules(splits, CANDIDATES, progress=lambda *step: seen.append(step))
    assert seen == [("rules", 0, 2), ("rules", 1, 2)]
    plain, test = plain_seconds(splits.test), splits.test
    best = max(
        SIZES,
        key=lambda size: (
            plain_seconds(splits.train) / splits.train.seconds(FixedRule(size))
        ).mean(),
    )
    assert found.best_fixed.block_size == best
    assert found.rules["fixed"].gain == (0, 0, 0)
    for name, measured in found.rules.items():
        seconds = test.seconds(found.tuned[name])
        np.testing.assert_array_equal(seconds, found.seconds[name])
        assert measured.mean_speedup == pytest.approx((plain / seconds).mean())
        assert measured.total_speedup == pytest.approx(plain.sum() / seconds.sum())
        assert measured.mean_speedup <= found.step_oracle.mean_speedup
    assert found.size_oracle.mean_speedup <= found.step_oracle.mean_speedup
    record = json.loads(json.dumps(found.to_dict()))
    assert record["agents"]["rate"]["gain"] == list(found.rules["rate"].gain)
    assert record["best_fixed"]["block_size"] == best
    assert set(record) >= {"split", "best_fixed", "best_fixed_total", "agents", "step_oracle"}


def test_the_bundled_traces_are_split_and_priced():
    found = load_step_splits()
    assert (len(found.train), len(found.validation), len(found.test)) == (40, 40, 40)
    assert found.test.rates.std() > 0.05
    profile = LatencyProfile.from_dict(found.table.metadata.latency)
    assert found.test.costs.verify[0, 1, 0] == profile.verify[0][0]
    twice = dataclasses.replace(
        profile, verify=tuple((2 * offset, 2 * slope) for offset, slope in profile.verify)
    )
    plain = plain_seconds(found.test)
    priced = found.test.priced(RoundCosts.from_profile(twice))
    np.testing.assert_allclose(plain_seconds(priced), 2 * plain)


def test_judged_drafts_are_those_of_the_longest_block():
    table = synthetic_table(30)
    accepted, rejected = judged_drafts(table)
    for row in range(30):
        lengths = table.accepted[row][-1]
        assert accepted[row] == sum(lengths) - len(lengths)
        assert rejected[row] == sum(length < ARMS[-1] for length in lengths)


def test_what_is_missing_is_named():
    table, lines = synthetic_table(30), tuple((1.0, 0.0) for _ in ARMS)
    with pytest.raises(BlockPilotError, match="the sweep has no latency profile; measure one"):
        step_splits(table, {})
    with pytest.raises(BlockPilotError, match="training and test prompts need traces"):
        step_splits(table, {}, LatencyProfile(ARMS, lines, lines, (0.0, 0.0), {}))
