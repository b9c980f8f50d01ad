from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blockpilot_rl.agents.pooling import pooled_acceptance, pooled_speedups
from tests.synthetic import synthetic_table


def test_the_curve_by_hand():
    """Of 7 passes with a second token 3 have it, of 3 passes with a third and fourth token one."""
    row = [np.ones(6, dtype=int), np.array([1, 2, 1, 2]), np.array([1, 1, 4])]
    lengths = pooled_acceptance(row, (1, 2, 4))
    np.testing.assert_allclose(lengths, [1, 1 + 3 / 7, 1 + 3 / 7 + 1 / 3 + 1 / 3])


def test_arms_that_agree_leave_the_speedups_as_they_are():
    """The cost of a pass is that of the row, so only acceptance changes."""
    table = synthetic_table(n=3).select_arms((1, 2))
    accepted = [[np.ones(8, dtype=int), np.array([2, 1, 2, 2, 1])]] * 3
    output = [np.arange(9)] * 3
    same = dataclasses.replace(table, accepted=accepted, output_tokens=output)
    np.testing.assert_allclose(pooled_speedups(same), same.speedups)


def test_pooled_speedups_are_nearer_to_what_a_prompt_gains_on_average():
    """Every draft is accepted with the prompt's own probability, so the truth can be computed."""
    table = synthetic_table(n=400)
    rate = np.random.default_rng(0).uniform(0.2, 0.95, size=400)
    arms = np.array(table.arms)
    tokens = (1 - rate[:, None] ** arms) / (1 - rate[:, None])
    cost = np.where(arms == 1, 1.0, 1.1 + 0.06 * arms)
    truth = tokens / cost

    def error(speedups):
        relative = speedups - speedups[:, [3]] - (truth - truth[:, [3]])
        return np.delete(relative - relative.mean(axis=0), 3, axis=1).std(axis=0)

    assert (error(pooled_speedups(table)) < error(table.speedups)).all()


@pytest.mark.parametrize("arms", [(1, 4), (1, 2, 16)])
def test_any_arms_can_be_pooled(arms):
    speedups = pooled_speedups(synthetic_table(n=5).select_arms(arms))
    assert speedups.shape == (5, len(arms))
    np.testing.assert_array_equal(speedups[:, 0], 1)
