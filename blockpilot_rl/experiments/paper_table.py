"""The table of BlockPilot (arXiv 2606.31315): its classifier between fixed sizes and the oracle."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.judge import Judge
from blockpilot_rl.evaluation.oracle import NO_ARM, best_fixed_by_mean, replicate_arms
from blockpilot_rl.evaluation.results import Outcome, PaperRow
from blockpilot_rl.experiments.seeds import Splits, TrainedSeeds, Trainer
from blockpilot_rl.sweeps.selection import window_arms
from blockpilot_rl.sweeps.table import Sweep

CLASSIFIER = "supervised"


def paper_tables(
    trainer: Trainer,
    make_judge: Callable[[Splits], Judge],
    sweep: Sweep,
    splits: Splits,
    trained: Mapping[str, TrainedSeeds],
    *,
    best: str | None,
    window: int,
) -> dict[str, dict[str, PaperRow]]:
    """Measure the paper's table at every temperature, with policies trained on its rows alone.

    Args:
        trainer: Trains the agents. Temperatures that are left out are added to its notes.
        make_judge: Makes the judge of the rows of one temperature.
        sweep: The rows of all temperatures. A temperature without training rows or with fewer than
            two test prompts is left out.
        splits: The rows of the main comparison.
        trained: The agents that learned from those, by algorithm.
        best: The agent to show as the best policy.
        window: The paper's window: the largest distance of a size from the drafter's own.
    """
    tables = {}
    for temperature in np.unique(sweep.temperatures):
        rows = sweep.select_rows(sweep.temperatures == temperature)
        prompts = rows.rows.groupby("split")["id"].nunique()
        if not prompts.get("train", 0) or prompts.get("test", 0) < 2:
            trainer.notes.append(
                f"the paper's table leaves out temperature {temperature:g}, which has no training "
                "rows or fewer than two test prompts"
            )
            continue
        part = Splits.from_sweep(rows)
        known = trained if set(splits.train.temperatures) == {temperature} else {}
        tables[f"{temperature:g}"] = _one_temperature(
            trainer, make_judge(part), part, known, best, window
        )
    return tables


def _one_temperature(
    trainer: Trainer,
    judge: Judge,
    splits: Splits,
    trained: Mapping[str, TrainedSeeds],
    best: str | None,
    window: int,
) -> dict[str, PaperRow]:
    test, near = splits.test, window_arms(splits.test, window)
    learned = {}
    if len(near) == 1:
        trainer.notes.append(
            "the paper's table has no classifier within the window: no size within "
            f"{window} of the drafter's own, {test.metadata.default_block_size}, is compared"
        )
    else:
        narrow = splits.map(lambda table: table.select_arms(near))
        chosen = trainer.train(CLASSIFIER, narrow, label="within the window").choices
        arms = as_arms_of(test, chosen.arms, near)
        sizes = ", ".join(map(str, near))
        learned["paper's classifier, window"] = (sizes, Choices(arms, chosen.policy_seconds))
    titles = {"paper's classifier, all sizes": CLASSIFIER}
    if best is not None:
        titles[f"best policy, {best}"] = best
    agents = {
        name: trained.get(name) or trainer.train(name, splits)
        for name in dict.fromkeys(titles.values())
    }
    learned |= {title: ("all", agents[name].choices) for title, name in titles.items()}
    return paper_rows(judge, test.arms[best_fixed_by_mean(splits.train)], learned)


def as_arms_of(table: Sweep, chosen: np.ndarray, arms: tuple[int, ...]) -> np.ndarray:
    """Turn indices into some of the block sizes into indices of a table's arms."""
    indices: np.ndarray = np.array([table.arm_index(arm) for arm in arms])[chosen]
    return indices


def paper_rows(
    judge: Judge, fixed: int, learned: Mapping[str, tuple[str, Choices]]
) -> dict[str, PaperRow]:
    """Measure the rows of the table on the judge's test rows.

    If prompts were sampled several times, a second oracle chooses by a prompt's other samples. Rows
    without other samples are left out for it.

    Args:
        judge: Judges against the best fixed size of the training prompts.
        fixed: The best fixed block size.
        learned: For each learned policy the text for the sizes it chooses among, and its choices.
    """
    test = judge.test
    default = test.metadata.default_block_size
    sizes = {"plain decoding": 1, "drafter's training size": default, "best fixed": fixed}
    rows = {
        name: _row(str(size), judge.fixed_size(test.arm_index(size)))
        for name, size in sizes.items()
        if size in test.arms
    }
    rows |= {name: _row(text, judge.outcome(chosen)) for name, (text, chosen) in learned.items()}
    rows["oracle"] = _row("all", judge.oracle())
    crossed = replicate_arms(test)
    known = crossed != NO_ARM
    if known.any():
        name = "oracle, by other samples"
        if not known.all():
            name += f", {known.sum():,} of {len(test):,} rows"
        there = dataclasses.replace(judge, test=test.select_rows(known))
        rows[name] = _row("all", there.outcome(Choices.free(crossed[None, known])))
    return rows


def _row(block_sizes: str, outcome: Outcome) -> PaperRow:
    return PaperRow(
        block_sizes=block_sizes,
        acceptance_length=outcome.acceptance_length,
        acceptance_length_per_request=outcome.acceptance_length_per_request,
        mean_speedup=outcome.mean_speedup,
        total_speedup=outcome.total_speedup,
        gain=outcome.gain,
    )
