from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import pytest

from blockpilot_rl.agents import AGENTS, make_agent
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.experiments.trainings import (
    Splits,
    Trained,
    Training,
    side_by_side,
)
from tests.evaluation.replicates import replicated
from tests.synthetic import synthetic_table


@pytest.fixture(scope="module")
def splits() -> Splits:
    return Splits.of(synthetic_table(n=300))


def test_a_sweep_without_validation_rows():
    table = synthetic_table(n=100)
    found = Splits.of(table.select_rows((table.rows["split"] != "validation").to_numpy()))
    assert found.validation is None
    few = found.each(lambda part: part.select_rows(np.arange(3)))
    assert (len(few.train), few.validation, len(few.test)) == (3, None, 3)


def test_what_a_decision_costs():
    """A label of every arm is no decision; a baseline is decoded for too."""
    costs = {name: make_agent(name).decodes_per_decision for name in AGENTS}
    for name in ("supervised", "ridge-regression", "network-regression", "fixed"):
        assert costs[name] == 0
    assert costs["ppo"] == costs["linucb"] == 2
    plain = make_agent("linucb", hyperparams={"reward_baseline": "none"})
    assert plain.decodes_per_decision == 1


def test_decisions_are_paid_for(splits):
    """And so are the labels by which the size was chosen that they are compared with."""
    training = Training("linucb", splits, ("last_hidden",), decisions=64)
    arms = len(splits.train.arms)
    found = training.learn(seed=1)
    assert (found.decisions, found.decodes) == (64, 128 + arms * len(splits.train))
    few = dataclasses.replace(training, baseline_prompts=5).learn(seed=1)
    assert (few.decisions, few.decodes) == (64, 128 + 5 * arms)
    free = dataclasses.replace(training, hyperparams={"reward_baseline": "none"}).learn(seed=1)
    assert (free.decisions, free.decodes) == (64, 64)
    labels = Training("supervised", splits, ("last_hidden",), decisions=2).learn(seed=1)
    assert (labels.decisions, labels.decodes) == (0, 0)


def test_the_size_that_rewards_are_compared_with_comes_from_few_prompts(splits):
    sizes = set()
    for seed in range(8):
        training = Training("fixed", splits, ("last_hidden",), baseline_prompts=1)
        sizes.update(np.unique(training.learn(seed).arms))
    assert len(sizes) > 1


def test_shuffling_is_for_what_is_learned_from_alone(splits):
    training = Training("reward-regression", splits, ("last_hidden",), shuffle=True)
    train, validation = training.lesson(seed=1)
    for shuffled, table in ((train, splits.train), (validation, splits.validation)):
        assert (shuffled.states != table.states).any()
        np.testing.assert_array_equal(np.sort(shuffled.states, 0), np.sort(table.states, 0))
        np.testing.assert_array_equal(shuffled.speedups, table.speedups)


def test_fewer_prompts_keep_all_their_rows(splits):
    several = splits.each(lambda table: replicated(table, 2))
    half = len(splits.train) // 2
    train, validation = Training("fixed", several, ("prompt",), prompts=half).lesson(seed=1)
    assert (train.rows["id"].nunique(), len(train)) == (half, 2 * half)
    # What learns from validation prompts too must not see all of them.
    held = validation.rows["id"].nunique()
    assert held == pytest.approx(len(splits.validation) / 2, abs=1)
    assert len(validation) == 2 * held


def test_work_goes_to_other_processes():
    """In the order of the seeds, whichever ends first; one job stays here."""
    which = "__import__('os').getpid()"
    with side_by_side(2) as each:
        assert list(each(math.factorial, range(5))) == [1, 1, 2, 6, 24]
        assert os.getpid() not in each(eval, [which] * 4)
    with side_by_side(1) as each:
        assert list(each(eval, [which])) == [os.getpid()]


def test_the_file_of_a_map_goes_when_it_is_exhausted(tmp_path, monkeypatch):
    """It holds a sweep; those of a whole comparison took gigabytes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def files() -> list[Path]:
        return [path for path in tmp_path.rglob("*") if path.is_file()]

    with side_by_side(2) as each:
        for _ in range(2):
            found = iter(each(math.factorial, range(3)))
            assert next(found) == 1
            assert len(files()) == 1
            assert list(found) == [1, 2]
            assert files() == []
        abandoned = iter(each(math.factorial, range(3)))
        next(abandoned)
    assert list(tmp_path.iterdir()) == []


def test_hyperparameters_reach_the_agent(splits):
    penalty = {"alphas": [1e9]}
    found = Training("reward-regression", splits, ("last_hidden",), hyperparams=penalty).learn(0)
    assert set(found.arms) == {make_agent("fixed").learn(splits.train).choose(splits.test)[0]}


def test_a_process_that_dies_is_named():
    with pytest.raises(BlockPilotError, match=r"died, .* --jobs 1"), side_by_side(2) as each:
        list(each(os._exit, [1]))


def test_an_interrupt_ends_the_processes():
    """Also where only this process is interrupted."""

    def interrupted() -> None:
        with side_by_side(2) as each:
            next(iter(each(time.sleep, [0, 60, 60, 60])))
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - began < 30
    assert active_children() == []


def test_processes_end_with_their_parent(tmp_path):
    """However it ends."""
    program = (
        "import os, sys; from blockpilot_rl.experiments.trainings import side_by_side\n"
        "if __name__ == '__main__':\n"
        "    with side_by_side(2) as each:\n"
        "        print(*each(eval, ['__import__(\"os\").getpid()'] * 2), flush=True)\n"
        "        os.kill(os.getpid(), 9)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(program, encoding="utf-8")
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ended.returncode == -9
    workers = {int(word) for word in ended.stdout.split()}
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_other_processes_learn_the_same(splits):
    training = Training("supervised", splits, ("last_hidden", "prompt"))
    with side_by_side(2) as each:
        apart = Trained.of(list(each(training.learn, range(2))), splits.test)
    here = Trained.of(list(map(training.learn, range(2))), splits.test)
    np.testing.assert_array_equal(apart.choices.arms, here.choices.arms)
    np.testing.assert_array_equal(apart.choices.validation, here.choices.validation)
    assert (here.choices.arms[0] != here.choices.arms[1]).any()
