"""Progress of long work."""

from __future__ import annotations

from collections.abc import Callable

ProgressCallback = Callable[[str, int, int | None], None]
"""Called with the name of the task, the steps done so far, and the total (None if unknown)."""


def no_progress(task: str, done: int, total: int | None) -> None:
    """Report nothing."""
