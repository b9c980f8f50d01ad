"""`compare`: train agents on a sweep, judge them on its test prompts and say what to ship."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from blockpilot_rl.agents import Monitor, make_agent
from blockpilot_rl.cli.lists import whole_numbers, words
from blockpilot_rl.cli.parsing import arg, run
from blockpilot_rl.decoding.state import DEFAULT_GROUPS
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices, time_decisions
from blockpilot_rl.evaluation.compare import compare
from blockpilot_rl.evaluation.controls import refuse_overlap, shuffle_states
from blockpilot_rl.evaluation.report import write_report
from blockpilot_rl.evaluation.results import Comparison
from blockpilot_rl.evaluation.tables import (
    TextTable,
    arms_table,
    decoding_table,
    family_table,
    summary_table,
    verdict_line,
)
from blockpilot_rl.files import write_json
from blockpilot_rl.provenance import provenance
from blockpilot_rl.sweeps.table import SweepTable

_ALWAYS_SHOWN = ("fixed", "random", "oracle")
_PIPED_WIDTH = 140


@dataclass(frozen=True)
class CompareConfig:
    """Compare learned block-size policies with fixed sizes on held-out prompts.

    Trains every agent with several seeds on the training prompts of a sweep and prints what it
    achieves on the test prompts, its own decisions included, beside the drafter's own size, the
    best fixed size, random choice and the oracle; then a verdict: ship an agent, or a fixed size.
    """

    sweep: str | None = arg(
        None, metavar="DIR", help="folder of a recorded sweep, instead of the bundled one"
    )
    algos: str = arg(
        "ppo,supervised,reward-regression",
        metavar="A,B",
        help="agents to train, separated by commas; fixed, random and oracle are always shown",
    )
    seeds: int = arg(5, help="number of seeds to train every agent with")
    seed: int = arg(0, help="first seed; also that of the bootstrap")
    features: str = arg(
        ",".join(DEFAULT_GROUPS),
        metavar="A,B",
        help="state groups the agents see, separated by commas",
    )
    arms: str | None = arg(
        None,
        metavar="1,B,…",
        help="block sizes to choose from, 1 (plain decoding) first, instead of all recorded ones",
    )
    confidence: float = arg(0.95, help="level of the intervals")
    shuffle_states: bool = arg(
        False,
        help="control: shuffle the states the agents learn from, so that the verdict has to be "
        "a fixed size",
    )
    json: str | None = arg(
        None,
        nargs="?",
        const="-",
        metavar="FILE",
        help="write all numbers as JSON to a file, or to standard output if none is named; the "
        "tables then go to standard error",
    )
    report: str | None = arg(
        None, metavar="DIR", help="write a Markdown report with plots to this folder"
    )

    def __post_init__(self) -> None:
        """Check the values before any agent is trained.

        Raises:
            BlockPilotError: If one is out of range.
        """
        if self.seeds < 1:
            raise BlockPilotError(f"--seeds must be at least 1, got {self.seeds}")
        if self.seed < 0:
            raise BlockPilotError(f"--seed must be 0 or more, got {self.seed}")
        if not 0 < self.confidence < 1:
            raise BlockPilotError(
                f"--confidence must lie between 0 and 1, such as 0.95, got {self.confidence:g}"
            )
        if self.json not in (None, "-") and Path(self.json).is_dir():
            raise BlockPilotError(f"--json {self.json} is a folder; name a file")
        if self.report is not None and Path(self.report).is_file():
            raise BlockPilotError(f"--report {self.report} is a file; name a folder")


def main(argv: Sequence[str] | None = None, *, prog: str | None = None) -> int:
    """Run the command.

    Args:
        argv: Its arguments; None for those of the process.
        prog: Name shown in its help.

    Returns:
        The exit code.
    """
    return run(compare_agents, CompareConfig, argv, prog=prog)


def compare_agents(config: CompareConfig) -> None:
    """Train, compare, print and write what was asked for.

    Raises:
        BlockPilotError: If the sweep, an algorithm, an arm or a state group is not as needed, or a
            file cannot be written.
    """
    sweep = SweepTable.load(config.sweep)
    if config.arms is not None:
        sweep = sweep.select_arms(whole_numbers(config.arms, "--arms"))
    sweep.metadata.state.columns(words(config.features))
    train, test = sweep.split("train"), sweep.split("test")
    has_validation = (sweep.rows["split"] == "validation").any()
    validation = sweep.split("validation") if has_validation else None
    # The comparison checks this too, but after minutes of training.
    refuse_overlap((train, validation), test)
    choices = _train_all(config, train, validation, test)
    comparison = dataclasses.replace(
        compare(train, validation, test, choices, confidence=config.confidence, seed=config.seed),
        settings=dataclasses.asdict(config),
        provenance=provenance(),
    )
    console = Console(stderr=config.json == "-", highlight=False, markup=False)
    _print(comparison, config, console)
    if config.report is not None:
        console.print(f"Report: {write_report(comparison, config.report)}", soft_wrap=True)
    if config.json is not None:
        write_json(config.json, comparison.to_dict())


def _train_all(
    config: CompareConfig, train: SweepTable, validation: SweepTable | None, test: SweepTable
) -> dict[str, Choices]:
    """Train every agent with every seed and let it choose on the test prompts."""
    seeds = range(config.seed, config.seed + config.seeds)
    agents = {
        name: [make_agent(name, seed=seed, features=words(config.features)) for seed in seeds]
        for name in words(config.algos)
        if name not in _ALWAYS_SHOWN
    }
    choices = {}
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for name, learners in agents.items():
            task = progress.add_task(name, total=config.seeds)
            arms, seconds = [], []
            for done, agent in enumerate(learners):
                tables = _dealt_out(train, validation, agent.seed, config.shuffle_states)
                agent.learn(*tables, Monitor(on_progress=partial(_advance, progress, task, done)))
                arms.append(agent.choose(test))
                seconds.append(time_decisions(agent.to_policy(), test))
                progress.update(task, completed=done + 1)
            choices[name] = Choices(np.stack(arms), np.array(seconds))
    return choices


def _dealt_out(
    train: SweepTable, validation: SweepTable | None, seed: int, shuffle: bool
) -> tuple[SweepTable, SweepTable | None]:
    """The tables to learn from, for the control with their states shuffled."""
    if not shuffle:
        return train, validation
    rng = np.random.default_rng(seed)
    shuffled = shuffle_states(train, rng)
    return shuffled, None if validation is None else shuffle_states(validation, rng)


def _advance(progress: Progress, task: Any, done: int, step: int, total: int) -> None:
    progress.update(task, completed=done + step / max(total, 1))


def _print(comparison: Comparison, config: CompareConfig, console: Console) -> None:
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    for table in (summary_table, decoding_table, arms_table, family_table):
        console.print(_render(table(comparison)))
    if config.shuffle_states:
        console.print("Control: the agents learned from shuffled states.")
    console.print(verdict_line(comparison), style="bold", soft_wrap=True)


def _render(table: TextTable) -> Table:
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
