from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blockpilot_rl.evaluation.oracle import (
    best_fixed_by_mean,
    best_fixed_by_total,
    crossfit_oracle,
    half_oracle,
    mixed_arms,
    oracle_arms,
    replicate_arms,
)
from tests.evaluation.replicates import joined, mixed, replicated
from tests.synthetic import ARMS, _passes, synthetic_table


def with_seconds(seconds: list[list[float]]):
    table = synthetic_table(n=len(seconds)).select_arms((1, 2, 4))
    return dataclasses.replace(table, seconds=np.array(seconds))


def test_mean_and_total_can_name_different_sizes():
    # Two short answers profit from size 4, one long answer loses much more time with it.
    table = with_seconds([[1.0, 0.8, 0.5], [1.0, 0.8, 0.5], [100.0, 80.0, 95.0]])
    assert table.arms[best_fixed_by_mean(table)] == 4
    assert table.arms[best_fixed_by_total(table)] == 2


def test_the_oracle_takes_the_fastest_arm_and_the_smallest_of_equals():
    table = with_seconds([[1.0, 0.8, 0.5], [1.0, 2.0, 3.0], [3.0, 1.0, 1.0]])
    assert oracle_arms(table).tolist() == [2, 0, 1]


def test_time_counts_and_not_acceptance_length():
    """Acceptance stays high while the action turns from gain to loss (vllm-project/vllm#26504)."""
    table = synthetic_table(n=200)
    costly = dataclasses.replace(table, seconds=table.passes * np.array(table.arms))
    longest = int(costly.acceptance_lengths.mean(axis=0).argmax())
    assert costly.arms[longest] == 16
    assert costly.arms[best_fixed_by_mean(costly)] == 1
    assert costly.arms[best_fixed_by_total(costly)] == 1
    assert (oracle_arms(costly) != longest).all()


def test_noise_flatters_an_oracle_that_is_not_cross_fitted():
    """The best of several noisy runs is biased upward; chosen on other runs it gains nothing."""
    table = synthetic_table(n=150)
    alike = dataclasses.replace(table, seconds=np.ones(table.seconds.shape))
    found = crossfit_oracle(replicated(alike, 6, noise=0.2), fixed=2)
    assert (found.source, found.prompts, found.rows) == ("replicates", 150, 900)
    assert found.in_sample > 1.2 * found.fixed
    assert found.mean_speedup == pytest.approx(found.fixed, rel=0.03)


def test_without_noise_cross_fitting_changes_nothing():
    table = synthetic_table(n=50)
    found = crossfit_oracle(replicated(table, 3), fixed=2)
    assert found.mean_speedup == pytest.approx(table.speedups.max(axis=1).mean())
    assert found.in_sample == pytest.approx(found.mean_speedup)
    assert found.fixed == pytest.approx(table.speedups[:, 2].mean())


def test_the_arm_is_chosen_on_the_prompts_other_rows_of_the_temperature():
    table = synthetic_table(n=2).select_arms((1, 2, 4))
    # Of three rows of a prompt, two are fastest with size 2 and one, by less, with size 4.
    votes = [[1.0, 0.5, 0.9], [1.0, 0.5, 0.9], [1.0, 0.9, 0.6]]
    rows = replicated(table, 3)
    order = np.argsort(rows.rows["id"].to_numpy(), kind="stable")
    seconds = np.empty((6, 3))
    seconds[order] = votes * 2
    rows = dataclasses.replace(rows, seconds=seconds)
    found = crossfit_oracle(rows, fixed=0)
    # Size 2 is best on every two of the rows, so it judges the third, the odd one too.
    assert found.mean_speedup == pytest.approx((1 / 0.5 + 1 / 0.5 + 1 / 0.9) / 3)
    assert found.in_sample == pytest.approx((1 / 0.5 + 1 / 0.5 + 1 / 0.6) / 3)
    # Rows of another temperature are no replicates.
    cold = replicated(synthetic_table(n=2).select_arms((1, 2, 4)), 1, temperature=0.5)
    assert crossfit_oracle(joined(rows, cold), fixed=0).rows == 6


def test_copies_of_a_greedy_answer_cannot_be_cross_fitted():
    table = synthetic_table(n=20)
    assert crossfit_oracle(table, fixed=0) is None
    assert crossfit_oracle(replicated(table, 3, temperature=0.0), fixed=0) is None


def test_predictions_are_judged_by_measured_seconds():
    table = synthetic_table(n=100)
    rng = np.random.default_rng(0)
    measured = table.seconds * np.exp(0.3 * rng.normal(size=table.seconds.shape))
    measured[40:] = np.nan
    found = crossfit_oracle(dataclasses.replace(table, measured_seconds=measured), fixed=1)
    speedups = measured[:40, :1] / measured[:40]
    assert (found.source, found.prompts, found.rows) == ("stopwatch", 40, 40)
    expected = speedups[np.arange(40), oracle_arms(table)[:40]].mean()
    assert found.mean_speedup == pytest.approx(expected)
    assert found.in_sample == pytest.approx(speedups.max(axis=1).mean())
    assert found.in_sample > 1.1 * found.mean_speedup


def test_whole_prompts_are_resampled():
    """Further copies of a row make the interval no narrower."""
    table = synthetic_table(n=50)
    twice, often = (crossfit_oracle(replicated(table, copies), fixed=2) for copies in (2, 6))
    assert twice.gain.value == pytest.approx(twice.mean_speedup / twice.fixed - 1)
    assert twice.gain.low < twice.gain.value < twice.gain.high
    assert often.gain == pytest.approx(twice.gain)
    wide = crossfit_oracle(replicated(table, 2), fixed=2, confidence=0.99)
    assert wide.gain.low < twice.gain.low < twice.gain.high < wide.gain.high


def test_the_bound_is_cross_fitted_where_possible():
    table = synthetic_table(n=60)
    rows = mixed(table, 20, noise=0.3)
    arms, bound = replicate_arms(rows), mixed_arms(rows)
    assert (arms[:60] == -1).all()
    np.testing.assert_array_equal(bound[:60], oracle_arms(table))
    # Of two rows each has the fastest size of the other.
    hot = oracle_arms(rows)[60:]
    np.testing.assert_array_equal(bound[60:], np.concatenate([hot[20:], hot[:20]]))
    found = crossfit_oracle(rows, fixed=2)
    assert (found.prompts, found.rows) == (20, 40)
    achieved = rows.speedups[np.arange(60, 100), bound[60:]]
    assert found.mean_speedup == pytest.approx(achieved.mean())


def hand_made(accepted: list[list[list[int]]], seconds: list[list[float]]):
    """Block sizes 1, 2 and 4 with these accepted lengths."""
    table = synthetic_table(len(accepted)).select_arms((1, 2, 4))
    return dataclasses.replace(
        table,
        accepted=[[np.array(arm) for arm in row] for row in accepted],
        output_tokens=[np.arange(sum(row[0]) + 1) for row in accepted],
        seconds=np.array(seconds),
    )


def with_rates(rates: np.ndarray):
    """Answers of 200 tokens whose drafts are right with these probabilities."""
    rng = np.random.default_rng(1)
    table = synthetic_table(len(rates))
    accepted = [[_passes(rng, rate, arm, 200) for arm in ARMS] for rate in rates]
    passes = np.array([[len(arm) for arm in row] for row in accepted])
    cost = np.array([1.0] + [1.1 + 0.06 * arm for arm in ARMS[1:]])
    return dataclasses.replace(
        table,
        accepted=accepted,
        output_tokens=[np.arange(201)] * len(rates),
        seconds=passes * cost,
    )


def test_every_number_by_hand():
    row = [[1] * 8, [2, 2, 2, 2], [3, 4, 1]]
    # A plain pass takes 1 s, one of size 2 takes 1.5 s, one of size 4 takes 2 s.
    table = hand_made([row, row], [[8.0, 6.0, 6.0]] * 2)
    found = half_oracle(table, fixed=1)
    # With size 4 the pass across the middle is in the first half: 2 passes for 7 tokens, 1 for 1.
    early, late = 2 * 2 / 7, 2 / 1
    # The first half prefers size 4, the second size 2.
    assert early < 1.5 / 2 < late
    assert (found.source, found.prompts, found.rows) == ("halves", 2, 2)
    assert found.mean_speedup == pytest.approx(2 / (1.5 / 2 + late))
    assert found.in_sample == found.fixed == pytest.approx(2 / (1.5 / 2 + 1.5 / 2))
    assert found.gain.value == pytest.approx(found.mean_speedup / found.fixed - 1)
    assert found.gain == pytest.approx((found.gain.value,) * 3)


def test_noise_in_one_half_does_not_help_in_the_other():
    """All prompts are equal, so one size is right for all."""
    table = with_rates(np.full(150, 0.7))
    fixed = int(table.speedups.mean(axis=0).argmax())
    found = half_oracle(table, fixed)
    assert found.in_sample / found.fixed > 1.015
    assert found.gain.low < 0.003
    naive = table.speedups.max(axis=1).mean() / table.speedups[:, fixed].mean()
    assert found.in_sample / found.fixed == pytest.approx(naive, abs=0.01)


def test_differences_between_prompts_remain():
    """Prompts differ, and half an answer shows how."""
    table = with_rates(np.random.default_rng(0).uniform(0.3, 0.95, size=150))
    fixed = int(table.speedups.mean(axis=0).argmax())
    found = half_oracle(table, fixed)
    assert 0 < found.gain.low < found.gain.value < found.in_sample / found.fixed - 1


def test_speedups_are_relative_to_plain_decoding():
    table = with_rates(np.full(20, 0.1)).select_arms((1, 16))
    found = half_oracle(table, fixed=0)
    assert found.fixed == pytest.approx(1)
    assert found.mean_speedup == pytest.approx(1)


def test_answers_without_a_second_half_are_left_out():
    long, short = [[1] * 8, [2] * 4, [4, 4]], [[1] * 3, [2, 1], [3]]
    seconds = [[8.0, 6.0, 4.0], [3.0, 3.0, 2.0]]
    found = half_oracle(hand_made([long, short, long], [seconds[0], *seconds[::-1]]), fixed=0)
    assert (found.prompts, found.rows) == (2, 2)
    assert found.mean_speedup == pytest.approx(2)
    assert half_oracle(hand_made([long, short], seconds), fixed=0) is None


def test_rows_of_one_prompt_are_one_cluster():
    table = synthetic_table(n=60)
    once, thrice = half_oracle(table, fixed=2), half_oracle(replicated(table, 3), fixed=2)
    assert thrice.gain == pytest.approx(once.gain)
    assert (thrice.prompts, thrice.rows) == (once.prompts, 3 * once.rows)
