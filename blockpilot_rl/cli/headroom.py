"""`headroom`: how much adapting the block size could gain, before anything is trained."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from blockpilot_rl.cli.console import command, open_console, render
from blockpilot_rl.cli.flags import json_option
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import check_output, write_json
from blockpilot_rl.headroom.measure import HeadroomSettings, measure_headroom
from blockpilot_rl.headroom.published import (
    PUBLISHED_DEFAULT,
    PUBLISHED_WINDOW,
    AcceptanceHeadroom,
    PublishedResults,
    acceptance_headroom,
)
from blockpilot_rl.headroom.results import Headroom
from blockpilot_rl.options import changed_options, option
from blockpilot_rl.provenance import provenance
from blockpilot_rl.reports.headroom import (
    acceptance_tables,
    headroom_reason,
    headroom_tables,
    headroom_values,
)


@dataclass(frozen=True)
class HeadroomConfig(HeadroomSettings):
    """Report how much adapting the block size could gain: `headroom [SWEEP]`.

    SWEEP is the folder of a recorded sweep (default: the bundled one) or of published BlockPilot
    results, which contain acceptance lengths only. Fixed sizes are chosen on training prompts and
    judged on test prompts. The last line says whether adapting is worth it.
    """

    sweep: str | None = option(
        None, first=True, help="folder of a sweep or of published results; --sweep can be left out"
    )
    default: int = option(
        PUBLISHED_DEFAULT, metavar="B", help="published results: the drafter's own block size"
    )
    window: int = option(
        PUBLISHED_WINDOW,
        metavar="K",
        minimum=0,
        help="published results: the oracle chooses sizes at most K away from the default",
    )
    json: str | None = json_option()

    def __post_init__(self) -> None:
        """Check the values before any work.

        Raises:
            BlockPilotError: If one is out of range.
        """
        super().__post_init__()
        if self.json not in (None, "-") and Path(self.json).is_dir():
            raise BlockPilotError(f"--json {self.json} is a folder; name a file")

    def settings(self) -> HeadroomSettings:
        """How headroom is measured."""
        names = [field.name for field in dataclasses.fields(HeadroomSettings)]
        return HeadroomSettings(**{name: getattr(self, name) for name in names})


def report_headroom(config: HeadroomConfig) -> None:
    """Measure headroom, write the JSON and print the tables and the verdict.

    Raises:
        BlockPilotError: If the folder contains neither a sweep nor published results, or the JSON
            cannot be written.
    """
    check_output(config.json)
    found: Headroom | AcceptanceHeadroom
    if config.sweep is not None and PublishedResults.is_folder_of(Path(config.sweep)):
        found = _measure_published(config)
        tables = acceptance_tables(found)
    else:
        _refuse_published_options(config)
        found = measure_headroom(config.sweep, settings=config.settings())
        tables = headroom_tables(found)
    console = open_console(config.json)
    if config.json is not None:
        found = dataclasses.replace(found, provenance=provenance())
        write_json(config.json, headroom_values(found))
    for table in tables:
        console.print(render(table))
    if isinstance(found, Headroom):
        if found.steps is None:
            console.print(
                "Deciding at every step was not measured: it needs traces of training and test "
                "rows, which `blockpilot collect-sweep --trace` records.",
                soft_wrap=True,
            )
        for note in found.notes:
            console.print(f"Note: {note}.", soft_wrap=True)
    console.print(f"Verdict: {headroom_reason(found)}.", style="bold", soft_wrap=True)


def _refuse_published_options(config: HeadroomConfig) -> None:
    """Refuse options that have no effect on a sweep."""
    for name in changed_options(config):
        if name in ("default", "window"):
            raise BlockPilotError(
                f"--{name} is for published results and has no effect on a sweep; drop it"
            )


def _measure_published(config: HeadroomConfig) -> AcceptanceHeadroom:
    if config.temperature is not None:
        raise BlockPilotError("--temperature selects rows of a sweep; published results have none")
    return acceptance_headroom(
        PublishedResults.load(str(config.sweep)),
        config.default,
        config.window,
        min_gain=config.min_gain,
        confidence=config.confidence,
        seed=config.seed,
    )


main = command(report_headroom, HeadroomConfig)
