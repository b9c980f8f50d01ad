"""What `compare` and `evaluate` share: where results go, and how they are printed."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from blockpilot_rl.cli.console import render
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.results import Comparison
from blockpilot_rl.files import write_json
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
