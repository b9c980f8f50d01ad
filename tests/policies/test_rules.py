from __future__ import annotations

import numpy as np
import pytest

from blockpilot_rl.control.simulate import simulate
from blockpilot_rl.decoding.control import FixedLength, OneRequest
from blockpilot_rl.decoding.replay import Trace
from blockpilot_rl.policies.rate_prior import RatePrior
from blockpilot_rl.policies.rules import (
    EntropyRule,
    FixedRule,
    PrefixRule,
    RateRule,
    Start,
    confident_lengths,
)
from tests.control.traced import COSTS, SIZES, padded, some_traces

RULES = (
    FixedRule(4),
    PrefixRule(4, 0.3),
    PrefixRule(4, 0.3, stops_early=True),
    RateRule(),
    RateRule(threshold=0.0, plain_memory=0.9),
    RateRule(prior_weight=float("inf")),
    EntropyRule(4),
    EntropyRule(4, stops_early=True, step=0.5),
)


def start(rates, sampled=False) -> Start:
    return Start(np.array(rates), np.full(len(rates), sampled), SIZES, COSTS)


def alone(rule, rate: float = 0.5) -> OneRequest:
    return OneRequest(rule.begin(start([rate])))


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_one_request_is_decided_as_in_a_batch(rule):
    """The decoder's form, fed with the outcomes of a simulation, chooses the same lengths."""
    traces = some_traces(rows=10, seed=4)
    rates = np.linspace(0.1, 0.9, 10)
    found = simulate(traces, rule.begin(start(rates)), COSTS, record=True)
    for row in range(10):
        one, at = alone(rule, rates[row]), 0
        for drafted, verified, accepted in found.of(row):
            length = one.draft_length(int(traces.prompt_tokens[row]) + at)
            assert length == drafted
            if length > 1:
                chain = traces.confidences[row, at, 0, : length - 1].tolist()
                made = 1
                while one.stops_early and made < len(chain) and one.keeps_drafting(chain[:made]):
                    made += 1
                chain = chain[:made] if one.stops_early else chain
                assert one.verify_length(chain) == verified
            one.observe(drafted, verified, accepted)
            at += accepted


def test_a_fixed_length_never_changes_its_mind():
    fixed = FixedLength(4)
    assert (fixed.draft_length(3), fixed.verify_length([]), fixed.keeps_drafting([])) == (
        4,
        4,
        True,
    )
    fixed.observe(4, 4, 1)
    assert fixed.draft_length(900) == 4
    assert not fixed.reads_confidences
    assert not fixed.stops_early


def test_the_confident_prefix_ends_where_the_product_falls_below_the_threshold():
    confidences = np.array([[0.9, 0.6, 0.9], [0.3, 1.0, 1.0], [1.0, 1.0, 1.0]])
    np.testing.assert_array_equal(confident_lengths(confidences, 0.5), [3, 1, 4])
    np.testing.assert_array_equal(confident_lengths(confidences, 0.0), [4, 4, 4])


def test_recent_acceptance_takes_the_best_expected_rate():
    """Leviathan et al. 2023, eq. 1: at rate 1/2 a block of 4 emits 1.875 tokens, of 2 1.5."""
    rule = RateRule(memory=0.9, prior_weight=2.0, threshold=0.0)
    controller = alone(rule)
    lengths, greedy = np.array(SIZES), np.array(False)
    seconds = COSTS.draft_seconds(lengths, np.array(12), greedy)
    seconds = seconds + COSTS.verify_seconds(lengths, np.array(12), greedy)
    assert controller.draft_length(12) == SIZES[int((np.array([1, 1.5, 1.875]) / seconds).argmax())]
    # A block of 4 that emits 3 has 2 accepted drafts and a rejected one.
    controller.observe(4, 4, 3)
    rate = 3 / 5
    tokens = np.array([1.0, 1 + rate, 1 + rate + rate**2 + rate**3])
    assert controller.draft_length(12) == SIZES[int((tokens / seconds).argmax())]


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        ((4, 4, 4), (0.9 * 0 + 3, 0)),
        ((4, 4, 1), (0, 1)),
        ((4, 2, 2), (1, 0)),
        ((4, 3, 2), (1, 1)),
        ((4, 1, 1), (0, 0)),
        ((1, 1, 1), (0, 0)),
    ],
)
def test_accepted_and_rejected_drafts_are_counted(observed, expected):
    """A draft that was not verified, or follows a whole prefix, is not rejected."""
    batch = RateRule(memory=0.9, prior_weight=4.0).begin(start([0.5]))
    OneRequest(batch).observe(*observed)
    accepted, rejected = expected
    rate = (2 + accepted) / (4 + accepted + rejected)
    assert batch.rates(np.zeros(1, dtype=int))[0] == pytest.approx(rate)


def test_confident_drafts_bound_the_expected_verify_length():
    """At rate 1/2 and threshold 0.3 one draft is confident, so a block of 4 wins nothing."""
    bound, free = alone(RateRule(threshold=0.3)), alone(RateRule(threshold=0.0))
    assert bound.draft_length(0) in (1, 2)
    assert alone(RateRule(threshold=0.3), 0.95).draft_length(0) == 4
    assert not free.reads_confidences


def test_recent_acceptance_follows_the_text():
    """A text whose first half is easy and whose second half is hard, with a prior in between."""
    steps = 200
    left = np.arange(steps, 0, -1)[:, None]
    easy, hard = np.array(SIZES), np.ones(3)
    accepted = np.where(np.arange(steps)[:, None] < steps // 2, easy, hard)
    trace = Trace(np.minimum(accepted, left).astype(np.int16), np.ones((steps, 3), np.float16))
    traces = padded([trace], [10])
    rule = RateRule(0.8, 1.0, threshold=0.0, plain_memory=0.8)
    found = simulate(traces, rule.begin(start([0.5])), COSTS, record=True)
    sizes = {int(item.positions[0]): int(item.drafted[0]) for item in found.record}
    assert all(size == 4 for at, size in sizes.items() if 20 <= at < 100)
    assert np.mean([size for at, size in sizes.items() if at >= 130]) < 2
    # Plain rounds give no information about drafts, so the rule tries again from time to time.
    assert any(size > 1 for at, size in sizes.items() if at >= 150)
    for length in SIZES:
        fixed = simulate(traces, FixedRule(length).begin(start([0.5])), COSTS)
        assert found.seconds[0] < fixed.seconds[0]


def test_the_entropy_bound_moves_with_acceptance():
    """Rejected drafts raise the threshold, so that fewer drafts are verified."""
    rule = EntropyRule(4, threshold=0.5, step=0.5, memory=0.0)
    controller = alone(rule)
    confident = [0.85, 0.85, 0.85]
    before = controller.verify_length(confident)
    controller.observe(4, 4, 1)
    assert before == 4
    assert controller.verify_length(confident) == 1
    assert alone(rule).verify_length([0.99, 0.02, 0.99]) == 2


def test_a_prior_finds_the_rates_of_planted_states():
    rng = np.random.default_rng(0)
    states = rng.normal(size=(2000, 6))
    rate = 1 / (1 + np.exp(-(0.3 + states @ np.array([1.0, -0.5, 0, 0, 0, 0]))))
    accepted = rng.binomial(60, rate)
    prior = RatePrior.fit(states, accepted, 60 - accepted, penalty=10.0)
    np.testing.assert_allclose(prior.rates(states).mean(), rate.mean(), atol=0.02)
    assert np.corrcoef(prior.rates(states), rate)[0, 1] > 0.98
    away = np.stack([np.full(6, np.nan), np.full(6, np.inf), np.full(6, 1e30)])
    assert np.isfinite(prior.rates(away)).all()
    assert (prior.rates(away) <= 0.99).all()


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_a_constant_prior_reads_no_state(rate):
    rates = RatePrior.constant(rate).rates(np.zeros((3, 0)))
    np.testing.assert_allclose(rates, np.clip(rate, 0.01, 0.99))
