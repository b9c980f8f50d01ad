"""What every algorithm promises, and what each adds."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from blockpilot_rl.agents import ALGORITHMS, Monitor, Score, load_agent, make_agent
from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.controls import shuffle_states
from blockpilot_rl.policies.policy import BlockSizePolicy
from tests.agents.quick import QUICK
from tests.synthetic import ARMS, HIDDEN, synthetic_table

LEARNERS = ("ppo", "supervised", "reward-regression")
DEPLOYABLE = (*LEARNERS, "fixed")
FROM_STATES = (*DEPLOYABLE, "random")


def split(table):
    return table.split("train"), table.split("validation"), table.split("test")


def quick(algorithm, **settings):
    return make_agent(algorithm, hyperparams=QUICK[algorithm], **settings)


@pytest.fixture(scope="module")
def tables():
    return split(synthetic_table(1500))


@pytest.fixture(scope="module")
def learned(tables):
    """Every algorithm, learned once; no test changes them."""
    return {name: quick(name).learn(*tables[:2]) for name in ALGORITHMS}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_chooses_an_arm_for_every_prompt(algorithm, learned, tables):
    choices = learned[algorithm].choose(tables[2])
    assert choices.shape == (len(tables[2]),)
    assert choices.dtype == np.int64
    assert choices.min() >= 0
    assert choices.max() < len(ARMS)


@pytest.mark.parametrize("algorithm", LEARNERS)
def test_learners_beat_the_best_fixed_size_where_states_tell(algorithm, learned, tables):
    agent = learned[algorithm]
    score = Score.of(tables[2], agent.choose(tables[2]), agent.problem.best_fixed)
    assert score.gap_closed > 0.2
    assert score.regret > 0


@pytest.mark.parametrize("algorithm", ["ppo", "reward-regression"])
def test_learners_of_rewards_lose_next_to_nothing_where_states_tell_nothing(algorithm):
    train, validation, test = split(synthetic_table(1500, seed=3, signal=False))
    agent = quick(algorithm).learn(train, validation)
    score = Score.of(test, agent.choose(test), agent.problem.best_fixed)
    assert score.reward > 0.98 * score.best_fixed


def test_shuffled_states_take_the_gain_away(tables, learned):
    train, validation, test = tables
    rng = np.random.default_rng(0)
    blind = quick("reward-regression").learn(
        shuffle_states(train, rng), shuffle_states(validation, rng)
    )
    seeing = Score.of(test, learned["reward-regression"].choose(test), blind.problem.best_fixed)
    unseeing = Score.of(test, blind.choose(test), blind.problem.best_fixed)
    assert unseeing.gap_closed < 0.05 < seeing.gap_closed


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_same_seed_same_agent(algorithm, learned, tables):
    """To the last bit, whatever the global generators hold."""
    torch.manual_seed(12345)
    again = quick(algorithm).learn(*tables[:2])
    np.testing.assert_array_equal(again.choose(tables[2]), learned[algorithm].choose(tables[2]))
    if algorithm in DEPLOYABLE:
        ours, theirs = again.to_policy().state_dict(), learned[algorithm].to_policy().state_dict()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("algorithm", ["ppo", "supervised", "random"])
def test_another_seed_another_agent(algorithm, learned, tables):
    other = quick(algorithm, seed=1).learn(*tables[:2])
    assert (other.choose(tables[2]) != learned[algorithm].choose(tables[2])).any()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_saved_and_loaded_is_the_same(algorithm, learned, tables, tmp_path):
    agent = learned[algorithm]
    agent.save(tmp_path / "run")
    loaded = load_agent(tmp_path / "run")
    assert type(loaded) is type(agent)
    assert loaded.seed == agent.seed
    assert loaded.hyperparams == agent.hyperparams
    assert loaded.problem == agent.problem
    np.testing.assert_array_equal(loaded.choose(tables[2]), agent.choose(tables[2]))
    if algorithm in FROM_STATES:
        np.testing.assert_array_equal(
            loaded.action_probabilities(tables[2].states),
            agent.action_probabilities(tables[2].states),
        )


@pytest.mark.parametrize("algorithm", FROM_STATES)
def test_probabilities(algorithm, learned, tables):
    agent = learned[algorithm]
    probabilities = agent.action_probabilities(tables[2].states)
    assert probabilities.shape == (len(tables[2]), len(ARMS))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert (probabilities >= 0).all()
    if algorithm != "random":
        np.testing.assert_array_equal(probabilities.argmax(axis=1), agent.predict(tables[2].states))


def test_ppo_keeps_exploring(learned, tables):
    probabilities = learned["ppo"].action_probabilities(tables[2].states)
    entropy = -(probabilities * np.log(probabilities + 1e-12)).sum(axis=1)
    assert entropy.mean() > 0.05


@pytest.mark.parametrize("algorithm", DEPLOYABLE)
def test_policy_chooses_as_its_agent(algorithm, learned, tables, tmp_path):
    agent = learned[algorithm]
    policy = agent.to_policy({"command": ["train"]})
    policy.save_pretrained(tmp_path / "policy")
    loaded = BlockSizePolicy.from_pretrained(tmp_path / "policy")
    states = tables[2].states
    np.testing.assert_array_equal(loaded.predict(states), agent.predict(states))
    assert loaded.select(torch.from_numpy(states[0])) == ARMS[agent.predict(states[:1])[0]]
    config = loaded.config
    assert config.algorithm == algorithm
    assert config.arms == ARMS
    assert config.state == tables[0].metadata.state
    assert config.fallback == ARMS[tables[0].rewards.mean(axis=0).argmax()]
    assert config.fingerprint == tables[0].metadata.fingerprint
    assert config.provenance == {"command": ["train"]}


@pytest.mark.parametrize("algorithm", ["random", "oracle"])
def test_yardsticks_cannot_be_deployed(algorithm, learned):
    with pytest.raises(BlockPilotError, match=f"{algorithm} cannot be exported: "):
        learned[algorithm].to_policy()


def test_oracle_takes_the_fastest_arm_of_each_prompt(learned, tables):
    np.testing.assert_array_equal(
        learned["oracle"].choose(tables[2]), tables[2].seconds.argmin(axis=1)
    )
    with pytest.raises(BlockPilotError, match="recorded rewards"):
        learned["oracle"].predict(tables[2].states)
    with pytest.raises(BlockPilotError, match="recorded rewards"):
        learned["oracle"].action_probabilities(tables[2].states)


def test_fixed_takes_the_best_on_the_training_prompts(learned, tables):
    best = tables[0].rewards.mean(axis=0).argmax()
    assert set(learned["fixed"].choose(tables[2])) == {best}


def test_fixed_takes_a_given_size(tables):
    agent = make_agent("fixed", hyperparams={"block_size": 4}).learn(*tables[:2])
    assert set(agent.choose(tables[2])) == {ARMS.index(4)}
    assert agent.problem.best_fixed != 4
    with pytest.raises(BlockPilotError, match="block size 3 is not an arm"):
        make_agent("fixed", hyperparams={"block_size": 3}).learn(*tables[:2])


def test_random_takes_every_arm_about_as_often(learned, tables):
    counts = np.bincount(learned["random"].predict(np.zeros((5000, 16))), minlength=len(ARMS))
    assert counts.min() > 850


@pytest.mark.parametrize("algorithm", DEPLOYABLE)
def test_features_can_be_chosen(algorithm, tables):
    agent = quick(algorithm, features=("prompt", "next_token")).learn(*tables[:2])
    assert agent.problem.state == StateLayout((("prompt", 1), ("next_token", 3)))
    states = tables[2].states[:, [HIDDEN + 3, HIDDEN, HIDDEN + 1, HIDDEN + 2]]
    np.testing.assert_array_equal(agent.choose(tables[2]), agent.predict(states))
    assert agent.to_policy().state_groups == ("prompt", "next_token")


@pytest.mark.parametrize("algorithm", LEARNERS)
def test_units_of_the_state_do_not_matter(algorithm, learned, tables):
    """A column in other units, or one that is constant, is standardised away."""

    def other_units(table):
        states = 128 * table.states + np.float32(0.5)
        states[:, 3] = 0.1
        return dataclasses.replace(table, states=states)

    def constant(table):
        states = table.states.copy()
        states[:, 3] = 7
        return dataclasses.replace(table, states=states)

    found = quick(algorithm).learn(*map(other_units, tables[:2])).choose(other_units(tables[2]))
    expected = quick(algorithm).learn(*map(constant, tables[:2])).choose(constant(tables[2]))
    assert (found == expected).mean() > 0.9


def test_ridge_is_the_closed_form(tables):
    """The minimum of |XW + b - Y|² + alpha |W|² for the gains Y over the best fixed size."""
    train = tables[0]
    alpha = 250.0
    agent = make_agent("reward-regression", hyperparams={"alphas": [alpha]}).learn(*tables[:2])
    gains = train.rewards - train.rewards[:, [agent.problem.best_fixed_arm]]
    mean, std = (
        train.states.mean(axis=0, dtype=np.float64),
        train.states.std(axis=0, dtype=np.float64),
    )
    inputs = (train.states - mean) / std
    layer = agent.policy.net[0]
    weights, bias = layer.weight.detach().double().T.numpy(), layer.bias.detach().double().numpy()
    residual = inputs @ weights + bias - gains
    # The gradient of the objective vanishes at its minimum.
    np.testing.assert_allclose(inputs.T @ residual + alpha * weights, 0, atol=2e-3)
    np.testing.assert_allclose(residual.sum(axis=0), 0, atol=2e-3)


def test_of_equally_good_penalties_the_strongest_is_kept():
    train, validation, _ = split(synthetic_table(1500, signal=False))
    agent = make_agent("reward-regression", hyperparams={"alphas": [1e6, 1e8, 1e7]})
    agent.learn(train, validation)
    strongest = make_agent("reward-regression", hyperparams={"alphas": [1e8]})
    strongest.learn(train, validation)
    assert torch.equal(agent.policy.net[0].weight, strongest.policy.net[0].weight)


@pytest.mark.parametrize("validation", ["none", "tiny"])
def test_without_enough_validation_prompts_training_ones_take_their_place(tables, validation):
    monitor = Monitor()
    few = None if validation == "none" else tables[1].select_rows(np.arange(5))
    agent = quick("reward-regression").learn(tables[0], few, monitor)
    assert "held-out training prompts" in monitor.notes[0]
    score = Score.of(tables[2], agent.choose(tables[2]), agent.problem.best_fixed)
    assert score.gap_closed > 0.2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_handful_of_prompts_is_enough_to_go_on(algorithm, tables):
    monitor = Monitor()
    agent = quick(algorithm).learn(tables[0].select_rows(np.arange(3)), None, monitor)
    assert monitor.notes
    assert len(agent.choose(tables[2])) == len(tables[2])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_other_sweeps_are_refused(algorithm, learned, tables):
    agent, test = learned[algorithm], tables[2]
    metadata = test.metadata
    foreign = dataclasses.replace(metadata, fingerprint="f" * 16)
    other_state = dataclasses.replace(metadata, state=StateLayout((("last_hidden", 16),)))
    wider = StateLayout((("last_hidden", HIDDEN - 1), ("next_token", 4), ("prompt", 1)))
    for table, message in (
        (test.select_arms((1, 4)), "chooses among the arms"),
        (dataclasses.replace(test, metadata=foreign), "was trained on the pair"),
        (dataclasses.replace(test, metadata=other_state), "were not recorded"),
        (
            dataclasses.replace(test, metadata=dataclasses.replace(metadata, state=wider)),
            "reads states",
        ),
    ):
        with pytest.raises(BlockPilotError, match=message):
            agent.choose(table)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nothing_is_chosen_before_learning(algorithm, tables):
    with pytest.raises(BlockPilotError, match="has not learned yet"):
        make_agent(algorithm).choose(tables[2])


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        ("pppo", {}, "unknown algorithm 'pppo'.* Did you mean 'ppo'"),
        ("fixed", {"features": ("promt",)}, "Did you mean 'prompt'"),
        ("fixed", {"features": ()}, "no state group"),
        ("fixed", {"seed": -1}, "seed must be"),
        ("ppo", {"device": "cpux"}, "device 'cpux' is not available"),
    ],
)
def test_bad_settings(algorithm, settings, message):
    with pytest.raises(BlockPilotError, match=message):
        make_agent(algorithm, **settings)


def test_bad_runs(learned, tmp_path):
    with pytest.raises(BlockPilotError, match="no run at"):
        load_agent(tmp_path / "nowhere")
    with pytest.raises(BlockPilotError, match="is incomplete"):
        load_agent(tmp_path)
    (tmp_path / "agent.json").write_text("{", encoding="utf-8")
    with pytest.raises(BlockPilotError, match="cannot be read as JSON"):
        load_agent(tmp_path)
    (tmp_path / "agent.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BlockPilotError, match="lacks one of"):
        load_agent(tmp_path)
    learned["fixed"].save(tmp_path / "fixed")
    with pytest.raises(BlockPilotError, match="holds a fixed, not a ppo"):
        ALGORITHMS["ppo"].load(tmp_path / "fixed")


@pytest.mark.parametrize("content", [None, b"PK nonsense"])
def test_a_run_without_its_model(learned, tmp_path, content):
    learned["ppo"].save(tmp_path)
    (tmp_path / "best_model.zip").unlink()
    if content is not None:
        (tmp_path / "best_model.zip").write_bytes(content)
    with pytest.raises(BlockPilotError, match=r"best_model\.zip is missing or corrupt"):
        load_agent(tmp_path)


def test_a_run_of_no_valid_problem(learned, tmp_path):
    learned["fixed"].save(tmp_path)
    saved = json.loads((tmp_path / "agent.json").read_text(encoding="utf-8"))
    del saved["problem"]["state"]
    (tmp_path / "agent.json").write_text(json.dumps(saved), encoding="utf-8")
    with pytest.raises(BlockPilotError, match="no valid problem"):
        load_agent(tmp_path)


def test_the_saved_ppo_model_works_with_stable_baselines_alone(learned, tables, tmp_path):
    """It takes recorded states as they are, for the scaler is inside."""
    from stable_baselines3 import PPO

    learned["ppo"].save(tmp_path)
    choices, _ = PPO.load(tmp_path / "best_model.zip").predict(tables[2].states, deterministic=True)
    np.testing.assert_array_equal(choices, learned["ppo"].choose(tables[2]))
