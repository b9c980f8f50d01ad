from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.sweeps.merge import merge, merge_sweeps
from blockpilot_rl.sweeps.table import Sweep
from blockpilot_rl.sweeps.traces import load_traces, save_sweep
from tests.sweeps.test_table import assert_equal
from tests.sweeps.test_traces import trace_of
from tests.synthetic import synthetic_table


def sampled(table: Sweep, temperature: float, seed: int, **metadata: object) -> Sweep:
    """The same prompts at another temperature and seed."""
    rows = table.rows.assign(temperature=temperature, seed=seed)
    changed = dataclasses.replace(table.metadata, **metadata)  # type: ignore[arg-type]
    return dataclasses.replace(table, rows=rows, metadata=changed)


@pytest.fixture(scope="module")
def table():
    return synthetic_table(12)


def test_rows_of_all_parts_in_order(table, tmp_path):
    warm = sampled(table.select_rows(np.arange(5)), 1.0, 3)
    warmer = sampled(table.select_rows(np.arange(5)), 1.0, 4)
    merged = merge([table, warm, warmer])
    assert merged.keys == [*table.keys, *warm.keys, *warmer.keys]
    assert len(set(merged.keys)) == 22
    np.testing.assert_array_equal(merged.seconds[12:17], warm.seconds)
    for start, part in ((0, table), (12, warm), (17, warmer)):
        again = merged.select_rows(np.arange(start, start + len(part)))
        assert_equal(dataclasses.replace(again, metadata=part.metadata), part)
    merged.save(tmp_path / "sweep")
    assert Sweep.load(tmp_path / "sweep").keys == merged.keys
    assert set(merged.split("train").rows["id"]).isdisjoint(merged.split("test").rows["id"])


def test_provenance_of_the_parts_is_kept(table):
    ended = [
        dataclasses.replace(
            part,
            metadata=dataclasses.replace(
                part.metadata, provenance={"ended_with_first_token": [name], "date": name}
            ),
        )
        for part, name in ((table, "a"), (sampled(table, 1.0, 0), "b"))
    ]
    provenance = merge(ended).metadata.provenance
    assert provenance["ended_with_first_token"] == ["a", "b"]
    assert [part["date"] for part in provenance["merged"]] == ["a", "b"]
    assert provenance["versions"]["torch"]


def test_greedy_rows_do_not_affect_top_k(table):
    warm = sampled(table, 1.0, 0, top_k=50, top_p=0.9)
    for parts in ([table, warm], [warm, table]):
        metadata = merge(parts).metadata
        assert (metadata.top_k, metadata.top_p) == (50, 0.9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fingerprint": "foreign"}, r"another fingerprint, foreign \(synthetic-target with"),
        ({"dtype": "bfloat16"}, "another dtype, bfloat16, than float32"),
        ({"max_new_tokens": 9}, "another max_new_tokens, 9, than 96"),
        ({"template": {"enable_thinking": False}}, "another template"),
        (
            {"state": StateLayout((("last_hidden", 13), ("next_token", 3)))},
            "another state, StateLayout",
        ),
        ({"latency": {"draft": []}}, "another latency than the first.*re-price both"),
        ({"latency_dtype": "float32"}, "another latency_dtype than the first.*re-price both"),
        ({"device": "elsewhere"}, "another device than the first.*re-price both"),
    ],
)
def test_mismatches_are_refused(table, changes, message):
    with pytest.raises(BlockPilotError, match=f"sweep 3 has {message}"):
        merge([table, sampled(table, 1.0, 0), sampled(table, 1.0, 1, **changes)])


def test_other_arms_are_refused(table):
    fewer = sampled(table, 1.0, 0).select_arms((1, 4))
    with pytest.raises(BlockPilotError, match=r"sweep 2 has another arms, \(1, 4\), than \(1, 2,"):
        merge([table, fewer])


def test_rows_sampled_differently_are_refused(table):
    parts = [table, sampled(table, 1.0, 0, top_k=50), sampled(table, 1.0, 1, top_k=20)]
    with pytest.raises(BlockPilotError, match="sweep 3 has another top_k, 20, than 50"):
        merge(parts)


def test_a_row_in_two_parts_is_named(table):
    name = table.rows["id"][4]
    again = sampled(table, 0.0, 0).select_rows(np.array([4]))
    with pytest.raises(BlockPilotError, match=rf"merged sweep: row 12 \({name}\) repeats an id"):
        merge([table, again])


def test_nothing_to_merge():
    with pytest.raises(BlockPilotError, match="no sweep to merge"):
        merge([])


def test_folders_with_their_traces(table, tmp_path):
    warm = sampled(table, 1.0, 3)
    save_sweep(tmp_path / "a", table, {2: trace_of(table, 2)})
    save_sweep(tmp_path / "b", warm, {})
    save_sweep(tmp_path / "c", sampled(table, 1.0, 4), {7: trace_of(table, 7)})
    merged = merge_sweeps([tmp_path / name for name in "abc"], tmp_path / "all")
    loaded = Sweep.load(tmp_path / "all")
    assert_equal(loaded, merged)
    found = load_traces(tmp_path / "all", loaded)
    assert sorted(found) == [2, 12 + 12 + 7]
    np.testing.assert_array_equal(found[31].confidences, trace_of(table, 7).confidences)


def unseen(table: Sweep, *families: str) -> Sweep:
    metadata = dataclasses.replace(table.metadata, unseen_families=families)
    return dataclasses.replace(table, metadata=metadata)


def of_family(table: Sweep, family: str, temperature: float) -> Sweep:
    rows = table.rows.assign(family=family, split="test", temperature=temperature)
    rows["id"] = [f"{family}-{temperature}-{key}" for key in rows["id"]]
    return dataclasses.replace(table, rows=rows)


def test_unseen_families_of_all_parts_are_unseen(table, tmp_path):
    parts = [
        table,
        unseen(of_family(table, "math", 0.5), "math"),
        unseen(of_family(table, "chat", 0.7), "chat", "code"),
        unseen(of_family(table, "math", 0.9), "chat"),
    ]
    merged = merge(parts)
    assert merged.metadata.unseen_families == ("chat", "code", "math")
    merged.save(tmp_path / "sweep")
    assert Sweep.load(tmp_path / "sweep").metadata == merged.metadata


@pytest.mark.parametrize("family", ["easy", "hard"])
def test_a_part_that_trains_on_a_family_that_is_unseen_in_another_is_refused(table, family):
    other = unseen(of_family(table, family, 0.5), family)
    for parts in ([table, other], [other, table]):
        with pytest.raises(BlockPilotError, match=f"leakage: the merged sweep .*'{family}'"):
            merge(parts)


def test_an_unseen_family_outside_the_test_split_is_refused(table, tmp_path):
    with pytest.raises(BlockPilotError, match=r"leakage: sweep has .* unseen families outside"):
        unseen(table, "easy", "hard").save(tmp_path / "sweep")
