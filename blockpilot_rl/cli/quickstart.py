"""`quickstart`: train, export, compare and decode on the bundled sweep, in a few minutes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from blockpilot_rl.cli.comparisons import print_comparison
from blockpilot_rl.cli.console import command, open_console, open_messages, show_progress
from blockpilot_rl.cli.export_policy import print_exported
from blockpilot_rl.cli.train_agent import print_trained
from blockpilot_rl.experiments.quickstart import (
    DecodedPrompts,
    QuickstartConfig,
    run_quickstart,
)
from blockpilot_rl.progress import ProgressCallback, no_progress

_TITLES = {
    "train": "1/4 train: blockpilot train-agent --algo ppo",
    "export": "2/4 export: blockpilot export-policy RUN --out DIR",
    "compare": "3/4 compare: blockpilot compare",
    "decode": "4/4 decode: blockpilot generate --policy DIR",
}


def _main(config: QuickstartConfig) -> None:
    console = open_console()
    printers: dict[str, Callable[[Any], None]] = {
        "train": partial(print_trained, "ppo"),
        "export": print_exported,
        "compare": lambda comparison: print_comparison(comparison, console),
        "decode": lambda decoded: _print_decoded(decoded, console),
    }
    # Bars are shown only within a stage, because they capture everything that is printed meanwhile.
    with ExitStack() as bars:
        reporter: ProgressCallback = no_progress

        def show(stage: str, result: Any) -> None:
            nonlocal reporter
            if result is None:
                console.rule(_TITLES[stage])
                reporter = bars.enter_context(show_progress(open_messages()))
            else:
                bars.close()
                printers[stage](result)

        found = run_quickstart(config, progress=lambda *step: reporter(*step), on_stage=show)
    console.print(
        f"report in {found.report}, policy in {found.exported.folder}, runs in "
        f"{Path(config.out) / 'logs'}",
        soft_wrap=True,
    )


main = command(_main, QuickstartConfig)


def _print_decoded(decoded: list[DecodedPrompts], console: Console) -> None:
    policy = next(way for way in decoded if way.way == "policy")
    count = len(policy.families)
    for number, (family, size) in enumerate(
        zip(policy.families, policy.block_sizes, strict=True), start=1
    ):
        console.print(f"{number} of {count}, {family}: the policy took {size}")
    table = Table(title=f"{count} test prompts, decoded end to end in bfloat16")
    for column in ("way", "tokens/s", "τ", "speedup", "block sizes"):
        table.add_column(column)
    for way in decoded:
        table.add_row(
            way.way,
            f"{way.tokens_per_second:.1f}",
            f"{way.acceptance_length:.2f}",
            f"{way.speedup:.2f}",
            ", ".join(map(str, sorted(set(way.block_sizes)))),
        )
    console.print(table)
    console.print(
        "So few prompts show that decoding works, not how much it gains, and other programs on "
        "this machine add noise. Ship what the verdict above names.",
        soft_wrap=True,
    )
