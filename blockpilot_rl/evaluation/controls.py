"""Controls of an honest comparison: guards against leakage, and data without signal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.oracle import oracle_arms
from blockpilot_rl.sweeps.table import SweepTable

_FEW_PROMPTS = 10


def refuse_overlap(learning: Sequence[SweepTable | None], test: SweepTable) -> None:
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


def refuse_copied_answers(choices: Mapping[str, Choices], test: SweepTable) -> None:
    """Refuse choices that equal the oracle's on every test prompt.

    Such choices were read off the answers. Where one arm is fastest everywhere, or there are so
    few prompts that chance could do it, agreement shows nothing and is let pass.

    Args:
        choices: Choices of each agent.
        test: Table that they were made on.

    Raises:
        BlockPilotError: If an agent's choices are the oracle's.
    """
    answers = oracle_arms(test)
    if len(answers) < _FEW_PROMPTS or (answers == answers[0]).all():
        return
    for name, chosen in choices.items():
        if (chosen.arms == answers).all(axis=1).any():
            raise BlockPilotError(
                f"leakage: agent {name!r} chooses the fastest arm on all {len(answers)} test "
                "prompts, which takes knowing their answers; only the oracle may"
            )


def shuffle_states(table: SweepTable, rng: np.random.Generator) -> SweepTable:
    """Deal the states out anew among the rows, so that they tell nothing about the rewards.

    An agent that learns from such a table can find the best fixed size and no more; a comparison
    that prefers it to that size is not to be trusted.

    Args:
        table: The table.
        rng: Source of the permutation.
    """
    return dataclasses.replace(table, states=table.states[rng.permutation(len(table))])


def _ids(table: SweepTable) -> list[str]:
    return table.rows["id"].to_list()


def _hidden_states(table: SweepTable) -> list[bytes]:
    layout = table.metadata.state
    if "last_hidden" not in layout.names:
        return []
    return [state.tobytes() for state in table.states[:, layout.columns(["last_hidden"])]]
