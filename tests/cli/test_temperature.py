from __future__ import annotations

import pytest

from blockpilot_rl.cli.temperature import check_temperature, select_temperature
from blockpilot_rl.errors import BlockPilotError
from tests.evaluation.replicates import joined, mixed, replicated
from tests.synthetic import synthetic_table


@pytest.fixture(scope="module")
def table():
    return synthetic_table(n=40)


def test_greedy_rows_are_the_default_of_a_mixed_sweep(table):
    rows, remark = select_temperature(mixed(table, 10), None)
    assert set(rows.rows["temperature"]) == {0.0}
    assert len(rows) == 40
    assert "its 40 greedy rows of 60 were taken" in remark
    assert "has the temperatures 0, 1" in remark
    assert "\n" not in remark


def test_what_is_asked_for_is_taken_without_a_remark(table):
    sweep = mixed(table, 10)
    assert select_temperature(sweep, "all") == (sweep, None)
    rows, remark = select_temperature(sweep, "1")
    assert set(rows.rows["temperature"]) == {1.0}
    assert (len(rows), remark) == (20, None)
    rows, remark = select_temperature(sweep, "0.0")
    assert (len(rows), remark) == (40, None)


def test_without_a_choice_to_make_all_rows_are_taken(table):
    warm = replicated(table, 2, temperature=0.7)
    for sweep in (table, warm, joined(warm, replicated(table, 2, temperature=1.0))):
        assert select_temperature(sweep, None) == (sweep, None)


def test_a_temperature_that_was_not_recorded(table):
    with pytest.raises(BlockPilotError, match=r"--temperature 0\.7 was not recorded; .* has 0, 1"):
        select_temperature(mixed(table, 10), "0.7")


@pytest.mark.parametrize("wanted", ["warm", "-1", "nan", "inf", ""])
def test_what_is_no_temperature(wanted):
    with pytest.raises(BlockPilotError, match="--temperature must be 0 or more, or all"):
        check_temperature(wanted)


@pytest.mark.parametrize("wanted", [None, "all", "0", "0.7", "1e-1"])
def test_what_is_one(wanted):
    check_temperature(wanted)
