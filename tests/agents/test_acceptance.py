"""The acceptance agents: counts of drafts, survival curves, confidence and prices."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from blockpilot_rl.agents import make_agent
from blockpilot_rl.agents.acceptance import AcceptanceData
from blockpilot_rl.agents.hazards import HazardModel, draft_counts
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.policies.policy import BlockSizePolicy
from tests.agents.quick import QUICK
from tests.synthetic import ARMS, HIDDEN, synthetic_table

EASY, HARD = 0.9, 0.3


def profile(further: float) -> LatencyProfile:
    """A device where each further token of a block costs this share of a plain pass."""
    return LatencyProfile(
        block_sizes=ARMS,
        draft=tuple((0.0 if arm == 1 else 0.1, 0.0) for arm in ARMS),
        verify=tuple((1 + further * (arm - 1), 0.0) for arm in ARMS),
        read_prompt=(0.0, 0.0),
        medians={},
    )


def states_of(rates, rng) -> np.ndarray:
    """States of the synthetic sweep for prompts of these acceptance rates."""
    states = np.concatenate(
        [rng.normal(size=(len(rates), HIDDEN)), rng.uniform(size=(len(rates), 3))], axis=1
    )
    states[:, 0] = 4 * np.asarray(rates)
    return np.concatenate([states, np.full((len(rates), 1), np.log(40))], axis=1).astype(np.float32)


@pytest.fixture(scope="module")
def table():
    return synthetic_table(600)


@pytest.fixture(scope="module", params=["acceptance", "acceptance-bandit"])
def policy(request, table):
    agent = make_agent(request.param, hyperparams=QUICK[request.param])
    return agent.learn(table.split("train"), table.split("validation")).to_policy()


@pytest.mark.parametrize(
    ("emitted", "tried", "accepted"),
    [
        ([4, 1], [1, 1, 1], [1, 1, 1]),  # the last pass ends the text with its first token
        ([1, 2], [2, 0, 0], [1, 0, 0]),  # a rejection; then one draft was accepted before the end
        ([2, 3, 4, 4], [4, 4, 3], [4, 3, 2]),
        ([1, 1, 1], [2, 0, 0], [0, 0, 0]),
        ([4], [1, 1, 1], [1, 1, 1]),
    ],
)
def test_drafts_are_counted_up_to_the_first_rejection(table, emitted, tried, accepted):
    row = dataclasses.replace(
        table.select_rows(np.array([0])).select_arms((1, 4)),
        accepted=[[np.ones(sum(emitted), dtype=int), np.array(emitted)]],
    )
    counts = draft_counts(row)
    assert counts.tried[0].tolist() == [[0, 0, 0], tried]
    assert counts.accepted[0].tolist() == [[0, 0, 0], accepted]


def test_the_true_survival_curves_are_found(policy):
    """Drafts of the synthetic sweep are accepted independently, so survival is geometric."""
    rng = np.random.default_rng(1)
    for rate in (0.4, 0.6, 0.8):
        found = policy.survival(states_of([rate] * 200, rng)).curves.mean(dim=0)
        true = rate ** np.arange(1, 8)
        np.testing.assert_allclose(found[ARMS.index(8), :7], true, atol=0.08)
        assert (found[ARMS.index(8), 7:] == 0).all()
        assert (found[0] == 0).all()


@pytest.mark.parametrize("far", ["scaled", "other directions", "one value", "shifted"])
def test_far_from_the_training_states_the_average_curve_is_used(policy, table, far):
    """In proportion to the distance; near them the prediction keeps its weight."""
    states = table.split("test").states.copy()
    near = policy.survival(states)
    assert near.confidence.median() > 0.9
    assert (near.confidence > 0.2).all()
    confidences = []
    for factor in (5, 20, 100):
        moved = states.copy()
        if far == "scaled":
            moved = policy.mean.numpy() + factor * (states - policy.mean.numpy())
        elif far == "other directions":
            moved[:, :HIDDEN] += factor * np.random.default_rng(0).normal(size=HIDDEN)
        elif far == "one value":
            moved[:, 3] += factor
        else:
            moved[:, :HIDDEN] += factor
        found = policy.survival(moved)
        confidences.append(float(found.confidence.mean()))
        distance = (found.curves - policy.acceptance.average).abs().amax(dim=(1, 2))
        assert (distance <= found.confidence + 1e-6).all()
    assert confidences[0] > confidences[1] > confidences[2]
    assert confidences[2] < 0.02


def test_the_average_curve_chooses_the_best_fixed_size_of_the_device(policy, table):
    far = np.full((1, policy.config.state.width), 1e4, dtype=np.float32)
    far[0, -1] = np.log(20)
    train = table.split("train")
    for further in (0.01, 0.1, 0.3):
        device = profile(further)
        seconds = train.passes * device.step_lines(ARMS)[:, 0]
        speedups = (seconds[:, :1] / seconds).mean(axis=0)
        decision = policy.for_device(device).decide(torch.from_numpy(far[0]))
        assert decision.confidence < 0.01
        # It also learned from the validation prompts, the bandit from its own decisions alone.
        assert speedups[ARMS.index(decision.block_size)] > 0.97 * speedups.max()


def test_prices_decide_between_the_same_predictions(policy):
    rng = np.random.default_rng(2)
    states = states_of([HARD, EASY], rng)
    cheap, dear, free = (policy.for_device(profile(cost)) for cost in (0.05, 0.4, 0.0))
    np.testing.assert_array_equal(cheap.survival(states).curves, dear.survival(states).curves)
    for hard, easy in (each.predict(states) for each in (cheap, dear)):
        assert hard < easy
    assert (dear.predict(states) < cheap.predict(states)).all()
    assert (free.predict(states) == ARMS.index(16)).all()
    assert policy.config.prices.device == "none"


def test_speedups_follow_from_survival_and_the_profile(policy):
    """Context, the drafter's pass over the prompt and a temperature included."""
    states = states_of([0.5, 0.9], np.random.default_rng(3))
    priced = policy.for_device(
        dataclasses.replace(
            profile(0.1),
            verify=tuple((1 + 0.1 * arm, 0.001 * arm) for arm in ARMS),
            read_prompt=(2.0, 0.05),
        )
    )
    tokens, answer = priced.survival(states).tokens, float(priced.acceptance.answer_tokens)
    arms = torch.tensor(ARMS)
    steps = 1 + 0.1 * arms + 0.1 * (arms > 1) + 0.001 * arms * (40 + answer / 2)
    seconds = steps / tokens + (arms > 1) * (2 + 0.05 * 40) / answer
    expected = seconds[:, :1] / seconds
    torch.testing.assert_close(priced(torch.from_numpy(states)), expected, rtol=1e-4, atol=1e-4)


def test_an_acceptance_policy_survives_a_round_trip(policy, tmp_path):
    states = states_of([0.3, 0.6, 0.9], np.random.default_rng(4))
    policy.save_pretrained(tmp_path / "policy")
    loaded = BlockSizePolicy.from_pretrained(tmp_path / "policy")
    assert loaded.config == policy.config
    for ours, theirs in zip(policy.survival(states), loaded.survival(states), strict=True):
        torch.testing.assert_close(ours, theirs)
    np.testing.assert_array_equal(policy.predict(states), loaded.predict(states))
    moved = loaded.for_device(profile(0.4))
    moved.save_pretrained(tmp_path / "moved")
    again = BlockSizePolicy.from_pretrained(tmp_path / "moved")
    np.testing.assert_array_equal(moved.predict(states), again.predict(states))


def test_states_that_are_not_finite_get_the_fallback(policy):
    state = torch.full((policy.config.state.width,), torch.nan)
    with pytest.warns(RuntimeWarning, match="1 of 1 states are not finite"):
        decision = policy.decide(state)
    assert decision == (policy.config.fallback, 0.0)


@pytest.mark.parametrize("sizes", [(1, 2, 4), (1, 3, 4, 8, 16), (2, 4)])
def test_a_profile_must_have_measured_the_block_sizes(policy, sizes):
    lacking = dataclasses.replace(
        profile(0.1),
        block_sizes=sizes,
        draft=((0.0, 0.0),) * len(sizes),
        verify=((1.0, 0.0),) * len(sizes),
    )
    with pytest.raises(BlockPilotError, match=r"block size \d+ is not in the latency profile"):
        policy.for_device(lacking)


def test_families_stay_together_in_cross_validation(table):
    problem = make_agent("fixed").learn(table.split("train")).problem
    data = AcceptanceData.from_tables(problem, [table], 8)
    folds = data.folds(5, seed=0)
    assert len(np.unique(folds)) == 2
    for family in ("easy", "hard"):
        assert len(set(folds[data.families == family])) == 1
    alone = data.rows(data.families == "easy")
    assert len(np.unique(alone.folds(5, seed=0))) == 5


def test_gradient_and_information_are_those_of_the_likelihood(table):
    """Compared with automatic differentiation."""
    problem = make_agent("fixed").learn(table.split("train")).problem
    data = AcceptanceData.from_tables(problem, [table.select_rows(np.arange(20))], 4)
    counts = draft_counts(table.select_rows(np.arange(20)))
    model = HazardModel(ARMS, 5, penalty=1.0)
    model.theta.copy_(
        0.1 * torch.randn(len(model.theta), generator=torch.Generator().manual_seed(0))
    )

    def likelihood(theta):
        hazards = model.hazards(data.features, theta)
        rejected = counts.tried - counts.accepted
        return (counts.accepted * hazards.log() + rejected * (1 - hazards).log()).sum()

    gradient, information = model._newton_terms(data.features, counts)
    torch.testing.assert_close(
        torch.autograd.functional.jacobian(likelihood, model.theta), gradient
    )
    torch.testing.assert_close(
        -torch.autograd.functional.hessian(likelihood, model.theta), information
    )


@pytest.mark.parametrize("arms", [(1, 2), (1, 2, 4), (1, 16)])
@pytest.mark.parametrize("prompts", [1, 3, 40])
@pytest.mark.parametrize("algorithm", ["acceptance", "acceptance-bandit"])
def test_few_block_sizes_and_few_prompts(algorithm, arms, prompts):
    small = synthetic_table(200).select_arms(arms).select_rows(np.arange(prompts))
    settings = {**QUICK[algorithm]}
    if algorithm == "acceptance-bandit":
        settings |= {"n_timesteps": 64, "eval_freq": 64, "learning_starts": 32}
    agent = make_agent(algorithm, hyperparams=settings).learn(small)
    assert set(agent.choose(small)) <= set(range(len(arms)))
    curves = agent.policy.survival(agent.problem.states(small)).curves
    assert curves.shape == (prompts, len(arms), max(arms) - 1)
    assert ((curves >= 0) & (curves <= 1)).all()
