"""Controls of an honest comparison: guards against leakage, and data without signal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import binomtest, fisher_exact

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.oracle import oracle_arms
from blockpilot_rl.sweeps.table import Sweep

_HONEST_SHARE = 0.9
_SIGNIFICANCE = 1e-4


def refuse_overlap(learning: Sequence[Sweep | None], test: Sweep) -> None:
    """Refuse test prompts that an agent could have learned from.

    A prompt is known by its id and also, where that was recorded, by its last hidden state, which
    two prompts do not share by chance.

    Args:
        learning: Tables that agents learn from and are selected on; None stands for none.
        test: Table that they are judged on.

    Raises:
        BlockPilotError: If a prompt or a state is on both sides.
    """
    for what, key in (("prompts", _ids), ("states", _hidden_states)):
        seen = {item for table in learning if table is not None for item in key(table)}
        rows = [row for row, item in enumerate(key(test)) if item in seen]
        if rows:
            raise BlockPilotError(
                f"leakage: {len(rows)} test {what} are also in the training or validation split, "
                f"the first is prompt {test.rows['id'][rows[0]]}; a prompt must be in one split "
                "only, record the sweep again with scripts/collect_sweep.py"
            )


def refuse_copied_answers(
    choices: Mapping[str, Choices], test: Sweep, validation: Sweep | None = None
) -> None:
    """Refuse choices that agree with the test labels more than an honest policy's can.

    How fast an arm decodes a prompt is only partly told by the prompt's state, so an honest policy
    stays far from the oracle's choices. Two signs give a copy away:

    - Choices equal the oracle's on all test prompts, or on so many that the agreement surely lies
      above 90% of the way from the best constant choice to the oracle.
    - Choices agree with the oracle on test prompts surely more often than on validation prompts.
      Splits by a hash of the prompt are alike, and what is selected on validation prompts rather
      does better there.

    Where the same arm is fastest on so many prompts, or there are so few of them, that chance could
    do it, agreement shows nothing and is let pass.

    Args:
        choices: Choices of each agent.
        test: Table that they were made on.
        validation: Table of `Choices.validation`; one of other families than the test's is not
            alike and not looked at.

    Raises:
        BlockPilotError: If an agent's choices are the oracle's.
    """
    rows = _first_rows(test)
    answers = oracle_arms(test)[rows]
    constant = np.unique(answers, return_counts=True)[1].max() / len(answers)
    if not choices or constant ** len(answers) > _SIGNIFICANCE:
        return
    honest = constant + _HONEST_SHARE * (1 - constant)
    # Every seed of every agent is another chance of a false alarm.
    level = _SIGNIFICANCE / sum(len(chosen.arms) for chosen in choices.values())
    for name, chosen in choices.items():
        for seed, arms in enumerate(chosen.arms[:, rows]):
            hits = int((arms == answers).sum())
            surely = binomtest(hits, len(answers), honest, alternative="greater").pvalue < level
            if hits == len(answers) or surely:
                raise BlockPilotError(
                    f"leakage: agent {name!r} chooses the fastest arm on {hits} of {len(answers)} "
                    "test prompts, which takes knowing their answers; only the oracle may"
                )
            if validation is None or chosen.validation is None or not _alike(validation, test):
                continue
            held = _first_rows(validation)
            right = chosen.validation[seed, held] == oracle_arms(validation)[held]
            known = int(right.sum())
            pairs = np.array([[hits, len(answers) - hits], [known, len(right) - known]])
            if fisher_exact(pairs, alternative="greater").pvalue < level:
                raise BlockPilotError(
                    f"leakage: agent {name!r} chooses the fastest arm on {hits / len(answers):.0%} "
                    f"of the test prompts and on {right.mean():.0%} of the validation prompts; the "
                    "splits are alike, so it must have seen the test answers"
                )


def shuffle_states(table: Sweep, rng: np.random.Generator) -> Sweep:
    """Deal the states out anew among the rows, so that they tell nothing about the rewards.

    An agent that learns from such a table can find the best fixed size and no more; a comparison
    that prefers it to that size is not to be trusted.

    Args:
        table: The table.
        rng: Source of the permutation.
    """
    return dataclasses.replace(table, states=table.states[rng.permutation(len(table))])


def _ids(table: Sweep) -> list[str]:
    return table.rows["id"].to_list()


def _hidden_states(table: Sweep) -> list[bytes]:
    layout = table.metadata.state
    if "last_hidden" not in layout.names:
        return []
    return [state.tobytes() for state in table.states[:, layout.columns(["last_hidden"])]]


def _alike(first: Sweep, second: Sweep) -> bool:
    """Whether two tables have prompts of the same families."""
    return set(first.rows["family"]) == set(second.rows["family"])


def _first_rows(table: Sweep) -> np.ndarray:
    """One row per prompt, since rows of one prompt are not independent."""
    return np.flatnonzero(~table.rows["id"].duplicated().to_numpy())
