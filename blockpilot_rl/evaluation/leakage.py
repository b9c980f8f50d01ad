"""Guards against leakage, and shuffled states as a control."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest, norm

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.measure import SEEN, SOURCE, group_labels
from blockpilot_rl.evaluation.oracle import oracle_arms
from blockpilot_rl.sweeps.table import Sweep, refuse_unseen_training

_HONEST_SHARE = 0.9
_SIGNIFICANCE = 1e-4


def refuse_overlap(learning: Sequence[Sweep | None], test: Sweep) -> None:
    """Refuse test prompts that agents learn from, and unseen families that they learn from.

    Prompts are compared by id and, if it was recorded, by last hidden state, which two different
    prompts do not share.

    Args:
        learning: Rows that agents learn from and are selected on; None for no rows.
        test: Rows that they are judged on.

    Raises:
        BlockPilotError: If a prompt or a state is in both, or a row to learn from is of a family
            that the test rows call unseen.
    """
    for table in learning:
        if table is not None:
            refuse_unseen_training(dataclasses.replace(table, metadata=test.metadata))
    for what, key in (("prompts", _ids), ("states", _hidden_states)):
        seen = {item for table in learning if table is not None for item in key(table)}
        rows = [row for row, item in enumerate(key(test)) if item in seen]
        if rows:
            raise BlockPilotError(
                f"leakage: {len(rows)} test {what} are also in the training or validation split, "
                f"the first is prompt {test.rows['id'][rows[0]]}; a prompt must be in one split "
                "only; record the sweep again with `blockpilot collect-sweep`"
            )


def refuse_copied_answers(
    choices: Mapping[str, Choices], test: Sweep, validation: Sweep | None = None
) -> None:
    """Refuse choices that agree with the test labels more than an honest policy can.

    The state of a prompt predicts only partly which arm is fastest, so an honest policy differs
    from the oracle on many prompts. Two signs reveal copied answers:

    - Choices equal the oracle's on all test prompts, or on significantly more than 90% of the way
      from the best constant choice to the oracle.
    - Choices agree with the oracle significantly more often on test prompts than on validation
      prompts, beyond the agreement of random choices in the same shares. Selection on validation
      prompts favours those, and they resemble the training prompts more than held-out templates do.

    If one arm is fastest on most prompts, or there are few prompts, a constant can agree with the
    oracle everywhere, and the check is skipped.

    Args:
        choices: Choices of each agent.
        test: Rows that they were made on.
        validation: Rows of `Choices.validation`. They are compared with the test rows of seen
            sources, and ignored if their families differ from those.

    Raises:
        BlockPilotError: If an agent's choices are copied from the oracle.
    """
    rows = _first_rows(test)
    seen = rows[group_labels(test, SOURCE)[rows] == SEEN]
    families = set(test.rows["family"].iloc[seen])
    if validation is not None and set(validation.rows["family"]) != families:
        validation = None
    answers = oracle_arms(test)[rows]
    constant = np.unique(answers, return_counts=True)[1].max() / len(answers)
    if not choices or constant ** len(answers) > _SIGNIFICANCE:
        return
    honest = constant + _HONEST_SHARE * (1 - constant)
    # Adjusted for the number of seeds of all agents.
    level = _SIGNIFICANCE / sum(len(chosen.arms) for chosen in choices.values())
    for name, chosen in choices.items():
        for seed, arms in enumerate(chosen.arms[:, rows]):
            hits = int((arms == answers).sum())
            significant = (
                binomtest(hits, len(answers), honest, alternative="greater").pvalue < level
            )
            if hits == len(answers) or significant:
                raise BlockPilotError(
                    f"leakage: agent {name!r} chooses the fastest arm on {hits} of {len(answers)} "
                    "test prompts, which is only possible by knowing their answers"
                )
            if validation is None or chosen.validation is None:
                continue
            held = _first_rows(validation)
            on_test = _agreement(chosen.arms[seed, seen], oracle_arms(test)[seen])
            on_validation = _agreement(chosen.validation[seed, held], oracle_arms(validation)[held])
            excess = on_test.excess - on_validation.excess
            if excess > norm.isf(level) * np.hypot(on_test.error, on_validation.error):
                raise BlockPilotError(
                    f"leakage: agent {name!r} chooses the fastest arm on {on_test.share:.0%} of "
                    f"the test prompts and on {on_validation.share:.0%} of the validation prompts, "
                    "significantly more often than the shares of its choices explain, so it must "
                    "have seen the test answers"
                )


class _Agreement(NamedTuple):
    """How often choices equal the fastest arm.

    Attributes:
        share: Share of the prompts.
        excess: That share minus the one of random choices in the same shares.
        error: Standard error of the share, at least that of half a prompt.
    """

    share: float
    excess: float
    error: float


def _agreement(arms: np.ndarray, answers: np.ndarray) -> _Agreement:
    share = float((arms == answers).mean())
    expected = sum(float((arms == arm).mean() * (answers == arm).mean()) for arm in np.unique(arms))
    hits = np.clip(share * len(arms), 0.5, len(arms) - 0.5) / len(arms)
    return _Agreement(share, share - expected, float(np.sqrt(hits * (1 - hits) / len(arms))))


def shuffle_states(table: Sweep, rng: np.random.Generator) -> Sweep:
    """Shuffle the states among the rows, so that they do not predict the speedups.

    An agent that learns from shuffled states can at best find the best fixed size. A comparison
    that ships such an agent is wrong.

    Args:
        table: The rows.
        rng: Draws the permutation.
    """
    return dataclasses.replace(table, states=table.states[rng.permutation(len(table))])


def _ids(table: Sweep) -> list[str]:
    return table.rows["id"].to_list()


def _hidden_states(table: Sweep) -> list[bytes]:
    layout = table.metadata.state
    if "last_hidden" not in layout.names:
        return []
    return [state.tobytes() for state in table.states[:, layout.columns(["last_hidden"])]]


def _first_rows(table: Sweep) -> np.ndarray:
    """Numbers of one row per prompt, since rows of one prompt are not independent."""
    return np.flatnonzero(~table.rows["id"].duplicated().to_numpy())
