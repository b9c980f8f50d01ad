"""Hyperparameter search with Optuna, as rl-baselines3-zoo does it, on the validation split."""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from blockpilot_rl.agents.hyperparameters import HYPERPARAMS_FOLDER, read_yaml, to_dict
from blockpilot_rl.agents.monitor import Monitor, Score
from blockpilot_rl.agents.registry import make_agent
from blockpilot_rl.agents.training_loop import DivergedError
from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.files import atomic_write
from blockpilot_rl.options import check_options, option
from blockpilot_rl.sweeps.table import Sweep

if TYPE_CHECKING:
    import optuna

SEARCH_FOLDER = HYPERPARAMS_FOLDER / "search"
SAMPLERS = ("tpe", "random")
PRUNERS = ("median", "halving", "none")


@dataclass(frozen=True)
class TuningConfig:
    """How to search.

    Raises:
        BlockPilotError: If a value is not allowed.
    """

    n_trials: int = option(50, minimum=1, help="search: number of trials")
    sampler: str = option("tpe", choices=SAMPLERS, help="search: how hyperparameters are drawn")
    pruner: str = option("median", choices=PRUNERS, help="search: how trials are stopped early")
    n_startup_trials: int = option(
        10, minimum=0, metavar="N", help="search: random trials, without pruning, at the start"
    )
    study_name: str | None = option(None, metavar="NAME", help="search: name of the study")
    storage: str | None = option(
        None, metavar="URL", help="search: database of the study, from which it can be resumed"
    )

    def __post_init__(self) -> None:
        """Check the values."""
        check_options(self)


@dataclass(frozen=True)
class Tuned:
    """The result of a search.

    Attributes:
        hyperparams: The best complete hyperparameters.
        reward: Their mean speedup on the validation split.
        study: The Optuna study.
    """

    hyperparams: dict[str, Any]
    reward: float
    study: optuna.Study

    def save(self, folder: Path) -> None:
        """Write `best.yml`, which `--conf-file` takes, and `trials.csv`."""
        with atomic_write(folder / "trials.csv") as partial:
            self.study.trials_dataframe().to_csv(partial, index=False)
        with atomic_write(folder / "best.yml") as partial:
            partial.write_text(yaml.safe_dump(self.hyperparams, sort_keys=False), encoding="utf-8")


def tune(
    algorithm: str,
    train: Sweep,
    validation: Sweep | None,
    config: TuningConfig,
    *,
    seed: int,
    state_groups: Sequence[str],
    fixed: Mapping[str, Any],
    device: str = "cpu",
    on_trial: Callable[[int], None] = lambda done: None,
) -> Tuned:
    """Search the hyperparameters with the highest mean speedup on the validation split.

    Every trial is one training with the same seed and is scored as training scores it. The test
    split is not used. A trial whose training diverges fails, and the search continues. A study in a
    database can be resumed: resumed trials equal those of one long search.

    Args:
        algorithm: A key of `ALGORITHMS`.
        train: Prompts to learn from.
        validation: Prompts to score on; None as in `Agent.learn`.
        config: How to search.
        seed: Random seed of the search and of every training.
        state_groups: State groups to read.
        fixed: Hyperparameters that are given, which are not searched.
        device: Where to train networks.
        on_trial: Called with the number of finished trials of this call.

    Raises:
        BlockPilotError: If Optuna is missing, the algorithm has nothing to tune, a given
            hyperparameter or the storage is invalid, the study is of something else, or every
            trial fails.
    """
    library = _optuna()
    library.logging.set_verbosity(logging.getLogger("blockpilot_rl").getEffectiveLevel())
    space = {name: spec for name, spec in search_space(algorithm).items() if name not in fixed}
    if not space:
        raise BlockPilotError(f"every hyperparameter of {algorithm} to search is given already")
    make_agent(algorithm, seed=seed, state_groups=state_groups, hyperparams=fixed, device=device)

    def objective(trial: optuna.Trial) -> float:
        def report(step: int, score: Score) -> None:
            trial.report(score.reward, step)
            if trial.should_prune():
                raise library.TrialPruned

        study.sampler = _sampler(config, seed, trial.number)
        hyperparams = {**_suggest(trial, space), **fixed}
        agent = make_agent(
            algorithm,
            seed=seed,
            state_groups=state_groups,
            hyperparams=hyperparams,
            device=device,
        )
        trial.set_user_attr("hyperparams", {**hyperparams, **to_dict(agent.hyperparams)})
        monitor = Monitor(on_score=report)
        try:
            agent.learn(train, validation, monitor)
        except DivergedError:
            return math.nan
        assert monitor.result is not None
        # Optuna counts a trial without a number as failed.
        return math.nan if agent.diverged else monitor.result.reward

    study = _create_study(config)
    subject = {
        "algorithm": algorithm,
        "seed": seed,
        "state_groups": list(state_groups),
        "fixed": dict(fixed),
        "arms": list(train.arms),
        "data": _digest(train, validation),
    }
    with _storage_errors(config):
        _check_subject(study, subject, config)
        earlier = len(study.trials)
        study.optimize(
            objective,
            n_trials=config.n_trials,
            callbacks=[lambda study, trial: on_trial(len(study.trials) - earlier)],
        )
    if not any(trial.state.name == "COMPLETE" for trial in study.trials):
        raise BlockPilotError(
            f"no trial of {algorithm} ended with a score: training diverged in all of them; give "
            "a lower learning_rate, or leave it to the search"
        )
    best = study.best_trial
    return Tuned(best.user_attrs["hyperparams"], study.best_value, study)


def search_space(algorithm: str) -> dict[str, dict[str, Any]]:
    """Read which hyperparameters to search, and their ranges.

    Returns:
        For each hyperparameter `low` and `high`, with `log` for a logarithmic scale, or `choices`.

    Raises:
        BlockPilotError: If the algorithm has nothing to tune.
    """
    path = SEARCH_FOLDER / f"{algorithm}.yml"
    if not path.is_file():
        raise BlockPilotError(f"{algorithm} has no hyperparameters to optimize")
    return read_yaml(path)


def _suggest(trial: optuna.Trial, space: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    values = {}
    for name, spec in space.items():
        if "choices" in spec:
            # Optuna's choices are plain values; some of these are lists.
            words = [json.dumps(choice) for choice in spec["choices"]]
            values[name] = json.loads(trial.suggest_categorical(name, words))
        elif isinstance(spec["low"], int) and isinstance(spec["high"], int):
            values[name] = trial.suggest_int(name, **spec)
        else:
            values[name] = trial.suggest_float(name, **spec)
    return values


def _sampler(config: TuningConfig, seed: int, trial: int) -> optuna.samplers.BaseSampler:
    """Create the sampler of one trial, so that a resumed study does not repeat its draws."""
    library = _optuna()
    own_seed = int(np.random.SeedSequence([seed, trial]).generate_state(1)[0])
    sampler: optuna.samplers.BaseSampler
    if config.sampler == "tpe":
        startup = config.n_startup_trials
        sampler = library.samplers.TPESampler(n_startup_trials=startup, seed=own_seed)
    else:
        sampler = library.samplers.RandomSampler(seed=own_seed)
    return sampler


def _digest(train: Sweep, validation: Sweep | None) -> str:
    """Digest of the rows that a search learns from and selects on."""
    digest = hashlib.sha256()
    for table in (train, validation):
        if table is not None:
            digest.update("\n".join(table.rows["id"].astype(str)).encode())
            for array in (table.temperatures, table.seconds, table.states):
                digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def _check_subject(study: optuna.Study, subject: dict[str, Any], config: TuningConfig) -> None:
    """Record what a new study searches; refuse to resume a study of something else.

    Raises:
        BlockPilotError: If the study is of another algorithm, seed, sweep and so on.
    """
    if not study.trials and _SUBJECT not in study.user_attrs:
        study.set_user_attr(_SUBJECT, subject)
        return
    # Through JSON, as databases keep it.
    expected, found = json.loads(json.dumps(subject)), study.user_attrs.get(_SUBJECT)
    if found == expected:
        return
    where = f"the study {study.study_name!r} in --storage {config.storage}"
    if not isinstance(found, dict):
        raise BlockPilotError(
            f"{where} does not record what it searches; name another --study-name"
        )
    name = next(key for key in expected if found.get(key) != expected[key])
    raise BlockPilotError(
        f"{where} is of {name} {found.get(name)}, not {expected[name]}; name another --study-name"
    )


_SUBJECT = "blockpilot"


@contextmanager
def _storage_errors(config: TuningConfig) -> Iterator[None]:
    """Turn errors of the database, such as a full disk or another process's lock, into one line."""
    try:
        yield
    except Exception as error:
        # Optuna raises an AssertionError if a trial's end cannot be stored.
        failure = error.__context__ if isinstance(error, AssertionError) else error
        if not isinstance(failure, _optuna().exceptions.StorageInternalError):
            raise
        # The error of the database itself, without the SQL that SQLAlchemy adds.
        cause = getattr(failure.__cause__, "orig", None) or failure.__cause__ or failure
        raise BlockPilotError(
            f"the study cannot be kept in --storage {config.storage} ({one_line(cause)}); "
            "finished trials are kept; free some space or wait for other processes, and run the "
            "same command again"
        ) from error


def _create_study(config: TuningConfig) -> optuna.Study:
    library = _optuna()
    startup = config.n_startup_trials
    pruners = {
        "median": library.pruners.MedianPruner(n_startup_trials=startup),
        "halving": library.pruners.SuccessiveHalvingPruner(),
        "none": library.pruners.NopPruner(),
    }
    try:
        study: optuna.Study = library.create_study(
            study_name=config.study_name,
            storage=config.storage,
            pruner=pruners[config.pruner],
            direction="maximize",
            load_if_exists=True,
        )
    except Exception as error:
        # Each database raises the errors of its library.
        if config.storage is None:
            raise
        raise BlockPilotError(
            f"the study cannot be kept in --storage {config.storage} ({type(error).__name__}); "
            "give a URL such as sqlite:///study.db"
        ) from error
    return study


def _optuna() -> Any:
    try:
        return importlib.import_module("optuna")
    except ModuleNotFoundError:
        raise BlockPilotError(
            "optimizing hyperparameters needs Optuna: pip install 'blockpilot-rl[optuna]'"
        ) from None
