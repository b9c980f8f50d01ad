"""One thread for small computations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch and BLAS compute on one thread, for work that is too small to distribute.

    Parallel processes then do not compete for cores, no thread waits for another one that is not
    scheduled, and results do not depend on the number of threads.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)
