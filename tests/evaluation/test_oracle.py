from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from blockpilot_rl.evaluation.oracle import (
    best_fixed_by_mean,
    best_fixed_by_total,
    gap_closed,
    oracle_arms,
)
from tests.synthetic import synthetic_table


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


def test_gap_closed():
    assert gap_closed(1.5, fixed=1.0, oracle=2.0) == 0.5
    assert gap_closed(2.0, fixed=1.0, oracle=2.0) == 1.0
    assert gap_closed(0.75, fixed=1.0, oracle=2.0) == pytest.approx(-0.25)
    assert math.isnan(gap_closed(1.0, fixed=1.0, oracle=1.0))
