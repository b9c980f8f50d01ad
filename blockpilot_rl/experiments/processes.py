"""Run the work of several seeds in parallel processes."""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import active_children, current_process, get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

from blockpilot_rl.errors import BlockPilotError

Map = Callable[[Callable[[int], Any], Iterable[int]], Iterable[Any]]
"""The built-in `map` over seeds, or a parallel version of it."""

_GUARD = "a script that uses several processes needs the guard `if __name__ == '__main__':`"


@contextmanager
def process_map(jobs: int) -> Iterator[Map]:
    """Yield a `map` that works in several processes; with one job, in this process.

    The processes start at the first call and serve all calls. They end with the context, or with
    this process, however it ends. They are spawned, so a script must guard its code with
    `if __name__ == "__main__":`; a notebook needs no guard.

    Args:
        jobs: Number of processes.

    Raises:
        BlockPilotError: If a process dies, or a script without the guard calls this.
    """
    if jobs == 1:
        yield map
        return
    if getattr(current_process(), "_inheriting", False):
        raise BlockPilotError(f"{_GUARD}, or set jobs to 1")
    others = set(active_children())
    try:
        with (
            tempfile.TemporaryDirectory(prefix="blockpilot-") as folder,
            ProcessPoolExecutor(
                jobs, mp_context=get_context("spawn"), initializer=_start_worker
            ) as pool,
        ):
            try:
                yield partial(_map_from_file, pool, folder)
            except BaseException:
                for child in set(active_children()) - others:
                    child.kill()
                pool.shutdown(cancel_futures=True)
                raise
    except BrokenProcessPool as error:
        raise BlockPilotError(
            f"a training process died, perhaps because memory ran out; set jobs to 1 ({_GUARD})"
        ) from error


def _map_from_file(
    pool: ProcessPoolExecutor, folder: str, work: Callable[[int], Any], seeds: Iterable[int]
) -> Iterator[Any]:
    """Map through a file that every process reads.

    The work holds a sweep. The pool's pipe would transfer it once per seed, and after an interrupt
    the writer would wait for readers that no longer exist. The file is removed after the map, so
    that a comparison with many of them does not fill the disk.
    """
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        pickle.dump(work, file)
    path = Path(file.name)
    try:
        yield from pool.map(partial(_work_from_file, path), seeds)
    finally:
        path.unlink(missing_ok=True)


def _work_from_file(file: Path, seed: int) -> Any:
    work: Callable[[int], Any] = pickle.loads(file.read_bytes())
    return work(seed)


def _start_worker() -> None:
    """End this process silently after an interrupt, and when its parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
