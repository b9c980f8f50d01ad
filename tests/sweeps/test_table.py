from __future__ import annotations

import dataclasses
import json
import math
import shutil

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from blockpilot_rl.decoding.acceptance import is_repetitive
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.sweeps import table as module
from blockpilot_rl.sweeps.table import BUNDLED_SWEEP, Sweep
from tests.evaluation.replicates import mixed
from tests.synthetic import ARMS, synthetic_table


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweeps") / "sweep"
    synthetic_table(40).save(folder)
    return folder


@pytest.fixture
def sweep(saved, tmp_path):
    """A copy that may be broken."""
    return shutil.copytree(saved, tmp_path / "sweep")


def change_rows(folder, change):
    """Rewrite the Parquet file after a change of its data frame."""
    file = folder / "sweep.parquet"
    frame = pd.read_parquet(file)
    changed = change(frame)
    (frame if changed is None else changed).to_parquet(file)


def change_metadata(folder, **changes):
    file = folder / "metadata.json"
    values = json.loads(file.read_text(encoding="utf-8")) | changes
    file.write_text(json.dumps({k: v for k, v in values.items() if v is not ...}))


def assert_equal(ours: Sweep, theirs: Sweep) -> None:
    assert json.dumps(ours.metadata.to_dict()) == json.dumps(theirs.metadata.to_dict())
    pd.testing.assert_frame_equal(
        ours.rows, theirs.rows, check_dtype=False, check_column_type=False
    )
    for name in ("states", "seconds", "measured_seconds"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    for a, b in zip(ours.output_tokens, theirs.output_tokens, strict=True):
        np.testing.assert_array_equal(a, b)
    for row_a, row_b in zip(ours.accepted, theirs.accepted, strict=True):
        for a, b in zip(row_a, row_b, strict=True):
            np.testing.assert_array_equal(a, b)


def test_what_was_saved_is_loaded(saved):
    table = synthetic_table(40)
    assert_equal(Sweep.load(saved), table)
    assert {path.name for path in saved.iterdir()} == {"sweep.parquet", "metadata.json"}


def test_measured_seconds_may_be_partly_there(tmp_path):
    table = synthetic_table(5)
    table.measured_seconds[2] = 0.5
    table.save(tmp_path / "sweep")
    measured = Sweep.load(tmp_path / "sweep").measured_seconds
    assert np.isnan(measured).any(axis=1).tolist() == [True, True, False, True, True]


def test_the_bundled_sweep_is_the_default(sweep, monkeypatch):
    monkeypatch.setattr(module, "BUNDLED_SWEEP", sweep)
    assert len(Sweep.load()) == 40


def test_quantities_by_definition():
    table = synthetic_table(10)
    row, column = 3, table.arm_index(8)
    passes = table.accepted[row][column]
    assert table.emitted[row] == len(table.output_tokens[row]) - 1 == passes.sum()
    assert table.passes[row, column] == len(passes)
    assert table.acceptance_lengths[row, column] == pytest.approx(passes.mean())
    expected = table.seconds[row, 0] / table.seconds[row, column]
    assert table.speedups[row, column] == pytest.approx(expected)
    assert (table.speedups[:, 0] == 1).all()
    assert len(table) == 10


def test_rows_and_arms_can_be_selected(tmp_path):
    table = synthetic_table(30)
    some = table.select_rows(np.array([4, 2]))
    assert some.rows["id"].tolist() == [table.rows["id"][4], table.rows["id"][2]]
    np.testing.assert_array_equal(some.states, table.states[[4, 2]])
    np.testing.assert_array_equal(some.speedups, table.speedups[[4, 2]])
    assert len(table.select_rows(np.arange(30) < 7)) == 7
    fewer = table.select_arms((1, 8))
    assert fewer.arms == fewer.metadata.arms == (1, 8)
    np.testing.assert_array_equal(fewer.speedups, table.speedups[:, [0, 3]])
    np.testing.assert_array_equal(fewer.passes, table.passes[:, [0, 3]])
    fewer.save(tmp_path / "fewer")
    assert_equal(Sweep.load(tmp_path / "fewer"), fewer)


def test_splits():
    table = synthetic_table(60)
    train = table.split("train")
    assert set(train.rows["split"]) == {"train"}
    assert list(train.rows.index) == list(range(len(train)))
    with pytest.raises(BlockPilotError, match=r"no 'drafter' rows; it has test, train, validation"):
        table.split("drafter")


def test_unknown_arms():
    table = synthetic_table(5)
    with pytest.raises(BlockPilotError, match="block size 3 is not an arm"):
        table.arm_index(3)
    with pytest.raises(BlockPilotError, match="begin with 1"):
        table.select_arms((2, 4))


def test_saving_is_atomic_and_does_not_overwrite(tmp_path):
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / "mine.txt").write_text("precious")
    with pytest.raises(BlockPilotError, match="is not empty"):
        synthetic_table(5).save(folder)
    broken = synthetic_table(5)
    broken.states[3, 0] = np.nan
    with pytest.raises(BlockPilotError, match="row 3 "):
        broken.save(tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["sweep"]
    with pytest.raises(BlockPilotError, match=r"mine\.txt, which replacing it would lose"):
        synthetic_table(5).save(folder, overwrite=True)
    (folder / "mine.txt").unlink()
    for size in (4, 5):
        synthetic_table(size).save(folder, overwrite=True)
    assert len(Sweep.load(folder)) == 5


def test_the_bundled_sweep_is_large_enough_to_learn_from():
    """Greedy answers, and two sampled answers per prompt for a cross-fitted oracle."""
    table = Sweep.load()
    greedy, warm = (table.select_rows(table.temperatures == value) for value in (0, 1))
    assert len(greedy) + len(warm) == len(table) == len(set(table.keys))
    assert greedy.rows["id"].nunique() == len(greedy) >= 3000
    assert len(greedy.split("test")) >= 1000
    sampled = warm.rows.groupby("id")["seed"].nunique()
    assert len(sampled) >= 800
    assert (sampled == 2).all()
    assert set(sampled.index) <= set(greedy.rows["id"])
    assert greedy.rows["language"].nunique() >= 5


def test_the_bundled_sweep_has_exact_texts_at_the_price_of_bfloat16():
    metadata = Sweep.load().metadata
    assert (metadata.dtype, metadata.latency_dtype) == ("float32", "bfloat16")
    assert sum(path.stat().st_size for path in BUNDLED_SWEEP.iterdir()) <= 25e6


def test_rows_of_the_default_are_the_greedy_ones():
    table = mixed(synthetic_table(40), 10)
    assert (len(table), len(table.default_rows())) == (60, 40)
    assert set(table.default_rows().temperatures) == {0.0}
    for single in (table.default_rows(), table.select_rows(table.temperatures > 0)):
        assert single.default_rows() is single


def test_a_prompt_may_have_rows_of_several_temperatures_and_seeds(tmp_path):
    table = synthetic_table(6)
    first, split = table.rows["id"][0], table.rows["split"][0]
    keys = [(first, 0.0, 0), (first, 1.0, 0), (first, 1.0, 7)]
    for row, (key, temperature, seed) in enumerate(keys):
        table.rows.loc[row, ["id", "temperature", "seed", "split"]] = key, temperature, seed, split
    table.save(tmp_path / "sweep")
    loaded = Sweep.load(tmp_path / "sweep")
    assert loaded.keys == table.keys
    assert loaded.keys[:3] == keys
    assert {type(part) for key in loaded.keys for part in key} == {str, float, int}


def test_a_prompt_in_two_splits_is_named(tmp_path):
    """Otherwise an agent would be judged on a prompt that it learned from."""
    table = synthetic_table(60)
    row = next(i for i, split in enumerate(table.rows["split"]) if split != table.rows["split"][0])
    table.rows.loc[row, ["id", "seed"]] = table.rows["id"][0], 5
    with pytest.raises(BlockPilotError, match=rf"row {row} .* another split than an earlier row"):
        table.save(tmp_path / "sweep")


def set_cell(column, value):
    """A change of row 7; `value` may depend on what is there."""

    def change(frame):
        old = frame[column]
        new = value(old[7]) if callable(value) else value
        frame[column] = [new if i == 7 else item for i, item in enumerate(old)]

    return change


def with_first(value):
    return lambda array: np.concatenate([[value], array[1:]]).astype(array.dtype)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_cell("state", with_first(np.nan)), "has NaN or infinity in its state"),
        (set_cell("state", with_first(np.inf)), "has NaN or infinity in its state"),
        (set_cell("seconds_8", np.nan), "has seconds that are not positive numbers"),
        (set_cell("seconds_8", 0.0), "has seconds that are not positive numbers"),
        (set_cell("seconds_1", np.inf), "has seconds that are not positive numbers"),
        (set_cell("seconds_8", -0.5), "has seconds that are not positive numbers"),
        (set_cell("seconds_8", 1e-320), "has seconds that are not positive numbers"),
        (set_cell("seconds_1", 1e-320), "has seconds that are not positive numbers"),
        (set_cell("seconds_8", 1e-12), "has seconds that are not positive numbers"),
        (set_cell("seconds_8", 1e300), "has seconds that are not positive numbers"),
        (set_cell("accepted_8", lambda a: a[:-1]), "accepted lengths that do not sum"),
        (set_cell("accepted_8", with_first(9)), "emitted no token or more than its block size"),
        (
            set_cell("accepted_1", lambda a: np.append(a, 0).astype(a.dtype)),
            "emitted no token or more than its block size",
        ),
        (set_cell("output_tokens", lambda a: a[:-1]), "accepted lengths that do not sum"),
        (set_cell("output_tokens", with_first(-1)), "has an output token that is negative"),
        (set_cell("seed", -1), "has a seed that is not 0 or more"),
        (set_cell("prompt_tokens", 0), "a number of prompt tokens that is not positive"),
        (set_cell("temperature", np.nan), "row 7 has no temperature"),
        (set_cell("measured_seconds_8", 1e-320), "measured seconds that are neither empty nor"),
        (set_cell("temperature", -0.5), "a temperature that is not 0 or more"),
        (set_cell("temperature", np.inf), "a temperature that is not 0 or more"),
        (set_cell("prompt_tokens", -3), "a number of prompt tokens that is not positive"),
        (set_cell("measured_seconds_8", 0.0), "measured seconds that are neither empty nor"),
        (set_cell("measured_seconds_8", -1.0), "measured seconds that are neither empty nor"),
        (set_cell("measured_seconds_1", np.inf), "measured seconds that are neither empty nor"),
        (set_cell("split", "tset"), "an unknown split; known are drafter, train, validation, test"),
    ],
)
def test_a_broken_row_is_named(sweep, change, message):
    name = pd.read_parquet(sweep / "sweep.parquet")["id"][7]
    change_rows(sweep, change)
    where = "" if message.startswith("row 7") else rf"{sweep}: row 7 \({name}\) .*"
    with pytest.raises(BlockPilotError, match=f"{where}{message}"):
        Sweep.load(sweep)


@pytest.mark.parametrize(
    "column", ["id", "temperature", "seed", "state", "output_tokens", "accepted_4"]
)
def test_an_empty_cell_is_named(sweep, column):
    change_rows(sweep, set_cell(column, None))
    with pytest.raises(BlockPilotError, match=f"row 7 has no {column}"):
        Sweep.load(sweep)


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("seconds_4", "0.1", "numbers, not"),
        ("seconds_4", None, "numbers, not null"),
        ("measured_seconds_4", "0.1", "numbers, not"),
        ("measured_seconds_4", None, "numbers, not null"),
        ("temperature", "0.0", "numbers, not"),
        ("prompt_tokens", "20", "whole numbers, not"),
        ("prompt_tokens", 2.5, "whole numbers, not double"),
        ("seed", 0.5, "whole numbers, not double"),
        ("split", 3, "text, not int64"),
        ("repetitive", "no", "true or false, not"),
        ("state", 0.5, "lists of numbers, not double"),
        ("state", ["a"] * 16, "lists of numbers, not list<"),
        ("accepted_4", 3, "lists of whole numbers, not int64"),
        ("accepted_4", "3", "lists of whole numbers, not"),
        ("accepted_4", [1.5], "lists of whole numbers, not list<"),
        ("output_tokens", 7, "lists of whole numbers, not int64"),
    ],
)
def test_a_column_of_a_wrong_type_is_named(sweep, column, value, kind):
    change_rows(sweep, lambda frame: frame.assign(**{column: [value] * len(frame)}))
    message = rf"sweep\.parquet: column {column} must hold {kind}.*; record it again"
    with pytest.raises(BlockPilotError, match=message):
        Sweep.load(sweep)


@pytest.mark.parametrize("column", ["temperature", "prompt_tokens", "state", "accepted_4"])
def test_a_column_without_values_is_named(sweep, column):
    change_rows(sweep, lambda frame: frame.assign(**{column: [None] * len(frame)}))
    with pytest.raises(BlockPilotError, match=f"row 0 has no {column}"):
        Sweep.load(sweep)


def test_an_empty_element_of_a_list_is_named(sweep):
    change_rows(sweep, set_cell("accepted_4", lambda array: [None, *array[1:].tolist()]))
    with pytest.raises(BlockPilotError, match="column accepted_4 has a list with an empty element"):
        Sweep.load(sweep)


def test_a_state_of_another_width_is_named(sweep):
    change_rows(sweep, set_cell("state", lambda array: array[:-1]))
    with pytest.raises(BlockPilotError, match="row 7 has a state of 15 numbers, metadata says 16"):
        Sweep.load(sweep)


def test_a_duplicate_id_is_named(sweep):
    first = pd.read_parquet(sweep / "sweep.parquet")["id"][0]
    change_rows(sweep, set_cell("id", first))
    with pytest.raises(BlockPilotError, match=rf"row 7 \({first}\) repeats an id"):
        Sweep.load(sweep)


def test_a_text_without_a_decode_pass_is_named(tmp_path):
    table = synthetic_table(9)
    table.output_tokens[7] = np.array([5])
    table.accepted[7] = [np.array([], dtype=np.int16)] * len(ARMS)
    with pytest.raises(BlockPilotError, match=r"row 7 .* fewer than two output tokens"):
        table.save(tmp_path / "sweep")


@pytest.mark.parametrize(
    "column", ["accepted_8", "seconds_16", "measured_seconds_1", "split", "seed"]
)
def test_a_missing_column_is_named(sweep, column):
    change_rows(sweep, lambda frame: frame.drop(columns=column))
    with pytest.raises(BlockPilotError, match=rf"lacks the columns \['{column}'\]"):
        Sweep.load(sweep)


def test_no_rows(sweep):
    change_rows(sweep, lambda frame: frame.iloc[:0])
    with pytest.raises(BlockPilotError, match="has no rows"):
        Sweep.load(sweep)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema_version": 1}, "schema version 1, this release reads 2; record it again"),
        ({"schema_version": 3, "new": 1, "arms": ...}, "schema version 3, this release reads"),
        ({"schema_version": ...}, "schema version None, this release reads"),
        ({"fingerprint": ...}, r"lacks \['fingerprint'\]"),
        ({"extra": 1}, r"unknown keys \['extra'\]"),
        ({"arms": [1, 2, 2]}, "must be two or more increasing"),
        ({"arms": [1, "two"]}, "value of a wrong type"),
        ({"arms": None}, "value of a wrong type"),
        ({"arms": [1, 1e400]}, "value of a wrong type"),
        ({"state": 5}, "value of a wrong type"),
        ({"provenance": None}, "provenance must be an object, not null"),
        ({"provenance": ["a"]}, "provenance must be an object, not a list"),
        ({"default_block_size": "x"}, "default_block_size must be a whole number, not the text"),
        ({"default_block_size": None}, "default_block_size must be a whole number, not null"),
        ({"default_block_size": True}, "default_block_size must be a whole number, not true"),
        ({"top_p": "1"}, "top_p must be a number, not the text '1'"),
        ({"target": 5}, "target must be text, not 5"),
        ({"schema_version": "2"}, "schema_version must be a whole number, not the text '2'"),
        ({"latency": {"draft": []}}, "not a latency profile"),
        ({"max_new_tokens": 0}, "max_new_tokens must be 2 or more, got 0"),
        ({"default_block_size": -1}, "default_block_size must be 1 or more, got -1"),
        ({"top_k": -1}, "top_k must be 0 or more, got -1"),
        ({"top_p": 0}, r"top_p must be in \(0, 1\], got 0"),
        ({"top_p": math.nan}, "top_p must be a number, not NaN"),
        ({"state": [["last_hiden", 16]]}, "unknown state group 'last_hiden'"),
        ({"arms": [1, 3]}, r"lacks the columns \['accepted_3'"),
    ],
)
def test_broken_metadata(sweep, changes, message):
    change_metadata(sweep, **changes)
    where = str(sweep / ("sweep.parquet" if "columns" in message else "metadata.json"))
    with pytest.raises(BlockPilotError, match=f"{where}.*{message}"):
        Sweep.load(sweep)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON: maximum recursion depth"),
        ("[]", "holds no JSON object"),
    ],
    ids=["cut", "deep", "list"],
)
def test_metadata_that_is_not_a_json_object_is_refused(sweep, text, message):
    (sweep / "metadata.json").write_text(text)
    with pytest.raises(BlockPilotError, match=message):
        Sweep.load(sweep)


def test_missing_files(sweep, tmp_path):
    (sweep / "sweep.parquet").unlink()
    with pytest.raises(BlockPilotError, match=r"has no sweep\.parquet"):
        Sweep.load(sweep)
    (sweep / "metadata.json").unlink()
    for folder in (sweep, tmp_path / "nowhere"):
        with pytest.raises(BlockPilotError, match=r"no sweep at .*metadata\.json is missing"):
            Sweep.load(folder)


@pytest.mark.parametrize("keep", [0, 4, 1000, -20])
def test_truncated_parquet(sweep, keep):
    file = sweep / "sweep.parquet"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(BlockPilotError, match=r"sweep\.parquet is corrupt") as refused:
        Sweep.load(sweep)
    assert "\n" not in str(refused.value)


def test_damaged_parquet(sweep):
    """Bytes changed in the middle of a file with an intact footer."""
    file = sweep / "sweep.parquet"
    content = bytearray(file.read_bytes())
    content[200:2000] = bytes(1800)
    file.write_bytes(content)
    with pytest.raises(BlockPilotError, match=r"corrupt|row \d+"):
        Sweep.load(sweep)


def test_metadata_round_trip():
    metadata = dataclasses.replace(
        synthetic_table(2).metadata, template={"enable_thinking": False}, latency={"draft": [1.0]}
    )
    plain = json.loads(json.dumps(metadata.to_dict()))
    assert module.SweepMetadata.from_dict(plain) == metadata


def test_the_file_is_plain_parquet(saved):
    """Any reader of Parquet understands it; tokens and lengths are lists of small integers."""
    schema = pq.read_schema(saved / "sweep.parquet")
    assert str(schema.field("accepted_8").type) == "list<element: int16>"
    assert str(schema.field("state").type) == "list<element: float>"
    assert [str(schema.field(name).type) for name in ("temperature", "seed")] == ["double", "int64"]


def test_loops_are_flagged_when_a_sweep_is_read(tmp_path):
    """Recordings of earlier versions flag short phrases only."""
    table = synthetic_table(40)
    tokens = list(table.output_tokens)
    count = len(tokens[3])
    tokens[3] = np.resize(np.arange(17), count) if count >= 51 else np.full(count, 7)
    table = dataclasses.replace(table, output_tokens=tokens)
    assert not table.rows["repetitive"].any()
    table.save(tmp_path / "sweep")
    flags = Sweep.load(tmp_path / "sweep").rows["repetitive"]
    assert flags[3] == (count >= 24)
    assert flags.to_list() == [is_repetitive(row) for row in tokens]


def test_the_group_sampling_is_derived_for_sweeps_that_lack_it():
    table = mixed(synthetic_table(6), 3)
    table = dataclasses.replace(
        table, metadata=dataclasses.replace(table.metadata, top_k=4, top_p=0.5)
    )
    found = table.with_groups(("sampling", "prompt"))
    assert found.metadata.state.names == ("last_hidden", "next_token", "prompt", "sampling")
    columns = found.metadata.state.columns(("sampling",))
    for temperature, values in zip(found.temperatures, found.states[:, columns], strict=True):
        assert values.tolist() == ([temperature, 0.5, 0.25] if temperature else [0, 1, 0])
    assert found.with_groups(("sampling",)) is found
    assert table.with_groups(("prompt",)) is table


@pytest.mark.parametrize("groups", [("features",), ("draft",), ("sampling", "features")])
def test_other_groups_must_have_been_recorded(groups):
    with pytest.raises(BlockPilotError, match="were not recorded"):
        synthetic_table(6).with_groups(groups)
