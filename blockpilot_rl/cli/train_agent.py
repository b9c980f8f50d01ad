"""`train-agent`: train one agent on a recorded sweep and leave a run folder."""

from __future__ import annotations

import dataclasses
import logging
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from blockpilot_rl.agents import ALGORITHMS, Agent, Monitor, make_agent
from blockpilot_rl.agents.hyperparameters import parse_assignments, read_yaml, to_dict
from blockpilot_rl.agents.runs import create_run_folder
from blockpilot_rl.cli.lists import whole_numbers, words
from blockpilot_rl.cli.parsing import arg, run
from blockpilot_rl.decoding.state import DEFAULT_GROUPS
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import write_json
from blockpilot_rl.provenance import provenance, sha256_file
from blockpilot_rl.sweeps.table import BUNDLED_SWEEP, SweepTable

_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO)


@dataclass(frozen=True)
class TrainAgentConfig:
    """Train one agent to choose block sizes, on the training prompts of a recorded sweep.

    Leaves a run folder LOG_FOLDER/ALGO/BlockSize-v0_N with the model, its settings, the scores on
    the validation prompts and TensorBoard events.
    """

    algo: str = arg("ppo", help=f"algorithm: {', '.join(ALGORITHMS)}")
    sweep: str | None = arg(
        None, metavar="DIR", help="folder of the recorded sweep (default: the bundled one)"
    )
    n_timesteps: int | None = arg(
        None, aliases=["-n"], metavar="N", help="decisions to learn from (default: the algorithm's)"
    )
    log_folder: str = arg("logs", aliases=["-f"], metavar="DIR", help="where run folders go")
    seed: int = arg(0, help="decides everything random")
    hyperparams: list[str] = arg(
        default_factory=list,
        aliases=["-params"],
        metavar="KEY:VALUE",
        help="hyperparameters to replace, such as learning_rate:0.001",
    )
    conf_file: str | None = arg(
        None, aliases=["-conf"], metavar="FILE.yml", help="YAML file of hyperparameters to replace"
    )
    tensorboard_log: str | None = arg(
        None,
        aliases=["-tb"],
        metavar="DIR",
        help="where TensorBoard events go (default: the run folder)",
    )
    features: str = arg(
        ",".join(DEFAULT_GROUPS), metavar="A,B", help="state groups to read, separated by commas"
    )
    arms: str | None = arg(
        None,
        metavar="1,B,…",
        help="block sizes to choose from, 1 (plain decoding) first (default: all of the sweep)",
    )
    device: str = arg("cpu", help="where to train networks")
    progress: bool = arg(False, aliases=["-P"], help="show a progress bar")
    verbose: int = arg(1, help="0 errors only, 1 the result, 2 every evaluation too")
    eval_freq: int | None = arg(
        None,
        metavar="N",
        help="decisions between walks over the validation prompts (default: the algorithm's)",
    )

    def __post_init__(self) -> None:
        """Check the values that nothing else checks.

        Raises:
            BlockPilotError: If one is out of range.
        """
        if not 0 <= self.verbose < len(_LEVELS):
            raise BlockPilotError(f"--verbose must be 0, 1 or 2, got {self.verbose}")

    def overrides(self) -> dict[str, Any]:
        """Hyperparameters given in the file, then as pairs, then by flags of their own."""
        values = {} if self.conf_file is None else read_yaml(Path(self.conf_file))
        values.update(parse_assignments(self.hyperparams))
        flags = {"n_timesteps": self.n_timesteps, "eval_freq": self.eval_freq}
        return {**values, **{key: value for key, value in flags.items() if value is not None}}


def main(argv: Sequence[str] | None = None, *, prog: str | None = None) -> int:
    """Run the command.

    Args:
        argv: Its arguments; None for those of the process.
        prog: Name shown in its help.

    Returns:
        The exit code.
    """
    return run(train_agent, TrainAgentConfig, argv, prog=prog)


def train_agent(config: TrainAgentConfig) -> None:
    """Train, write the run folder and print the result.

    Raises:
        BlockPilotError: If an argument, the sweep or a hyperparameter is not as needed.
    """
    logging.basicConfig(format="%(message)s")
    logging.getLogger("blockpilot_rl").setLevel(_LEVELS[config.verbose])
    agent = make_agent(
        config.algo,
        seed=config.seed,
        features=words(config.features),
        hyperparams=config.overrides(),
        device=config.device,
    )
    sweep = SweepTable.load(config.sweep)
    if config.arms is not None:
        sweep = sweep.select_arms(whole_numbers(config.arms, "--arms"))
    sweep.metadata.state.columns(agent.features)
    train = sweep.split("train")
    has_validation = (sweep.rows["split"] == "validation").any()
    validation = sweep.split("validation") if has_validation else None
    folder = create_run_folder(config.log_folder, config.algo)
    _write_settings(folder, config, agent)
    with _monitor(folder, config) as monitor:
        agent.learn(train, validation, monitor)
    _write_results(folder, config, monitor, train, validation)
    agent.save(folder)
    if config.verbose:
        _print_result(folder, config, agent, monitor)


@contextmanager
def _monitor(folder: Path, config: TrainAgentConfig) -> Iterator[Monitor]:
    events = folder
    if config.tensorboard_log is not None:
        events = Path(config.tensorboard_log) / config.algo / folder.name
    console = Console(stderr=True)
    with Progress(console=console, disable=not config.progress) as progress:
        task = progress.add_task(config.algo, total=None)
        monitor = Monitor(
            events, lambda step, total: progress.update(task, completed=step, total=total)
        )
        try:
            yield monitor
        finally:
            monitor.close()


def _write_settings(folder: Path, config: TrainAgentConfig, agent: Agent[Any]) -> None:
    for name, values in (
        ("config.yml", to_dict(agent.hyperparams)),
        ("args.yml", dataclasses.asdict(config)),
    ):
        text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "command.txt").write_text(shlex.join(sys.argv) + "\n", encoding="utf-8")


def _write_results(
    folder: Path,
    config: TrainAgentConfig,
    monitor: Monitor,
    train: SweepTable,
    validation: SweepTable | None,
) -> None:
    sweep_folder = BUNDLED_SWEEP if config.sweep is None else Path(config.sweep)
    write_json(
        folder / "evaluations.json",
        {
            "result": monitor.result and monitor.result.to_dict(),
            "history": [{"step": step, **score.to_dict()} for step, score in monitor.history],
            "notes": monitor.notes,
        },
    )
    write_json(
        folder / "provenance.json",
        {
            **provenance(),
            "sweep": {
                "name": sweep_folder.name,
                "sha256": sha256_file(sweep_folder / "sweep.parquet"),
                "train_prompts": len(train),
                "validation_prompts": 0 if validation is None else len(validation),
            },
        },
    )


def _print_result(
    folder: Path, config: TrainAgentConfig, agent: Agent[Any], monitor: Monitor
) -> None:
    score = monitor.result
    assert score is not None
    table = Table(
        title=f"{config.algo}, seed {config.seed}: validation prompts",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in ("", "mean speedup", "regret", "gap closed"):
        table.add_column(column, justify="right" if column else "left")
    for name, reward, share in (
        (config.algo, score.reward, score.gap_closed),
        (f"best fixed size ({agent.problem.best_fixed})", score.best_fixed, 0.0),
        ("oracle", score.oracle, 1.0),
    ):
        table.add_row(name, f"{reward:.3f}×", f"{score.oracle - reward:.3f}", f"{share:.0%}")
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    console.print(f"saved: {folder}")
    console.print(f"next:  python scripts/export_policy.py {folder} --out DIR")
