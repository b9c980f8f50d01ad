"""`compare`: train agents on a sweep, judge them on its test prompts and say what to ship."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from blockpilot_rl.agents import ALGORITHMS
from blockpilot_rl.agents.base import MAX_SEED
from blockpilot_rl.agents.hyperparameters import to_dict
from blockpilot_rl.agents.registry import read_hyperparams
from blockpilot_rl.cli.arms import select_arms
from blockpilot_rl.cli.console import open_console, render
from blockpilot_rl.cli.lists import words
from blockpilot_rl.cli.parsing import arg, run
from blockpilot_rl.cli.temperature import check_temperature, select_temperature, temperature_arg
from blockpilot_rl.decoding.state import DEFAULT_GROUPS
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.leakage import refuse_overlap
from blockpilot_rl.evaluation.results import Comparison
from blockpilot_rl.experiments.folds import family_folds
from blockpilot_rl.experiments.judged_comparison import compare
from blockpilot_rl.experiments.laboratory import CLASSIFIER, Laboratory
from blockpilot_rl.experiments.trainings import Splits
from blockpilot_rl.files import check_output, write_json
from blockpilot_rl.provenance import provenance, usable_cpus
from blockpilot_rl.reports.report import write_report
from blockpilot_rl.reports.tables import (
    ablation_table,
    arms_table,
    budget_table,
    crossfit_line,
    decoding_table,
    family_table,
    halves_line,
    language_table,
    learning_table,
    left_out_table,
    off_policy_table,
    paper_tables,
    speedup_table,
    summary_table,
    temperature_table,
    verdict_line,
)
from blockpilot_rl.sweeps.table import Sweep

_ALWAYS_SHOWN = ("fixed", "random", "oracle")


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
        help="agents to train, separated by commas, or all of them; fixed, random and oracle are "
        "always shown",
    )
    conf_file: str | None = arg(
        None,
        aliases=["-conf"],
        metavar="FILE.yml",
        help="YAML file of hyperparameters to replace: below each agent's name `key: value` lines, "
        "as in agents/hyperparams",
    )
    seeds: int = arg(10, help="number of seeds to train every agent with")
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
    window: int | None = arg(
        None,
        metavar="K",
        help="choose among plain decoding and the block sizes within K of the drafter's own, as "
        "the paper does, instead of --arms",
    )
    temperature: str | None = temperature_arg()
    confidence: float = arg(0.95, help="level of the intervals")
    family_margin: float = arg(
        0.01, help="loss in a single family, as a fraction, beyond which no agent is shipped"
    )
    shuffle_states: bool = arg(
        False,
        help="control: shuffle the states the agents learn from, so that the verdict has to be "
        "a fixed size",
    )
    leave_family_out: bool = arg(
        False, help="second view: judge each family by agents that were trained without it"
    )
    learning_curve: bool = arg(
        False, help="also train on fewer prompts, to show what more of them would bring"
    )
    budget_curve: bool = arg(
        False,
        help="also show what is achieved at equal numbers of decodes paid for training; includes "
        "the learning curve",
    )
    ablation: str | None = arg(
        None,
        nargs="?",
        const="reward-regression",
        metavar="ALGO",
        help="also show what each state group is worth: train an agent on each recorded group "
        "alone, on all but each, and on all; reward-regression if none is named",
    )
    paper_window: int = arg(
        4, metavar="K", help="window of the classifier in the paper's table, shown with supervised"
    )
    jobs: int | None = arg(
        None,
        metavar="N",
        help="processes that train seeds side by side (default: one per processor, at most one per "
        "seed); what is learned does not depend on it",
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
        None, metavar="DIR", help="write a report as one HTML page, and as Markdown, to this folder"
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
        if self.seed + self.seeds > MAX_SEED + 1:
            raise BlockPilotError(
                f"--seed {self.seed} with --seeds {self.seeds} passes the largest seed, {MAX_SEED}"
            )
        check_temperature(self.temperature)
        if not words(self.algos):
            raise BlockPilotError("--algos names no agent; give some, such as ppo,supervised")
        if self.jobs is not None and self.jobs < 1:
            raise BlockPilotError(f"--jobs must be at least 1, got {self.jobs}")
        if self.ablation in _ALWAYS_SHOWN:
            raise BlockPilotError(f"--ablation needs an agent that learns, not {self.ablation}")
        if not 0 < self.confidence < 1:
            raise BlockPilotError(
                f"--confidence must lie between 0 and 1, such as 0.95, got {self.confidence:g}"
            )
        for name in ("window", "paper_window", "family_margin"):
            if not 0 <= (getattr(self, name) or 0) < math.inf:
                raise BlockPilotError(
                    f"--{name.replace('_', '-')} must be 0 or more, got {getattr(self, name):g}"
                )
        if self.json not in (None, "-") and Path(self.json).is_dir():
            raise BlockPilotError(f"--json {self.json} is a folder; name a file")
        if self.report is not None and Path(self.report).is_file():
            raise BlockPilotError(f"--report {self.report} is a file; name a folder")

    def agents(self) -> list[str]:
        """Names of the agents to train."""
        named = ALGORITHMS if "all" in words(self.algos) else words(self.algos)
        return [name for name in named if name not in _ALWAYS_SHOWN]


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
    sweep = _recorded(config)
    rows, remark = select_temperature(sweep, config.temperature)
    splits = Splits.of(rows)
    # The comparison checks its rows too, but after minutes of training, and not other temperatures.
    every = Splits.of(sweep)
    refuse_overlap((every.train, every.validation), every.test)
    for path in (config.json, config.report):
        check_output(path)
    console = open_console(config.json)
    laboratory = Laboratory(
        algos=config.agents(),
        seeds=range(config.seed, config.seed + config.seeds),
        state_groups=words(config.features),
        shuffle=config.shuffle_states,
        confidence=config.confidence,
        hyperparams={} if config.conf_file is None else read_hyperparams(config.conf_file),
    )
    hyperparams = _resolved_hyperparams(laboratory, config.ablation)
    jobs = min(config.jobs or usable_cpus(), config.seeds)
    with laboratory.opened(Console(stderr=True), jobs) as opened:
        comparison = _compare(config, opened, splits, sweep)
    comparison = dataclasses.replace(
        comparison,
        notes=[*filter(None, [remark]), *comparison.notes],
        settings={**dataclasses.asdict(config), "hyperparams": hyperparams},
        provenance=provenance(),
    )
    _print(comparison, config, console)
    if config.report is not None:
        console.print(f"Report: {write_report(comparison, config.report)}", soft_wrap=True)
    if config.json is not None:
        write_json(config.json, comparison.to_dict())


def _resolved_hyperparams(
    laboratory: Laboratory, ablation: str | None
) -> dict[str, dict[str, Any]]:
    """Make every agent once, before any is trained, to check it and tell its hyperparameters.

    Raises:
        BlockPilotError: If an agent or a value is unknown or invalid, or hyperparameters are given
            to an agent that is not trained.
    """
    names = dict.fromkeys([*laboratory.algos, *([ablation] if ablation else [])])
    for name in laboratory.hyperparams:
        if name not in names:
            raise BlockPilotError(
                f"--conf-file gives hyperparameters to {name}, which is not trained; add it to "
                "--algos or leave it out of the file"
            )
    return {name: to_dict(laboratory.agent(name).hyperparams) for name in names}


def _recorded(config: CompareConfig) -> Sweep:
    """The sweep, of which the state groups are known to be recorded, with the wanted arms."""
    sweep = Sweep.load(config.sweep)
    sweep.metadata.state.columns(words(config.features))
    return select_arms(sweep, config.arms, config.window)


def _compare(
    config: CompareConfig, laboratory: Laboratory, splits: Splits, sweep: Sweep
) -> Comparison:
    """Train and judge for all views that were asked for.

    Args:
        config: The arguments.
        laboratory: What trains.
        splits: The rows to compare on.
        sweep: Those of all temperatures, for the paper's table.
    """
    # Where a family cannot be left out, that is said before minutes of training.
    parts = (splits.train, splits.validation, splits.test)
    folds = family_folds(*parts) if config.leave_family_out else []
    trained = laboratory.main_view(splits)
    comparison = compare(
        splits.train,
        splits.validation,
        splits.test,
        {name: agent.choices for name, agent in trained.items()},
        confidence=config.confidence,
        family_margin=config.family_margin,
        seed=config.seed,
    )
    views: dict[str, Any] = {}
    if CLASSIFIER in trained:
        best = comparison.verdict.best_agent
        views["paper_table"] = laboratory.paper_table(
            sweep, splits, trained, best, config.paper_window
        )
    if folds:
        views["left_out"] = laboratory.left_out(splits.test, folds)
    if config.learning_curve or config.budget_curve:
        learning = laboratory.learning_curve(splits, trained)
        views["learning_curve"] = learning
        if config.budget_curve:
            views["budget_curves"] = laboratory.budget_curves(splits, trained, learning)
    if config.ablation is not None:
        views["ablation"] = laboratory.ablation(config.ablation, splits, trained)
    return dataclasses.replace(comparison, notes=list(laboratory.notes), **views)


def _print(comparison: Comparison, config: CompareConfig, console: Console) -> None:
    always = (summary_table, decoding_table, arms_table, family_table, speedup_table)
    where_known = (
        language_table,
        temperature_table,
        left_out_table,
        learning_table,
        budget_table,
        ablation_table,
        off_policy_table,
    )
    tables = [make(comparison) for make in (*always, *where_known)]
    for table in (*tables, *paper_tables(comparison)):
        if table is not None:
            console.print(render(table))
    for line in (crossfit_line(comparison), halves_line(comparison)):
        console.print(line, soft_wrap=True)
    for note in comparison.notes:
        console.print(f"Note: {note}.", soft_wrap=True)
    if config.shuffle_states:
        console.print("Control: the agents learned from shuffled states.")
    console.print(verdict_line(comparison), style="bold", soft_wrap=True)
