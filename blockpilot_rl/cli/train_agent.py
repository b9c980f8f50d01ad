"""The command `train-agent`."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from blockpilot_rl.agents.hyperparameters import read_yaml
from blockpilot_rl.agents.tuning import TuningConfig
from blockpilot_rl.cli.console import command, open_console, open_messages, show_progress
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.experiments.training import (
    TrainAgentConfig,
    TrainedRun,
    TunedRun,
    train_agent,
    tune_agent,
)
from blockpilot_rl.options import option

_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO)


@dataclass(frozen=True)
class TrainAgentFlags(TuningConfig, TrainAgentConfig):
    """Train one agent to choose block sizes, on the training prompts of a recorded sweep.

    Writes a run folder LOG_FOLDER/ALGO/BlockSize-v0_N with the model, its settings, the scores on
    the validation prompts and TensorBoard events. With -optimize it searches hyperparameters
    instead and writes the best as YAML to LOG_FOLDER/ALGO/optimize_N.
    """

    sweep: str | None = option(
        None, metavar="DIR", help="folder of the recorded sweep (default: the bundled one)"
    )
    conf_file: str | None = option(
        None, aliases=["-conf"], metavar="FILE.yml", help="YAML file of hyperparameters to replace"
    )
    optimize_hyperparameters: bool = option(
        False, aliases=["-optimize"], help="search hyperparameters with Optuna instead of training"
    )
    progress: bool = option(False, aliases=["-P"], help="show a progress bar")
    verbose: int = option(
        1, choices=(0, 1, 2), help="0 shows errors only, 1 the result, 2 every evaluation too"
    )

    def __post_init__(self) -> None:
        """Check the values."""
        TuningConfig.__post_init__(self)
        TrainAgentConfig.__post_init__(self)
        if self.optimize_hyperparameters and self.trained_agent is not None:
            raise BlockPilotError(
                "optimize_hyperparameters cannot be given: a continued run keeps its settings; "
                "leave it out"
            )
        if self.conf_file is not None and self.trained_agent is not None:
            raise BlockPilotError(
                "conf_file cannot be given: a continued run keeps its settings; leave it out"
            )

    def training(self) -> TrainAgentConfig:
        """The config of the training; pairs win over the file of hyperparameters."""
        file = {} if self.conf_file is None else read_yaml(Path(self.conf_file))
        names = [field.name for field in dataclasses.fields(TrainAgentConfig)]
        values = {name: getattr(self, name) for name in names}
        return TrainAgentConfig(**{**values, "hyperparams": {**file, **self.hyperparams}})

    def tuning(self) -> TuningConfig:
        """The config of the search."""
        names = [field.name for field in dataclasses.fields(TuningConfig)]
        return TuningConfig(**{name: getattr(self, name) for name in names})


def _main(flags: TrainAgentFlags) -> None:
    logging.basicConfig(format="%(message)s")
    logging.getLogger("blockpilot_rl").setLevel(_LEVELS[flags.verbose])
    with show_progress(open_messages(), enabled=None if flags.progress else False) as progress:
        if flags.optimize_hyperparameters:
            tuned = tune_agent(flags.sweep, flags.training(), flags.tuning(), progress=progress)
        else:
            trained = train_agent(flags.sweep, flags.training(), progress=progress)
    if not flags.verbose:
        return
    if flags.optimize_hyperparameters:
        _print_tuned(flags.algo, tuned)
    else:
        print_trained(flags.algo, trained)


main = command(_main, TrainAgentFlags)


def print_trained(algo: str, run: TrainedRun) -> None:
    """Print the scores of a training and where it was saved."""
    console = open_console()
    if run.selection_note is not None:
        console.print(f"Note: {run.selection_note}.", soft_wrap=True)
    score, agent = run.score, run.agent
    table = Table(
        title=f"{algo}, seed {agent.seed}: validation prompts",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in ("", "mean speedup", "regret", "gap closed"):
        table.add_column(column, justify="right" if column else "left")
    for name, reward, share in (
        (algo, score.reward, score.gap_closed),
        (f"best fixed size ({agent.problem.best_fixed})", score.best_fixed, 0.0),
        ("oracle", score.oracle, 1.0),
    ):
        table.add_row(name, f"{reward:.3f}×", f"{score.oracle - reward:.3f}", f"{share:.0%}")
    console.print(table)
    console.print(f"saved: {run.folder}", soft_wrap=True)
    console.print(f"next:  blockpilot export-policy {run.folder} --out DIR", soft_wrap=True)


def _print_tuned(algo: str, run: TunedRun) -> None:
    tuned = run.tuned
    trials = tuned.study.trials
    pruned = sum(trial.state.name == "PRUNED" for trial in trials)
    console = open_console()
    console.print(
        f"{algo}: mean speedup {tuned.reward:.3f}× on the validation prompts, the best of "
        f"{len(trials)} trials ({pruned} stopped early)",
        soft_wrap=True,
    )
    for name in tuned.study.best_params:
        console.print(f"  {name}: {tuned.hyperparams[name]}", soft_wrap=True)
    console.print(f"saved: {run.folder}", soft_wrap=True)
    console.print(
        f"next:  blockpilot train-agent --algo {algo} --conf-file {run.folder / 'best.yml'}",
        soft_wrap=True,
    )
