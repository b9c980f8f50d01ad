"""Agents on sweeps whose states do or do not determine the best block size."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blockpilot_rl.agents import ALGORITHMS, Score, make_agent
from blockpilot_rl.evaluation.leakage import shuffle_states
from tests.agents.quick import QUICK
from tests.synthetic import synthetic_table

YARDSTICKS = ("fixed", "random", "oracle")
LEARNERS = tuple(name for name in ALGORITHMS if name not in YARDSTICKS)
KINDS = 8
# A classifier learns which arm is best most often, not which earns most.
LEARNERS_OF_REWARDS = tuple(name for name in LEARNERS if name != "supervised")


def split(table):
    return table.split("train"), table.split("validation"), table.split("test")


def quick(algorithm, **settings):
    return make_agent(algorithm, hyperparams=QUICK[algorithm], **settings)


def gain(agent, test):
    return Score.of(test, agent.choose(test), agent.problem.best_fixed).gap_closed


@pytest.fixture(scope="module")
def tables():
    return of_kinds(split(synthetic_table(1500)))


def of_kinds(tables):
    """Prompts of eight kinds by their acceptance; eight numbers of the state show the kind.

    A linear model can learn the best size of each kind as well as a network can.
    """
    edges = np.quantile(tables[0].states[:, 0], np.linspace(0, 1, KINDS + 1)[1:-1])

    def with_kinds(table):
        states = table.states.copy()
        states[:, :KINDS] = np.eye(KINDS)[np.digitize(table.states[:, 0], edges)]
        return dataclasses.replace(table, states=states)

    return tuple(map(with_kinds, tables))


@pytest.fixture(scope="module")
def attainable(tables):
    """Gap closed by the best size of each kind."""
    train, _, test = tables
    kind = train.states[:, :KINDS].argmax(axis=1)
    best = np.array([train.speedups[kind == i].mean(axis=0).argmax() for i in range(KINDS)])
    choices = best[test.states[:, :KINDS].argmax(axis=1)]
    best_fixed = train.arms[train.speedups.mean(axis=0).argmax()]
    return Score.of(test, choices, best_fixed).gap_closed


@pytest.mark.parametrize("algorithm", LEARNERS)
def test_learners_close_most_of_the_gap_if_states_show_the_best_size(algorithm, tables, attainable):
    agent = quick(algorithm).learn(*tables[:2])
    assert attainable > 0.3
    assert gain(agent, tables[2]) > 0.7 * attainable


@pytest.mark.parametrize("algorithm", LEARNERS_OF_REWARDS)
def test_learners_of_rewards_lose_little_if_states_carry_no_information(algorithm):
    train, validation, test = split(synthetic_table(1000, seed=3, signal=False))
    agent = quick(algorithm).learn(train, validation)
    score = Score.of(test, agent.choose(test), agent.problem.best_fixed)
    assert score.reward > 0.98 * score.best_fixed


def test_shuffled_states_remove_the_gain(tables):
    train, validation, test = tables
    rng = np.random.default_rng(0)
    blind = quick("ridge-regression").learn(
        shuffle_states(train, rng), shuffle_states(validation, rng)
    )
    seeing = quick("ridge-regression").learn(train, validation)
    assert gain(blind, test) < 0.05 < gain(seeing, test)


@pytest.mark.parametrize("algorithm", ["ridge-regression", "linucb", "dqn"])
def test_units_of_the_state_do_not_matter(algorithm, tables):
    """A column in other units, or one that is constant, is standardised away."""

    def other_units(table):
        states = 128 * table.states + np.float32(0.5)
        states[:, 3] = 0.1
        return dataclasses.replace(table, states=states)

    def constant(table):
        states = table.states.copy()
        states[:, 3] = 7
        return dataclasses.replace(table, states=states)

    found = quick(algorithm).learn(*map(other_units, tables[:2])).choose(other_units(tables[2]))
    expected = quick(algorithm).learn(*map(constant, tables[:2])).choose(constant(tables[2]))
    assert (found == expected).mean() > 0.9


@pytest.mark.parametrize("algorithm", ["epsilon-greedy", "ppo"])
def test_a_baseline_removes_the_difficulty_of_the_prompt(algorithm, tables):
    """If prompts differ far more than arms, training on the plain reward works less well."""
    train, validation, test = (
        dataclasses.replace(table, seconds=table.seconds * factors)
        for table, factors in ((table, _difficulty(table)) for table in tables)
    )
    settings = {"hyperparams": QUICK[algorithm]}
    with_baseline = make_agent(algorithm, **settings).learn(train, validation)
    settings["hyperparams"] = {**QUICK[algorithm], "reward_baseline": "none"}
    without = make_agent(algorithm, **settings).learn(train, validation)
    assert gain(with_baseline, test) > gain(without, test)
    # Speedups are logged, with or without a baseline.
    assert with_baseline.decisions.frame()["reward"].min() > 0
    assert without.decisions.frame()["reward"].min() > 0


def _difficulty(table):
    """Factors of the seconds `[n, arms]` that make every arm but plain up to 9 times faster."""
    factors = np.ones_like(table.seconds)
    rng = np.random.default_rng(len(table))
    factors[:, 1:] /= rng.uniform(1, 9, size=(len(table), 1))
    return factors
