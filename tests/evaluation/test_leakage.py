from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.leakage import (
    refuse_copied_answers,
    refuse_overlap,
    shuffle_states,
)
from blockpilot_rl.evaluation.oracle import oracle_arms
from tests.evaluation.replicates import replicated
from tests.synthetic import synthetic_table


@pytest.fixture
def splits():
    table = synthetic_table(n=300)
    return [table.split(name) for name in ("train", "validation", "test")]


def with_row(table, row: int, **values):
    """The table with some columns or the state of one row replaced."""
    rows, states = table.rows.copy(), table.states.copy()
    if "id" in values:
        rows.loc[row, "id"] = values["id"]
    if "state" in values:
        states[row] = values["state"]
    return dataclasses.replace(table, rows=rows, states=states)


def test_separate_splits_pass(splits):
    train, validation, test = splits
    refuse_overlap([train, validation], test)


@pytest.mark.parametrize("side", [0, 1])
def test_a_shared_prompt_is_refused(splits, side):
    learned, test = splits[side], splits[2]
    leaked = with_row(test, 3, id=learned.rows["id"][5])
    with pytest.raises(BlockPilotError, match=f"1 test prompts .*{learned.rows['id'][5]}"):
        refuse_overlap(splits[:2], leaked)


@pytest.mark.parametrize("side", [0, 1])
def test_a_shared_state_under_another_id_is_refused(splits, side):
    learned, test = splits[side], splits[2]
    leaked = with_row(test, 3, state=learned.states[5])
    with pytest.raises(BlockPilotError, match=f"1 test states .*{test.rows['id'][3]}"):
        refuse_overlap(splits[:2], leaked)


def test_prompts_of_equal_length_are_different_prompts(splits):
    narrow = []
    for table in splits:
        layout = table.metadata.state.select(("prompt",))
        states = np.full((len(table), 1), 3.0, dtype=np.float32)
        metadata = dataclasses.replace(table.metadata, state=layout)
        narrow.append(dataclasses.replace(table, metadata=metadata, states=states))
    refuse_overlap(narrow[:2], narrow[2])


def agreeing(table, share: float, seed: int = 0) -> np.ndarray:
    """Choices that equal the oracle's on a share of the rows."""
    rng = np.random.default_rng(seed)
    answers = oracle_arms(table)
    other = (answers + rng.integers(1, len(table.arms), size=len(table))) % len(table.arms)
    return np.where(rng.uniform(size=len(table)) < share, answers, other)


def test_choices_that_equal_the_answers_are_refused(splits):
    """Predictions that equal the labels of the test prompts prove nothing."""
    test = splits[2]
    answers, honest = oracle_arms(test), agreeing(test, 0.6)
    refuse_copied_answers({"good": Choices.free(honest[None])}, test)
    copied = Choices.free(np.stack([honest, answers]))
    with pytest.raises(BlockPilotError, match="leakage: agent 'copycat' chooses the fastest arm"):
        refuse_copied_answers({"good": Choices.free(honest[None]), "copycat": copied}, test)


def test_choices_that_almost_equal_the_answers_are_refused():
    """Changing a few of the copied answers does not hide them."""
    table = synthetic_table(n=400)
    almost = oracle_arms(table).copy()
    almost[:2] = (almost[:2] + 1) % len(table.arms)
    with pytest.raises(BlockPilotError, match="on 398 of 400 test prompts"):
        refuse_copied_answers({"copycat": Choices.free(almost[None])}, table)


def test_agreement_beyond_that_on_validation_prompts_is_refused():
    """An agent that copies some answers agrees far more on test prompts than on validation."""
    test, validation = synthetic_table(n=200), synthetic_table(n=200, seed=1)
    chosen = agreeing(test, 0.75)[None]
    refuse_copied_answers({"unknown": Choices.free(chosen)}, test, validation)
    same = Choices(chosen, np.zeros(1), validation=agreeing(validation, 0.75)[None])
    refuse_copied_answers({"skilled": same}, test, validation)
    worse = Choices(chosen, np.zeros(1), validation=agreeing(validation, 0.4)[None])
    with pytest.raises(
        BlockPilotError, match=r"[67]\d% of the test prompts and on [34]\d% of the v"
    ):
        refuse_copied_answers({"copycat": worse}, test, validation)


def test_splits_of_other_families_are_not_compared():
    """Their prompts may be easier to distinguish."""
    test, validation = synthetic_table(n=200), synthetic_table(n=200, seed=1)
    other = dataclasses.replace(validation, rows=validation.rows.assign(family="other"))
    worse = Choices(
        agreeing(test, 0.75)[None], np.zeros(1), validation=agreeing(validation, 0.3)[None]
    )
    refuse_copied_answers({"skilled": worse}, test, other)


def test_agreement_is_not_a_leak_if_one_arm_is_nearly_always_best():
    table = synthetic_table(n=40)
    seconds = np.ones((40, 5)) / [1, 2, 3, 4, 5]
    seconds[7, 2] = 0.1
    table = dataclasses.replace(table, seconds=seconds)
    refuse_copied_answers({"constant": Choices.free(oracle_arms(table)[None])}, table)


def test_rows_of_one_prompt_count_once():
    """Nine equal rows of nine prompts are no more evidence than nine rows."""
    few = synthetic_table(n=9)
    many = replicated(few, 9)
    assert len(many) == 81
    refuse_copied_answers({"constant": Choices.free(oracle_arms(many)[None])}, many)


def test_agreement_without_evidence_is_accepted(splits):
    test = splits[2]
    constant = dataclasses.replace(test, seconds=np.ones(test.seconds.shape) / [1, 2, 3, 4, 5])
    refuse_copied_answers(
        {"fixed-like": Choices(oracle_arms(constant)[None], np.zeros(1))}, constant
    )
    few = test.select_rows(np.arange(3))
    refuse_copied_answers({"constant": Choices(oracle_arms(few)[None], np.zeros(1))}, few)


def test_shuffling_moves_the_states_and_nothing_else(splits):
    train = splits[0]
    shuffled = shuffle_states(train, np.random.default_rng(0))
    assert (shuffled.states == train.states).all(axis=1).sum() < 10
    order = np.lexsort(train.states.T), np.lexsort(shuffled.states.T)
    np.testing.assert_array_equal(train.states[order[0]], shuffled.states[order[1]])
    np.testing.assert_array_equal(shuffled.speedups, train.speedups)
    assert shuffled.rows.equals(train.rows)
