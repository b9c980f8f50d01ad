"""Running commands: exit codes, streams that fail, tables and progress."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from blockpilot_rl.cli.flags import parse
from blockpilot_rl.errors import BlockPilotError, is_out_of_memory, one_line
from blockpilot_rl.progress import ProgressCallback

if TYPE_CHECKING:
    from blockpilot_rl.reports.tables import TextTable

Config = TypeVar("Config")

INPUT_ERROR = 2
INTERRUPTED = 130
PIPE_CLOSED = 141
TERMINATED = 143

_PIPED_WIDTH = 140
_SILENCE_SECONDS = 10.0


def command(
    function: Callable[[Config], int | None], config_class: type[Config]
) -> Callable[..., int]:
    """Make the entry point of a command.

    Args:
        function: The command. It takes the config and returns the exit code; None counts as 0.
        config_class: The dataclass of its arguments.

    Returns:
        A function of the arguments (default: those of the process) and, by keyword, the name
        `prog` that the help shows. It returns the exit code.
    """

    def main(argv: Sequence[str] | None = None, *, prog: str | None = None) -> int:
        return run(function, config_class, argv, prog=prog)

    return main


def run(
    main: Callable[[Config], int | None],
    config_class: type[Config],
    argv: Sequence[str] | None = None,
    *,
    prog: str | None = None,
) -> int:
    """Run a command: parse its config, call it, and print errors of the user as one line.

    Args:
        main: The command. It returns the exit code; None counts as 0.
        config_class: The dataclass of its arguments.
        argv: The arguments. Default: those of this process.
        prog: The program's name in `--help`. Default: the running script's.

    Returns:
        The exit code, as `guarded` defines it.
    """
    return guarded(lambda: main(parse(config_class, argv, prog=prog)))


def guarded(call: Callable[[], int | None]) -> int:
    """Call a function and turn what goes wrong into an exit code.

    Characters that standard output or standard error cannot encode are replaced. SIGTERM raises
    `SystemExit(143)`, so that temporary files are removed as after an interrupt.

    Args:
        call: The function. It returns the exit code; None counts as 0.

    Returns:
        The exit code: 2 after bad input or a file that cannot be read or written, 130 after an
        interrupt, and 141, silently, if standard output or error is a closed pipe.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        with _sigterm_raises(), _flushed_output():
            code = call() or 0
    except BrokenPipeError:
        code = PIPE_CLOSED
    except KeyboardInterrupt:
        code = _fail("interrupted", INTERRUPTED)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        code = _fail("error: out of memory; use fewer prompts or a smaller model", INPUT_ERROR)
    except OverflowError as error:
        code = _fail(f"error: a number is too large ({one_line(error)})", INPUT_ERROR)
    except (BlockPilotError, OSError) as error:
        code = _fail(f"error: {' '.join(str(error).split())}", INPUT_ERROR)
    finally:
        _silence_failing_streams()
    return code


def open_console(json: str | None = None) -> Console:
    """Open the console for tables and results.

    Args:
        json: Where the command writes its JSON. If that is standard output ("-"), the console
            prints to standard error.
    """
    console = _Console(stderr=json == "-", highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    return console


def open_messages() -> Console:
    """Open the console for progress, notes and warnings, on standard error."""
    return _Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def show_progress(console: Console, enabled: bool | None = None) -> Iterator[ProgressCallback]:
    """Show progress: a bar per unfinished task on a terminal, elsewhere an occasional line.

    Args:
        console: Where it is shown, usually `open_messages()`.
        enabled: Whether bars are shown. Default: if the console is a terminal. False shows nothing.

    Yields:
        The callback to pass to the workflow.
    """
    if enabled is None and not console.is_terminal:
        yield _progress_lines(console)
        return
    with Progress(console=console, transient=True, disable=enabled is False) as bars:
        tasks: dict[str, Any] = {}

        def update(task: str, done: int, total: int | None) -> None:
            if task not in tasks:
                tasks[task] = bars.add_task(task, total=total)
            unfinished = total is None or done < total
            bars.update(tasks[task], completed=done, total=total, visible=unfinished)

        yield update


def _progress_lines(console: Console) -> ProgressCallback:
    """Report progress as lines, at most one in ten seconds, and none for short work."""
    last = time.monotonic()

    def report(task: str, done: int, total: int | None) -> None:
        nonlocal last
        if time.monotonic() - last >= _SILENCE_SECONDS:
            last = time.monotonic()
            line = f"{task}: {done:,}" if total is None else f"{task}: {done:,} of {total:,}"
            # A stream that fails must not end the work whose progress it shows.
            with suppress(OSError):
                console.print(line)

    return report


def render(table: TextTable) -> Table:
    """Turn a table of text into a table of the console."""
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


class _Console(Console):
    """A console that leaves a closed pipe to `guarded`; rich's own exits the process with 1."""

    def on_broken_pipe(self) -> None:
        """Raise the error again."""
        raise


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Raise `SystemExit` on SIGTERM; Python allows that in the main thread only."""
    if current_thread() is not main_thread():
        yield
        return

    def leave(*_: object) -> NoReturn:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _flushed_output() -> Iterator[None]:
    """Flush the streams at the end, even after `--help`, so that failures are noticed."""
    try:
        yield
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()


def _fail(message: str, code: int) -> int:
    """Print a message unless the stream is closed."""
    try:
        print(message, file=sys.stderr)
    except BrokenPipeError:
        return PIPE_CLOSED
    except OSError:
        pass
    return code


def _silence_failing_streams() -> None:
    """Discard the rest of a stream that fails, since the interpreter flushes it at exit."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
