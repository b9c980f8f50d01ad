from __future__ import annotations

import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.sweeps.selection import (
    check_temperature,
    select_arms,
    select_temperature,
    window_arms,
)
from tests.evaluation.replicates import joined, mixed, replicated
from tests.synthetic import synthetic_table


@pytest.fixture(scope="module")
def table():
    return synthetic_table(n=40)


def test_greedy_rows_are_the_default_of_a_mixed_sweep(table):
    rows, note = select_temperature(mixed(table, 10), None)
    assert set(rows.rows["temperature"]) == {0.0}
    assert len(rows) == 40
    assert "only its 40 greedy rows of 60 are used" in note
    assert "has the temperatures 0, 1" in note
    assert "\n" not in note


def test_a_chosen_temperature_needs_no_note(table):
    sweep = mixed(table, 10)
    assert select_temperature(sweep, "all") == (sweep, None)
    for temperature in ("1", 1, 1.0):
        rows, note = select_temperature(sweep, temperature)
        assert set(rows.rows["temperature"]) == {1.0}
        assert (len(rows), note) == (20, None)
    rows, note = select_temperature(sweep, "0.0")
    assert (len(rows), note) == (40, None)


def test_other_sweeps_keep_every_row(table):
    warm = replicated(table, 2, temperature=0.7)
    for sweep in (table, warm, joined(warm, replicated(table, 2, temperature=1.0))):
        assert select_temperature(sweep, None) == (sweep, None)


def test_a_temperature_that_was_not_recorded(table):
    with pytest.raises(BlockPilotError, match=r"temperature 0\.7 was not recorded; .* has 0, 1"):
        select_temperature(mixed(table, 10), "0.7")


@pytest.mark.parametrize("temperature", ["warm", "-1", "nan", "inf", "", -0.5, float("nan")])
def test_invalid_temperatures(temperature):
    with pytest.raises(BlockPilotError, match="temperature must be 0 or more, or all"):
        check_temperature(temperature)


@pytest.mark.parametrize("temperature", [None, "all", "0", "0.7", "1e-1", 0, 0.7])
def test_valid_temperatures(temperature):
    check_temperature(temperature)


def test_the_window_is_centred_on_the_drafters_own_size(table):
    assert window_arms(table, 0) == (1, 16)
    assert window_arms(table, 8) == (1, 8, 16)
    assert window_arms(table, 100) == table.arms
    assert window_arms(table.select_arms((1, 2, 4)), 8) == (1,)


def test_arms_are_selected_by_name_or_by_window(table):
    assert select_arms(table, None, None) is table
    assert select_arms(table, [1, 4], None).arms == (1, 4)
    assert select_arms(table, None, 8).arms == (1, 8, 16)
    with pytest.raises(BlockPilotError, match="give only one of them"):
        select_arms(table, (1, 4), 8)
    with pytest.raises(BlockPilotError, match="window 1 contains no recorded block size"):
        select_arms(table.select_arms((1, 2, 4)), None, 1)
