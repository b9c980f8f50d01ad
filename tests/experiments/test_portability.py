"""A policy trained once and priced for other devices; all temperatures as one task."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.experiments.compare import CompareConfig, compare
from blockpilot_rl.experiments.judging import judge_agents
from blockpilot_rl.experiments.portability import (
    PortabilityConfig,
    evaluate_portability,
    parse_prices,
)
from blockpilot_rl.experiments.seeds import Splits
from blockpilot_rl.reports.tables import portability_table, temperature_table
from tests.evaluation.replicates import mixed
from tests.synthetic import ARMS, synthetic_table

QUICK = {"acceptance": {"alphas": (1, 10)}, "ridge-regression": {"alphas": (1, 10), "repeats": 1}}
ONE = {"seeds": 1, "jobs": 1}


@pytest.fixture(scope="module")
def found():
    config = PortabilityConfig(prices=(0.0, 2.0, 30.0), **ONE)
    return evaluate_portability(synthetic_table(400), config, hyperparams=QUICK)


def test_a_policy_trained_once_keeps_its_gain_at_other_prices(found):
    assert [point.is_own for point in found.points].count(True) == 1
    sizes = [point.best_fixed for point in found.points]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 16
    for point in found.points:
        assert point.carried.value <= point.oracle.value + 1e-9
        assert point.carried.high > -0.002  # decisions take time
        if point.retrained.low > 0:
            assert point.kept.value > 0.8
        else:
            assert np.isnan(point.kept.value)


def test_choices_learned_for_one_device_lose_at_other_prices(found):
    far = found.points[-1]
    assert far.token_cost == pytest.approx(0.3)
    assert far.carried_reward.value < min(far.carried.value, far.retrained.value)
    own = next(point for point in found.points if point.is_own)
    assert own.carried_reward == own.retrained


@pytest.mark.parametrize("text", ["", "a", "1,,2", "-1", "nan", "inf", "1;2"])
def test_prices_must_be_percents(text):
    with pytest.raises(BlockPilotError, match="percents"):
        parse_prices(text)


def test_prices_are_read():
    assert parse_prices("0,0.7, 10") == (0.0, 0.7, 10.0)


def test_comparisons_need_the_acceptance_agent_for_prices():
    with pytest.raises(BlockPilotError, match="add it to algos"):
        CompareConfig(algos=("ridge-regression",), prices=(1.0,))


@pytest.fixture(scope="module")
def judged():
    """Sampled rows of the same prompts, whose long blocks are slow."""
    table = mixed(synthetic_table(300), 300)
    seconds = table.seconds.copy()
    seconds[table.temperatures > 0] *= np.array([1.0, 0.9, 1.2, 2.0, 4.0])
    table = dataclasses.replace(table, seconds=seconds)
    config = CompareConfig(algos=("acceptance",), temperature="all", **ONE)
    return table, compare(table, config, hyperparams={"acceptance": QUICK["acceptance"]})


def test_all_temperatures_are_one_task(judged):
    _, comparison = judged
    assert comparison.settings["state_groups"].split(",")[-1] == "sampling"
    by_temperature = comparison.by_temperature
    assert list(by_temperature.best_fixed.block_sizes) == ["0", "1"]
    assert by_temperature.best_fixed.gain.low > 0
    sizes = by_temperature.best_fixed.block_sizes
    assert sizes["0"] > sizes["1"]
    table = temperature_table(comparison)
    assert [row[0] for row in table.rows] == ["best fixed of each", "acceptance"]


def test_the_best_of_each_temperature_gains_nothing_over_itself(judged):
    table, comparison = judged
    splits = Splits.from_sweep(table)
    sizes = comparison.by_temperature.best_fixed.block_sizes
    arms = [[ARMS.index(sizes[f"{value:g}"]) for value in splits.test.temperatures]]
    again = judge_agents(splits, {"same": Choices.free(np.array(arms))})
    assert again.by_temperature.agents["same"].value == pytest.approx(0)
    assert again.agents["same"].gain == comparison.by_temperature.best_fixed.gain


def test_one_temperature_has_no_such_columns():
    config = CompareConfig(algos=("fixed",))
    comparison = compare(synthetic_table(100), config)
    assert comparison.by_temperature is None
    assert temperature_table(comparison) is None
    assert portability_table(comparison) is None
