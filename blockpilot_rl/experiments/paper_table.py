"""The table of BlockPilot (arXiv 2606.31315): its classifier between fixed sizes and the oracle."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.judge import Judge
from blockpilot_rl.evaluation.oracle import NO_ARM, replicate_arms
from blockpilot_rl.evaluation.results import Outcome, PaperRow
from blockpilot_rl.sweeps.table import Sweep


def as_arms_of(table: Sweep, chosen: np.ndarray, arms: tuple[int, ...]) -> np.ndarray:
    """Turn indices into some of the block sizes into indices of a table's arms."""
    indices: np.ndarray = np.array([table.arm_index(arm) for arm in arms])[chosen]
    return indices


def paper_rows(
    judge: Judge, fixed: int, learned: Mapping[str, tuple[str, Choices]]
) -> dict[str, PaperRow]:
    """Measure the rows of the table on the judge's test rows.

    Where prompts were sampled several times, an oracle that chooses by a prompt's other samples
    stands beside the one that knows the sample it is judged on; some may have no other.

    Args:
        judge: Judges against the best fixed size of the training prompts.
        fixed: The best fixed block size.
        learned: For each learned policy what it chooses among, in words, and its choices.
    """
    test = judge.test
    default = test.metadata.default_block_size
    sizes = {"plain decoding": 1, "drafter's training size": default, "best fixed": fixed}
    rows = {
        name: _row(str(size), judge.fixed_size(test.arm_index(size)))
        for name, size in sizes.items()
        if size in test.arms
    }
    rows |= {name: _row(words, judge.outcome(chosen)) for name, (words, chosen) in learned.items()}
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
