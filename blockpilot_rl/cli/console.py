"""How commands print tables and show their progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from blockpilot_rl.progress import ProgressCallback
from blockpilot_rl.reports.tables import TextTable

_PIPED_WIDTH = 140


def open_console(json: str | None = None) -> Console:
    """Console for tables.

    Args:
        json: Where the command writes its JSON; the tables make way for it on standard output.
    """
    console = Console(stderr=json == "-", highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    return console


def add_bar(progress: Progress, name: str, total: int | None = None) -> Callable[[int, int], None]:
    """Add a bar, which the returned function moves: it takes what is done and the total.

    Args:
        progress: What shows it.
        name: Its label.
        total: The total, if it is known before the first call.
    """
    task = progress.add_task(name, total=total)
    return lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def show_progress(console: Console) -> Iterator[ProgressCallback]:
    """Show a bar for each task that is reported to the yielded callback.

    Args:
        console: Where the bars are drawn; nothing is drawn if it is not a terminal.
    """
    tasks: dict[str, TaskID] = {}
    with Progress(console=console, disable=not console.is_terminal) as bars:

        def report(task: str, done: int, total: int | None) -> None:
            if task not in tasks:
                tasks[task] = bars.add_task(task, total=total)
            bars.update(tasks[task], completed=done, total=total)

        yield report


def render(table: TextTable) -> Table:
    """Turn a table of text into what the console prints."""
    rendered = Table(
        title=table.title,
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for index, column in enumerate(table.columns):
        rendered.add_column(column, justify="right" if index else "left", overflow="fold")
    for row in table.rows:
        rendered.add_row(*row)
    return rendered
