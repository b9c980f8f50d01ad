"""Tables that pandas has written again: row numbers are those of the file, whatever its index."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.sweeps.parquet import KEY, read_parquet
from blockpilot_rl.sweeps.table import Sweep
from blockpilot_rl.sweeps.traces import TRACE_FILE, load_traces, save_sweep
from tests.sweeps.test_traces import trace_of
from tests.synthetic import synthetic_table

REWRITES = {
    "filtered": lambda frame: frame[frame["prompt_tokens"] > 0].iloc[3:],
    "shuffled": lambda frame: frame.sample(frac=1, random_state=0),
    "sorted": lambda frame: frame.sort_values("id", ascending=False),
    "indexed by id": lambda frame: frame.set_index("id"),
    "indexed by several": lambda frame: frame.set_index(["family", "id"]).sort_index(),
    "another index": lambda frame: frame.set_index(np.arange(len(frame))[::-1] + 100),
    "a named index": lambda frame: frame.rename_axis("row").iloc[::-1],
    "an index of text": lambda frame: frame.set_index(frame["id"].str[::-1]).iloc[::2],
    "index beside": lambda frame: frame.assign(__index_level_0__=7).iloc[::-1],
    "categories": lambda frame: frame.astype({"family": "category"}).iloc[::-1],
}


@pytest.fixture
def folder(tmp_path):
    table = synthetic_table(20)
    save_sweep(tmp_path / "sweep", table, {row: trace_of(table, row) for row in (3, 11, 17)})
    return tmp_path / "sweep"


def rewrite(path, change):
    frame = change(pd.read_parquet(path))
    frame.to_parquet(path)
    columns = pq.read_table(path).to_pandas(ignore_metadata=True)
    return columns["id"].tolist()


@pytest.mark.parametrize("name", REWRITES)
def test_rows_are_in_the_order_of_the_file(folder, name):
    before = Sweep.load(folder)
    ids = rewrite(folder / "sweep.parquet", REWRITES[name])
    sweep = Sweep.load(folder)
    assert sweep.rows["id"].tolist() == ids
    assert list(sweep.rows.index) == list(range(len(ids)))
    places = {key: row for row, key in enumerate(before.keys)}
    old = [places[key] for key in sweep.keys]
    np.testing.assert_array_equal(sweep.states, before.states[old])
    np.testing.assert_array_equal(sweep.seconds, before.seconds[old])
    assert [t.tolist() for t in sweep.output_tokens] == [
        before.output_tokens[row].tolist() for row in old
    ]


@pytest.mark.parametrize("name", REWRITES)
def test_errors_name_the_right_prompt(folder, name):
    ids = rewrite(folder / "sweep.parquet", REWRITES[name])
    row = 2
    file = folder / "sweep.parquet"
    table = pq.read_table(file)
    index = table.column_names.index("seconds_8")
    seconds = table["seconds_8"].to_pylist()
    seconds[row] = float("nan")
    pq.write_table(table.set_column(index, "seconds_8", pa.array(seconds)), file)
    with pytest.raises(BlockPilotError, match=rf"row {row} \({ids[row]}\) has seconds"):
        Sweep.load(folder)


@pytest.mark.parametrize("name", REWRITES)
def test_an_empty_value_is_in_the_row_of_the_file(folder, name):
    rewrite(folder / "sweep.parquet", REWRITES[name])
    file = folder / "sweep.parquet"
    table = pq.read_table(file)
    index = table.column_names.index("split")
    values = table["split"].to_pylist()
    values[4] = None
    pq.write_table(table.set_column(index, "split", pa.array(values)), file)
    with pytest.raises(BlockPilotError, match=r"sweep\.parquet: row 4 has no split"):
        Sweep.load(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.iloc[::-1],
        lambda frame: frame.set_index(KEY),
        lambda frame: frame.set_index("id"),
        lambda frame: frame.iloc[1:],
    ],
)
def test_traces_that_pandas_has_written_again(folder, change):
    whole = load_traces(folder, Sweep.load(folder))
    ids = rewrite(folder / TRACE_FILE, change)
    sweep = Sweep.load(folder)
    found = load_traces(folder, sweep)
    assert {sweep.keys[row][0] for row in found} == set(ids)
    for row, trace in found.items():
        np.testing.assert_array_equal(trace.accepted, whole[row].accepted)
    file = folder / TRACE_FILE
    table = pq.read_table(file)
    lists = table["confidences"].to_pylist()
    lists[1] = lists[1][:-1]
    column = pa.array(lists, table["confidences"].type)
    index = table.column_names.index("confidences")
    pq.write_table(table.set_column(index, "confidences", column), file)
    with pytest.raises(BlockPilotError, match=rf"row 1 \({ids[1]}\) has \d+ confidences"):
        load_traces(folder, sweep)


def test_a_selection_of_a_sweep_still_finds_its_traces(folder):
    rewrite(folder / "sweep.parquet", REWRITES["shuffled"])
    sweep = Sweep.load(folder)
    traces = load_traces(folder, sweep)
    assert len(traces) == 3
    for row, trace in traces.items():
        assert trace.trajectory(2) == sweep.accepted[row][2].tolist()


def test_a_repeated_column_is_refused(tmp_path):
    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["id", "id"])
    pq.write_table(table, tmp_path / "twice.parquet")
    with pytest.raises(BlockPilotError, match=r"twice\.parquet is corrupt"):
        read_parquet(tmp_path / "twice.parquet", ["id"])
