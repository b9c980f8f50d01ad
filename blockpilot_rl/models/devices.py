"""Where computations run: a check of the device, and a limit to one thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits

from blockpilot_rl.errors import BlockPilotError, one_line


def check_device(device: str) -> None:
    """Check that a device can compute, before anything is loaded.

    Raises:
        BlockPilotError: If it cannot.
    """
    try:
        # The result is read back, because tensors on `meta` hold no data.
        (torch.ones(1, device=device) + 1).item()
    # Builds without an accelerator, absent devices and full devices raise different errors.
    except Exception as error:
        raise BlockPilotError(
            f"models cannot run on {device}: {one_line(error)}; try cpu"
        ) from error


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
