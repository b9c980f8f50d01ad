from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blockpilot_rl.evaluation.measure import Measured, Requests
from blockpilot_rl.evaluation.oracle import CrossFit
from blockpilot_rl.evaluation.statistics import Interval
from blockpilot_rl.headroom.measure import Candidate, judge_headroom
from blockpilot_rl.headroom.results import Steps

NONE = Interval(0.0, 0.0, 0.0)

CROSSFIT = CrossFit("replicates", 40, 80, 1.61, 1.8, 1.6, Interval(0.006, -0.01, 0.015))


def achieved(value: float, low: float, high: float, block_size: int | None = None) -> Measured:
    return Measured(
        rows=80,
        mean_speedup=1.6 * (1 + value),
        total_speedup=1.5,
        gain=Interval(value, low, high),
        total_gain=NONE,
        gap_closed=0.0,
        gap_closed_interval=NONE,
        regret=0.0,
        slower_share=0.0,
        slower_loss=0.0,
        block_size=block_size,
    )


FIXED = achieved(0.0, 0.0, 0.0, block_size=6)


def judge(mixed: Interval = NONE, **changed):
    settings = {
        "oracle": achieved(0.12, 0.1, 0.14),
        "crossfit": None,
        "steps": None,
        "candidates": [],
        **changed,
    }
    oracle, crossfit, steps, candidates = settings.values()
    return judge_headroom(
        FIXED, oracle, mixed, crossfit, steps, candidates, confidence=0.95, min_gain=0.02
    )


def candidate(name: str, speedups: np.ndarray) -> Candidate:
    """Against a best fixed size that always gains nothing."""
    ones = np.ones(len(speedups))
    requests = Requests(ones, ones, ones, 1 / speedups, np.arange(len(ones)))
    return Candidate("rule", name, requests, 1 / speedups)


def test_no_needs_an_oracle_whose_upper_bound_is_too_small():
    """An oracle that chooses by single other samples is not a bound."""
    assert judge(oracle=achieved(0.01, 0.0, 0.019)).worth == "no"
    assert judge(oracle=achieved(0.01, 0.0, 0.021)).worth == "maybe"
    assert judge(Interval(-0.01, -0.02, 0.0), crossfit=CROSSFIT).worth == "maybe"


def test_the_verdict_holds_both_oracles():
    alone = judge(Interval(0.12, 0.1, 0.14))
    assert alone.oracle_gain == Interval(0.12, 0.1, 0.14)
    assert alone.largest_gain == 0.14
    assert alone.crossfit_gain is alone.crossfit_prompts is alone.prefix_gain is None
    mixed = Interval(0.006, -0.01, 0.015)
    found = judge(mixed, crossfit=CROSSFIT)
    assert (found.crossfit_gain, found.crossfit_prompts) == (mixed, 40)
    timed = judge(mixed, crossfit=dataclasses.replace(CROSSFIT, source="stopwatch"))
    assert timed.crossfit_gain is None


def test_deciding_at_every_step_may_be_worth_it():
    small, large = achieved(0.01, 0.0, 0.015), achieved(0.2, 0.18, 0.25)
    for prefix, worth in ((small, "no"), (large, "maybe")):
        steps = Steps(80, 40, FIXED, FIXED, large, prefix, {})
        found = judge(oracle=small, steps=steps)
        assert found.worth == worth
        assert found.prefix_gain == prefix.gain


def test_a_rule_with_a_significant_gain_is_worth_it():
    rng = np.random.default_rng(0)
    good = candidate("a good rule", 1.05 + 0.02 * rng.normal(size=100))
    small = candidate("a small rule", 1.01 + 0.02 * rng.normal(size=100))
    found = judge(candidates=[small, good])
    assert found.worth == "yes"
    assert (found.candidate, found.candidate_kind) == ("a good rule", "rule")
    assert found.candidate_gain.value == pytest.approx(0.05, abs=0.01)
    assert found.candidate_confidence == pytest.approx(0.975)
    assert judge(Interval(0.1, 0.1, 0.1), candidates=[small]).worth == "maybe"


def test_many_candidates_need_more_confidence():
    """A 95% interval is not enough for the best of a hundred candidates."""
    rng = np.random.default_rng(0)
    noisy = candidate("a noisy rule", 1.03 + 0.12 * rng.normal(size=100))
    low = noisy.requests.gain(noisy.seconds).low
    assert low > 0
    assert judge(candidates=[noisy]).worth == "yes"
    idle = [candidate(f"rule {i}", np.ones(100)) for i in range(200)]
    assert judge(candidates=[*idle, noisy]).worth == "maybe"
