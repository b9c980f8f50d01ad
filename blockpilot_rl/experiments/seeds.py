"""Training with several seeds: the rows to learn from, and the choices of the agents."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from blockpilot_rl.agents import Agent, Monitor, make_agent
from blockpilot_rl.evaluation.choices import Choices, decision_seconds
from blockpilot_rl.evaluation.leakage import shuffle_states
from blockpilot_rl.experiments.processes import Map
from blockpilot_rl.progress import ProgressCallback, no_progress
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True, eq=False)
class Splits:
    """The rows to train on, to select by and to judge on.

    Attributes:
        train: Rows of the training prompts.
        validation: Rows of the validation prompts; None if there are none.
        test: Rows of the test prompts.
    """

    train: Sweep
    validation: Sweep | None
    test: Sweep

    @classmethod
    def from_sweep(cls, sweep: Sweep) -> Splits:
        """Split a sweep.

        Raises:
            BlockPilotError: If it has no training or no test rows.
        """
        has_validation = (sweep.rows["split"] == "validation").any()
        return cls(
            train=sweep.split("train"),
            validation=sweep.split("validation") if has_validation else None,
            test=sweep.split("test"),
        )

    def map(self, change: Callable[[Sweep], Sweep]) -> Splits:
        """Apply the same change to every table."""
        validation = None if self.validation is None else change(self.validation)
        return Splits(change(self.train), validation, change(self.test))

    def subset(self, prompts: int, seed: int) -> Splits:
        """Keep random training prompts, and the same share of the validation prompts.

        Args:
            prompts: Number of training prompts.
            seed: Random seed.
        """
        validation = self.validation
        if validation is not None:
            share = prompts / self.train.rows["id"].nunique()
            count = max(1, round(share * validation.rows["id"].nunique()))
            validation = random_prompts(validation, count, seed)
        return Splits(random_prompts(self.train, prompts, seed), validation, self.test)

    def of_sources(self, count: int, seed: int) -> Splits:
        """Keep the training and validation prompts of random families.

        A smaller count keeps a part of a larger one's families.

        Args:
            count: Number of families with training prompts.
            seed: Random seed.
        """
        families = np.random.default_rng(seed).permutation(sorted(set(self.train.rows["family"])))
        train, validation = (
            None if table is None else table.rows["family"].isin(families[:count]).to_numpy()
            for table in (self.train, self.validation)
        )
        assert train is not None
        kept = None
        if self.validation is not None and validation is not None and validation.any():
            kept = self.validation.select_rows(validation)
        return Splits(self.train.select_rows(train), kept, self.test)


def random_prompts(table: Sweep, count: int, seed: int) -> Sweep:
    """Keep the rows of random prompts. A smaller count keeps a part of a larger one's prompts.

    Args:
        table: The rows.
        count: Number of prompts.
        seed: Random seed.
    """
    ids = table.rows["id"].unique()
    kept = np.random.default_rng(seed).permutation(ids)[:count]
    return table.select_rows(table.rows["id"].isin(kept).to_numpy())


class SeedResult(NamedTuple):
    """The result that the agent of one seed returns from its process.

    Attributes:
        arms: Its choices on the test rows, `[n]`.
        validation: Its choices on the validation rows, `[m]`; None if there are none.
        policy: Its policy, pickled here because torch would pass tensors between processes in
            shared memory, which ends with the process.
        decisions: Decisions that it learned from; 0 for an agent that learns from all labels.
        decodes: Decodes that these decisions cost, including those for the baseline of its rewards.
        notes: Notes of the agent for the reader of the results.
    """

    arms: np.ndarray
    validation: np.ndarray | None
    policy: bytes
    decisions: int
    decodes: int
    notes: list[str]


class TrainedSeeds(NamedTuple):
    """The choices of the agents of one algorithm, and the cost of their training.

    Attributes:
        choices: Their choices, with the time of each decision.
        decisions: Decisions that an agent learned from, mean over the seeds.
        decodes: Decodes that these decisions cost, mean over the seeds.
    """

    choices: Choices
    decisions: int
    decodes: int


@dataclass(frozen=True, eq=False)
class SeedTask:
    """One training, without its seed.

    Attributes:
        algorithm: Name of the algorithm.
        splits: The rows.
        state_groups: State groups that the agent sees.
        hyperparams: Values that replace those of the algorithm's YAML file.
        prompts: Number of training prompts, drawn for each seed; None for all.
        sources: Number of families to train on, drawn for each seed; None for all.
        decisions: Steps to train; None for the algorithm's own number.
        baseline_prompts: Number of training prompts for choosing the best fixed size, which rewards
            are compared with; None for all that the agent learns from.
        shuffle_states: Whether the agent learns from shuffled states.
    """

    algorithm: str
    splits: Splits
    state_groups: Sequence[str]
    hyperparams: Mapping[str, Any] = field(default_factory=dict)
    prompts: int | None = None
    sources: int | None = None
    decisions: int | None = None
    baseline_prompts: int | None = None
    shuffle_states: bool = False

    def run(self, seed: int) -> SeedResult:
        """Train an agent and let it choose.

        Raises:
            BlockPilotError: If the algorithm is unknown or the sweep lacks what it needs.
        """
        agent = make_agent(
            self.algorithm, seed=seed, state_groups=self.state_groups, hyperparams=self.hyperparams
        )
        monitor = _SilentMonitor()
        train, select_by = self.training_rows(seed)
        baseline = train
        if self.baseline_prompts is not None:
            baseline = random_prompts(train, self.baseline_prompts, seed)
        agent.learn(train, select_by, monitor, total_timesteps=self.decisions, baseline=baseline)
        price = agent.decodes_per_decision
        labels = len(baseline) * len(baseline.arms) if price == 2 else 0
        test, validation = self.splits.test, self.splits.validation
        return SeedResult(
            arms=agent.choose(test),
            validation=None if validation is None else agent.choose(validation),
            policy=pickle.dumps(agent.to_policy()),
            decisions=agent.num_timesteps if price else 0,
            decodes=agent.num_timesteps * price + labels,
            notes=monitor.notes,
        )

    def training_rows(self, seed: int) -> tuple[Sweep, Sweep | None]:
        """Training and validation rows of a seed, with shuffled states if that is set."""
        splits = self.splits
        if self.sources is not None:
            splits = splits.of_sources(self.sources, seed)
        if self.prompts is not None:
            splits = splits.subset(self.prompts, seed)
        train, validation = splits.train, splits.validation
        if not self.shuffle_states:
            return train, validation
        rng = np.random.default_rng(seed)
        shuffled = shuffle_states(train, rng)
        return shuffled, None if validation is None else shuffle_states(validation, rng)


class Trainer:
    """Trains algorithms, each with several seeds.

    Args:
        seeds: Seeds to train each algorithm with.
        state_groups: State groups that the agents see.
        hyperparams: For each algorithm, values that replace those of its YAML file.
        shuffle_states: Whether the agents learn from shuffled states.
        map_seeds: Runs the trainings of one algorithm.
        progress: Called with the number of trained seeds.

    Attributes:
        notes: Notes of the agents for the reader of the results, each once.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        state_groups: Sequence[str],
        *,
        hyperparams: Mapping[str, Mapping[str, Any]] | None = None,
        shuffle_states: bool = False,
        map_seeds: Map = map,
        progress: ProgressCallback = no_progress,
    ) -> None:
        self.seeds = seeds
        self.state_groups = tuple(state_groups)
        self.hyperparams = dict(hyperparams or {})
        self.shuffle_states = shuffle_states
        self.map_seeds = map_seeds
        self.progress = progress
        self.notes: list[str] = []

    def agent(self, algorithm: str) -> Agent[Any]:
        """Make an untrained agent with the hyperparameters that are used.

        Raises:
            BlockPilotError: If its name, a state group or a hyperparameter is unknown or invalid.
        """
        hyperparams = self.hyperparams.get(algorithm)
        return make_agent(algorithm, state_groups=self.state_groups, hyperparams=hyperparams)

    def train(
        self,
        algorithm: str,
        splits: Splits,
        *,
        label: str = "",
        **changes: Any,
    ) -> TrainedSeeds:
        """Train an algorithm with every seed and let the agents choose on the test rows.

        Args:
            algorithm: Name of the algorithm.
            splits: The rows.
            label: What the agents are trained for, shown in progress and notes.
            **changes: Attributes of `SeedTask` that differ from those of the trainer.

        Raises:
            BlockPilotError: If the algorithm is unknown or the sweep lacks what it needs.
        """
        return _collect(self.run(algorithm, splits, label=label, **changes), splits.test)

    def run(
        self, algorithm: str, splits: Splits, *, label: str = "", **changes: Any
    ) -> list[SeedResult]:
        """Train an algorithm with every seed, as `train` does, and return each seed's result."""
        task = SeedTask(
            algorithm,
            splits,
            self.state_groups,
            hyperparams=self.hyperparams.get(algorithm, {}),
            shuffle_states=self.shuffle_states,
        )
        task = dataclasses.replace(task, **changes)
        title = f"{algorithm} {label}".strip()
        results: list[SeedResult] = []
        self.progress(title, 0, len(self.seeds))
        for result in self.map_seeds(task.run, self.seeds):
            results.append(result)
            self._note(result.notes, label)
            self.progress(title, len(results), len(self.seeds))
        return results

    def _note(self, notes: Sequence[str], label: str) -> None:
        """Keep new notes; a note on all prompts is not repeated for some of them."""
        for note in notes:
            labelled = f"{label}: {note}" if label else note
            if note not in self.notes and labelled not in self.notes:
                self.notes.append(labelled)


def _collect(results: Sequence[SeedResult], test: Sweep) -> TrainedSeeds:
    """Put the seeds together, and time their policies while nothing else runs."""
    validation = [result.validation for result in results if result.validation is not None]
    seconds = [decision_seconds(pickle.loads(seed.policy), test, seed.arms) for seed in results]
    choices = Choices(
        arms=np.stack([result.arms for result in results]),
        policy_seconds=np.stack(seconds),
        validation=np.stack(validation) if validation else None,
    )
    decisions, decodes = np.mean([(seed.decisions, seed.decodes) for seed in results], axis=0)
    return TrainedSeeds(choices, round(decisions), round(decodes))


class _SilentMonitor(Monitor):
    """Keeps notes for the end, since many trainings give the same one."""

    def note(self, text: str) -> None:
        """Keep a note."""
        self.notes.append(text)
