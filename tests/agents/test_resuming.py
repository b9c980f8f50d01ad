"""Training that is saved, loaded and resumed equals training without a break."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from blockpilot_rl.agents import AGENTS, ALGORITHMS, Monitor, load_agent, make_agent
from blockpilot_rl.errors import BlockPilotError
from tests.agents.quick import BRIEF
from tests.synthetic import ARMS, synthetic_table

STEPWISE = tuple(name for name in AGENTS if make_agent(name).planned_timesteps)


@pytest.fixture(scope="module")
def tables():
    table = synthetic_table(500)
    return table.split("train"), table.split("validation"), table.split("test")


def same(left, right):
    """Compare nested dicts and sequences of tensors to the last bit."""
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, np.ndarray):
        return np.array_equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_break_changes_nothing(algorithm, tables, tmp_path):
    """VowpalWabbit/vowpal_wabbit#2943 was worse after it was reloaded.

    The break falls between two evaluations, another agent learns meanwhile, and the global random
    generators move.
    """
    hyperparams = BRIEF[algorithm]
    train, validation, test = tables
    whole = make_agent(algorithm, hyperparams=hyperparams).learn(train, validation)
    first = make_agent(algorithm, hyperparams=hyperparams)
    half = max(1, first.planned_timesteps * 11 // 20)
    first.learn(train, validation, total_timesteps=half)
    first.save(tmp_path / "run")
    torch.rand(7)
    make_agent(algorithm, seed=9, hyperparams=hyperparams).learn(
        train, validation, total_timesteps=half
    )
    resumed = load_agent(tmp_path / "run")
    rest = max(1, whole.num_timesteps - resumed.num_timesteps)
    resumed.learn(train, validation, total_timesteps=rest, reset_num_timesteps=False)
    assert resumed.num_timesteps == whole.num_timesteps
    np.testing.assert_array_equal(resumed.choose(test), whole.choose(test))
    if algorithm == "oracle":
        return
    states = test.states
    np.testing.assert_array_equal(
        resumed.action_probabilities(states), whole.action_probabilities(states)
    )
    if algorithm == "random":
        return
    assert same(resumed.to_policy().state_dict(), whole.to_policy().state_dict())
    if whole.decisions is not None:
        pd.testing.assert_frame_equal(resumed.decisions.frame(), whole.decisions.frame())
    if whole.num_timesteps:
        assert first.num_timesteps < whole.num_timesteps
        assert same(resumed.snapshot(), whole.snapshot())
        assert not same(first.snapshot(), whole.snapshot())
        assert same(resumed.training_state(), whole.training_state())


@pytest.mark.parametrize("algorithm", ["ppo", "linucb", "supervised"])
def test_an_agent_in_memory_can_be_resumed(algorithm, tables):
    train, validation, test = tables
    whole = make_agent(algorithm, hyperparams=BRIEF[algorithm]).learn(train, validation)
    agent = make_agent(algorithm, hyperparams=BRIEF[algorithm])
    agent.learn(train, validation, total_timesteps=whole.num_timesteps // 2)
    rest = whole.num_timesteps - agent.num_timesteps
    agent.learn(train, validation, total_timesteps=rest, reset_num_timesteps=False)
    np.testing.assert_array_equal(
        agent.action_probabilities(test.states), whole.action_probabilities(test.states)
    )


@pytest.mark.parametrize("algorithm", ["dqn", "lints", "expected-reward"])
def test_training_from_scratch_forgets_the_first_time(algorithm, tables):
    train, validation, _ = tables
    once = make_agent(algorithm, hyperparams=BRIEF[algorithm]).learn(train, validation)
    twice = make_agent(algorithm, hyperparams=BRIEF[algorithm]).learn(train, validation)
    twice.learn(train, validation)
    assert twice.num_timesteps == once.num_timesteps
    assert same(twice.to_policy().state_dict(), once.to_policy().state_dict())


@pytest.mark.parametrize("algorithm", STEPWISE)
def test_candidates_do_not_depend_on_where_calls_end(algorithm, tables):
    """A call that ends early uses its last candidate if it is the best, but never remembers it."""
    train, validation, _ = tables
    monitor = Monitor()
    agent = make_agent(algorithm, hyperparams=BRIEF[algorithm])
    agent.learn(train, validation, monitor)
    kept = [score.reward for step, score in monitor.history if step % agent.eval_freq == 0]
    assert agent._loop.best_reward == max(kept)
    assert monitor.result.reward == max(score.reward for _, score in monitor.history)


def test_other_arms_cannot_be_resumed_on(tables):
    train, validation, _ = tables
    agent = make_agent("linucb", hyperparams=BRIEF["linucb"]).learn(train, validation)
    fewer = train.select_arms(ARMS[:3])
    with pytest.raises(BlockPilotError, match="chooses among the arms"):
        agent.learn(fewer, None, reset_num_timesteps=False)


def test_steps_must_be_positive(tables):
    with pytest.raises(BlockPilotError, match="total_timesteps must be at least 1, got 0"):
        make_agent("linucb").learn(*tables[:2], total_timesteps=0)


@pytest.mark.parametrize(
    ("algorithm", "file"),
    [
        ("supervised", "training.pt"),
        ("linucb", "training.pt"),
        ("linucb", "decisions.parquet"),
        ("ppo", "last_model.zip"),
        ("dqn", "replay_buffer.pt"),
    ],
)
@pytest.mark.parametrize("content", [None, b"PK nonsense"])
def test_a_run_that_lost_a_part(tables, tmp_path, algorithm, file, content):
    hyperparams = BRIEF[algorithm]
    agent = make_agent(algorithm, hyperparams=hyperparams)
    agent.learn(*tables[:2], total_timesteps=1)
    agent.save(tmp_path)
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(BlockPilotError, match=f"{file} is missing or corrupt") as refused:
        load_agent(tmp_path)
    assert "\n" not in str(refused.value)
