from __future__ import annotations

import math

import numpy as np
import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.measure import MeanSpeedups, Requests, group_masks
from blockpilot_rl.evaluation.statistics import relative_gain
from tests.synthetic import synthetic_table

PLAIN = np.array([4.0, 6.0, 8.0, 10.0])
FIXED = np.array([2.0, 3.0, 8.0, 5.0])
ORACLE = np.array([2.0, 2.0, 4.0, 4.0])
IDS = np.array(["a", "b", "c", "d"])


def requests(**changed) -> Requests:
    values = {"plain": PLAIN, "fixed": FIXED, "fixed_total": FIXED, "oracle": ORACLE, "ids": IDS}
    return Requests(**{**values, **changed})


def test_gap_closed():
    assert MeanSpeedups(1.5, fixed=1.0, oracle=2.0).gap_closed == 0.5
    assert MeanSpeedups(2.0, fixed=1.0, oracle=2.0).gap_closed == 1.0
    assert MeanSpeedups(0.75, fixed=1.0, oracle=2.0).gap_closed == pytest.approx(-0.25)
    assert math.isnan(MeanSpeedups(1.0, fixed=1.0, oracle=1.0).gap_closed)


def test_seconds_of_any_controller_are_measured():
    """Half of the requests gain, one loses against plain decoding, one stays as it is."""
    seconds = np.array([1.0, 3.0, 10.0, 5.0])
    found = requests().measure(seconds, settings={"threshold": 0.5})
    assert found.rows == 4
    assert found.mean_speedup == pytest.approx((4 + 2 + 0.8 + 2) / 4)
    assert found.total_speedup == pytest.approx(28 / 19)
    assert found.gain.value == pytest.approx(8.8 / 7 - 1)
    assert found.total_gain.value == pytest.approx(18 / 19 - 1)
    assert found.gap_closed == pytest.approx((8.8 - 7) / (9.5 - 7))
    assert found.gap_closed_interval.value == pytest.approx(found.gap_closed)
    assert found.regret == pytest.approx((9.5 - 8.8) / 4)
    assert (found.slower_share, found.slower_loss) == (0.25, pytest.approx(0.2))
    assert found.settings == {"threshold": 0.5}


def test_the_gain_is_paired_by_prompt():
    rng = np.random.default_rng(0)
    plain, fixed = rng.uniform(1, 9, 60), rng.uniform(1, 5, 60)
    ids, seconds = np.repeat(np.arange(20), 3), rng.uniform(1, 5, 60)
    judged = Requests(plain, fixed, fixed, seconds, ids, seed=3)
    expected = relative_gain(plain / seconds, plain / fixed, ids, seed=3)
    assert judged.measure(seconds).gain == judged.gain(seconds) == expected
    assert judged.gain(seconds, 0.5).low > expected.low
    assert judged.change(seconds, seconds) == (0, 0, 0)


def test_seeds_are_averaged_within_a_request():
    seeds = np.stack([FIXED, 2 * FIXED])
    found = requests().measure(seeds)
    assert found.mean_speedup == pytest.approx(0.75 * (PLAIN / FIXED).mean())
    assert found.total_speedup == pytest.approx(28 / 27)
    assert found.slower_share == pytest.approx(1 / 8)
    assert found.slower_loss == pytest.approx(0.5)


@pytest.mark.parametrize("seconds", [PLAIN, FIXED, ORACLE])
def test_nothing_is_slower_than_plain(seconds):
    found = requests().measure(seconds)
    assert (found.slower_share, found.slower_loss) == (0.0, 0.0)


def test_groups_are_measured_as_if_alone():
    labels = np.array(["x", "y", "x", "y"])
    judged, seconds = requests(groups={"family": labels}), np.stack([FIXED, ORACLE])
    found = judged.measure_groups("family", seconds)
    assert list(found) == ["x", "y"]
    for label, measured in found.items():
        mask = labels == label
        assert repr(measured) == repr(judged.select(mask).measure(seconds[:, mask]))
        assert measured.rows == 2


def test_rows_of_a_sweep_are_requests():
    table = synthetic_table(n=60)
    arms = np.arange(60) % 3
    judged = Requests.from_sweep(table, arms, 2, confidence=0.9, seed=4)
    assert (judged.confidence, judged.seed, len(judged), judged.prompts) == (0.9, 4, 60, 60)
    assert (judged.fixed == table.seconds[np.arange(60), arms]).all()
    assert (judged.fixed_total == table.seconds[:, 2]).all()
    assert (judged.oracle == table.seconds.min(axis=1)).all()
    assert set(judged.groups) == {"family", "language", "temperature", "source", "loops"}
    masks = group_masks(table, "family")
    assert sum(mask.sum() for mask in masks.values()) == 60
    assert list(masks) == sorted(set(table.rows["family"]))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"fixed": FIXED[:3]}, r"fixed has shape \(3,\), but there are 4 requests"),
        ({"ids": IDS[:2]}, r"ids has shape \(2,\)"),
        ({"plain": np.array([1.0, 0.0, 1.0, 1.0])}, "plain must be positive seconds"),
        ({"oracle": np.array([1.0, np.nan, 1.0, 1.0])}, "oracle must be positive seconds"),
        ({"fixed_total": np.array([1.0, np.inf, 1, 1])}, "fixed_total must be positive seconds"),
    ],
)
def test_times_that_do_not_fit_are_refused(changed, message):
    with pytest.raises(BlockPilotError, match=message):
        requests(**changed)


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        (np.ones(3), r"seconds have shape \(3,\), but there are 4 requests"),
        (np.array([1.0, -1.0, 1.0, 1.0]), "seconds must be positive seconds"),
        (np.array([[1.0, 1.0, 1.0, np.nan]]), "seconds must be positive seconds"),
    ],
)
def test_seconds_that_do_not_fit_are_refused(seconds, message):
    with pytest.raises(BlockPilotError, match=message):
        requests().measure(seconds)
