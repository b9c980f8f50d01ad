"""Training of one agent, or a search for its hyperparameters, in a run folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blockpilot_rl.agents import (
    ALGORITHMS,
    Agent,
    Monitor,
    Score,
    Yardstick,
    load_agent,
    make_agent,
)
from blockpilot_rl.agents.hyperparameters import read_yaml, resolve_alias, to_dict
from blockpilot_rl.agents.tuning import Tuned, TuningConfig, search_space, tune
from blockpilot_rl.decoding.state import DEFAULT_GROUPS
from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.experiments.run_folder import (
    ARGUMENTS_FILE,
    CHECKPOINT_FOLDER,
    CONFIG_FILE,
    bundled_or,
    create_run_folder,
    is_unfinished,
    read_arguments,
    read_progress,
    read_provenance,
    remove_checkpoint,
    save_checkpoint,
    write_arguments,
    write_evaluations,
    write_provenance,
    write_yaml,
)
from blockpilot_rl.files import check_output, locked, remove_leftovers, writing
from blockpilot_rl.options import changed_options, check_options, option
from blockpilot_rl.progress import ProgressCallback, no_progress
from blockpilot_rl.provenance import sha256_file
from blockpilot_rl.sweeps.selection import (
    check_temperature,
    select_arms,
    select_temperature,
    state_groups_for,
)
from blockpilot_rl.sweeps.table import Sweep

Trainable = Agent[Any] | Yardstick


@dataclass(frozen=True)
class TrainAgentConfig:
    """How to train one agent.

    Raises:
        BlockPilotError: If a value is not allowed, or contradicts the agent to continue from.
    """

    algo: str = option("ppo", help=f"algorithm: {', '.join(ALGORITHMS)}")
    n_timesteps: int | None = option(
        None,
        aliases=["-n"],
        metavar="N",
        minimum=1,
        help="decisions to learn from (default: the algorithm's)",
    )
    log_folder: str = option("logs", aliases=["-f"], metavar="DIR", help="parent of run folders")
    seed: int = option(0, help="random seed")
    hyperparams: dict[str, Any] = option(
        default_factory=dict,
        aliases=["-params"],
        help="hyperparameters to replace, such as learning_rate:0.001",
    )
    tensorboard_log: str | None = option(
        None,
        aliases=["-tb"],
        metavar="DIR",
        help="folder of TensorBoard events (default: the run folder)",
    )
    state_groups: tuple[str, ...] = option(
        DEFAULT_GROUPS,
        renamed_from="features",
        metavar="A,B",
        help="state groups to read, in order",
    )
    arms: tuple[int, ...] | None = option(
        None,
        metavar="1,B,…",
        help="block sizes to choose from, 1 (plain decoding) first (default: all recorded)",
    )
    window: int | None = option(
        None,
        metavar="K",
        help="choose among plain decoding and the recorded block sizes within K of the drafter's "
        "training size, as the paper does, instead of arms",
    )
    temperature: float | str | None = option(
        None, metavar="T", help="use the rows of one sampling temperature, or all"
    )
    trained_agent: str | None = option(
        None,
        aliases=["-i"],
        metavar="RUN",
        help="run folder to continue: a finished run is trained for n_timesteps further steps in "
        "a new folder, with its settings; an unfinished run is finished in its own folder",
    )
    device: str = option("cpu", help="where to train networks")
    eval_freq: int | None = option(
        None,
        metavar="N",
        help="decisions between evaluations on the validation prompts (default: the algorithm's)",
    )
    save_freq: int | None = option(
        None,
        metavar="N",
        help="steps between checkpoints, from which an interrupted run is finished with -i; -1 "
        "saves none (default: at every tenth evaluation)",
    )

    def __post_init__(self) -> None:
        """Check the values."""
        check_options(self)
        check_temperature(self.temperature)
        if self.save_freq is not None and self.save_freq != -1 and self.save_freq < 1:
            raise BlockPilotError(f"save_freq must be at least 1, or -1, got {self.save_freq}")
        if self.trained_agent is not None:
            self._refuse(_SETTINGS_OF_A_RUN, "a continued run keeps its settings")

    def _refuse(self, names: tuple[str, ...], why: str) -> None:
        """Refuse options that would have no effect."""
        changed = changed_options(self)
        for name in names:
            if name in changed:
                raise BlockPilotError(f"{name} cannot be given: {why}; leave it out")

    def all_hyperparams(self) -> dict[str, Any]:
        """The hyperparameters to replace, options of their own included."""
        options = {"n_timesteps": self.n_timesteps, "eval_freq": self.eval_freq}
        given = {name: value for name, value in options.items() if value is not None}
        return {**self.hyperparams, **given}


_SETTINGS_OF_A_RUN = ("seed", "hyperparams", "state_groups", "arms", "window", "eval_freq")
_SETTINGS_OF_AN_UNFINISHED_RUN = (
    "n_timesteps",
    "log_folder",
    "tensorboard_log",
    "temperature",
    "save_freq",
)


@dataclass(frozen=True)
class TrainedRun:
    """A finished training.

    Attributes:
        folder: The run folder.
        agent: The trained agent.
        score: Its score on the validation prompts.
        notes: Remarks that a reader of the results must know.
        selection_note: Which rows of the sweep were used by default, if none were selected.
    """

    folder: Path
    agent: Trainable
    score: Score
    notes: list[str]
    selection_note: str | None = None


@dataclass(frozen=True)
class TunedRun:
    """A finished hyperparameter search.

    Attributes:
        folder: The run folder.
        tuned: The best hyperparameters and the study.
    """

    folder: Path
    tuned: Tuned


def train_agent(
    sweep: Sweep | str | Path | None = None,
    config: TrainAgentConfig | None = None,
    *,
    progress: ProgressCallback | None = None,
) -> TrainedRun:
    """Train one agent on the training prompts of a recorded sweep.

    The run folder `LOG_FOLDER/ALGO/BlockSize-v0_N` holds the model, its settings, its scores on the
    validation prompts and TensorBoard events. While training, it holds a checkpoint, from which an
    interrupted run is finished by naming its folder as `trained_agent`; it then ends as if it had
    never been interrupted.

    Args:
        sweep: The sweep or its folder; None for the one of the run that is continued, or the
            bundled one.
        config: What to train and how.
        progress: Called with the algorithm, the steps done and the steps planned.

    Returns:
        The agent, its score and its run folder, which `export_policy` takes.

    Raises:
        BlockPilotError: If an option, the sweep or a hyperparameter is invalid, a file cannot be
            written, or training diverges before the first evaluation.
    """
    config = config or TrainAgentConfig()
    unfinished = config.trained_agent is not None and is_unfinished(Path(config.trained_agent))
    if unfinished:
        return _finish(sweep, config, progress or no_progress)
    agent, sweep, config = _prepare(sweep, config)
    rows = _select(sweep, config, agent)
    if config.tensorboard_log is not None:
        check_output(Path(config.tensorboard_log) / config.algo / "events")
    folder = create_run_folder(config.log_folder, config.algo)
    with locked(folder):
        write_yaml(folder / CONFIG_FILE, to_dict(agent.hyperparams))
        write_provenance(folder, rows.folder, rows.train, rows.validation)
        write_arguments(folder, _arguments(sweep, config))
        return _train(folder, agent, rows, config, progress or no_progress)


def tune_agent(
    sweep: Sweep | str | Path | None,
    config: TrainAgentConfig,
    tuning: TuningConfig,
    *,
    progress: ProgressCallback | None = None,
) -> TunedRun:
    """Search the hyperparameters of an agent with Optuna on the validation prompts.

    Args:
        sweep: The sweep or its folder; None for the bundled one.
        config: What to train; its hyperparameters are not searched.
        tuning: How to search.
        progress: Called with the number of finished trials.

    Raises:
        BlockPilotError: If an option, the sweep, a hyperparameter or the study is invalid.
    """
    report = progress or no_progress
    agent, sweep, config = _prepare(sweep, config)
    rows = _select(sweep, config, agent)
    search_space(config.algo)
    check_output(Path(config.log_folder) / config.algo / "optimize")
    tuned = tune(
        config.algo,
        rows.train,
        rows.validation,
        tuning,
        seed=config.seed,
        state_groups=config.state_groups,
        fixed=config.all_hyperparams(),
        device=config.device,
        on_trial=lambda done: report(f"{config.algo}: trials", done, tuning.n_trials),
    )
    folder = create_run_folder(config.log_folder, config.algo, "optimize")
    write_arguments(folder, {**_arguments(sweep, config), **dataclasses.asdict(tuning)})
    tuned.save(folder)
    return TunedRun(folder, tuned)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of a sweep to learn from and to select on.

    Attributes:
        folder: Folder of the sweep; None if it is in memory only.
        train: Training rows.
        validation: Validation rows, if there are any.
        note: Which rows were used by default, if none were selected.
    """

    folder: Path | None
    train: Sweep
    validation: Sweep | None
    note: str | None = field(default=None)


def _prepare(
    sweep: Sweep | str | Path | None, config: TrainAgentConfig
) -> tuple[Trainable, Sweep | str | Path | None, TrainAgentConfig]:
    """Create the agent, or load the one to continue with the sweep and temperature of its run."""
    if config.trained_agent is None:
        groups = state_groups_for(config.state_groups, config.temperature)
        config = dataclasses.replace(config, state_groups=groups)
        agent: Trainable = make_agent(
            config.algo,
            seed=config.seed,
            state_groups=config.state_groups,
            hyperparams=config.all_hyperparams(),
            device=config.device,
        )
        return agent, sweep, config
    run = Path(config.trained_agent)
    agent = load_agent(run, config.device)
    if agent.algorithm != config.algo and config.algo != "reward-regression":
        raise BlockPilotError(
            f"{run} holds a {agent.algorithm}, not a {config.algo}; give --algo {agent.algorithm}"
        )
    saved = read_arguments(run)
    if config.temperature is None:
        config = dataclasses.replace(config, temperature=saved.get("temperature"))
    return agent, _sweep_of(run, saved) if sweep is None else sweep, config


def _sweep_of(run: Path, saved: Mapping[str, Any]) -> str | None:
    """Folder of the sweep that a run was trained on; None for the bundled one."""
    sweep: str | None = saved.get("sweep")
    origin = read_provenance(run).get("sweep", {})
    if sweep is None and origin and origin.get("name") is None:
        raise BlockPilotError(f"{run} was trained on a sweep in memory; give that sweep")
    return sweep


def _select(sweep: Sweep | str | Path | None, config: TrainAgentConfig, agent: Trainable) -> _Rows:
    folder = None if isinstance(sweep, Sweep) else bundled_or(sweep)
    table = sweep if isinstance(sweep, Sweep) else Sweep.load(sweep)
    table, note = select_temperature(table, config.temperature)
    if config.trained_agent is None:
        table = select_arms(table, config.arms, config.window)
    else:
        table = table.select_arms(agent.problem.arms)
    table = table.with_groups(agent.state_groups)
    has_validation = (table.rows["split"] == "validation").any()
    validation = table.split("validation") if has_validation else None
    return _Rows(folder, table.split("train"), validation, note)


def _train(
    folder: Path,
    agent: Trainable,
    rows: _Rows,
    config: TrainAgentConfig,
    progress: ProgressCallback,
    *,
    from_checkpoint: bool = False,
) -> TrainedRun:
    """Train an agent in its run folder and write the results."""
    with writing(folder), _monitor(folder, agent, config, progress) as monitor:
        steps = config.n_timesteps if config.trained_agent is not None else None
        if from_checkpoint:
            steps = read_progress(folder, monitor) - agent.num_timesteps
        agent.learn(
            rows.train,
            rows.validation,
            monitor,
            total_timesteps=steps,
            reset_num_timesteps=config.trained_agent is None and not from_checkpoint,
        )
    write_evaluations(folder, monitor)
    agent.save(folder)
    remove_checkpoint(folder)
    assert monitor.result is not None
    return TrainedRun(folder, agent, monitor.result, monitor.notes, rows.note)


def _finish(
    sweep: Sweep | str | Path | None, config: TrainAgentConfig, progress: ProgressCallback
) -> TrainedRun:
    """Finish a run whose training was interrupted, in its own folder."""
    assert config.trained_agent is not None
    folder = Path(config.trained_agent)
    config._refuse(_SETTINGS_OF_AN_UNFINISHED_RUN, f"{folder} is unfinished and keeps its settings")
    own = _read_config(folder)
    if config.algo not in (own.algo, resolve_alias(own.algo, own.hyperparams)[0]):
        raise BlockPilotError(
            f"{folder} holds a {own.algo}, not a {config.algo}; give --algo {own.algo}"
        )
    own = dataclasses.replace(own, device=config.device)
    with locked(folder):
        remove_leftovers([folder / CHECKPOINT_FOLDER, folder / "model"])
        if sweep is None:
            sweep = _sweep_of(folder, read_arguments(folder))
        agent, sweep, own = _prepare(sweep, own)
        checkpoint = folder / CHECKPOINT_FOLDER
        from_checkpoint = checkpoint.is_dir()
        if from_checkpoint:
            agent = load_agent(checkpoint, own.device)
        rows = _select(sweep, own, agent)
        _check_same_sweep(folder, rows.folder)
        return _train(folder, agent, rows, own, progress, from_checkpoint=from_checkpoint)


def _check_same_sweep(folder: Path, sweep: Path | None) -> None:
    """Refuse to finish a run on other data than it was started on."""
    begun_on = read_provenance(folder).get("sweep", {}).get("sha256")
    if begun_on is None or sweep is None:
        return
    if sha256_file(sweep / "sweep.parquet") != begun_on:
        raise BlockPilotError(
            f"{folder} was started on another sweep than {sweep} holds now; restore that sweep, "
            "or train the agent again"
        )


@contextmanager
def _monitor(
    folder: Path, agent: Trainable, config: TrainAgentConfig, progress: ProgressCallback
) -> Iterator[Monitor]:
    events = folder
    if config.tensorboard_log is not None:
        events = Path(config.tensorboard_log) / config.algo / folder.name
    save_freq = config.save_freq
    if save_freq is None and isinstance(agent, Agent):
        save_freq = agent.default_save_freq
    monitor = Monitor(
        events,
        lambda step, total: progress(config.algo, step, total),
        on_checkpoint=lambda agent, until: save_checkpoint(folder, agent, monitor, until),
        save_freq=None if save_freq == -1 else save_freq,
    )
    try:
        yield monitor
    finally:
        monitor.close()


def _arguments(sweep: Sweep | str | Path | None, config: TrainAgentConfig) -> dict[str, Any]:
    """Render a config for `args.yml`, which `blockpilot train-agent --config` reads."""
    values = dataclasses.asdict(config)
    values["sweep"] = str(sweep) if isinstance(sweep, str | Path) else None
    return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


def _read_config(folder: Path) -> TrainAgentConfig:
    """Read the config of an unfinished run.

    Raises:
        BlockPilotError: If a file is missing or corrupt.
    """
    saved = read_arguments(folder)
    names = {field.name for field in dataclasses.fields(TrainAgentConfig)}
    kept = {name: value for name, value in saved.items() if name in names}
    if saved.get("trained_agent") is None:
        # These are the complete hyperparameters, those with options of their own included.
        hyperparams = read_yaml(folder / CONFIG_FILE)
        if saved.get("algo") == "reward-regression":
            hyperparams["model"] = "ridge" if "folds" in hyperparams else "mlp"
        kept |= {"hyperparams": hyperparams, "n_timesteps": None, "eval_freq": None}
    if "features" in saved:
        # Release 0.1 wrote lists as text with commas.
        arms = saved.get("arms")
        kept["state_groups"] = str(saved["features"]).split(",")
        kept["arms"] = None if arms is None else [int(arm) for arm in str(arms).split(",")]
        kept["hyperparams"] = kept["hyperparams"] or {}
    for name in ("state_groups", "arms"):
        if isinstance(kept.get(name), list):
            kept[name] = tuple(kept[name])
    try:
        return TrainAgentConfig(**kept)
    except (TypeError, ValueError) as error:
        raise BlockPilotError(
            f"{folder / ARGUMENTS_FILE} is corrupt ({one_line(error)}); train the agent again"
        ) from error
