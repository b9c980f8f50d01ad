from __future__ import annotations

import numpy as np

from blockpilot_rl.control.requests import TracedRequests
from blockpilot_rl.control.traces import acceptance_rate
from blockpilot_rl.evaluation.measure import Requests
from blockpilot_rl.headroom.steps import measure_steps
from blockpilot_rl.policies.rules import FixedRule, PrefixRule, RateRule
from tests.control.traced import COSTS, PROFILE, SIZES, some_traces


def test_rules_are_tuned_on_training_traces_and_measured_on_test_traces():
    train, test = some_traces(rows=30, seed=1), some_traces(rows=30, seed=2)
    unseen = TracedRequests.alike(test, acceptance_rate(train), COSTS)
    seconds = np.array([unseen.seconds(FixedRule(size)) for size in SIZES])
    requests = Requests(
        plain=seconds[0],
        fixed=seconds[1],
        fixed_total=seconds[1],
        oracle=seconds.min(axis=0),
        ids=np.arange(30).astype(str),
    )
    steps, found = measure_steps(requests, PROFILE, train, test)
    assert set(found) == {"confident prefix", "recent acceptance"} == set(steps.rules)
    prefix = PrefixRule(SIZES[-1], steps.rules["confident prefix"].settings["threshold"])
    np.testing.assert_array_equal(found["confident prefix"], unseen.seconds(prefix))
    tuned = steps.rules["recent acceptance"].settings
    recent = RateRule(**tuned, threshold=0.0, plain_memory=tuned["memory"])
    np.testing.assert_array_equal(found["recent acceptance"], unseen.seconds(recent))
    for rule in steps.rules.values():
        assert rule.mean_speedup < steps.step_oracle.mean_speedup
    assert steps.step_oracle.mean_speedup >= steps.size_oracle.mean_speedup
