from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.off_policy import (
    LoggedDecisions,
    _ridge,
    check_off_policy,
    evaluate_off_policy,
    log_decisions,
    predict_rewards,
)
from tests.evaluation.replicates import replicated
from tests.synthetic import ARMS, synthetic_table


@pytest.fixture(scope="module")
def table():
    return synthetic_table(n=600)


def uniform(table) -> np.ndarray:
    return np.full((len(table), len(ARMS)), 1 / len(ARMS))


def preferring(table, sharpness: float) -> np.ndarray:
    """A policy that prefers long blocks where the state predicts high acceptance."""
    signal = table.states[:, [0]] - table.states[:, 0].mean()
    scores = sharpness * signal * np.linspace(-1, 1, len(ARMS))
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def truth(table, probabilities: np.ndarray) -> float:
    """The true reward of the policy, computed from the full table."""
    return float((probabilities * table.speedups).sum(axis=1).mean())


@pytest.mark.parametrize("sharpness", [0.5, 3.0])
def test_all_estimators_find_the_truth(table, sharpness):
    target, logging = preferring(table, sharpness), preferring(table, -0.3)
    known = truth(table, target)
    assert abs(known - truth(table, logging)) > 0.05
    errors = {name: [] for name in ("IPS", "SNIPS", "DM", "DR")}
    for seed in range(20):
        logged = log_decisions(table, logging, np.random.default_rng(seed))
        weights = target[np.arange(len(table)), logged.arms] / logged.propensities
        predictions = predict_rewards(logged, seed=seed)
        rows = np.arange(len(table))
        direct = (target * predictions).sum(axis=1)
        surprise = weights * (logged.rewards - predictions[rows, logged.arms])
        errors["IPS"].append((weights * logged.rewards).mean() - known)
        errors["SNIPS"].append((weights * logged.rewards).sum() / weights.sum() - known)
        errors["DM"].append(direct.mean() - known)
        errors["DR"].append((direct + surprise).mean() - known)
    found = evaluate_off_policy(logged, target, predictions)
    for name, values in errors.items():
        assert found[name].reward.value == pytest.approx(known + values[-1])
    spread = {name: np.std(values) for name, values in errors.items()}
    bias = {name: abs(np.mean(values)) for name, values in errors.items()}
    for name in ("IPS", "SNIPS", "DR"):
        assert bias[name] < 4 * spread[name] / np.sqrt(20)
    assert spread["DR"] < spread["IPS"]
    assert spread["SNIPS"] < spread["IPS"]


def test_intervals_cover_the_truth_as_often_as_they_say(table):
    target = preferring(table, 1.0)
    known, covered = truth(table, target), 0
    for seed in range(40):
        logged = log_decisions(table, uniform(table), np.random.default_rng(seed))
        estimate = evaluate_off_policy(logged, target, confidence=0.8)["DR"]
        covered += estimate.reward.low <= known <= estimate.reward.high
    assert 0.65 <= covered / 40 <= 0.95


def test_judging_the_logging_policy_itself(table):
    """All weights are 1, so IPS is the mean reward and every decision counts."""
    policy = preferring(table, 2.0)
    logged = log_decisions(table, policy, np.random.default_rng(0))
    found = evaluate_off_policy(logged, policy)
    assert found["IPS"].reward.value == pytest.approx(logged.rewards.mean())
    assert found["IPS"].reward == pytest.approx(found["SNIPS"].reward)
    assert found["IPS"].effective_sample_size == pytest.approx(len(table))
    assert found["DM"].effective_sample_size is None


def test_a_policy_far_from_the_logged_one_has_few_effective_samples(table):
    logged = log_decisions(table, preferring(table, 2.0), np.random.default_rng(0))
    near = evaluate_off_policy(logged, preferring(table, 1.5))["DR"]
    far = evaluate_off_policy(logged, preferring(table, -2.0))["DR"]
    assert far.effective_sample_size < near.effective_sample_size / 2


def test_propensities_correct_a_wrong_model(table):
    target = preferring(table, 1.0)
    known = truth(table, target)
    logged = log_decisions(table, uniform(table), np.random.default_rng(0))
    wrong = np.full((len(table), len(ARMS)), 3.0)
    found = evaluate_off_policy(logged, target, wrong)
    assert found["DM"].reward == pytest.approx((3.0, 3.0, 3.0))
    assert found["DR"].reward.low < known < found["DR"].reward.high


def test_decisions_on_one_prompt_are_one_cluster(table):
    logged = log_decisions(table, uniform(table), np.random.default_rng(0))
    target = preferring(table, 1.0)
    columns = {
        name: np.concatenate([getattr(logged, name)] * 4)
        for name in ("states", "arms", "propensities", "rewards", "prompt_ids")
    }
    repeated = LoggedDecisions(**columns, num_arms=logged.num_arms)
    predictions = predict_rewards(logged)
    once = evaluate_off_policy(logged, target, predictions)["DR"].reward
    again = evaluate_off_policy(repeated, np.tile(target, (4, 1)), np.tile(predictions, (4, 1)))
    assert again["DR"].reward == pytest.approx(once)


def test_predictions_come_from_other_prompts(table):
    """Changing the rewards of one prompt does not change its own prediction."""
    logged = log_decisions(table, uniform(table), np.random.default_rng(0))
    rewards = logged.rewards.copy()
    rewards[7] += 100
    changed = dataclasses.replace(logged, rewards=rewards)
    before, after = predict_rewards(logged), predict_rewards(changed)
    np.testing.assert_array_equal(before[7], after[7])
    assert (before != after).any()


def test_an_arm_that_was_never_chosen_gets_the_mean(table):
    probabilities = uniform(table)
    probabilities[:, 4], probabilities[:, 3] = 0, 0.4
    logged = log_decisions(table, probabilities, np.random.default_rng(0))
    assert (logged.arms < 4).all()
    predictions = predict_rewards(logged)[:, 4]
    assert np.abs(predictions - logged.rewards.mean()).max() < 0.1


def test_logged_arms_follow_the_probabilities(table):
    policy = np.tile([0.1, 0.0, 0.5, 0.0, 0.4], (len(table), 1))
    logged = log_decisions(table, policy, np.random.default_rng(0))
    shares = np.bincount(logged.arms, minlength=5) / len(table)
    np.testing.assert_allclose(shares, policy[0], atol=0.06)
    np.testing.assert_array_equal(logged.propensities, policy[0][logged.arms])
    np.testing.assert_array_equal(logged.rewards, table.speedups[np.arange(600), logged.arms])


def test_a_log_is_read_with_the_states_of_its_prompts(table):
    frame = pd.DataFrame(
        {
            "prompt_id": table.rows["id"][[5, 0, 5]].to_list(),
            "block_size": [8, 1, 2],
            "reward": [1.5, 1.0, 1.2],
            "propensity": [0.5, 0.25, 1.0],
        }
    )
    logged = LoggedDecisions.from_frame(frame, table)
    np.testing.assert_array_equal(logged.states, table.states[[5, 0, 5]])
    assert logged.arms.tolist() == [3, 0, 1]
    assert logged.rewards.tolist() == [1.5, 1.0, 1.2]
    with pytest.raises(BlockPilotError, match="prompt_id stranger, which the sweep lacks"):
        LoggedDecisions.from_frame(frame.assign(prompt_id="stranger"), table)
    with pytest.raises(BlockPilotError, match="lack the columns"):
        LoggedDecisions.from_frame(frame.drop(columns="propensity"), table)
    with pytest.raises(BlockPilotError, match="block size 3 is not an arm"):
        LoggedDecisions.from_frame(frame.assign(block_size=3), table)


def test_rows_of_a_prompt_are_distinguished_if_their_states_differ(table):
    """The first draft of a sampled row depends on what was sampled."""
    several = replicated(table, 3)
    rows = [5, 605, 1205, 7]
    frame = pd.DataFrame(
        {
            "prompt_id": several.rows["id"][rows].to_list(),
            "block_size": 8,
            "reward": 1.5,
            "propensity": 0.5,
        }
    )
    marked = frame.assign(temperature=1.0, seed=[0, 1, 2, 0])
    for decisions in (frame, marked):
        logged = LoggedDecisions.from_frame(decisions, several)
        np.testing.assert_array_equal(logged.states, several.states[rows])
    states = several.states.copy()
    states[605] += 1
    changed = dataclasses.replace(several, states=states)
    logged = LoggedDecisions.from_frame(marked, changed)
    np.testing.assert_array_equal(logged.states, states[rows])
    with pytest.raises(
        BlockPilotError, match=r"have different states, and .* temperature and seed"
    ):
        LoggedDecisions.from_frame(frame, changed)
    with pytest.raises(BlockPilotError, match="temperature and seed"):
        LoggedDecisions.from_frame(marked.drop(columns="seed"), changed)
    LoggedDecisions.from_frame(frame[3:], changed)
    with pytest.raises(BlockPilotError, match=r"temperature 1\.0, seed 9, which the sweep lacks"):
        LoggedDecisions.from_frame(marked.assign(seed=9), changed)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("propensities", 0.0, "decision 2 has a propensity outside"),
        ("propensities", 1.1, "decision 2 has a propensity outside"),
        ("rewards", np.nan, "decision 2 has a reward"),
        ("arms", 9, "decision 2 has an arm outside"),
    ],
)
def test_a_bad_decision_is_named(table, column, value, message):
    logged = log_decisions(table, uniform(table), np.random.default_rng(0))
    values = getattr(logged, column).copy()
    values[2] = value
    with pytest.raises(BlockPilotError, match=message):
        dataclasses.replace(logged, **{column: values})


def test_mismatches_are_refused(table):
    logged = log_decisions(table, uniform(table), np.random.default_rng(0))
    with pytest.raises(BlockPilotError, match="must both be"):
        evaluate_off_policy(logged, uniform(table)[:5])
    with pytest.raises(BlockPilotError, match="sum to 1"):
        evaluate_off_policy(logged, 2 * uniform(table))
    with pytest.raises(BlockPilotError, match="one length"):
        dataclasses.replace(logged, rewards=logged.rewards[:3])


def test_several_logs_show_the_error_of_one(table):
    target = preferring(table, 1.0)
    found = check_off_policy(table, target, logs=8, confidence=0.8, seed=3)
    assert (found.logs, found.decisions, found.confidence) == (8, len(table), 0.8)
    assert found.truth == pytest.approx(truth(table, target))
    rngs = np.random.default_rng(3).spawn(8)
    each = [
        evaluate_off_policy(
            log_decisions(table, uniform(table), rng), target, confidence=0.8, seed=3
        )
        for rng in rngs
    ]
    for name, estimator in found.estimators.items():
        values = np.array([one[name].reward for one in each])
        errors = values[:, 0] - found.truth
        assert estimator.mean == pytest.approx(values[:, 0].mean())
        assert estimator.rmse == pytest.approx(np.sqrt((errors**2).mean()))
        held = (values[:, 1] <= found.truth) & (found.truth <= values[:, 2])
        assert estimator.coverage == held.mean()
    sizes = [one["IPS"].effective_sample_size for one in each]
    assert found.estimators["IPS"].effective_sample_size == pytest.approx(np.mean(sizes))
    assert found.estimators["DM"].effective_sample_size is None
    assert len({one["IPS"].reward for one in each}) == 8


@pytest.mark.parametrize("count", [6, 60])
def test_either_system_of_a_ridge_regression_has_the_same_weights(count):
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(count, 20)), rng.normal(size=count)
    expected = np.linalg.solve(inputs.T @ inputs + 3 * np.eye(20), inputs.T @ targets)
    np.testing.assert_allclose(_ridge(inputs, targets, 3.0), expected)
