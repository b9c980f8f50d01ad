from __future__ import annotations

import numpy as np
import pytest

from blockpilot_rl.control.simulate import Walk, simulate
from blockpilot_rl.decoding.round_costs import RoundCosts
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.policies.rules import FixedLengths, WholeBlocks
from tests.control.traced import COSTS, PROFILE, SIZES, padded, random_trace, some_traces


class Randomly(WholeBlocks):
    """Draws every length, from a generator for each request, so that batches do not matter."""

    reads_confidences = True

    def __init__(self, rows: int, stops_early: bool = False) -> None:
        self._generators = [np.random.default_rng(row) for row in range(rows)]
        self.stops_early = stops_early
        self.observed: list[tuple[int, ...]] = []

    def draft_lengths(self, rows, contexts):
        return np.array([self._generators[row].choice(SIZES) for row in rows])

    def keeps_drafting(self, rows, confidences):
        return np.array([self._generators[row].uniform() < 0.6 for row in rows])

    def verify_lengths(self, rows, confidences, drafts):
        return np.array(
            [
                self._generators[row].integers(1, count + 2)
                for row, count in zip(rows, drafts, strict=True)
            ]
        )

    def observe(self, rows, drafted, verified, accepted):
        self.observed += zip(
            rows.tolist(), drafted.tolist(), verified.tolist(), accepted.tolist(), strict=True
        )


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("arm", range(3))
def test_a_fixed_length_takes_what_the_profile_predicts(arm, sampled):
    traces = some_traces(sampled=sampled)
    found = simulate(traces, FixedLengths(np.full(len(traces), SIZES[arm])), COSTS, record=True)
    for row in range(len(traces)):
        emitted = [accepted for _, _, accepted in found.of(row)]
        assert sum(emitted) == traces.anchors[row]
        tokens = int(traces.prompt_tokens[row])
        predicted = PROFILE.decode_seconds(SIZES[arm], tokens, emitted, sampled)
        assert found.seconds[row] == pytest.approx(predicted)
        assert found.rounds[row] == len(emitted)


def by_hand(traces, row, schedule, stops_early):
    """Walk one request with plain Python numbers; `schedule` has drafted, verified per round."""
    at, seconds, unread, has_read, reached = 0, 0.0, 0, False, 0
    tokens, warm = int(traces.prompt_tokens[row]), bool(traces.sampled[row])
    profile = PROFILE.at_temperature() if warm else PROFILE
    rounds = []
    for drafted, verified in schedule:
        offset, slope = profile.verify_lines((verified,))[0]
        seconds += offset + slope * (tokens + at)
        if drafted > 1:
            sizes, lines = SIZES[1:], np.array(profile.draft[1:])
            seconds += np.interp(drafted, sizes, lines[:, 0])
            seconds += np.interp(drafted, sizes, lines[:, 1]) * (tokens + at)
            seconds += 0.001 * unread + (0.0 if has_read else 0.05 + 0.001 * tokens)
            has_read, unread = True, 0
        else:
            unread += 1
        end = at + max(drafted, verified)
        seconds += 0.03 * warm * max(0, end - reached)
        reached = max(reached, end)
        column = min(index for index, size in enumerate(SIZES) if size >= drafted)
        accepted = min(int(traces.accepted[row, at, column]), verified)
        rounds.append((drafted, verified, accepted))
        at += accepted
    assert at == traces.anchors[row]
    return seconds, rounds


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_random_schedules_are_walked_round_by_round(seed, sampled):
    traces = some_traces(seed=seed, sampled=sampled)
    controller = Randomly(len(traces))
    found = simulate(traces, controller, COSTS, record=True)
    for row in range(len(traces)):
        schedule = [(d, v) for d, v, _ in found.of(row)]
        seconds, rounds = by_hand(traces, row, schedule, False)
        assert found.of(row) == rounds
        assert found.seconds[row] == pytest.approx(seconds)
        seen = [outcome[1:] for outcome in controller.observed if outcome[0] == row]
        assert seen == rounds


@pytest.mark.parametrize("stops_early", [False, True])
def test_requests_do_not_depend_on_the_others_in_the_batch(stops_early):
    traces = some_traces()
    together = simulate(traces, Randomly(len(traces), stops_early), COSTS, record=True)

    class Alone(Randomly):
        def __init__(self, row: int) -> None:
            super().__init__(1, stops_early)
            self._generators = [np.random.default_rng(row)]

    for row in range(len(traces)):
        alone = simulate(traces.select(np.array([row])), Alone(row), COSTS, record=True)
        assert alone.of(0) == together.of(row)
        np.testing.assert_allclose(alone.seconds[0], together.seconds[row])


def test_blocks_are_shorter_near_the_end_of_a_budget():
    """With 2 tokens left of the budget, a block of 4 is priced and observed as one of 3."""
    rng = np.random.default_rng(0)
    trace = random_trace(rng, 3)
    trace.accepted[0, 2] = 1
    trace.accepted[1, 2] = 2
    traces = padded([trace], [10], budget=4)
    controller = FixedLengths(np.array([4]))
    found = simulate(traces, controller, COSTS, record=True)
    assert found.of(0) == [(4, 4, 1), (3, 3, 2)]
    draft = 0.25 + 0.001 * 11
    verify = (1.2 + 1.9) / 2 + 0.011 * 11
    first = 0.3 + 0.001 * 10 + 1.9 + 0.012 * 10 + 0.05 + 0.001 * 10
    assert found.seconds[0] == pytest.approx(first + draft + verify)


def test_drafts_that_are_not_made_are_not_paid():
    """One draft of three is made, so two are saved, and only one can be verified."""

    class StopsAtOnce(FixedLengths):
        stops_early = True

        def keeps_drafting(self, rows, confidences):
            assert confidences.shape[1] == 1
            return np.zeros(len(rows), dtype=bool)

    trace = random_trace(np.random.default_rng(0), 4)
    trace.accepted[:, 2] = [4, 3, 2, 1]
    traces = padded([trace], [10])
    free = simulate(traces, StopsAtOnce(np.array([4])), COSTS, record=True)
    assert free.of(0) == [(4, 2, 2), (4, 2, 2)]
    saving = simulate(traces, StopsAtOnce(np.array([4])), COSTS.with_chain(0.01))
    assert free.seconds[0] - saving.seconds[0] == pytest.approx(2 * 2 * 0.01)


def test_confidences_end_with_the_drafts():
    traces = some_traces(rows=3)
    walk = Walk(traces, COSTS)
    found = walk.confidences(np.arange(3), np.array([1, 2, 4]))
    assert found.shape == (3, 3)
    assert (found[0] == 0).all()
    assert found[1, 0] == traces.confidences[1, 0, 0, 0]
    assert (found[1, 1:] == 0).all()
    np.testing.assert_array_equal(found[2], traces.confidences[2, 0, 0])


@pytest.mark.parametrize("length", [0, 3, 5, -2])
def test_a_length_without_a_trace_is_refused(length):
    traces = some_traces(rows=2)
    with pytest.raises(BlockPilotError, match=f"draft length of {length} was not traced"):
        simulate(traces, FixedLengths(np.full(2, length)), COSTS)


def test_costs_are_those_of_the_profile():
    greedy = np.array([False])
    for index, size in enumerate(SIZES):
        lengths, contexts = np.array([size]), np.array([40])
        line = PROFILE.draft[index]
        expected = line[0] + line[1] * 40
        assert COSTS.draft_seconds(lengths, contexts, greedy)[0] == pytest.approx(expected)
    warm = RoundCosts.from_profile(PROFILE.at_temperature())
    np.testing.assert_allclose(COSTS.draft[1], warm.draft[0])
    np.testing.assert_allclose(COSTS.verify[1], warm.verify[0])
    assert COSTS.longest == 4
