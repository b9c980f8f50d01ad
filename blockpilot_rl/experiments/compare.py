"""The comparison workflow: train agents on a sweep and judge them on its test prompts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from blockpilot_rl.agents import AGENTS
from blockpilot_rl.agents.base import MAX_SEED
from blockpilot_rl.agents.hyperparameters import to_dict
from blockpilot_rl.decoding.state import DEFAULT_GROUPS
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.leakage import refuse_overlap
from blockpilot_rl.evaluation.pooling import FAMILY_RISK
from blockpilot_rl.evaluation.results import Comparison
from blockpilot_rl.experiments.ablation import ablate
from blockpilot_rl.experiments.curves import (
    budget_curves,
    learning_curve,
    source_curve,
    unseen_rows,
)
from blockpilot_rl.experiments.folds import family_folds, leave_families_out
from blockpilot_rl.experiments.judging import judge_agents, make_judge
from blockpilot_rl.experiments.paper_table import CLASSIFIER, paper_tables
from blockpilot_rl.experiments.portability import (
    ACCEPTANCE,
    DEFAULT_PRICES,
    check_prices,
    measure_portability,
    parse_prices,
)
from blockpilot_rl.experiments.processes import process_map
from blockpilot_rl.experiments.seeds import Splits, TrainedSeeds, Trainer
from blockpilot_rl.options import changed_options, check_options, option
from blockpilot_rl.progress import ProgressCallback, no_progress
from blockpilot_rl.provenance import provenance, usable_cpus
from blockpilot_rl.sweeps.selection import (
    check_temperature,
    select_arms,
    select_temperature,
    state_groups_for,
    temperature_option,
)
from blockpilot_rl.sweeps.table import Sweep

YARDSTICKS = ("fixed", "random", "oracle")
REGRESSION = "reward-regression"
"""The ridge regression; with the hyperparameter `model: mlp`, the network regression."""

LEARNERS = (*(name for name in AGENTS if name not in YARDSTICKS), REGRESSION)
ALL = tuple(
    REGRESSION if name == "ridge-regression" else name
    for name in LEARNERS
    if name not in ("network-regression", REGRESSION)
)
"""The algorithms that `all` stands for; the regression appears once, under its general name."""

View = Callable[[Comparison], dict[str, Any]]
"""Takes the comparison so far and returns further fields of it."""


@dataclass(frozen=True)
class CompareConfig:
    """How agents are trained and compared."""

    algos: tuple[str, ...] = option(
        ("ppo", "supervised", REGRESSION),
        metavar="A,B",
        choices=("all", *LEARNERS, *YARDSTICKS),
        help="agents to train, or all of them; fixed, random and oracle are always shown",
    )
    seeds: int = option(10, minimum=1, help="number of seeds to train every agent with")
    seed: int = option(0, minimum=0, help="first seed, and seed of the bootstrap")
    state_groups: tuple[str, ...] = option(
        DEFAULT_GROUPS,
        renamed_from="features",
        metavar="A,B",
        help="state groups that the agents see",
    )
    arms: tuple[int, ...] | None = option(
        None,
        metavar="1,B,…",
        help="block sizes to choose from, 1 (plain decoding) first (default: all recorded ones)",
    )
    window: int | None = option(
        None,
        minimum=0,
        metavar="K",
        help="choose among plain decoding and the block sizes within K of the drafter's own, as "
        "the paper does, instead of --arms",
    )
    temperature: float | Literal["all"] | None = temperature_option()
    confidence: float = option(0.95, above=0, below=1, help="level of the intervals")
    family_margin: float = option(
        0.01,
        minimum=0,
        below=math.inf,
        help="loss in a single family, as a fraction, beyond which no agent is shipped",
    )
    family_risk: float = option(
        FAMILY_RISK,
        above=0,
        below=1,
        help="probability of such a loss, all families estimated together, above which no agent is "
        "shipped",
    )
    shuffle_states: bool = option(
        False,
        help="control: train the agents on shuffled states, so that the verdict must be a fixed "
        "size",
    )
    leave_family_out: bool = option(
        False, help="also judge each family by agents that were trained without it"
    )
    learning_curve: bool = option(
        False, help="also train on fewer prompts, to show what more prompts would gain"
    )
    source_curve: bool = option(
        False,
        help="also train on 1, 2, 4, … families, drawn for each seed, and judge on unseen sources",
    )
    budget_curve: bool = option(
        False,
        help="also show what equal numbers of decodes for training achieve; includes the learning "
        "curve",
    )
    ablation: str | None = option(
        None,
        nargs="?",
        const=REGRESSION,
        choices=LEARNERS,
        metavar="ALGO",
        help="also show the value of each state group: train an agent on each recorded group "
        "alone, on all but each, and on all; reward-regression if none is named",
    )
    prices: tuple[float, ...] | None = option(
        None,
        nargs="?",
        const=DEFAULT_PRICES,
        metavar="P,Q",
        parse=parse_prices,
        help="also show how the policy of the agent acceptance, trained once, does where a further "
        "token costs so many percent of a plain pass, next to reward policies; without numbers "
        f"{','.join(f'{price:g}' for price in DEFAULT_PRICES)}",
    )
    paper_window: int = option(
        4,
        minimum=0,
        metavar="K",
        help="window of the classifier in the paper's table, which is shown if supervised is "
        "compared",
    )
    jobs: int | None = option(
        None,
        minimum=1,
        metavar="N",
        help="processes that train seeds in parallel (default: one per processor, at most one "
        "per seed); the results do not depend on it",
    )

    def __post_init__(self) -> None:
        """Check the values before any agent is trained.

        Raises:
            BlockPilotError: If a value is out of range, or has no effect together with the others.
        """
        for name in ("algos", "state_groups", "arms"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise BlockPilotError(f"{name} must be a tuple such as ('ppo',), got {value!r}")
            if value is not None:
                object.__setattr__(self, name, tuple(value))
        check_options(self)
        check_temperature(self.temperature)
        if self.seed + self.seeds > MAX_SEED + 1:
            raise BlockPilotError(
                f"seed {self.seed} with {self.seeds} seeds passes the largest seed, {MAX_SEED}"
            )
        if not self.algos:
            raise BlockPilotError("algos names no agent; name some, such as ppo,supervised")
        if self.prices is not None:
            check_prices(self.prices)
            if ACCEPTANCE not in self.learners():
                raise BlockPilotError(
                    f"prices shows the policy of the agent {ACCEPTANCE}; add it to algos"
                )
        self._refuse_unused()

    def _refuse_unused(self) -> None:
        """Refuse values that change nothing."""
        unused: dict[str, str] = {}
        if not self.learners():
            needs = "an agent to train in algos"
            unused = dict.fromkeys(("state_groups", "family_margin", "family_risk"), needs)
            if self.ablation is None:
                unused["shuffle_states"] = needs
                if not (self.learning_curve or self.source_curve or self.budget_curve):
                    unused["seeds"] = needs
        if CLASSIFIER not in self.learners():
            unused["paper_window"] = f"{CLASSIFIER} in algos"
        for name in changed_options(self):
            if name in unused:
                raise BlockPilotError(f"{name} has no effect here: it needs {unused[name]}")

    def learners(self) -> list[str]:
        """Names of the algorithms to train, each once."""
        named = ALL if "all" in self.algos else self.algos
        return [name for name in dict.fromkeys(named) if name not in YARDSTICKS]


def compare(
    sweep: Sweep | str | Path | None = None,
    config: CompareConfig | None = None,
    *,
    hyperparams: Mapping[str, Mapping[str, Any]] | None = None,
    progress: ProgressCallback | None = None,
    on_result: Callable[[Comparison], None] | None = None,
) -> Comparison:
    """Train agents on a sweep and compare them with fixed sizes on its test prompts.

    Agents train in several processes unless `config.jobs` is 1. The processes are spawned: a script
    must call this under `if __name__ == "__main__":`, a notebook may call it anywhere.

    Args:
        sweep: The sweep, or its folder; None for the bundled one.
        config: How to train and compare; None for the defaults.
        hyperparams: For each algorithm, values that replace those of its YAML file.
        progress: Called with the agent that is trained, its trained seeds, and all its seeds.
        on_result: Called with the incomplete comparison before each further view, so that a caller
            can save the finished views in case a later one is interrupted.

    Returns:
        The comparison.

    Raises:
        BlockPilotError: If the sweep, an algorithm, a hyperparameter, a block size or a state group
            is invalid, or training and test prompts overlap.
    """
    config = config or CompareConfig()
    groups = state_groups_for(config.state_groups, config.temperature)
    table = sweep if isinstance(sweep, Sweep) else Sweep.load(sweep)
    table = table.with_groups(groups)
    table = select_arms(table, config.arms, config.window)
    rows, note = select_temperature(table, config.temperature)
    splits = Splits.from_sweep(rows)
    # Errors are raised before minutes of training; the paper's table uses all temperatures.
    everything = Splits.from_sweep(table)
    refuse_overlap((everything.train, everything.validation), everything.test)
    if config.source_curve:
        unseen_rows(splits.test)
    folds = family_folds(splits) if config.leave_family_out else {}
    trainer = Trainer(
        range(config.seed, config.seed + config.seeds),
        groups,
        hyperparams=hyperparams,
        shuffle_states=config.shuffle_states,
        progress=progress or no_progress,
    )
    settings = _settings(sweep, config, trainer)
    with process_map(min(config.jobs or usable_cpus(), config.seeds)) as trainer.map_seeds:
        trained = {name: trainer.train(name, splits) for name in config.learners()}
        comparison = judge_agents(
            splits,
            {name: agents.choices for name, agents in trained.items()},
            confidence=config.confidence,
            family_margin=config.family_margin,
            family_risk=config.family_risk,
            seed=config.seed,
        )
        comparison = dataclasses.replace(comparison, settings=settings, provenance=provenance())
        views = _views(config, trainer, table, splits, folds, trained)
        for number, view in enumerate(views.values()):
            if on_result is not None:
                missing = f"incomplete, without: {', '.join(list(views)[number:])}"
                on_result(_with_notes(comparison, note, *trainer.notes, missing))
            comparison = dataclasses.replace(comparison, **view(comparison))
    return _with_notes(comparison, note, *trainer.notes)


def _views(
    config: CompareConfig,
    trainer: Trainer,
    table: Sweep,
    splits: Splits,
    folds: Mapping[str, Splits],
    trained: Mapping[str, TrainedSeeds],
) -> dict[str, View]:
    """The further views that the config asks for, by name, in order."""
    judging: dict[str, Any] = {"confidence": config.confidence, "seed": config.seed}
    judge = make_judge(splits, **judging)
    views: dict[str, View] = {}
    if CLASSIFIER in trained:
        views["paper's table"] = lambda found: {
            "paper_table": paper_tables(
                trainer,
                lambda part: make_judge(part, **judging),
                table,
                splits,
                trained,
                best=found.verdict.best_agent,
                window=config.paper_window,
            )
        }
    if folds:
        views["families left out"] = lambda _: {
            "left_out": leave_families_out(trainer, list(trained), splits.test, folds, **judging)
        }
    if config.learning_curve or config.budget_curve:
        views["learning curve"] = lambda _: {
            "learning_curve": learning_curve(trainer, judge, splits, trained)
        }
    if config.source_curve:
        views["source curve"] = lambda _: {
            "source_curve": source_curve(trainer, judge, splits, trained)
        }
    if config.budget_curve:
        views["budget curve"] = lambda found: {
            "budget_curves": budget_curves(trainer, judge, splits, trained, found.learning_curve)
        }
    if (algorithm := config.ablation) is not None:
        views["ablation"] = lambda _: {
            "ablation": ablate(trainer, judge, algorithm, splits, trained)
        }
    if (prices := config.prices) is not None:
        reward = next((name for name in trained if not name.startswith(ACCEPTANCE)), REGRESSION)
        views["portability"] = lambda _: {
            "portability": measure_portability(
                trainer, splits, prices, ACCEPTANCE, reward, **judging
            )
        }
    return views


def _settings(
    sweep: Sweep | str | Path | None, config: CompareConfig, trainer: Trainer
) -> dict[str, Any]:
    """Describe the config and all hyperparameters, which checks them before any training.

    Raises:
        BlockPilotError: If a hyperparameter is unknown or invalid, or belongs to an agent that is
            not trained.
    """
    names = dict.fromkeys([*config.learners(), *([config.ablation] if config.ablation else [])])
    for name in trainer.hyperparams:
        if name not in names:
            raise BlockPilotError(
                f"hyperparams has values for {name}, which is not trained; add it to algos or "
                "remove its values"
            )
    values = {
        name: ",".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(config).items()
    }
    values["state_groups"] = ",".join(trainer.state_groups)
    return {
        "sweep": None if sweep is None or isinstance(sweep, Sweep) else str(sweep),
        **values,
        "features": values["state_groups"],
        "hyperparams": {name: to_dict(trainer.agent(name).hyperparams) for name in names},
    }


def _with_notes(comparison: Comparison, *notes: str | None) -> Comparison:
    return dataclasses.replace(comparison, notes=[note for note in notes if note is not None])
