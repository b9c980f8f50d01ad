"""`headroom`: how much there is to win by adapting the block size, before anything is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from blockpilot_rl.cli.console import open_console, render
from blockpilot_rl.cli.parsing import arg, name_first, run
from blockpilot_rl.cli.temperature import check_temperature, select_temperature, temperature_arg
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import write_json
from blockpilot_rl.headroom.measure import HeadroomSettings, measure_headroom
from blockpilot_rl.headroom.published import (
    PUBLISHED_DEFAULT,
    PUBLISHED_WINDOW,
    AcceptanceHeadroom,
    PublishedResults,
    acceptance_headroom,
)
from blockpilot_rl.headroom.results import Headroom
from blockpilot_rl.provenance import provenance
from blockpilot_rl.reports.headroom_tables import acceptance_tables, headroom_tables
from blockpilot_rl.sweeps.table import BUNDLED_SWEEP, Sweep
from blockpilot_rl.sweeps.traces import TRACE_FILE, load_traces


@dataclass(frozen=True)
class HeadroomConfig:
    """Say how much there is to win by adapting the block size: `headroom.py [SWEEP]`.

    SWEEP is the folder of a recorded sweep (default: the bundled one) or of published BlockPilot
    results, which hold acceptance lengths only. Fixed sizes are chosen on training prompts and
    judged on test prompts; the last line says whether adapting is worth it.
    """

    sweep: str | None = arg(
        None,
        metavar="SWEEP",
        help="folder of a sweep or of published results; may stand first without its flag",
    )
    temperature: str | None = temperature_arg()
    min_gain: float = arg(0.02, help="gain in mean speedup that is worth the trouble, as a share")
    confidence: float = arg(0.95, help="level of the intervals")
    seed: int = arg(0, help="seed of the bootstrap")
    default: int = arg(
        PUBLISHED_DEFAULT, metavar="B", help="published results: the drafter's own block size"
    )
    window: int = arg(
        PUBLISHED_WINDOW,
        metavar="K",
        help="published results: the oracle chooses among sizes up to K off the default",
    )
    json: str | None = arg(
        None,
        nargs="?",
        const="-",
        metavar="FILE",
        help="write all numbers as JSON to a file, or to standard output if none is named; the "
        "tables then go to standard error",
    )

    def __post_init__(self) -> None:
        """Check the values before any work.

        Raises:
            BlockPilotError: If one is out of range.
        """
        self.settings()
        check_temperature(self.temperature)
        if self.window < 0:
            raise BlockPilotError(f"--window must be 0 or more, got {self.window}")
        if self.json not in (None, "-") and Path(self.json).is_dir():
            raise BlockPilotError(f"--json {self.json} is a folder; name a file")

    def settings(self) -> HeadroomSettings:
        """How headroom is measured."""
        return HeadroomSettings(self.confidence, self.min_gain, self.seed)


def main(argv: Sequence[str] | None = None, *, prog: str | None = None) -> int:
    """Run the command.

    Args:
        argv: Its arguments; None for those of the process.
        prog: Name shown in its help.

    Returns:
        The exit code.
    """
    return run(report_headroom, HeadroomConfig, name_first(argv, "--sweep"), prog=prog)


def report_headroom(config: HeadroomConfig) -> None:
    """Measure, print and write what was asked for.

    Raises:
        BlockPilotError: If the folder holds neither a sweep nor published results, or not as
            needed, or the JSON cannot be written.
    """
    found: Headroom | AcceptanceHeadroom
    remark = None
    if config.sweep is not None and PublishedResults.is_folder_of(Path(config.sweep)):
        found = _measure_published(config)
        tables = acceptance_tables(found)
    else:
        found, remark = _measure_sweep(config)
        tables = headroom_tables(found)
    console = open_console(config.json)
    for table in tables:
        console.print(render(table))
    if isinstance(found, Headroom) and found.steps is None:
        console.print(
            "Deciding at every step was not measured: that takes traces of training and test rows, "
            "which scripts/collect_sweep.py records with --trace.",
            soft_wrap=True,
        )
    if remark is not None:
        console.print(f"Note: {remark}.", soft_wrap=True)
    console.print(f"Verdict: {found.verdict.reason}.", style="bold", soft_wrap=True)
    if config.json is not None:
        write_json(config.json, dataclasses.replace(found, provenance=provenance()).to_dict())


def _measure_published(config: HeadroomConfig) -> AcceptanceHeadroom:
    if config.temperature is not None:
        raise BlockPilotError("--temperature chooses rows of a sweep; published results have none")
    return acceptance_headroom(
        PublishedResults.load(str(config.sweep)),
        config.default,
        config.window,
        min_gain=config.min_gain,
        confidence=config.confidence,
        seed=config.seed,
    )


def _measure_sweep(config: HeadroomConfig) -> tuple[Headroom, str | None]:
    table, remark = select_temperature(Sweep.load(config.sweep), config.temperature)
    folder = BUNDLED_SWEEP if config.sweep is None else Path(config.sweep)
    traces = load_traces(folder, table) if (folder / TRACE_FILE).exists() else None
    return measure_headroom(table, traces, config.settings()), remark
