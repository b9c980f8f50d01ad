from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blockpilot_rl.evaluation.halves import half_oracle
from tests.evaluation.replicates import replicated
from tests.synthetic import ARMS, _passes, synthetic_table


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
    # Of size 4 the pass over the middle is of the first half: 2 passes for 7 tokens, 1 for 1.
    early, late = 2 * 2 / 7, 2 / 1
    # The first half prefers size 4, the second size 2.
    assert early < 1.5 / 2 < late
    assert (found.source, found.prompts, found.rows) == ("halves", 2, 2)
    assert found.mean_speedup == pytest.approx(2 / (1.5 / 2 + late))
    assert found.in_sample == found.fixed == pytest.approx(2 / (1.5 / 2 + 1.5 / 2))
    assert found.gain.value == pytest.approx(found.mean_speedup / found.fixed - 1)
    assert found.gain == pytest.approx((found.gain.value,) * 3)


def test_luck_in_one_half_is_of_no_use_in_the_other():
    """All prompts are alike, so that one size is right for all."""
    table = with_rates(np.full(150, 0.7))
    fixed = int(table.speedups.mean(axis=0).argmax())
    found = half_oracle(table, fixed)
    assert found.in_sample / found.fixed > 1.015
    assert found.gain.low < 0.003
    naive = table.speedups.max(axis=1).mean() / table.speedups[:, fixed].mean()
    assert found.in_sample / found.fixed == pytest.approx(naive, abs=0.01)


def test_what_lasts_through_an_answer_shows():
    """Prompts differ, and half an answer tells how."""
    table = with_rates(np.random.default_rng(0).uniform(0.3, 0.95, size=150))
    fixed = int(table.speedups.mean(axis=0).argmax())
    found = half_oracle(table, fixed)
    assert 0 < found.gain.low < found.gain.value < found.in_sample / found.fixed - 1


def test_plain_decoding_is_the_measure():
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
