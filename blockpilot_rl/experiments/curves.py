"""Performance by the amount of training data: in prompts, in sources and in decodes.

Decodes are the price of training data. A full-information learner needs the label of every arm of
an answer, a bandit learner the outcome of one arm per decision. A prompt has one answer or, at
several temperatures and seeds, several, which are rows of the sweep. Two prices are reported:

- `decode`: every label is decoded. An answer costs a full-information learner one decode per arm, a
  decision costs a bandit learner one decode. If its reward is the difference to the best fixed
  size, a decision costs a second decode, and that size costs the labels it was chosen by.
- `replay`: the text does not depend on the block size, so the labels of all arms of an answer cost
  about one decode, and a bandit learner may decide on it any number of times.

Validation answers count for an agent that learns from them, such as the ridge regression. They do
not count for an agent that is only selected by them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.judge import Judge
from blockpilot_rl.evaluation.measure import SOURCE, UNSEEN, group_labels
from blockpilot_rl.evaluation.oracle import best_fixed_by_mean
from blockpilot_rl.evaluation.results import CurvePoint, Curves
from blockpilot_rl.experiments.seeds import (
    Splits,
    TrainedSeeds,
    Trainer,
    random_prompts,
)
from blockpilot_rl.sweeps.table import Sweep

PRICES = ("decode", "replay")
MIN_COUNT = 32
_POINTS = 5


def learning_curve(
    trainer: Trainer, judge: Judge, splits: Splits, trained: Mapping[str, TrainedSeeds]
) -> Curves:
    """Train agents on growing numbers of prompts, and choose the best fixed size on them.

    Args:
        trainer: Trains the agents.
        judge: Judges against the best fixed size of all training prompts.
        splits: The rows.
        trained: The agents that learned from all prompts, by algorithm.

    Returns:
        For `"fixed"` and for each algorithm the points, increasing in prompts.
    """
    *fewer, all_prompts = prompt_counts(splits.train)
    curves: Curves = {
        "fixed": [
            curve_point(judge, best_fixed_choices(splits, count, trainer.seeds), count)
            for count in (*fewer, all_prompts)
        ]
    }
    for name, agents in trained.items():
        runs = {
            count: trainer.train(name, splits, prompts=count, label=f"on {count} prompts")
            for count in fewer
        }
        runs[all_prompts] = agents
        curves[name] = [curve_point(judge, run.choices, count) for count, run in runs.items()]
    return curves


def source_curve(
    trainer: Trainer, judge: Judge, splits: Splits, trained: Mapping[str, TrainedSeeds]
) -> Curves:
    """Train agents on growing numbers of families, and judge them on unseen sources.

    Each seed draws its own families.

    Args:
        trainer: Trains the agents.
        judge: Judges against the best fixed size of all training prompts.
        splits: The rows.
        trained: The agents that learned from all families, by algorithm.

    Returns:
        For `"fixed"` and for each algorithm the points, increasing in sources.
    """
    mask = unseen_rows(judge.test)
    unseen, counts = judge.select(mask), source_counts(splits.train)
    parts = {count: [splits.of_sources(count, seed) for seed in trainer.seeds] for count in counts}

    def point(count: int, choices: Choices) -> CurvePoint:
        prompts = np.mean([part.train.rows["id"].nunique() for part in parts[count]])
        found = curve_point(unseen, choices, round(float(prompts)))
        return dataclasses.replace(found, sources=count)

    curves: Curves = {"fixed": []}
    for count, drawn in parts.items():
        best = np.array([best_fixed_by_mean(part.train) for part in drawn])
        arms = np.repeat(best[:, None], len(unseen.test), axis=1)
        curves["fixed"].append(point(count, Choices.free(arms)))
    for name, agents in trained.items():
        runs = {
            count: trainer.train(name, splits, sources=count, label=f"on {count} sources")
            for count in counts[:-1]
        }
        runs[counts[-1]] = agents
        curves[name] = [point(count, run.choices.select(mask)) for count, run in runs.items()]
    return curves


def unseen_rows(test: Sweep) -> np.ndarray:
    """Mask of the rows of unseen sources, `[n]`.

    Raises:
        BlockPilotError: If they have fewer than two prompts.
    """
    mask = np.asarray(group_labels(test, SOURCE) == UNSEEN)
    if test.rows["id"][mask].nunique() < 2:
        raise BlockPilotError(
            "a curve over sources is judged on unseen sources, and the test split has none; record "
            "some with `blockpilot collect-sweep --unseen FAMILY,…`"
        )
    return mask


def source_counts(train: Sweep) -> list[int]:
    """Numbers of families to learn from: 1, 2, 4 and so on, and all."""
    families = int(train.rows["family"].nunique())
    doubled = [1 << step for step in range(families.bit_length())]
    return sorted({count for count in doubled if count < families} | {families})


def budget_curves(
    trainer: Trainer,
    judge: Judge,
    splits: Splits,
    trained: Mapping[str, TrainedSeeds],
    learning: Curves,
) -> dict[str, Curves]:
    """Price training in decodes, as the module describes.

    Args:
        trainer: Trains the agents.
        judge: Judges against the best fixed size of all training prompts.
        splits: The rows.
        trained: The agents that learned from all prompts, by algorithm.
        learning: The learning curve.

    Returns:
        By price, then by `"fixed"` and algorithm, the points, increasing in decodes.
    """
    counts = {point.prompts for points in learning.values() for point in points}
    answers = {count: _answers(splits, count, trainer.seeds) for count in counts}

    def priced(name: str, decodes: int) -> list[CurvePoint]:
        """The learning curve at a number of decodes for each answer that was learned from."""
        with_validation = trainer.agent(name).learns_from_validation
        return [
            dataclasses.replace(point, decodes=decodes * answers[point.prompts][with_validation])
            for point in learning[name]
        ]

    decode = {
        name: _bandit_curve(trainer, judge, name, splits, trained[name])
        if name in trained and trainer.agent(name).decodes_per_decision
        else priced(name, len(splits.train.arms))
        for name in learning
    }
    return {"decode": decode, "replay": {name: priced(name, 1) for name in learning}}


def prompt_counts(train: Sweep) -> list[int]:
    """Numbers of training prompts to learn from: all, half, a quarter and so on, increasing."""
    prompts = int(train.rows["id"].nunique())
    halved = [prompts >> step for step in range(_POINTS)]
    return sorted({prompts, *(count for count in halved if count >= MIN_COUNT)})


def decision_counts(decisions: int) -> list[int]:
    """Numbers of decisions for a bandit learner: all, a quarter and so on, increasing.

    Args:
        decisions: The algorithm's own number.
    """
    quartered = [decisions >> (2 * step) for step in range(_POINTS)]
    return sorted({decisions, *(count for count in quartered if count >= MIN_COUNT)})


def best_fixed_choices(splits: Splits, prompts: int, seeds: Sequence[int]) -> Choices:
    """Choose the best fixed size on random training prompts of each seed, for all test rows."""
    best = [best_fixed_by_mean(random_prompts(splits.train, prompts, seed)) for seed in seeds]
    return Choices.free(np.repeat(np.array(best)[:, None], len(splits.test), axis=1))


def curve_point(
    judge: Judge, choices: Choices, prompts: int, decodes: int | None = None
) -> CurvePoint:
    """Measure agents that learned from a part of the training data.

    Args:
        judge: Judges against the best fixed size of all training prompts.
        choices: Choices on its test rows.
        prompts: Training prompts that were learned from.
        decodes: Decodes that were paid for.
    """
    seconds = judge.seconds(choices)
    means = judge.requests.mean_speedups(seconds)
    return CurvePoint(
        prompts=prompts,
        decodes=decodes,
        mean_speedup=means.choice,
        gain=judge.requests.gain(seconds),
        gap_closed=means.gap_closed,
        regret=means.regret,
    )


def _bandit_curve(
    trainer: Trainer, judge: Judge, name: str, splits: Splits, trained: TrainedSeeds
) -> list[CurvePoint]:
    """Train a bandit learner on fewer decisions, each of which costs decodes.

    The size that its rewards are compared with is chosen on a few prompts with all arms; for the
    algorithm's own number of decisions, on all prompts.
    """
    prompts = int(splits.train.rows["id"].nunique())
    runs = [
        trainer.train(
            name,
            splits,
            decisions=count,
            baseline_prompts=MIN_COUNT,
            label=f"with {count} decisions",
        )
        for count in decision_counts(trainer.agent(name).planned_timesteps)[:-1]
    ]
    # An algorithm that learns in rounds completes them, so two budgets can be the same.
    by_decodes = {run.decodes: run for run in (*runs, trained)}
    return [
        curve_point(judge, run.choices, min(prompts, run.decisions), decodes)
        for decodes, run in sorted(by_decodes.items())
    ]


def _answers(splits: Splits, prompts: int, seeds: Sequence[int]) -> dict[bool, int]:
    """Answers to a number of training prompts, without and with the validation answers.

    They are means over the seeds, which draw the prompts.
    """
    subsets = [splits.subset(prompts, seed) for seed in seeds]
    train = np.mean([len(subset.train) for subset in subsets])
    validation = np.mean(
        [0 if subset.validation is None else len(subset.validation) for subset in subsets]
    )
    return {False: round(train), True: round(train + validation)}
