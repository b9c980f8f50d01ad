"""What `compare` and `evaluate` share: where results go, and how they are printed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

from blockpilot_rl.cli.console import open_console, render
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.results import Comparison
from blockpilot_rl.files import check_output, locked, write_json
from blockpilot_rl.options import option
from blockpilot_rl.reports.sentences import (
    comparison_values,
    crossfit_line,
    halves_line,
    verdict_lines,
)
from blockpilot_rl.reports.tables import comparison_tables


def report_option() -> str | None:
    """Declare the folder of a report as a field of a config dataclass."""
    report: str | None = option(
        None, metavar="DIR", help="write a report as one HTML page, and as Markdown, to this folder"
    )
    return report


def check_outputs(json: str | None, report: str | None) -> None:
    """Check where results go before any work.

    Raises:
        BlockPilotError: If a path is of the wrong kind, or both are the same.
    """
    if json not in (None, "-") and Path(json).is_dir():
        raise BlockPilotError(f"json {json} is a folder; name a file")
    if report is None:
        return
    if Path(report).is_file():
        raise BlockPilotError(f"report {report} is a file; name a folder")
    if json not in (None, "-") and Path(json).resolve() == Path(report).resolve():
        raise BlockPilotError(f"json and report both name {report}; name a file and a folder")


def run_comparison(make: Callable[[], Comparison], json: str | None, report: str | None) -> None:
    """Make a comparison, write its files and print its tables.

    The files are written first. If they cannot be written, the tables are printed all the same.

    Args:
        make: Makes the comparison.
        json: File of the record, `-` for standard output.
        report: Folder of the report.

    Raises:
        BlockPilotError: If an input is invalid or a file cannot be written.
    """
    for path in (json, report):
        check_output(path)
    # Of two commands with one report, the second is refused.
    lock = nullcontext() if report is None else locked(Path(report) / "report.html")
    unsaved: BlockPilotError | None = None
    with lock:
        comparison = make()
        try:
            save_comparison(comparison, json, report)
        except BlockPilotError as error:
            unsaved = error
    if json == "-":
        write_json("-", comparison_values(comparison))
    console = open_console(json)
    print_comparison(comparison, console)
    if unsaved is not None:
        raise unsaved
    if report is not None:
        console.print(f"Report: {Path(report) / 'report.html'}", soft_wrap=True)


def save_comparison(comparison: Comparison, json: str | None, report: str | None) -> None:
    """Write a comparison as JSON, unless that goes to standard output, and as a report.

    Raises:
        BlockPilotError: If a file cannot be written.
    """
    if json not in (None, "-"):
        write_json(json, comparison_values(comparison))
    if report is not None:
        from blockpilot_rl.reports.report import write_report

        write_report(comparison, report)


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print all tables, the notes and the verdict."""
    for table in comparison_tables(comparison):
        console.print(render(table))
    for line in (crossfit_line(comparison), halves_line(comparison)):
        console.print(line, soft_wrap=True)
    for note in comparison.notes:
        console.print(f"Note: {note}.", soft_wrap=True)
    if comparison.settings.get("shuffle_states"):
        console.print("Control: the agents learned from shuffled states.")
    verdict, *by_source = verdict_lines(comparison)
    for line in (*by_source, verdict):
        console.print(line, style="bold", soft_wrap=True)
