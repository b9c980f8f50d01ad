"""Hyperparameter search with Optuna, as rl-baselines3-zoo does it, on the validation split."""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from blockpilot_rl.agents.hyperparameters import HYPERPARAMS_FOLDER, read_yaml, to_dict
from blockpilot_rl.agents.monitor import Monitor, Score
from blockpilot_rl.agents.registry import make_agent
from blockpilot_rl.errors import BlockPilotError
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
    """What a search found.

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

    Every trial is one training with the same seed, judged as training judges it. The test split is
    never looked at.

    Args:
        algorithm: A key of `ALGORITHMS`.
        train: Prompts to learn from.
        validation: Prompts to judge by; None as in `Agent.learn`.
        config: How to search.
        seed: Of the search and of every training.
        state_groups: State groups to read.
        fixed: Hyperparameters that are given and not searched.
        device: Where to train networks.
        on_trial: Called with the number of finished trials.

    Raises:
        BlockPilotError: If Optuna is missing, the algorithm has nothing to tune, or a given
            hyperparameter or the storage is invalid.
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
        agent.learn(train, validation, monitor)
        assert monitor.result is not None
        return monitor.result.reward

    study = _create_study(config, seed)
    study.optimize(
        objective,
        n_trials=config.n_trials,
        callbacks=[lambda study, trial: on_trial(len(study.trials))],
    )
    best = study.best_trial
    return Tuned(best.user_attrs["hyperparams"], study.best_value, study)


def search_space(algorithm: str) -> dict[str, dict[str, Any]]:
    """Read which hyperparameters to search, and where.

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
            # Optuna's choices are plain values, and some of ours are lists.
            words = [json.dumps(choice) for choice in spec["choices"]]
            values[name] = json.loads(trial.suggest_categorical(name, words))
        elif isinstance(spec["low"], int) and isinstance(spec["high"], int):
            values[name] = trial.suggest_int(name, **spec)
        else:
            values[name] = trial.suggest_float(name, **spec)
    return values


def _create_study(config: TuningConfig, seed: int) -> optuna.Study:
    library = _optuna()
    startup = config.n_startup_trials
    samplers = {
        "tpe": library.samplers.TPESampler(n_startup_trials=startup, seed=seed),
        "random": library.samplers.RandomSampler(seed=seed),
    }
    pruners = {
        "median": library.pruners.MedianPruner(n_startup_trials=startup),
        "halving": library.pruners.SuccessiveHalvingPruner(),
        "none": library.pruners.NopPruner(),
    }
    try:
        study: optuna.Study = library.create_study(
            study_name=config.study_name,
            storage=config.storage,
            sampler=samplers[config.sampler],
            pruner=pruners[config.pruner],
            direction="maximize",
            load_if_exists=True,
        )
    except Exception as error:
        # Databases raise errors of many libraries.
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
