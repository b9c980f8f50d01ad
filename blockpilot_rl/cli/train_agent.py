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

from blockpilot_rl.agents import ALGORITHMS, Agent, Monitor, Yardstick, load_agent, make_agent
from blockpilot_rl.agents.hyperparameters import read_yaml, to_dict
from blockpilot_rl.agents.runs import create_run_folder
from blockpilot_rl.agents.tuning import PRUNERS, SAMPLERS, Tuned, TuningConfig, tune
from blockpilot_rl.cli.arms import select_arms
from blockpilot_rl.cli.lists import assignments, words
from blockpilot_rl.cli.parsing import arg, run
from blockpilot_rl.cli.temperature import check_temperature, select_temperature, temperature_arg
from blockpilot_rl.decoding.state import DEFAULT_GROUPS
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import check_output, write_json
from blockpilot_rl.provenance import provenance, sha256_file
from blockpilot_rl.sweeps.table import BUNDLED_SWEEP, Sweep

_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO)
_OF_THE_TRAINED_AGENT = (
    "seed",
    "hyperparams",
    "conf_file",
    "features",
    "arms",
    "window",
    "eval_freq",
    "optimize_hyperparameters",
)


@dataclass(frozen=True)
class TrainAgentConfig:
    """Train one agent to choose block sizes, on the training prompts of a recorded sweep.

    Leaves a run folder LOG_FOLDER/ALGO/BlockSize-v0_N with the model, its settings, the scores on
    the validation prompts and TensorBoard events. With -optimize it searches hyperparameters
    instead and leaves the best as YAML in LOG_FOLDER/ALGO/optimize_N.
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
    window: int | None = arg(
        None,
        metavar="K",
        help="choose among plain decoding and the recorded block sizes within K of the drafter's "
        "training size, as the paper does, instead of --arms",
    )
    temperature: str | None = temperature_arg()
    trained_agent: str | None = arg(
        None,
        aliases=["-i"],
        metavar="RUN",
        help="run folder of an agent to go on with, by --n-timesteps further steps; the new run "
        "has its settings",
    )
    optimize_hyperparameters: bool = arg(
        False, aliases=["-optimize"], help="search hyperparameters with Optuna, train nothing else"
    )
    n_trials: int = arg(50, metavar="N", help="-optimize: settings to try")
    sampler: str = arg("tpe", choices=SAMPLERS, help="-optimize: how settings are drawn")
    pruner: str = arg("median", choices=PRUNERS, help="-optimize: how trials are ended early")
    n_startup_trials: int = arg(
        10, metavar="N", help="-optimize: trials by chance before the search begins"
    )
    study_name: str | None = arg(None, metavar="NAME", help="-optimize: name in the storage")
    storage: str | None = arg(
        None, metavar="URL", help="-optimize: database to keep the study in and go on with it"
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
        self.tuning()
        check_temperature(self.temperature)
        if self.trained_agent is None:
            return
        for name in _OF_THE_TRAINED_AGENT:
            if getattr(self, name) != type(self).default_of(name):
                raise BlockPilotError(
                    f"--trained-agent goes on with the settings of its run; leave out "
                    f"--{name.replace('_', '-')}"
                )

    @classmethod
    def default_of(cls, name: str) -> Any:
        """Default of a field."""
        field = next(field for field in dataclasses.fields(cls) if field.name == name)
        if field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
        return field.default

    def tuning(self) -> TuningConfig:
        """How hyperparameters are searched."""
        return TuningConfig(
            n_trials=self.n_trials,
            sampler=self.sampler,
            pruner=self.pruner,
            n_startup_trials=self.n_startup_trials,
            study_name=self.study_name,
            storage=self.storage,
        )

    def overrides(self) -> dict[str, Any]:
        """Hyperparameters given in the file, then as pairs, then by flags of their own."""
        values = {} if self.conf_file is None else read_yaml(Path(self.conf_file))
        values.update(assignments(self.hyperparams, "--hyperparams"))
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
    """Train, or search hyperparameters, write the folder and print the result.

    Raises:
        BlockPilotError: If an argument, the sweep or a hyperparameter is not as needed.
    """
    logging.basicConfig(format="%(message)s")
    logging.getLogger("blockpilot_rl").setLevel(_LEVELS[config.verbose])
    agent, config = _make_agent(config)
    sweep, remark = select_temperature(Sweep.load(config.sweep), config.temperature)
    if config.trained_agent is None:
        sweep = select_arms(sweep, config.arms, config.window)
    else:
        sweep = sweep.select_arms(agent.problem.arms)
    sweep.metadata.state.columns(agent.state_groups)
    train = sweep.split("train")
    has_validation = (sweep.rows["split"] == "validation").any()
    validation = sweep.split("validation") if has_validation else None
    if config.verbose and remark is not None:
        Console(highlight=False, soft_wrap=True).print(f"Note: {remark}.")
    if config.optimize_hyperparameters:
        _optimize(config, train, validation)
        return
    if config.tensorboard_log is not None:
        check_output(Path(config.tensorboard_log) / config.algo / "events")
    folder = create_run_folder(config.log_folder, config.algo)
    _write_settings(folder, config, agent)
    with _monitor(folder, config) as monitor:
        agent.learn(
            train,
            validation,
            monitor,
            total_timesteps=config.n_timesteps if config.trained_agent else None,
            reset_num_timesteps=config.trained_agent is None,
        )
    _write_results(folder, config.sweep, monitor, train, validation)
    agent.save(folder)
    if config.verbose:
        _print_result(folder, config, agent, monitor)


def _make_agent(config: TrainAgentConfig) -> tuple[Agent[Any] | Yardstick, TrainAgentConfig]:
    """Make the agent, or load the one to go on with, on the rows of its sweep if none are named."""
    if config.trained_agent is None:
        agent = make_agent(
            config.algo,
            seed=config.seed,
            state_groups=words(config.features),
            hyperparams=config.overrides(),
            device=config.device,
        )
        return agent, config
    run = Path(config.trained_agent)
    agent = load_agent(run, config.device)
    if agent.algorithm != config.algo and config.algo != "reward-regression":
        raise BlockPilotError(
            f"{run} holds a {agent.algorithm}, not a {config.algo}; give --algo {agent.algorithm}"
        )
    file = run / "args.yml"
    saved = read_yaml(file) if file.exists() else {}
    named: dict[str, Any] = {
        name: saved.get(name) for name in ("sweep", "temperature") if getattr(config, name) is None
    }
    return agent, dataclasses.replace(config, **named)


def _optimize(config: TrainAgentConfig, train: Sweep, validation: Sweep | None) -> None:
    """Search hyperparameters, write what was found and print the best."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not config.progress) as progress:
        task = progress.add_task(f"{config.algo}: trials", total=config.n_trials)
        tuned = tune(
            config.algo,
            train,
            validation,
            config.tuning(),
            seed=config.seed,
            state_groups=words(config.features),
            fixed=config.overrides(),
            device=config.device,
            on_trial=lambda done: progress.update(task, completed=done),
        )
    folder = create_run_folder(config.log_folder, config.algo, "optimize")
    _write_command(folder, config)
    tuned.save(folder)
    if config.verbose:
        _print_tuned(folder, config, tuned)


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


def _write_settings(folder: Path, config: TrainAgentConfig, agent: Agent[Any] | Yardstick) -> None:
    _write_yaml(folder / "config.yml", to_dict(agent.hyperparams))
    _write_command(folder, config)


def _write_command(folder: Path, config: TrainAgentConfig) -> None:
    _write_yaml(folder / "args.yml", dataclasses.asdict(config))
    (folder / "command.txt").write_text(shlex.join(sys.argv) + "\n", encoding="utf-8")


def _write_yaml(path: Path, values: dict[str, Any]) -> None:
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    path.write_text(text, encoding="utf-8")


def _write_results(
    folder: Path,
    sweep_folder: str | None,
    monitor: Monitor,
    train: Sweep,
    validation: Sweep | None,
) -> None:
    sweep = BUNDLED_SWEEP if sweep_folder is None else Path(sweep_folder)
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
                "name": sweep.name,
                "sha256": sha256_file(sweep / "sweep.parquet"),
                "temperatures": sorted(set(train.temperatures.tolist())),
                "train_prompts": _prompts(train),
                "validation_prompts": 0 if validation is None else _prompts(validation),
            },
        },
    )


def _prompts(table: Sweep) -> int:
    return int(table.rows["id"].nunique())


def _print_result(
    folder: Path, config: TrainAgentConfig, agent: Agent[Any] | Yardstick, monitor: Monitor
) -> None:
    score = monitor.result
    assert score is not None
    table = Table(
        title=f"{config.algo}, seed {agent.seed}: validation prompts",
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


def _print_tuned(folder: Path, config: TrainAgentConfig, tuned: Tuned) -> None:
    trials = tuned.study.trials
    pruned = sum(trial.state.name == "PRUNED" for trial in trials)
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{config.algo}: mean speedup {tuned.reward:.3f}× on the validation prompts, the best of "
        f"{len(trials)} trials ({pruned} ended early)"
    )
    for name in tuned.study.best_params:
        console.print(f"  {name}: {tuned.hyperparams[name]}")
    console.print(f"saved: {folder}")
    console.print(
        f"next:  python scripts/train_agent.py --algo {config.algo} --conf-file "
        f"{folder / 'best.yml'}"
    )
