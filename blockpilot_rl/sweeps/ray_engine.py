"""Record the shards of a sweep on a Ray cluster, with one worker per GPU or CPU slot.

Every worker loads the pair once and then records shard after shard, with the same methods and files
as a recording in one process. A recording can switch engines, and both give the same rows. They
give the same bytes if workers use as many threads, on processors of one kind.
"""

from __future__ import annotations

import importlib
import logging
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.files import remove_leftovers
from blockpilot_rl.models.pairs import Pair
from blockpilot_rl.sweeps.continuations import Answering, ContinuationStore
from blockpilot_rl.sweeps.shards import Recording, SweepConfig

_RESUME = "finished shards are kept, and the same command resumes from them"
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class RayConfig:
    """How to distribute a recording.

    Attributes:
        address: Address of the cluster, as `ray.init` takes it. None uses the connection of this
            process, or the cluster that Ray finds (`RAY_ADDRESS`, or one on this machine), or
            starts one on this machine and stops it at the end.
        workers: Number of workers; None for one per slot.
        unit: Kind of slot: each worker gets one GPU, or its share of the CPUs.
    """

    address: str | None = None
    workers: int | None = None
    unit: Literal["CPU", "GPU"] = "CPU"

    def __post_init__(self) -> None:
        """Check the number of workers.

        Raises:
            BlockPilotError: If the number is not positive.
        """
        if self.workers is not None and self.workers < 1:
            raise BlockPilotError(f"workers must be 1 or more, not {self.workers}")


def record_on_ray(
    load_pair: Callable[[], Pair],
    recording: Recording,
    config: RayConfig,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Answer and replay the shards that are missing.

    The folders must be on storage that all nodes share.

    Args:
        load_pair: Loads the pair in a worker, whose working folder may differ.
        recording: The recording. Its own pair, which may be on another device, is only compared.
        config: How to distribute the work.
        progress: Called with the finished shards and their total.

    Raises:
        BlockPilotError: If a prompt is too long, a folder holds shards of other work, Ray is not
            installed, cannot be reached, is connected to another cluster or has too few slots, or a
            worker fails. Finished shards are kept.
    """
    ray, store, decoder = _ray(), recording.store, recording.decoder
    total = len(recording.shards)
    missing = [index for index in range(total) if not recording.is_recorded(index)]
    progress(total - len(missing), total)
    if not missing:
        return
    with _connection(ray, config.address), _worker_errors(ray):
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        workers, cpus = share_out(nodes, config)
        store.open(decoder.pair, decoder.target, decoder.layer_ids)
        recording.claim()
        remove_leftovers(store.shards)
        recording.remove_leftovers()
        gpus = int(config.unit == "GPU")
        worker = ray.remote(ShardWorker).options(num_cpus=0 if gpus else cpus, num_gpus=gpus)
        store = replace(store, folder=store.folder.resolve())
        work = (load_pair, store, recording.config, recording.folder.resolve(), cpus)
        pool = ray.util.ActorPool([worker.remote(*work) for _ in range(min(workers, len(missing)))])
        finished = pool.map_unordered(lambda actor, index: actor.record.remote(index), missing)
        for count, _ in enumerate(finished, start=total - len(missing) + 1):
            progress(count, total)


@dataclass(frozen=True)
class ShardWorker:
    """One process of a cluster that records shards of a sweep.

    Attributes:
        load_pair: Loads the pair.
        store: The target's answers.
        config: The contents of the sweep.
        folder: Folder of the replayed shards.
        threads: Number of threads to compute with.
    """

    load_pair: Callable[[], Pair]
    store: ContinuationStore
    config: SweepConfig
    folder: Path
    threads: int

    @cached_property
    def work(self) -> tuple[Answering, Recording]:
        """The recording that this worker takes part in, with the pair loaded once.

        Raises:
            BlockPilotError: If the pair cannot be loaded, is another pair, or the folders are
                missing.
        """
        torch.set_num_threads(self.threads)
        decoder = Decoder(self.load_pair())
        recording = Recording(decoder, self.store, self.config, self.folder)
        # The driver has claimed both folders, so a missing claim means that they are not shared.
        for path in (recording.claim_file, self.store.claim_file):
            if not path.exists():
                raise BlockPilotError(
                    f"{path} is not there; the folder must be on storage that all nodes share"
                )
        recording.claim()
        return self.store.open(decoder.pair, decoder.target, decoder.layer_ids), recording

    def record(self, index: int) -> None:
        """Answer and replay one shard.

        Args:
            index: Number of the shard, from 0.

        Raises:
            BlockPilotError: If the pair or the folders are not those of the recording.
        """
        answering, recording = self.work
        answering.answer(index)
        recording.replay_shard(index)


def share_out(nodes: Sequence[Mapping[str, float]], config: RayConfig) -> tuple[int, int]:
    """Find the number of workers, and the number of CPUs of each.

    Args:
        nodes: The `CPU` and `GPU` resources of each node.
        config: The wanted number and kind of workers.

    Returns:
        The number of workers, and the most CPUs that each of them can have; 1 for GPU workers.

    Raises:
        BlockPilotError: If the cluster has too few slots.
    """
    slots = [int(node.get(config.unit, 0)) for node in nodes]
    workers = config.workers or sum(slots)
    if not 1 <= workers <= sum(slots):
        raise BlockPilotError(
            f"the Ray cluster has {sum(slots)} {config.unit}s, too few for {workers or 1} workers; "
            "ask for fewer, or give the address of another"
        )
    if config.unit == "GPU":
        return workers, 1
    shares = range(max(slots), 0, -1)
    return workers, next(c for c in shares if sum(slot // c for slot in slots) >= workers)


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError:
        raise BlockPilotError(
            "the engine ray needs Ray: pip install 'blockpilot-rl[ray]'"
        ) from None


@contextmanager
def _connection(ray: Any, address: str | None) -> Iterator[None]:
    """Connect to a cluster, or use the connection that this process has to it.

    Raises:
        BlockPilotError: If the cluster cannot be reached, or this process is connected to another.
    """
    # Ray prints messages on standard output, which is for results.
    with redirect_stdout(sys.stderr):
        if ray.is_initialized():
            connected = ray.get_runtime_context().gcs_address
            if address not in (None, "auto", connected):
                raise BlockPilotError(
                    f"ray_address is {address}, but this process is connected to the Ray cluster "
                    f"at {connected}; call ray.shutdown() first, or leave ray_address out to use "
                    "that cluster"
                )
            yield
            return
        place = f" at {address}" if address else ""
        try:
            _check_reachable(address)
            ray.init(
                address,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except Exception as error:  # Ray passes on all errors of its parts.
            raise BlockPilotError(f"no connection to Ray{place}: {one_line(error)}") from error
        try:
            yield
        finally:
            ray.shutdown()


def _check_reachable(address: str | None) -> None:
    """Try a cluster's address for some seconds; Ray itself keeps trying for minutes.

    Raises:
        OSError: If nothing answers there.
    """
    host, _, port = (address or "").removeprefix("ray://").partition("/")[0].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=_PATIENCE_SECONDS).close()


@contextmanager
def _worker_errors(ray: Any) -> Iterator[None]:
    """Turn the error of a worker into one line."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        mine = isinstance(cause, BlockPilotError)
        reason = str(cause) if mine else f"{type(cause).__name__}: {one_line(cause)}"
        raise BlockPilotError(f"a Ray worker failed: {reason}; {_RESUME}") from error
    except ray.exceptions.RayError as error:
        # Ray describes the worker first; the last line holds the reason.
        reason = str(error).strip().splitlines()[-1]
        raise BlockPilotError(f"a Ray worker died: {reason:.200}; {_RESUME}") from error
