from __future__ import annotations

import numpy as np
import pytest

from blockpilot_rl.decoding.latency import LatencyProfile, SamplingCost
from blockpilot_rl.decoding.replay import Trace
from blockpilot_rl.headroom.steps import (
    Always,
    ConfidentPrefix,
    RecentAcceptance,
    Rounds,
    StepTraces,
    acceptance_rate,
)

SIZES = (1, 2, 4)
PROFILE = LatencyProfile(
    block_sizes=SIZES,
    draft=((0.0, 0.0), (0.2, 0.001), (0.3, 0.001)),
    verify=((1.0, 0.01), (1.2, 0.01), (1.9, 0.012)),
    read_prompt=(0.05, 0.001),
    medians={},
    sampling=SamplingCost(draft=(0.1, 0.05), verify=(0.2, 0.07), noise=0.03),
)


def random_trace(rng: np.random.Generator, steps: int, sizes: tuple[int, ...] = SIZES) -> Trace:
    """Drafts of different sizes are right or wrong independently."""
    left = np.arange(steps, 0, -1)[:, None]
    right = rng.integers(1, np.array(sizes) + 1, size=(steps, len(sizes)))
    confidences = rng.uniform(size=(steps, sizes[-1] - 1))
    return Trace(np.minimum(right, left).astype(np.int16), confidences.astype(np.float16))


def padded(
    traces: list[Trace], prompt_tokens: list[int], sampled: list[bool] | None = None
) -> StepTraces:
    warm = np.zeros(len(traces), dtype=bool) if sampled is None else np.array(sampled)
    return StepTraces.pad(SIZES, traces, np.array(prompt_tokens), warm)


def schedules(emitted: np.ndarray, at: int = 0):
    """Every way through an answer, as lists of (anchor, action)."""
    if at == len(emitted):
        yield []
        return
    for action in range(emitted.shape[1]):
        for rest in schedules(emitted, at + int(emitted[at, action])):
            yield [(at, action), *rest]


@pytest.mark.parametrize("kind", ["from_blocks", "from_prefixes"])
@pytest.mark.parametrize("seed", range(5))
def test_the_oracle_is_the_best_of_all_schedules(kind, seed):
    rng = np.random.default_rng(seed)
    traces = [random_trace(rng, steps) for steps in (1, 4, 7)]
    rounds = getattr(Rounds, kind)(padded(traces, [3, 50, 9]), PROFILE)
    best = []
    for row, tokens in enumerate((3, 50, 9)):
        steps = len(traces[row].accepted)
        emitted = rounds.emitted[row, :steps].astype(int)
        times = []
        for schedule in schedules(emitted):
            seconds = sum(
                rounds.lines[row, action, 0] + rounds.lines[row, action, 1] * (tokens + at)
                for at, action in schedule
            )
            if any(rounds.drafts[action] for _, action in schedule):
                seconds += 0.05 + 0.001 * tokens
            times.append(seconds)
        best.append(min(times))
    np.testing.assert_allclose(rounds.oracle(), best)


def test_plain_decoding_reads_no_prompt():
    """If drafting never helps, the oracle does not include reading by the drafter either."""
    hopeless = Trace(np.ones((5, 3), np.int16), np.zeros((5, 3), np.float16))
    rounds = Rounds.from_blocks(padded([hopeless], [10]), PROFILE)
    plain = sum(1.0 + 0.01 * (10 + at) for at in range(5))
    np.testing.assert_allclose(rounds.oracle(), [plain])
    np.testing.assert_allclose(rounds.walk(Always(0)), [plain])


@pytest.mark.parametrize("arm", range(3))
def test_a_fixed_size_takes_what_the_profile_predicts(arm):
    rng = np.random.default_rng(3)
    traces = [random_trace(rng, steps) for steps in (9, 4)]
    warm = [False, True]
    walked = Rounds.from_blocks(padded(traces, [20, 7], warm), PROFILE).walk(Always(arm))
    predicted = [
        PROFILE.decode_seconds(SIZES[arm], tokens, trace.trajectory(arm), sampled)
        for trace, tokens, sampled in zip(traces, (20, 7), warm, strict=True)
    ]
    np.testing.assert_allclose(walked, predicted)


def test_sampling_a_prefix_costs_the_whole_draft_and_its_own_choices():
    """And noise up to the end of the last drafted block, not of the verified prefix."""
    trace = Trace(np.array([[1, 2, 2], [1, 1, 1]], np.int16), np.full((2, 3), 0.5, np.float16))
    greedy, warm = (
        Rounds.from_prefixes(padded([trace], [10], [sampled]), PROFILE) for sampled in (False, True)
    )
    added = (warm.lines - greedy.lines)[0, :, 0]
    np.testing.assert_allclose(added, 0.1 + 2 * 0.05 + 0.2 + 0.07 * np.arange(4))
    np.testing.assert_array_equal((warm.lines - greedy.lines)[..., 1], 0)
    whole = [rounds.walk(Always(3))[0] for rounds in (greedy, warm)]
    assert whole[1] - whole[0] == pytest.approx(added[3] + 4 * 0.03)
    assert warm.oracle()[0] <= whole[1]


def test_a_prefix_costs_the_whole_draft_and_its_own_tokens():
    trace = Trace(
        np.array([[1, 2, 4], [1, 1, 1], [1, 2, 2], [1, 1, 1]], np.int16),
        np.full((4, 3), 0.5, np.float16),
    )
    rounds = Rounds.from_prefixes(padded([trace], [10]), PROFILE)
    np.testing.assert_array_equal(rounds.emitted[0, 0], [1, 2, 3, 4])
    np.testing.assert_array_equal(rounds.emitted[0, 2], [1, 2, 2, 2])
    # Verifying 3 tokens costs the mean of 2 and 4.
    np.testing.assert_allclose(rounds.lines[0, 2], [0.3 + (1.2 + 1.9) / 2, 0.001 + 0.011])
    np.testing.assert_allclose(rounds.lines[0, 3], [0.3 + 1.9, 0.001 + 0.012])
    # Verifying the whole block at once is best here, which only an oracle knows.
    np.testing.assert_allclose(rounds.oracle(), rounds.walk(Always(3)))


def test_the_confident_prefix_ends_where_the_product_falls_below_the_threshold():
    trace = random_trace(np.random.default_rng(0), 3)
    confidences = np.array([[0.9, 0.6, 0.9], [0.3, 1.0, 1.0], [1.0, 1.0, 1.0]], np.float16)
    traces = padded([Trace(trace.accepted, confidences)], [5])
    everywhere = np.zeros(3, dtype=int), np.arange(3)
    rule = ConfidentPrefix(traces, 0.5)
    np.testing.assert_array_equal(rule.choose(*everywhere), [2, 0, 3])
    np.testing.assert_array_equal(ConfidentPrefix(traces, 0.0).choose(*everywhere), [3, 3, 3])


def test_recent_acceptance_follows_the_text():
    """A text whose first half is easy and whose second half is hard, with a prior in between."""
    steps = 200
    left = np.arange(steps, 0, -1)[:, None]
    easy, hard = np.array(SIZES), np.ones(3)
    accepted = np.where(np.arange(steps)[:, None] < steps // 2, easy, hard)
    trace = Trace(np.minimum(accepted, left).astype(np.int16), np.ones((steps, 3), np.float16))
    rounds = Rounds.from_blocks(padded([trace], [10]), PROFILE)
    rule = RecentAcceptance(rounds, 0.8, (0.5, 0.5))
    chosen = []

    class Watched:
        def choose(self, rows, positions):
            actions = rule.choose(rows, positions)
            chosen.append((int(positions[0]), SIZES[int(actions[0])]))
            return actions

        def observe(self, rows, actions, emitted):
            rule.observe(rows, actions, emitted)

    seconds = rounds.walk(Watched())
    sizes = dict(chosen)
    assert all(size == 4 for at, size in sizes.items() if 20 <= at < 100)
    assert np.mean([size for at, size in sizes.items() if at >= 130]) < 2
    # Plain passes give no information about drafts, so the rule tries again from time to time.
    assert any(size > 1 for at, size in sizes.items() if at >= 150)
    assert all(seconds < rounds.walk(Always(arm)) for arm in range(3))


def test_recent_acceptance_takes_the_best_expected_rate():
    """Leviathan et al. 2023, eq. 1: at rate 1/2 a block of 4 emits 1.875 tokens, of 2 1.5."""
    traces = padded([random_trace(np.random.default_rng(0), 6)], [10])
    rounds = Rounds.from_blocks(traces, PROFILE)
    rule = RecentAcceptance(rounds, 0.9, (1.0, 1.0))
    seconds = rounds.lines[0, :, 0] + rounds.lines[0, :, 1] * 12
    expected = int((np.array([1.0, 1.5, 1.875]) / seconds).argmax())
    assert rule.choose(np.array([0]), np.array([2])).tolist() == [expected]
    # A block of 4 that emits 3 has 2 accepted drafts and a rejected one.
    rule.observe(np.array([0]), np.array([2]), np.array([3]))
    rate = 3 / 5
    tokens = np.array([1.0, 1 + rate, 1 + rate + rate**2 + rate**3])
    assert rule.choose(np.array([0]), np.array([2])).tolist() == [int((tokens / seconds).argmax())]


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


def test_fixed_sizes_take_longer_than_the_oracle_and_selection_keeps_rows():
    rng = np.random.default_rng(8)
    lengths = rng.integers(5, 60, size=30)
    traces = padded([random_trace(rng, int(n)) for n in lengths], [12] * 30, [True, False] * 15)
    blocks = Rounds.from_blocks(traces, PROFILE)
    oracle = blocks.oracle()
    for arm in range(3):
        assert (blocks.walk(Always(arm)) >= oracle - 1e-9).all()
    some = np.array([3, 17])
    picked = Rounds.from_blocks(traces.select(some), PROFILE)
    np.testing.assert_allclose(picked.oracle(), oracle[some])
