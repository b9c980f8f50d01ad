"""Trains an algorithm with several seeds, side by side in processes of their own."""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import numpy as np

from blockpilot_rl.agents import Monitor, make_agent
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices, decision_seconds
from blockpilot_rl.evaluation.leakage import shuffle_states
from blockpilot_rl.experiments.curves import some_prompts
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True, eq=False)
class Splits:
    """The rows to learn from, to select on and to judge on."""

    train: Sweep
    validation: Sweep | None
    test: Sweep

    @classmethod
    def of(cls, sweep: Sweep) -> Splits:
        """Split a sweep.

        Raises:
            BlockPilotError: If it lacks training or test rows.
        """
        has_validation = (sweep.rows["split"] == "validation").any()
        return cls(
            train=sweep.split("train"),
            validation=sweep.split("validation") if has_validation else None,
            test=sweep.split("test"),
        )

    def each(self, change: Callable[[Sweep], Sweep]) -> Splits:
        """Change every table alike."""
        validation = None if self.validation is None else change(self.validation)
        return Splits(change(self.train), validation, change(self.test))

    def some(self, prompts: int, seed: int) -> Splits:
        """Keep some of the training prompts, and the same share of the validation prompts.

        Args:
            prompts: Number of training prompts.
            seed: Decides which.
        """
        validation = self.validation
        if validation is not None:
            share = prompts / self.train.rows["id"].nunique()
            count = max(1, round(share * validation.rows["id"].nunique()))
            validation = some_prompts(validation, count, seed)
        return Splits(some_prompts(self.train, prompts, seed), validation, self.test)


class Learned(NamedTuple):
    """What the agent of one seed hands in.

    Attributes:
        arms: Its choices on the test rows, `[n]`.
        validation: Its choices on the validation rows, `[m]`; None if there are none.
        policy: Its pickled policy, as bytes, since torch would pass tensors between processes in
            shared memory, which ends with the process.
        decisions: Decisions that it learned from; 0 for one that needs all labels.
        decodes: Decodes that they cost, with those for the baseline of their rewards.
        notes: Remarks of the learner.
    """

    arms: np.ndarray
    validation: np.ndarray | None
    policy: bytes
    decisions: int
    decodes: int
    notes: list[str]


class Trained(NamedTuple):
    """What an agent chose, its decisions and the decodes that they cost (means over its seeds)."""

    choices: Choices
    decisions: int
    decodes: int

    @classmethod
    def of(cls, seeds: Sequence[Learned], test: Sweep) -> Trained:
        """Put together what the seeds handed in, and time their policies while nothing trains.

        Raises:
            BlockPilotError: If they read the state group `draft` and it cannot be priced.
        """
        validation = [seed.validation for seed in seeds if seed.validation is not None]
        choices = Choices(
            arms=np.stack([seed.arms for seed in seeds]),
            policy_seconds=np.stack(
                [decision_seconds(pickle.loads(seed.policy), test, seed.arms) for seed in seeds]
            ),
            validation=np.stack(validation) if validation else None,
        )
        paid = np.mean([(seed.decisions, seed.decodes) for seed in seeds], axis=0)
        return cls(choices, *map(round, paid))


@dataclass(frozen=True, eq=False)
class Training:
    """An algorithm and what it learns from.

    Attributes:
        algorithm: Its name.
        splits: The rows.
        state_groups: State groups it sees.
        hyperparams: Values that replace those of the algorithm's YAML file.
        prompts: Number of training prompts to learn from, drawn anew for every seed; None for all.
            Of the validation prompts there is the same share.
        decisions: Steps to learn; None for what the algorithm takes by default.
        baseline_prompts: Number of training prompts to choose the best fixed size on that rewards
            are compared with; None for all that are learned from.
        shuffle: Whether it learns from shuffled states.
    """

    algorithm: str
    splits: Splits
    state_groups: Sequence[str]
    hyperparams: Mapping[str, Any] = field(default_factory=dict)
    prompts: int | None = None
    decisions: int | None = None
    baseline_prompts: int | None = None
    shuffle: bool = False

    def learn(self, seed: int) -> Learned:
        """Train with one seed and let the agent choose.

        Raises:
            BlockPilotError: If the algorithm is unknown or the sweep lacks what it needs.
        """
        agent = make_agent(
            self.algorithm, seed=seed, state_groups=self.state_groups, hyperparams=self.hyperparams
        )
        monitor = _QuietMonitor()
        train, chosen_on = self.lesson(seed)
        baseline = train
        if self.baseline_prompts is not None:
            baseline = some_prompts(train, self.baseline_prompts, seed)
        agent.learn(train, chosen_on, monitor, total_timesteps=self.decisions, baseline=baseline)
        price = agent.decodes_per_decision
        labels = len(baseline) * len(baseline.arms) if price == 2 else 0
        test, validation = self.splits.test, self.splits.validation
        return Learned(
            arms=agent.choose(test),
            validation=None if validation is None else agent.choose(validation),
            policy=pickle.dumps(agent.to_policy()),
            decisions=agent.num_timesteps if price else 0,
            decodes=agent.num_timesteps * price + labels,
            notes=monitor.notes,
        )

    def lesson(self, seed: int) -> tuple[Sweep, Sweep | None]:
        """The training and validation rows of a seed; in the control with their states shuffled."""
        splits = self.splits if self.prompts is None else self.splits.some(self.prompts, seed)
        train, validation = splits.train, splits.validation
        if not self.shuffle:
            return train, validation
        rng = np.random.default_rng(seed)
        shuffled = shuffle_states(train, rng)
        return shuffled, None if validation is None else shuffle_states(validation, rng)


Each = Callable[[Callable[[int], Learned], Iterable[int]], Iterable[Learned]]


@contextmanager
def side_by_side(jobs: int) -> Iterator[Each]:
    """Lend a `map` that works in this many processes; with one job in this process alone.

    Processes start when there is work for them, serve every call, and end with the context, or with
    this process, however it ends.

    Raises:
        BlockPilotError: If one of them dies.
    """
    if jobs == 1:
        yield map
        return
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            ProcessPoolExecutor(
                jobs, mp_context=get_context("spawn"), initializer=_start_worker
            ) as pool,
        ):
            try:
                yield partial(_map_from_file, pool, folder)
            except BaseException:
                for child in active_children():
                    child.kill()
                pool.shutdown(cancel_futures=True)
                raise
    except BrokenProcessPool as error:
        raise BlockPilotError(
            "a process that trained an agent died, perhaps for want of memory; try --jobs 1"
        ) from error


def _map_from_file(
    pool: ProcessPoolExecutor,
    folder: str,
    work: Callable[[int], Learned],
    seeds: Iterable[int],
) -> Iterator[Learned]:
    """Map through a file that every process reads.

    Work holds a sweep. Passed through the pool's pipe it would be written anew for every seed, and
    an interrupt would leave the writer waiting for readers that are gone. The file lasts as long as
    the map: those of a whole comparison would fill the temporary folder.
    """
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        pickle.dump(work, file)
    path = Path(file.name)
    try:
        yield from pool.map(partial(_work_from_file, path), seeds)
    finally:
        path.unlink(missing_ok=True)


def _work_from_file(file: Path, seed: int) -> Learned:
    work: Callable[[int], Learned] = pickle.loads(file.read_bytes())
    return work(seed)


def _start_worker() -> None:
    """Let this process die of an interrupt without a word, and when its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class _QuietMonitor(Monitor):
    """Keeps remarks for the end, since the same one comes from many trainings."""

    def note(self, text: str) -> None:
        """Keep a remark."""
        self.notes.append(text)
