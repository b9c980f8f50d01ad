from __future__ import annotations

import logging
import os
import shutil
import sys
from functools import partial

import pytest

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.prompts import Prompt
from blockpilot_rl.sweeps.continuations import ContinuationStore
from blockpilot_rl.sweeps.ray_engine import RayConfig, ShardWorker, record_on_ray, share_out
from blockpilot_rl.sweeps.shards import Recording, SweepConfig
from tests.tiny_pair import save_tiny_pair

CONFIG = SweepConfig(arms=(1, 2, 8, 16), max_new_tokens=9, trace=5)
PROMPTS = [Prompt.from_text(f"ab{'e' * (i % 5)} {i}") for i in range(70)]
SAMPLED = (Sampling(1.0, top_k=40), (3, 0))


@pytest.fixture(scope="module")
def load(trained, tmp_path_factory):
    """A function that loads a pair in any process."""
    folder = tmp_path_factory.mktemp("pair")
    target, _ = save_tiny_pair(folder)
    trained.drafter.save_pretrained(folder / "trained")
    return partial(load_pair, target, folder / "trained")


@pytest.fixture(scope="module")
def decoder(load):
    return Decoder(load())


def recording_in(decoder, folder) -> Recording:
    """Three shards."""
    store = ContinuationStore(folder / "answers", PROMPTS, CONFIG.max_new_tokens, *SAMPLED)
    return Recording(decoder, store, CONFIG, folder)


@pytest.fixture(scope="module")
def local(decoder, tmp_path_factory):
    """The files that a recording in this process writes."""
    recording = recording_in(decoder, tmp_path_factory.mktemp("local"))
    recording.store.record(decoder.pair, decoder.target, decoder.layer_ids)
    recording.replay_shards()
    return contents(recording)


def contents(recording):
    paths = [path for path in recording.folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(recording.folder)): path.read_bytes() for path in paths}


def worker_of(recording, load) -> ShardWorker:
    return ShardWorker(load, recording.store, recording.config, recording.folder, threads=1)


def claimed(recording) -> Recording:
    decoder = recording.decoder
    recording.store.open(decoder.pair, decoder.target, decoder.layer_ids)
    recording.claim()
    return recording


def test_workers_write_what_one_process_writes(decoder, load, local, tmp_path):
    """Two workers, each with a copy of the pair, in another order."""
    recording = claimed(recording_in(decoder, tmp_path))
    first, second = (worker_of(recording, load) for _ in range(2))
    first.record(2)
    assert [recording.is_recorded(index) for index in range(3)] == [False, False, True]
    second.record(0)
    first.record(1)
    assert contents(recording) == local


def test_a_recorded_shard_stays(decoder, load, tmp_path):
    recording = claimed(recording_in(decoder, tmp_path))
    worker_of(recording, load).record(2)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*shard*")}
    assert len(times) == 2
    worker_of(recording, load).record(2)
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_a_worker_that_outlives_its_driver_writes_nothing(decoder, load, tmp_path):
    """Another process has finished the recording and removed its folder."""
    recording = claimed(recording_in(decoder, tmp_path / "partial"))
    worker = worker_of(recording, load)
    worker.record(0)
    shutil.rmtree(recording.folder)
    for index in (1, 0):
        with pytest.raises(BlockPilotError, match="is missing; run the same command again"):
            worker.record(index)
    assert list(tmp_path.iterdir()) == []


def test_folders_that_nodes_do_not_share(decoder, load, tmp_path):
    """A worker that does not see the claims writes nothing, since its files would be lost."""
    worker = worker_of(recording_in(decoder, tmp_path / "elsewhere"), load)
    with pytest.raises(BlockPilotError, match="must be on storage that all nodes share"):
        worker.record(0)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_with_another_pair(decoder, tiny, tmp_path):
    """Such as another revision of the same hub id, in the cache of one node."""
    recording = claimed(recording_in(decoder, tmp_path))
    with pytest.raises(BlockPilotError, match="with other fingerprint"):
        worker_of(recording, partial(load_pair, *tiny)).record(0)
    assert not any(recording.is_recorded(index) for index in range(3))


@pytest.mark.parametrize(
    ("nodes", "workers", "unit", "expected"),
    [
        ([{"CPU": 4.0}], None, "CPU", (4, 1)),
        ([{"CPU": 4.0}], 2, "CPU", (2, 2)),
        ([{"CPU": 4.0}], 3, "CPU", (3, 1)),
        ([{"CPU": 4.0}, {"CPU": 2.0}], 2, "CPU", (2, 2)),
        ([{"CPU": 8.0}, {"CPU": 3.0}], 3, "CPU", (3, 3)),
        ([{"CPU": 8.0}, {"memory": 1e9}], 1, "CPU", (1, 8)),
        ([{"CPU": 64.0, "GPU": 8.0}, {"CPU": 4.0}], None, "GPU", (8, 1)),
        ([{"CPU": 64.0, "GPU": 8.0}], 3, "GPU", (3, 1)),
    ],
)
def test_slots(nodes, workers, unit, expected):
    """Every worker has all its CPUs on one node."""
    assert share_out(nodes, RayConfig(workers=workers, unit=unit)) == expected


@pytest.mark.parametrize(
    ("nodes", "workers", "unit", "message"),
    [
        ([{"CPU": 4.0}], 5, "CPU", "the Ray cluster has 4 CPUs, too few for 5 workers"),
        ([{"CPU": 4.0}], None, "GPU", "the Ray cluster has 0 GPUs, too few for 1 workers"),
        ([], None, "CPU", "the Ray cluster has 0 CPUs"),
    ],
)
def test_too_few_slots(nodes, workers, unit, message):
    with pytest.raises(BlockPilotError, match=message):
        share_out(nodes, RayConfig(workers=workers, unit=unit))


def test_no_workers():
    with pytest.raises(BlockPilotError, match="workers must be 1 or more, not 0"):
        RayConfig(workers=0)


def test_without_ray(decoder, load, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BlockPilotError, match=r"needs Ray: pip install 'blockpilot-rl\[ray\]'"):
        record_on_ray(load, recording_in(decoder, tmp_path), RayConfig())
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def cluster():
    """A Ray cluster of two CPUs, which this process is connected to."""
    ray = pytest.importorskip("ray")
    options = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    ray.init("local", num_cpus=2, **options)
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_cluster_writes_what_one_process_writes(decoder, load, local, tmp_path, capsys):
    """Beginning with a shard that this process has recorded; and again, with nothing to do."""
    recording = claimed(recording_in(decoder, tmp_path))
    worker_of(recording, load).record(1)
    seen = []
    record_on_ray(load, recording, RayConfig(), lambda *at: seen.append(at))
    assert contents(recording) == local
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert capsys.readouterr().out == ""
    record_on_ray(partial(os._exit, 3), recording, RayConfig(), lambda *at: seen.append(at))
    assert seen[3:] == [(3, 3)]


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (partial(os._exit, 3), "a Ray worker died: The actor is dead because its worker process"),
        (partial(int, "many\nlines"), "a Ray worker failed: ValueError: invalid literal for int"),
        (
            partial(load_pair, "/no/where", "x"),
            "a Ray worker failed: target '/no/where' is neither",
        ),
    ],
)
def test_a_worker_that_fails_is_reported_in_one_line(decoder, tmp_path, broken, message):
    recording = recording_in(decoder, tmp_path)
    with pytest.raises(BlockPilotError) as no:
        record_on_ray(broken, recording, RayConfig(workers=1))
    text = str(no.value)
    assert text.startswith(message)
    assert "\n" not in text
    assert text.endswith("finished shards are kept, and the same command resumes from them")
    assert not any(recording.is_recorded(index) for index in range(3))


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_more_workers_than_slots(decoder, load, tmp_path):
    with pytest.raises(BlockPilotError, match="has 2 CPUs, too few for 3 workers"):
        record_on_ray(load, recording_in(decoder, tmp_path), RayConfig(workers=3))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("address", ["ray://127.0.0.1:1", "127.0.0.1:1", "ray://localhost:1"])
def test_a_cluster_that_cannot_be_reached(decoder, load, tmp_path, monkeypatch, address):
    """Ray itself tries for minutes."""
    monkeypatch.setattr(pytest.importorskip("ray"), "is_initialized", lambda: False)
    with pytest.raises(BlockPilotError, match=f"no connection to Ray at {address}") as no:
        record_on_ray(load, recording_in(decoder, tmp_path), RayConfig(address))
    assert "\n" not in str(no.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("address", ["local", "ray://127.0.0.1:1", "127.0.0.1:6379"])
def test_an_address_other_than_that_of_the_connection_is_refused(decoder, tmp_path, address):
    """The recording would run elsewhere than asked."""
    with pytest.raises(BlockPilotError, match=f"ray_address is {address}, but this process is"):
        record_on_ray(partial(os._exit, 3), recording_in(decoder, tmp_path), RayConfig(address))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_the_address_of_the_connection_is_used(decoder, load, local, tmp_path):
    import ray

    recording = recording_in(decoder, tmp_path)
    record_on_ray(load, recording, RayConfig(ray.get_runtime_context().gcs_address, workers=2))
    assert contents(recording) == local
