from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from blockpilot_rl.decoding.replay import Trace, decode_probabilities, is_drafted
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.sweeps import traces as module
from blockpilot_rl.sweeps.table import Sweep
from blockpilot_rl.sweeps.traces import TRACE_FILE, load_traces, save_sweep
from tests.synthetic import ARMS, synthetic_table

ROWS = (5, 0, 17)


def trace_of(table: Sweep, row: int) -> Trace:
    """A trace with the row's own trajectories; all other values are random."""
    rng = np.random.default_rng(row)
    anchors = int(table.emitted[row])
    left = np.arange(anchors, 0, -1)[:, None]
    accepted = np.minimum(rng.integers(1, np.array(ARMS) + 1, (anchors, len(ARMS))), left)
    for arm, lengths in enumerate(table.accepted[row]):
        accepted[np.cumsum([0, *lengths[:-1]]), arm] = lengths
    confidences = rng.uniform(size=(anchors, ARMS[-1] - 1))
    return Trace(accepted.astype(np.int16), confidences.astype(np.float16))


@pytest.fixture(scope="module")
def table():
    return synthetic_table(20)


@pytest.fixture
def folder(table, tmp_path):
    save_sweep(tmp_path / "sweep", table, {row: trace_of(table, row) for row in ROWS})
    return tmp_path / "sweep"


def extended_trace_of(table: Sweep, row: int) -> Trace:
    """A trace with the row's own trajectories and chains of every block size."""
    rng, plain = np.random.default_rng(row), trace_of(table, row)
    anchors, width = len(plain.accepted), sum(ARMS) - len(ARMS)
    chains = decode_probabilities(rng.integers(0, 256, (3, anchors, width), dtype=np.uint8))
    budget = table.metadata.max_new_tokens
    chains[:, ~is_drafted(ARMS, anchors, budget)] = 0
    next_token = rng.uniform(size=(anchors + 1, 3)).astype(np.float16)
    sampled = table.temperatures[row] > 0
    return Trace(
        plain.accepted, chains[0], chains[1], chains[2] if sampled else None, next_token, budget
    )


@pytest.fixture(scope="module")
def new_table(table):
    """A sweep whose blocks are shorter near the end of the budget, with a sampled row."""
    rows = table.rows.copy()
    rows.loc[17, "temperature"] = 1.0
    metadata = dataclasses.replace(table.metadata, shortens_blocks=True)
    return dataclasses.replace(table, rows=rows, metadata=metadata)


@pytest.fixture
def new_folder(new_table, tmp_path):
    traces = {row: extended_trace_of(new_table, row) for row in ROWS}
    save_sweep(tmp_path / "new", new_table, traces)
    return tmp_path / "new"


def assert_same(ours: Trace, theirs: Trace) -> None:
    for name in ("accepted", "confidences", "margins", "proposed", "next_token"):
        if getattr(theirs, name) is None:
            assert getattr(ours, name) is None
            continue
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        assert getattr(ours, name).dtype == getattr(theirs, name).dtype
    assert ours.max_new_tokens == theirs.max_new_tokens


def test_what_was_saved_is_loaded_by_row(folder, table):
    found = load_traces(folder, Sweep.load(folder))
    assert sorted(found) == sorted(ROWS)
    for row in ROWS:
        assert_same(found[row], trace_of(table, row))
        steps = [found[row].trajectory(arm) for arm in range(len(ARMS))]
        assert steps == [lengths.tolist() for lengths in table.accepted[row]]


def test_chains_of_every_block_size_are_loaded(new_folder, new_table):
    """In greedy and in sampled rows; they are saved again with the same bytes."""
    sweep = Sweep.load(new_folder)
    found = load_traces(new_folder, sweep)
    for row in ROWS:
        assert_same(found[row], extended_trace_of(new_table, row))
        assert found[row].is_extended
    again = new_folder.with_name("again")
    save_sweep(again, sweep, found)
    assert (again / TRACE_FILE).read_bytes() == (new_folder / TRACE_FILE).read_bytes()


def test_a_trace_with_another_budget_is_refused(new_folder, new_table, table):
    """Also that of release 0.1, whose blocks were whole, next to a new sweep and vice versa."""
    whole = dataclasses.replace(new_table, metadata=table.metadata)
    later = dataclasses.replace(new_table.metadata, max_new_tokens=97)
    for other in (whole, dataclasses.replace(new_table, metadata=later)):
        with pytest.raises(BlockPilotError, match="has another budget than the sweep"):
            load_traces(new_folder, other)
    old = new_folder.with_name("old")
    save_sweep(old, table, {row: trace_of(table, row) for row in ROWS})
    with pytest.raises(BlockPilotError, match="has another budget than the sweep"):
        load_traces(old, dataclasses.replace(table, metadata=new_table.metadata))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("confidences_8", lambda a: a[:-1], "confidences_8 that are not 7 codes for each anchor"),
        ("margins_16", lambda a: a[1:], "margins_16 that are not 15 codes"),
        ("entropy", lambda a: with_first(np.nan)(a), "entropy, top1 and margin"),
        ("top1", lambda a: -a, "entropy, top1 and margin"),
        ("max_new_tokens", lambda _: 2, "more than its budget of 2"),
    ],
)
def test_a_broken_row_of_an_extended_trace_is_named(new_folder, new_table, column, value, message):
    change(new_folder, column, value)
    with pytest.raises(BlockPilotError, match=rf"row 1 \({new_table.rows['id'][5]}\) .*{message}"):
        load_traces(new_folder, new_table)


def test_rows_of_a_selection_are_counted_in_it(folder, table):
    some = Sweep.load(folder).select_rows(np.array([17, 3, 5]))
    found = load_traces(folder, some)
    assert sorted(found) == [0, 2]
    assert_same(found[0], trace_of(table, 17))


def test_seeds_and_temperatures_are_distinguished(table, tmp_path):
    twice = dataclasses.replace(table, rows=table.rows.copy())
    twice.rows.loc[[1, 2], ["id", "split"]] = twice.rows.loc[0, ["id", "split"]].to_list()
    twice.rows.loc[[1, 2], ["temperature", "seed"]] = [[1.0, 0], [1.0, 4]]
    save_sweep(tmp_path / "sweep", twice, {row: trace_of(twice, row) for row in (0, 2)})
    found = load_traces(tmp_path / "sweep", Sweep.load(tmp_path / "sweep"))
    assert sorted(found) == [0, 2]


def test_a_sweep_without_traces(table, tmp_path, monkeypatch):
    save_sweep(tmp_path / "sweep", table, {})
    assert not (tmp_path / "sweep" / TRACE_FILE).exists()
    monkeypatch.setattr(module, "BUNDLED_SWEEP", tmp_path / "sweep")
    for folder in (tmp_path / "sweep", None):
        with pytest.raises(BlockPilotError, match=r"no traces; record it with .*--trace"):
            load_traces(folder, table)


def test_the_table_does_not_read_traces(folder):
    (folder / TRACE_FILE).write_bytes(b"anything")
    assert len(Sweep.load(folder)) == 20


def test_the_file_is_plain_parquet(folder):
    schema = pq.read_schema(folder / TRACE_FILE)
    assert str(schema.field("accepted_8").type) == "list<element: int16>"
    assert str(schema.field("confidences").type) == "list<element: halffloat>"
    assert len(pd.read_parquet(folder / TRACE_FILE)) == 3


def change(folder, column, value):
    """Change a cell of row 1, which is row 5 of the sweep."""
    path = folder / TRACE_FILE
    frame = pd.read_parquet(path)
    old = frame[column]
    frame[column] = [value(item) if row == 1 else item for row, item in enumerate(old)]
    frame.to_parquet(path)


def with_first(value):
    return lambda array: np.concatenate([[value], array[1:]]).astype(array.dtype)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("accepted_8", lambda a: a[:-1], "different numbers of anchors"),
        ("accepted_8", with_first(0), "emits no token, more than its block"),
        ("accepted_8", with_first(9), "emits no token, more than its block"),
        ("accepted_1", with_first(2), "emits no token, more than its block"),
        ("accepted_16", lambda a: with_first(2)(a[::-1])[::-1], "past the end"),
        ("confidences", lambda a: a[:-1], "confidences for"),
        ("confidences", with_first(np.nan), "not a probability"),
        ("confidences", with_first(1.5), "not a probability"),
    ],
)
def test_a_broken_row_is_named(folder, table, column, value, message):
    change(folder, column, value)
    with pytest.raises(BlockPilotError, match=rf"row 1 \({table.rows['id'][5]}\) .*{message}"):
        load_traces(folder, table)


@pytest.mark.parametrize("column", ["id", "seed", "accepted_4", "confidences"])
def test_an_empty_cell_is_named(folder, table, column):
    change(folder, column, lambda _: None)
    with pytest.raises(BlockPilotError, match=f"row 1 has no {column}"):
        load_traces(folder, table)


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("confidences", 0.5, "lists of numbers, not double"),
        ("accepted_4", 2, "lists of whole numbers, not int64"),
        ("seed", "x", "whole numbers, not"),
        ("id", 5, "text, not int64"),
    ],
)
def test_a_column_of_a_wrong_type_is_named(folder, table, column, value, kind):
    path = folder / TRACE_FILE
    frame = pd.read_parquet(path)
    frame.assign(**{column: [value] * len(frame)}).to_parquet(path)
    with pytest.raises(BlockPilotError, match=rf"{path}: column {column} must hold {kind}"):
        load_traces(folder, table)


def test_a_duplicate_is_named(folder, table):
    change(folder, "id", lambda _: table.rows["id"][0])
    with pytest.raises(BlockPilotError, match="row 1 repeats an id, temperature and seed"):
        load_traces(folder, table)


def test_a_trace_of_another_recording(folder, table):
    """It is valid but contradicts the sweep."""
    longer = next(i for i, length in enumerate(table.accepted[5][3]) if length > 1)
    at = int(table.accepted[5][3][:longer].sum())

    def shorten(array):
        array = array.copy()
        array[at] -= 1
        return array

    change(folder, "accepted_8", shorten)
    with pytest.raises(BlockPilotError, match=r"contradicts accepted_8 .* another recording"):
        load_traces(folder, table)


def test_traces_of_rows_that_the_sweep_lacks(folder, table, tmp_path):
    """Of other prompts only, or of one among its own, for any selected rows."""
    ids = table.rows["id"].map("other-{}".format)
    other = dataclasses.replace(table, rows=table.rows.assign(id=ids))
    save_sweep(tmp_path / "other", other, {row: trace_of(other, row) for row in ROWS})
    shutil.copy(tmp_path / "other" / TRACE_FILE, folder)
    with pytest.raises(BlockPilotError, match=r"trace\.parquet: 3 traces have no row in sweep"):
        load_traces(folder, table)
    save_sweep(tmp_path / "again", table, {row: trace_of(table, row) for row in ROWS})
    change(tmp_path / "again", "seed", lambda seed: seed + 1)
    with pytest.raises(BlockPilotError, match=rf"1 traces .* \('{table.rows['id'][5]}', 0\.0, 1\)"):
        load_traces(tmp_path / "again", table.select_rows(np.array([0, 3])))


def test_a_missing_arm_and_an_arm_too_many(folder, table):
    with pytest.raises(BlockPilotError, match=r"also has the block sizes \['accepted_8'\]"):
        load_traces(folder, table.select_arms((1, 2, 4, 16)))
    path = folder / TRACE_FILE
    pd.read_parquet(path).drop(columns="accepted_4").to_parquet(path)
    with pytest.raises(BlockPilotError, match=r"lacks the columns \['accepted_4'\]"):
        load_traces(folder, table)


@pytest.mark.parametrize("keep", [0, 100, -20])
def test_a_truncated_file(folder, table, keep):
    path = folder / TRACE_FILE
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BlockPilotError, match=r"trace\.parquet is corrupt"):
        load_traces(folder, table)
