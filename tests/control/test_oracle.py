from __future__ import annotations

import numpy as np
import pytest

from blockpilot_rl.control.oracle import oracle_seconds
from blockpilot_rl.control.simulate import simulate
from blockpilot_rl.decoding.replay import Trace
from blockpilot_rl.policies.rules import FixedLengths
from tests.control.test_simulate import Randomly
from tests.control.traced import COSTS, SIZES, padded, random_trace, some_traces


def schedules(accepted, verify, at=0):
    """Every way through an answer, as lists of (anchor, drafted, verified)."""
    if at == len(accepted):
        yield []
        return
    for column, drafted in enumerate(SIZES):
        for verified in [drafted] if verify == "block" else range(1, drafted + 1):
            emitted = min(int(accepted[at, column]), verified)
            for rest in schedules(accepted, verify, at + emitted):
                yield [(at, drafted, verified), *rest]


@pytest.mark.parametrize("verify", ["block", "prefix"])
@pytest.mark.parametrize("seed", range(4))
def test_the_oracle_is_the_best_of_all_schedules(verify, seed):
    rng = np.random.default_rng(seed)
    traces = [random_trace(rng, steps) for steps in (1, 3, 5)]
    greedy = np.array(False)
    best = []
    for trace, tokens in zip(traces, (3, 50, 9), strict=True):
        times = []
        for schedule in schedules(trace.accepted, verify):
            seconds = sum(
                COSTS.draft_seconds(np.array(drafted), np.array(tokens + at), greedy)
                + COSTS.verify_seconds(np.array(verified), np.array(tokens + at), greedy)
                for at, drafted, verified in schedule
            )
            if any(drafted > 1 for _, drafted, _ in schedule):
                seconds += 0.05 + 0.001 * tokens
            times.append(seconds)
        best.append(min(times))
    np.testing.assert_allclose(
        oracle_seconds(padded(traces, [3, 50, 9]), COSTS, verify=verify), best
    )


def test_plain_decoding_reads_no_prompt():
    """If drafting never helps, the oracle does not include reading by the drafter either."""
    hopeless = Trace(np.ones((5, 3), np.int16), np.zeros((5, 3), np.float16))
    plain = sum(1.0 + 0.01 * (10 + at) for at in range(5))
    np.testing.assert_allclose(oracle_seconds(padded([hopeless], [10]), COSTS), [plain])


@pytest.mark.parametrize("budget", [None, 41])
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("verify", ["block", "prefix"])
def test_no_schedule_is_faster_than_the_oracle(verify, sampled, budget):
    traces = some_traces(sampled=sampled, budget=budget)
    least = oracle_seconds(traces, COSTS, verify=verify)
    for length in SIZES:
        fixed = simulate(traces, FixedLengths(np.full(len(traces), length)), COSTS)
        assert (fixed.seconds >= least - 1e-9).all()
    if verify == "prefix":
        assert (simulate(traces, Randomly(len(traces)), COSTS).seconds >= least - 1e-9).all()
    some = np.array([3, 7])
    np.testing.assert_allclose(
        oracle_seconds(traces.select(some), COSTS, verify=verify), least[some]
    )


def test_fewer_lengths_are_never_faster():
    traces = some_traces()
    every = oracle_seconds(traces, COSTS)
    assert (oracle_seconds(traces, COSTS, (1, 4)) >= every - 1e-9).all()
    assert (oracle_seconds(traces, COSTS, (4,)) >= every - 1e-9).all()
