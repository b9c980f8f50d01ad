from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blockpilot_rl.decoding.calibration import Calibration
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.decoding.state import GROUPS
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.prompts import Prompt
from blockpilot_rl.sweeps.assemble import assemble, measure_rows
from blockpilot_rl.sweeps.continuations import ContinuationStore
from blockpilot_rl.sweeps.shards import Recording, SweepConfig
from blockpilot_rl.sweeps.table import Sweep
from blockpilot_rl.sweeps.traces import load_traces, save_sweep
from tests.sweeps.test_table import assert_equal
from tests.tiny_pair import PROMPTS as LEARNED

ARMS = (1, 2, 4, 8, 16)
BUDGET = 14
TEXTS = [*LEARNED, *(f"{word}{'e' * (i % 5)} {i}" for i in range(33) for word in ("ab", "xy"))]
PROMPTS = [Prompt.from_text(text, family="left" if "a" in text else "right") for text in TEXTS]
CONFIG = SweepConfig(arms=ARMS, max_new_tokens=BUDGET)
SAMPLING = Sampling(1.0, top_k=40, top_p=0.95)
PROFILE = LatencyProfile(
    block_sizes=ARMS,
    draft=((0.0, 0.0), *((0.001 + 0.0001 * size, 1e-6) for size in ARMS[1:])),
    verify=tuple((0.01 + 0.001 * size, 2e-6) for size in ARMS),
    read_prompt=(0.0005, 1e-6),
    medians={},
)


@pytest.fixture(scope="module")
def decoder(trained):
    return Decoder(dataclasses.replace(trained, stop_token_ids=(2,)))


def calibration(decoder, **changes) -> Calibration:
    whole = Calibration.from_decoder(decoder, PROFILE)
    return dataclasses.replace(whole, dtype="bfloat16", device="a device", **changes)


def recording_in(decoder, folder, prompts=PROMPTS, config=CONFIG, sampled=()) -> Recording:
    store = ContinuationStore(folder / "answers", prompts, config.max_new_tokens, *sampled)
    return Recording(decoder, store, config, folder)


def collect(decoder, folder, part=(0, 1), **options) -> Recording:
    recording = recording_in(decoder, folder, **options)
    recording.store.record(decoder.pair, decoder.target, decoder.layer_ids, part)
    recording.replay_shards()
    return recording


@pytest.fixture(scope="module")
def recording(decoder, tmp_path_factory):
    """Two shards."""
    return collect(decoder, tmp_path_factory.mktemp("collect"))


@pytest.fixture(scope="module")
def table(recording, decoder):
    return assemble(recording, calibration(decoder))


@pytest.fixture(scope="module")
def warm(decoder, tmp_path_factory):
    """Two prompts of each split traced, all sampled with two seeds; two shards."""
    config = dataclasses.replace(CONFIG, trace=2)
    folder = tmp_path_factory.mktemp("warm")
    return collect(decoder, folder, prompts=PROMPTS[:34], config=config, sampled=(SAMPLING, (5, 1)))


def without_origin(table: Sweep) -> Sweep:
    return dataclasses.replace(table, metadata=dataclasses.replace(table.metadata, provenance={}))


def test_rows_say_what_the_decoder_does(table, decoder):
    """Tokens, accepted lengths of every arm, state and finish reason, by real decoding."""
    by_id = {prompt.id: prompt for prompt in PROMPTS}
    reasons = set()
    for row in range(0, len(table), 4):
        record = table.rows.loc[row]
        prompt = by_id[record["id"]]
        ids = decoder.pair.encode(prompt.chat())
        prefill = decoder.prefill(ids, BUDGET, 16)
        for arm, accepted in zip(ARMS, table.accepted[row], strict=True):
            real = decoder.decode(prefill, arm)
            assert table.output_tokens[row].tolist() == real.tokens
            assert accepted.tolist() == real.accepted[1:]
            assert record["finish_reason"] == real.finish_reason
        state = decoder.state(prefill, GROUPS).numpy()
        np.testing.assert_allclose(table.states[row], state, atol=1e-4, rtol=1e-4)
        assert record["prompt_tokens"] == ids.shape[1]
        assert (record["suite"], record["language"]) == ("custom", "en")
        assert record["family"] == prompt.family
        # Prompts of one's own train no drafter, so that share trains policies.
        assert record["split"] == prompt.split.replace("drafter", "train")
        reasons.add(real.finish_reason)
    assert reasons == {"stop", "length"}


def test_sampled_rows_say_what_the_decoder_does(warm, decoder):
    table = assemble(warm, calibration(decoder))
    left_out = table.metadata.provenance["ended_with_first_token"]
    assert len(table) + len(left_out) == 68
    assert (table.metadata.top_k, table.metadata.top_p) == (40, 0.95)
    order = [(prompt.id, 1.0, seed) for prompt in PROMPTS[:34] for seed in (5, 1)]
    assert [key for key in order if key in set(table.keys)] == table.keys
    by_id = {prompt.id: prompt for prompt in PROMPTS}
    for row in range(0, len(table), 9):
        key, _, seed = table.keys[row]
        sampling = dataclasses.replace(SAMPLING, seed=seed)
        prefill = decoder.prefill(decoder.pair.encode(by_id[key].chat()), BUDGET, 16, sampling)
        for arm, accepted in zip(ARMS, table.accepted[row], strict=True):
            real = decoder.decode(prefill, arm)
            assert table.output_tokens[row].tolist() == real.tokens
            assert accepted.tolist() == real.accepted[1:]
        state = decoder.state(prefill, GROUPS).numpy()
        np.testing.assert_allclose(table.states[row], state, atol=1e-4, rtol=1e-4)


def test_the_first_prompts_of_each_split_are_traced(warm, decoder, tmp_path):
    table = assemble(warm, calibration(decoder))
    traces = warm.traces(table)
    chosen: dict[str, list[str]] = {}
    for prompt in PROMPTS[:34]:
        split = prompt.split.replace("drafter", "train")
        if len(ids := chosen.setdefault(split, [])) < 2:
            ids.append(prompt.id)
    expected = {key for ids in chosen.values() for key in ids}
    assert [row for row, (key, _, _) in enumerate(table.keys) if key in expected] == sorted(traces)
    assert 4 <= len(traces) < len(table)
    # Reading them checks every trajectory against the rows.
    save_sweep(tmp_path / "sweep", table, traces)
    assert sorted(load_traces(tmp_path / "sweep", table)) == sorted(traces)


def test_traced_rows_are_those_of_replay(table, decoder, tmp_path):
    config = dataclasses.replace(CONFIG, trace="all")
    whole = collect(decoder, tmp_path, config=config)
    traced = assemble(whole, calibration(decoder))
    assert_equal(without_origin(traced), without_origin(table))
    assert len(whole.traces(traced)) == len(table)


def test_a_calibration_of_another_pair_or_without_an_arm(recording, decoder):
    with pytest.raises(
        BlockPilotError, match=r"profile is of target with trained \(feed\), not of"
    ):
        assemble(recording, calibration(decoder, fingerprint="feed"))
    fewer = LatencyProfile((1, 2), PROFILE.draft[:2], PROFILE.verify[:2], (0.0, 0.0), {})
    with pytest.raises(BlockPilotError, match="block size 4 is not in the latency profile"):
        assemble(recording, calibration(decoder, latency=fewer))


def test_seconds_are_the_profiles(table):
    for row in (0, 5):
        for column, arm in enumerate(ARMS):
            length = int(table.rows["prompt_tokens"][row])
            emitted = table.accepted[row][column]
            expected = PROFILE.decode_seconds(arm, length, emitted, max_new_tokens=BUDGET)
            assert table.seconds[row, column] == pytest.approx(expected)
    assert np.isnan(table.measured_seconds).all()


def test_rows_are_in_the_order_of_the_prompts_and_none_is_lost(table):
    left_out = table.metadata.provenance["ended_with_first_token"]
    assert left_out
    kept = [prompt.id for prompt in PROMPTS if prompt.id not in left_out]
    assert table.rows["id"].tolist() == kept
    assert len(kept) + len(left_out) == len(PROMPTS)


def test_texts_that_end_with_their_first_token_are_left_out(table, decoder):
    by_id = {prompt.id: prompt for prompt in PROMPTS}
    for key in table.metadata.provenance["ended_with_first_token"]:
        ids = decoder.pair.encode(by_id[key].chat())
        assert decoder.generate(ids, 1, BUDGET).tokens == [2]


def test_metadata_says_how_it_was_made(table, decoder):
    """The template options too (z-lab/dflash#133, #60)."""
    metadata = table.metadata
    assert metadata.fingerprint == decoder.pair.fingerprint
    assert (metadata.target, metadata.drafter) == ("target", "trained")
    assert (metadata.dtype, metadata.latency_dtype) == ("float32", "bfloat16")
    assert (metadata.default_block_size, metadata.max_new_tokens) == (8, BUDGET)
    assert set(table.keys) == {(key, 0.0, 0) for key in table.rows["id"]}
    assert (metadata.template, metadata.top_k, metadata.top_p) == ({}, 0, 1.0)
    assert LatencyProfile.from_dict(metadata.latency) == PROFILE
    assert metadata.state.names == GROUPS
    assert metadata.provenance["versions"]["torch"]
    assert set(metadata.provenance["calibration"]) >= {"check", "command", "date", "cpu"}


def test_what_was_saved_is_loaded(table, tmp_path):
    table.save(tmp_path / "sweep")
    assert_equal(Sweep.load(tmp_path / "sweep"), table)


@pytest.mark.parametrize("missing", ["shard-00000.parquet", "shard-00001.parquet"])
def test_a_run_killed_between_shards_ends_in_the_same_table(
    recording, table, decoder, tmp_path, missing
):
    folder = shutil.copytree(recording.folder, tmp_path / "sweep")
    (folder / missing).unlink()
    (folder / "answers" / "shard-00001.safetensors").unlink()
    resumed = assemble(collect(decoder, folder), calibration(decoder))
    assert_equal(without_origin(resumed), without_origin(table))


def test_parts_end_in_the_same_table(table, decoder, tmp_path):
    for part in ((1, 2), (0, 2)):
        store = recording_in(decoder, tmp_path).store
        store.record(decoder.pair, decoder.target, decoder.layer_ids, part)
    again = assemble(collect(decoder, tmp_path), calibration(decoder))
    assert_equal(without_origin(again), without_origin(table))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompts": PROMPTS[:-1]}, "with other prompts;"),
        ({"config": dataclasses.replace(CONFIG, arms=(1, 2))}, "with other arms;"),
        ({"config": dataclasses.replace(CONFIG, state_groups=("prompt",))}, "with other groups;"),
        ({"config": dataclasses.replace(CONFIG, max_new_tokens=9)}, "other max_new_tokens;"),
        ({"config": dataclasses.replace(CONFIG, trace=3)}, "with other trace;"),
        ({"sampled": (SAMPLING, (0,))}, "with other sampling;"),
    ],
)
def test_shards_of_other_work_are_refused(recording, decoder, changes, message):
    other = recording_in(decoder, recording.folder, **changes)
    for action in (other.replay_shards, other.frame):
        with pytest.raises(BlockPilotError, match=message):
            action()


def test_shards_of_another_drafter_are_refused(recording, tiny):
    other = recording_in(Decoder(load_pair(*tiny)), recording.folder)
    with pytest.raises(BlockPilotError, match="with other fingerprint;"):
        other.replay_shards()


def test_missing_shards(recording, decoder, tmp_path):
    with pytest.raises(BlockPilotError, match="lacks 2 of 2 shards"):
        recording_in(decoder, tmp_path).replay_shards()
    folder = shutil.copytree(recording.folder, tmp_path / "sweep")
    (folder / "shard-00001.parquet").unlink()
    with pytest.raises(BlockPilotError, match="lacks 1 of 2 shards; run the same command again"):
        assemble(recording_in(decoder, folder), calibration(decoder))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("shard", r"shard-00000\.parquet and .*shard-00001\.parquet hold the same answer; remove"),
        ("trace", r"lacks the traces of \d+ answers; remove its trace-\*\.parquet files"),
    ],
)
def test_a_shard_copied_over_another(warm, decoder, tmp_path, kind, message):
    folder = shutil.copytree(warm.folder, tmp_path / "sweep")
    again = dataclasses.replace(warm, folder=folder)
    shutil.copy(folder / f"{kind}-00000.parquet", folder / f"{kind}-00001.parquet")

    def read():
        return again.traces(assemble(again, calibration(decoder)))

    with pytest.raises(BlockPilotError, match=message):
        read()
    for path in folder.glob(f"{kind}-*.parquet"):
        path.unlink()
    again.replay_shards()
    assert read().keys() == warm.traces(assemble(warm, calibration(decoder))).keys()


@pytest.mark.parametrize("kind", ["shard", "trace"])
def test_a_shard_of_another_drafter(warm, decoder, tiny, tmp_path, kind):
    """Of the same prompts, answers and arms, and copied in."""
    other = Decoder(dataclasses.replace(load_pair(*tiny), stop_token_ids=(2,)))
    store = dataclasses.replace(warm.store, folder=tmp_path / "other" / "answers")
    foreign = Recording(other, store, warm.config, tmp_path / "other")
    store.record(other.pair, other.target, other.layer_ids)
    foreign.replay_shards()
    folder = shutil.copytree(warm.folder, tmp_path / "sweep")
    again = dataclasses.replace(warm, folder=folder)
    path = folder / f"{kind}-00001.parquet"
    shutil.copy(foreign.folder / path.name, path)

    def read():
        return again.traces(assemble(again, calibration(decoder)))

    message = rf"{path} was made by other work than .*; remove the file and run the same command"
    with pytest.raises(BlockPilotError, match=message):
        read()
    path.unlink()
    again.replay_shards()
    assert read().keys() == warm.traces(assemble(warm, calibration(decoder))).keys()


@pytest.mark.parametrize("kind", ["shard", "trace"])
def test_a_shard_without_a_claim(warm, decoder, tmp_path, kind):
    """It may be of any pair."""
    folder = shutil.copytree(warm.folder, tmp_path / "sweep")
    path = folder / f"{kind}-00001.parquet"
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    again = dataclasses.replace(warm, folder=folder)
    message = rf"{path} does not say what it was made from; remove the file and run the same"
    with pytest.raises(BlockPilotError, match=message):
        again.traces(assemble(again, calibration(decoder)))


def test_files_of_killed_writes_are_removed(recording, tmp_path):
    folder = shutil.copytree(recording.folder, tmp_path / "sweep")
    for name in ("shard-00001.parquet", "trace-00000.parquet"):
        (folder / f".0123abcd-{name}").write_bytes(b"half a shard")
    dataclasses.replace(recording, folder=folder).replay_shards()
    assert list(folder.glob(".*")) == []


def test_a_shard_with_rows_too_few_or_of_other_work(recording, decoder, tmp_path):
    folder = shutil.copytree(recording.folder, tmp_path / "sweep")
    again = dataclasses.replace(recording, folder=folder)
    path = folder / "shard-00001.parquet"
    rows = pq.read_table(path)
    pq.write_table(rows.slice(1), path)
    with pytest.raises(BlockPilotError, match="lacks the rows of 1 answers; remove its shard"):
        again.frame()
    seeds = pa.array([5] * len(rows))
    pq.write_table(rows.set_column(rows.column_names.index("seed"), "seed", seeds), path)
    with pytest.raises(BlockPilotError, match=rf"{path} has a row of other work; remove it"):
        again.frame()


@pytest.mark.parametrize("name", ["shard-00001.parquet", "trace-00000.parquet"])
@pytest.mark.parametrize("keep", [0, 300, -9])
def test_a_corrupt_shard_is_named_in_one_line(warm, decoder, tmp_path, name, keep):
    """And the run resumes after it is removed."""
    folder = shutil.copytree(warm.folder, tmp_path / "sweep")
    broken = folder / name
    whole = broken.read_bytes()
    broken.write_bytes(whole[:keep])
    again = dataclasses.replace(warm, folder=folder)

    def read():
        table = assemble(again, calibration(decoder))
        return again.traces(table)

    with pytest.raises(BlockPilotError, match=rf"{broken} is corrupt: .*; remove the file") as no:
        read()
    assert "\n" not in str(no.value)
    broken.unlink()
    again.replay_shards()
    assert broken.read_bytes() == whole
    assert read()


def test_progress(recording, decoder):
    seen = []
    recording.replay_shards(lambda *at: seen.append(at))
    assert seen == [(0, 70), (64, 70), (70, 70)]


def test_measured_rows(table, decoder):
    measured = measure_rows(decoder, table, PROMPTS, [3, 1])
    there = np.isfinite(measured.measured_seconds)
    assert there.all(axis=1).tolist() == [row in (1, 3) for row in range(len(table))]
    assert there.any(axis=1).sum() == 2
    assert (measured.measured_seconds[[1, 3]] > 0).all()
    assert np.isnan(table.measured_seconds).all()
    counts = {"decodes": 2 * len(ARMS), "other_texts": 0}
    assert measured.metadata.provenance == {**table.metadata.provenance, "measured": counts}


def test_seconds_of_another_text_are_not_recorded(table, decoder):
    """As rounding in bfloat16 can cause; here one recorded token of row 3 is changed."""
    tokens = [row.copy() for row in table.output_tokens]
    tokens[3][-1] = 60 if tokens[3][-1] != 60 else 61
    other = dataclasses.replace(table, output_tokens=tokens)
    measured = measure_rows(decoder, other, PROMPTS, [3, 1])
    assert np.isnan(measured.measured_seconds[3]).all()
    assert (measured.measured_seconds[1] > 0).all()
    counts = {"decodes": 2 * len(ARMS), "other_texts": len(ARMS)}
    assert measured.metadata.provenance["measured"] == counts


def test_sampled_rows_are_measured_as_they_were_sampled(warm, decoder, monkeypatch):
    table = assemble(warm, calibration(decoder))
    seen = []
    prefill = Decoder.prefill

    def watch(self, ids, budget, largest, sampling=None):
        seen.append(sampling)
        return prefill(self, ids, budget, largest, *([] if sampling is None else [sampling]))

    monkeypatch.setattr(Decoder, "prefill", watch)
    measure_rows(decoder, table, PROMPTS, [0, 1])
    assert seen[1:] == [dataclasses.replace(SAMPLING, seed=table.keys[row][2]) for row in (0, 1)]


def test_measured_rows_were_warmed_up(table, warm, decoder, warmed):
    measure_rows(decoder, table, PROMPTS, [1])
    measure_rows(decoder, assemble(warm, calibration(decoder)), PROMPTS, [1])
    assert warmed == [True] * 2 * len(ARMS)


def test_nothing_to_record(trained, tmp_path):
    """Every text ends with its first token."""
    silent = Decoder(dataclasses.replace(trained, stop_token_ids=tuple(range(64))))
    recording = collect(silent, tmp_path, prompts=PROMPTS[:3])
    with pytest.raises(BlockPilotError, match="every prompt ended with its first token"):
        assemble(recording, calibration(silent))


def test_a_target_alone_cannot_be_swept(trained, tmp_path):
    alone = Decoder(dataclasses.replace(trained, drafter=None))
    with pytest.raises(BlockPilotError, match="a sweep needs a drafter"):
        recording_in(alone, tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"arms": (2, 4)}, "begin with 1"),
        ({"max_new_tokens": 1}, "max_new_tokens must be at least 2, got 1"),
        ({"trace": -1}, "must be 0 \\(off\\) or more"),
    ],
)
def test_bad_configs(settings, message):
    with pytest.raises(BlockPilotError, match=message):
        SweepConfig(**settings)


def test_shards_are_readable_tables(recording):
    frame = pd.read_parquet(recording.folder / "shard-00001.parquet")
    assert len(frame) == 6
    assert {f"accepted_{arm}" for arm in ARMS} <= set(frame)
