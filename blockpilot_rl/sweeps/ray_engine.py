"""Record the shards of a sweep on a Ray cluster, with one worker per GPU or CPU slot.

Every worker loads the pair once and then takes shard after shard, by the methods and into the files
of a recording in one process. So either goes on with what the other has left, and both end in the
same rows; in the same bytes if workers compute with as many threads, on processors of one kind.
"""

from __future__ import annotations

import importlib
import logging
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
from blockpilot_rl.sweeps.collect import Collection, SweepConfig
from blockpilot_rl.sweeps.continuations import Answering, ContinuationStore, Progress

_GO_ON = "finished shards are kept, and the same command goes on from them"


@dataclass(frozen=True)
class RayConfig:
    """How to spread a recording.

    Attributes:
        address: Of the cluster, as `ray.init` takes it. None is what Ray finds (`RAY_ADDRESS`, or a
            cluster that runs on this machine), or else one that is started here and stopped again.
        workers: How many; None for one per slot.
        unit: What a slot is: each worker gets one GPU, or its share of the CPUs.
    """

    address: str | None = None
    workers: int | None = None
    unit: Literal["CPU", "GPU"] = "CPU"

    def __post_init__(self) -> None:
        """Check the number of workers.

        Raises:
            BlockPilotError: If it is not positive.
        """
        if self.workers is not None and self.workers < 1:
            raise BlockPilotError(f"workers must be 1 or more, not {self.workers}")


def record_on_ray(
    load_pair: Callable[[], Pair],
    collection: Collection,
    config: RayConfig,
    progress: Progress = lambda done, total: None,
) -> None:
    """Answer and replay what a sweep has not recorded yet.

    The folders must lie on storage that all nodes share.

    Args:
        load_pair: Loads the pair in a worker, whose working folder may be another.
        collection: The sweep; its own pair, which may be on another device, is only compared.
        config: How to spread the work.
        progress: Called with the finished shards and their total.

    Raises:
        BlockPilotError: If a prompt is too long, a folder holds shards of other work, Ray is not
            installed, cannot be reached or has not as many slots, or a worker fails or dies. What
            was finished is kept.
    """
    ray, store, decoder = _ray(), collection.store, collection.decoder
    total = len(collection.shards)
    missing = [index for index in range(total) if not collection.is_recorded(index)]
    progress(total - len(missing), total)
    if not missing:
        return
    with _connection(ray, config.address), _worker_errors(ray):
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        workers, cpus = share_out(nodes, config)
        store.open(decoder.pair, decoder.target, decoder.layer_ids)
        collection.claim()
        remove_leftovers(store.shards)
        collection.remove_leftovers()
        gpus = int(config.unit == "GPU")
        worker = ray.remote(ShardWorker).options(num_cpus=0 if gpus else cpus, num_gpus=gpus)
        store = replace(store, folder=store.folder.resolve())
        work = (load_pair, store, collection.config, collection.folder.resolve(), cpus)
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
        config: What to record.
        folder: Where the replayed shards go.
        threads: How many to compute with.
    """

    load_pair: Callable[[], Pair]
    store: ContinuationStore
    config: SweepConfig
    folder: Path
    threads: int

    @cached_property
    def work(self) -> tuple[Answering, Collection]:
        """The pair at work, loaded once.

        Raises:
            BlockPilotError: If the pair cannot be loaded, is another, or the folders are missing.
        """
        torch.set_num_threads(self.threads)
        decoder = Decoder(self.load_pair())
        collection = Collection(decoder, self.store, self.config, self.folder)
        # Who asked for the work has claimed both folders; claims that are missing are elsewhere.
        for path in (collection.claim_file, self.store.claim_file):
            if not path.exists():
                raise BlockPilotError(
                    f"{path} is not there; the folder must lie on storage that all nodes share"
                )
        collection.claim()
        return self.store.open(decoder.pair, decoder.target, decoder.layer_ids), collection

    def record(self, index: int) -> None:
        """Answer and replay one shard.

        Args:
            index: Which shard, counted from 0.

        Raises:
            BlockPilotError: If the pair or the folders are not as needed.
        """
        answering, collection = self.work
        answering.answer(index)
        collection.replay_shard(index)


def share_out(nodes: Sequence[Mapping[str, float]], config: RayConfig) -> tuple[int, int]:
    """Find how many workers a cluster takes, and how many CPUs each gets.

    Args:
        nodes: What each node has of `CPU` and `GPU`.
        config: How many workers are wanted, of what.

    Returns:
        The number of workers, and the most CPUs that each of so many can have; 1 for GPU workers.

    Raises:
        BlockPilotError: If the cluster has not as many slots.
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
    """Connect to a cluster, unless this process is connected already."""
    # Ray makes remarks on standard output, which is for results.
    with redirect_stdout(sys.stderr):
        if ray.is_initialized():
            yield
            return
        try:
            ray.init(
                address,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except Exception as error:  # Ray passes on whatever its parts raise.
            place = f" at {address}" if address else ""
            raise BlockPilotError(f"no connection to Ray{place}: {one_line(error)}") from error
        try:
            yield
        finally:
            ray.shutdown()


@contextmanager
def _worker_errors(ray: Any) -> Iterator[None]:
    """Say in one line what went wrong in a worker."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        mine = isinstance(cause, BlockPilotError)
        reason = str(cause) if mine else f"{type(cause).__name__}: {one_line(cause)}"
        raise BlockPilotError(f"a Ray worker failed: {reason}; {_GO_ON}") from error
    except ray.exceptions.RayError as error:
        # The reason is in the last line, behind what Ray knows about the worker.
        reason = str(error).strip().splitlines()[-1]
        raise BlockPilotError(f"a Ray worker died: {reason:.200}; {_GO_ON}") from error
