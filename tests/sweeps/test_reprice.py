from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blockpilot_rl.decoding.calibration import Calibration
from blockpilot_rl.decoding.latency import LatencyProfile, SamplingCost
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.sweeps.reprice import predict_seconds, reprice
from blockpilot_rl.sweeps.table import Sweep
from tests.synthetic import ARMS, synthetic_table

FLAT = LatencyProfile(
    block_sizes=ARMS,
    draft=((0.0, 0.0), *[(0.002, 1e-6)] * (len(ARMS) - 1)),
    verify=tuple((0.02, 1e-5) for _ in ARMS),
    read_prompt=(0.001, 1e-5),
    medians={"contexts": [10, 20]},
)
RECORDED = {
    "cpu": "the first processor",
    "ended_with_first_token": ["abc"],
    "measured": {"decodes": 5, "other_texts": 1},
}
OTHER_DEVICE = Calibration(
    target="synthetic-target",
    drafter="synthetic-drafter",
    fingerprint="0123456789abcdef",
    dtype="float16",
    device="another device",
    latency=FLAT,
    check={"median_error": 0.01},
    provenance={"cpu": "another processor"},
)


def test_seconds_are_those_of_the_profile():
    table = synthetic_table(40)
    expected = [
        [
            FLAT.decode_seconds(arm, 20, emitted)
            for arm, emitted in zip(table.arms, row, strict=True)
        ]
        for row in table.accepted
    ]
    np.testing.assert_allclose(predict_seconds(table, FLAT), expected)


def test_rows_at_a_temperature_include_the_cost_of_sampling():
    """A sampled row costs more than a greedy one of the same accepted lengths, long blocks most."""
    table = synthetic_table(4)
    warm = dataclasses.replace(table, rows=table.rows.assign(temperature=[0.0, 1.0, 0.0, 0.7]))
    profile = dataclasses.replace(FLAT, sampling=SamplingCost((0.001, 0.002), (0.003, 0.004), 5e-4))
    greedy, seconds = predict_seconds(table, profile), predict_seconds(warm, profile)
    np.testing.assert_array_equal(greedy, predict_seconds(table, FLAT))
    np.testing.assert_array_equal(seconds[[0, 2]], greedy[[0, 2]])
    assert (seconds[[1, 3]] > greedy[[1, 3]]).all()
    added = (seconds - greedy)[[1, 3]] / table.passes[[1, 3]]
    assert (np.diff(added, axis=1) > 0).all()
    for row in (1, 3):
        for column, arm in enumerate(ARMS):
            expected = profile.decode_seconds(arm, 20, table.accepted[row][column], sampled=True)
            assert seconds[row, column] == pytest.approx(expected)
    np.testing.assert_array_equal(predict_seconds(warm, FLAT), greedy)


def test_only_what_belongs_to_the_device_changes(tmp_path):
    table = synthetic_table(40)
    measured = table.seconds * 1.1
    table = dataclasses.replace(
        table,
        measured_seconds=measured,
        metadata=dataclasses.replace(table.metadata, provenance=RECORDED),
    )
    new = reprice(table, OTHER_DEVICE)
    new.save(tmp_path / "sweep")
    new = Sweep.load(tmp_path / "sweep")
    np.testing.assert_allclose(new.seconds, predict_seconds(table, FLAT))
    assert np.isnan(new.measured_seconds).all()
    assert new.rows.equals(table.rows)
    np.testing.assert_array_equal(new.states, table.states)
    assert [t.tolist() for t in new.output_tokens] == [t.tolist() for t in table.output_tokens]
    for mine, other in zip(new.accepted, table.accepted, strict=True):
        assert [arm.tolist() for arm in mine] == [arm.tolist() for arm in other]
    metadata = new.metadata
    assert (metadata.device, metadata.latency_dtype) == ("another device", "float16")
    assert LatencyProfile.from_dict(metadata.latency) == FLAT
    assert metadata.provenance["recorded"]["cpu"] == "the first processor"
    assert metadata.provenance["cpu"] != "the first processor"
    assert metadata.provenance["ended_with_first_token"] == ["abc"]
    assert metadata.provenance["calibration"]["cpu"] == "another processor"
    assert "measured" not in metadata.provenance
    renewed = ("latency", "latency_dtype", "device", "provenance")
    for field in dataclasses.fields(metadata):
        if field.name not in renewed:
            assert getattr(metadata, field.name) == getattr(table.metadata, field.name)


def test_a_flat_device_prefers_the_largest_block():
    """The same sweep has another best size on another device."""
    table = synthetic_table(100)
    here = int(table.speedups.mean(axis=0).argmax())
    there = int(reprice(table, OTHER_DEVICE).speedups.mean(axis=0).argmax())
    assert table.arms[here] < 16
    assert table.arms[there] == 16


def test_repricing_twice_remembers_how_it_was_recorded():
    table = synthetic_table(5)
    table = dataclasses.replace(
        table, metadata=dataclasses.replace(table.metadata, provenance=RECORDED)
    )
    twice = reprice(reprice(table, OTHER_DEVICE), OTHER_DEVICE)
    assert twice.metadata.provenance["recorded"]["cpu"] == "the first processor"


def test_another_pair_and_a_missing_arm_are_refused():
    table = synthetic_table(5)
    foreign = dataclasses.replace(OTHER_DEVICE, fingerprint="f" * 16, target="other")
    with pytest.raises(
        BlockPilotError, match=r"profile is of other with synthetic-drafter \(f{16}\)"
    ):
        reprice(table, foreign)
    short = LatencyProfile(ARMS[:3], FLAT.draft[:3], FLAT.verify[:3], (0.0, 0.0), {})
    with pytest.raises(BlockPilotError, match="block size 8 is not in the latency profile"):
        reprice(table, dataclasses.replace(OTHER_DEVICE, latency=short))
