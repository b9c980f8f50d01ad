"""The interface of all algorithms, and the specifics of each."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from blockpilot_rl.agents import AGENTS, ALGORITHMS, Agent, Monitor, Score, load_agent, make_agent
from blockpilot_rl.agents.base import MIN_VALIDATION, divide_rows
from blockpilot_rl.agents.fixed import FixedAgent
from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.policies.policy import BlockSizePolicy
from tests.agents.quick import BRIEF
from tests.evaluation.replicates import replicated
from tests.synthetic import ARMS, HIDDEN, synthetic_table

DEPLOYABLE = tuple(AGENTS)
LEARNERS = tuple(name for name in AGENTS if name != "fixed")
FROM_STATES = (*DEPLOYABLE, "random")
# Their most probable arm need not be the one that they predict to be best.
SAMPLERS = ("random", "linucb", "lints", "neural-linear", "bootstrapped", "acceptance-bandit")


def split(table):
    return table.split("train"), table.split("validation"), table.split("test")


def brief(algorithm, **settings):
    return make_agent(algorithm, hyperparams=BRIEF[algorithm], **settings)


@pytest.fixture(scope="module")
def tables():
    return split(synthetic_table(500))


@pytest.fixture(scope="module")
def learned(tables):
    """Every algorithm, learned once; no test changes them."""
    return {name: brief(name).learn(*tables[:2]) for name in ALGORITHMS}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_chooses_an_arm_for_every_prompt(algorithm, learned, tables):
    choices = learned[algorithm].choose(tables[2])
    assert choices.shape == (len(tables[2]),)
    assert choices.dtype == np.int64
    assert choices.min() >= 0
    assert choices.max() < len(ARMS)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_same_seed_same_agent(algorithm, learned, tables):
    """To the last bit, for any state of the global generators."""
    torch.manual_seed(12345)
    again = brief(algorithm).learn(*tables[:2])
    np.testing.assert_array_equal(again.choose(tables[2]), learned[algorithm].choose(tables[2]))
    if algorithm in DEPLOYABLE:
        ours, theirs = again.to_policy().state_dict(), learned[algorithm].to_policy().state_dict()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize(
    # The ridge regression and the acceptance agent draw nothing but their folds.
    "algorithm",
    [name for name in (*LEARNERS, "random") if name not in ("ridge-regression", "acceptance")],
)
def test_another_seed_another_agent(algorithm, learned, tables):
    other = brief(algorithm, seed=1).learn(*tables[:2])
    if algorithm == "random":
        assert (other.choose(tables[2]) != learned[algorithm].choose(tables[2])).any()
    else:
        ours, theirs = other.to_policy().state_dict(), learned[algorithm].to_policy().state_dict()
        assert any(not torch.equal(ours[name], theirs[name]) for name in theirs)


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
    if algorithm not in SAMPLERS:
        np.testing.assert_array_equal(probabilities.argmax(axis=1), agent.predict(tables[2].states))


@pytest.mark.parametrize("algorithm", DEPLOYABLE)
def test_states_that_are_not_finite_get_the_fallback(algorithm, learned, tables):
    """One broken state must not change the other choices, nor pass unnoticed."""
    agent = learned[algorithm]
    states = tables[2].states[:4].copy()
    expected = agent.predict(states)
    states[1, 2], states[3, 0] = np.nan, np.inf
    with pytest.warns(RuntimeWarning, match="2 of 4 states are not finite"):
        choices = agent.predict(states)
    fallback = agent.problem.best_fixed_arm
    np.testing.assert_array_equal(choices, [expected[0], fallback, expected[2], fallback])
    with pytest.warns(RuntimeWarning, match="not finite"):
        probabilities = agent.action_probabilities(states)
    np.testing.assert_array_equal(probabilities[[1, 3]], np.eye(len(ARMS))[[fallback] * 2])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


@pytest.mark.parametrize("algorithm", DEPLOYABLE)
def test_policy_chooses_like_its_agent(algorithm, learned, tables, tmp_path):
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
    assert config.fallback == ARMS[tables[0].speedups.mean(axis=0).argmax()]
    assert config.fingerprint == tables[0].metadata.fingerprint
    assert config.provenance == {"command": ["train"]}


def test_the_policy_stores_the_template_of_its_states(tables):
    """So that the decoder can refuse states made with other options (z-lab/dflash#133, #60)."""
    template = {"enable_thinking": False}
    train = dataclasses.replace(
        tables[0], metadata=dataclasses.replace(tables[0].metadata, template=template)
    )
    assert brief("ridge-regression").learn(train).to_policy().config.template == template


@pytest.mark.parametrize("algorithm", LEARNERS)
def test_policies_of_wide_states_are_small_and_quick(algorithm, tables):
    """No matrix of width × width is kept or multiplied by, as in fidelity/mabwiser#95."""
    width = 4096
    rng = np.random.default_rng(0)
    train, validation = (
        dataclasses.replace(
            table,
            metadata=dataclasses.replace(
                table.metadata, state=StateLayout((("last_hidden", width),))
            ),
            states=rng.normal(size=(len(table), width)).astype(np.float32),
        )
        for table in tables[:2]
    )
    agent = brief(algorithm, state_groups=["last_hidden"])
    closed = agent.planned_timesteps == 0
    agent.learn(train, validation, total_timesteps=None if closed else 1)
    weights = sum(weight.numel() for weight in agent.to_policy().parameters())
    assert weights < 65 * width + 10_000


def test_agents_are_at_most_three_classes_deep():
    """An agent has a training loop; it does not inherit one."""
    for agent in AGENTS.values():
        assert len([kind for kind in agent.__mro__ if issubclass(kind, Agent)]) <= 3


@pytest.mark.parametrize("algorithm", ["random", "oracle"])
def test_yardsticks_are_not_agents(algorithm, learned):
    assert not isinstance(learned[algorithm], Agent)
    assert not hasattr(learned[algorithm], "to_policy")


@pytest.mark.parametrize(
    ("hyperparams", "algorithm"),
    [
        ({}, "ridge-regression"),
        ({"model": "ridge", "alphas": [10], "epochs": 3}, "ridge-regression"),
        ({"model": "mlp"}, "network-regression"),
        ({"model": "mlp", "epochs": 3, "folds": 4, "hidden": [8]}, "network-regression"),
    ],
)
def test_the_old_name_of_the_regressions_selects_one(hyperparams, algorithm, tables, tmp_path):
    """As in runs of 0.1, which hold the hyperparameters of both."""
    agent = make_agent("reward-regression", hyperparams=hyperparams)
    assert agent.algorithm == algorithm
    agent.learn(*tables[:2], total_timesteps=1)
    agent.save(tmp_path)
    file = tmp_path / "agent.json"
    saved = json.loads(file.read_text(encoding="utf-8"))
    both = {"model": "ridge", **saved["hyperparams"], **hyperparams}
    old = {**saved, "algorithm": "reward-regression", "hyperparams": both}
    file.write_text(json.dumps(old), encoding="utf-8")
    loaded = load_agent(tmp_path)
    assert (loaded.algorithm, loaded.hyperparams) == (algorithm, agent.hyperparams)


def test_oracle_takes_the_fastest_arm_of_each_prompt(learned, tables):
    np.testing.assert_array_equal(
        learned["oracle"].choose(tables[2]), tables[2].seconds.argmin(axis=1)
    )


def threads() -> set[int]:
    """Numbers of threads of torch and of every BLAS."""
    return {torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())}


def test_learning_uses_one_thread_and_restores_the_number(tables, monkeypatch):
    taken = []
    monkeypatch.setattr(FixedAgent, "_fit", lambda *_: taken.append(threads()))
    monkeypatch.setattr(FixedAgent, "_conclude", lambda *_: taken.append(threads()))
    before = torch.get_num_threads()
    with threadpool_limits(2):
        torch.set_num_threads(2)
        try:
            make_agent("fixed").learn(tables[0])
            assert taken == [{1}, {1}]
            assert threads() == {2}
        finally:
            torch.set_num_threads(before)


def test_fixed_takes_the_best_on_the_training_prompts(learned, tables):
    best = tables[0].speedups.mean(axis=0).argmax()
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
def test_state_groups_can_be_chosen(algorithm, tables):
    agent = brief(algorithm, state_groups=("prompt", "next_token")).learn(*tables[:2])
    assert agent.problem.state == StateLayout((("prompt", 1), ("next_token", 3)))
    states = tables[2].states[:, [HIDDEN + 3, HIDDEN, HIDDEN + 1, HIDDEN + 2]]
    np.testing.assert_array_equal(agent.choose(tables[2]), agent.predict(states))
    assert agent.to_policy().state_groups == ("prompt", "next_token")


def _held_out(train, agent):
    """The fifth of the training prompts that replaces the validation split."""
    prompts = train.rows["id"].unique()
    drawn = np.random.default_rng(agent.seed).permutation(prompts)[: len(prompts) // 5]
    held = train.select_rows(train.rows["id"].isin(drawn).to_numpy())
    return held, agent.choose(held)


@pytest.mark.parametrize("validation", ["none", "tiny"])
def test_too_few_validation_prompts_are_replaced_by_training_prompts(tables, validation):
    monitor = Monitor()
    few = None if validation == "none" else tables[1].select_rows(np.arange(5))
    agent = brief("supervised").learn(tables[0], few, monitor)
    assert "held-out training prompts" in monitor.notes[0]
    assert monitor.result == Score.of(*_held_out(tables[0], agent), agent.problem.best_fixed)


class Watching(Monitor):
    """Keeps the rows that the agent was judged on in the end."""

    def conclude(self, agent, validation, choices):
        super().conclude(agent, validation, choices)
        self.judged = validation.rows["id"]


@pytest.mark.parametrize("few", [0, MIN_VALIDATION - 1])
def test_prompts_are_held_out_with_all_their_rows(few, tables):
    """Rows of one prompt share its state, so one of them would leak the reward of another.

    Neither do several rows make few validation prompts enough.
    """
    train = replicated(tables[0], 3, noise=0.1)
    validation = replicated(tables[1].select_rows(np.arange(few)), 3) if few else None
    monitor = Watching()
    agent = brief("epsilon-greedy", seed=2).learn(train, validation, monitor)
    learned_from = set(agent.decisions.frame()["prompt_id"])
    assert learned_from.isdisjoint(monitor.judged)
    assert learned_from | set(monitor.judged) == set(train.rows["id"])
    assert monitor.judged.nunique() == len(tables[0]) // 5
    assert (monitor.judged.value_counts() == 3).all()


def test_held_out_prompts_depend_on_the_seed(tables):
    train = replicated(tables[0], 2)
    found = []
    for seed in (0, 0, 1):
        monitor = Monitor()
        _, held = divide_rows(train, None, seed, monitor)
        assert f"{len(tables[0]) // 5} held-out training prompts" in monitor.notes[0]
        found.append(set(held.rows["id"]))
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_handful_of_prompts_is_enough(algorithm, tables):
    monitor = Monitor()
    agent = brief(algorithm).learn(tables[0].select_rows(np.arange(3)), None, monitor)
    assert monitor.notes
    assert len(agent.choose(tables[2])) == len(tables[2])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_other_sweeps_are_refused(algorithm, learned, tables):
    agent, test = learned[algorithm], tables[2]
    metadata = test.metadata
    foreign = dataclasses.replace(metadata, fingerprint="f" * 16)
    other_state = dataclasses.replace(metadata, state=StateLayout((("last_hidden", 16),)))
    # Thinking mode alone moves acceptance from 25% to 60% (z-lab/dflash#133, #60).
    thinking = dataclasses.replace(metadata, template={"enable_thinking": True})
    wider = StateLayout((("last_hidden", HIDDEN - 1), ("next_token", 4), ("prompt", 1)))
    for table, message in (
        (test.select_arms((1, 4)), "chooses among the arms"),
        (dataclasses.replace(test, metadata=foreign), "was trained on the pair"),
        (dataclasses.replace(test, metadata=thinking), "with chat-template options {}, the sweep"),
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
        ("fixed", {"state_groups": ("promt",)}, "Did you mean 'prompt'"),
        ("fixed", {"state_groups": ()}, "no state group"),
        ("fixed", {"seed": -1}, "seed must be"),
        ("fixed", {"seed": 2**32}, "seed must be .* at most 4294967295, got 4294967296"),
        ("ppo", {"device": "cpux"}, "models cannot run on cpux: "),
        ("ppo", {"device": "meta"}, "models cannot run on meta: "),
    ],
)
def test_invalid_settings_are_refused(algorithm, settings, message):
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


def test_a_run_with_an_invalid_problem_is_refused(learned, tmp_path):
    learned["fixed"].save(tmp_path)
    saved = json.loads((tmp_path / "agent.json").read_text(encoding="utf-8"))
    del saved["problem"]["state"]
    (tmp_path / "agent.json").write_text(json.dumps(saved), encoding="utf-8")
    with pytest.raises(BlockPilotError, match="no valid problem"):
        load_agent(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({"algorithm": value}, "no valid algorithm") for value in (None, 5, [])),
        *(({"seed": value}, "no valid seed") for value in (None, "x", [], True)),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"hyperparams": 5}, "no valid hyperparams"),
        ({"hyperparams": {"size": 1}}, "fixed has no hyperparameter 'size'"),
        ({"num_timesteps": "x"}, "no valid num_timesteps"),
        *(({"num_timesteps": value}, "impossible num_timesteps") for value in (-1, 2**63, 10**400)),
        ({"problem": []}, "no valid problem"),
        ({"problem": {"arms": ["a"], "state": []}}, "no valid problem"),
    ],
)
def test_a_damaged_agent_file_is_named(learned, tmp_path, changes, message):
    learned["fixed"].save(tmp_path)
    file = tmp_path / "agent.json"
    saved = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**saved, **changes}), encoding="utf-8")
    with pytest.raises(BlockPilotError, match=message) as refused:
        load_agent(tmp_path)
    assert str(file) in str(refused.value)


def test_a_best_size_that_is_not_an_arm_is_refused(learned, tmp_path):
    learned["fixed"].save(tmp_path)
    file = tmp_path / "agent.json"
    saved = json.loads(file.read_text(encoding="utf-8"))
    saved["problem"]["best_fixed"] = 999
    file.write_text(json.dumps(saved), encoding="utf-8")
    with pytest.raises(BlockPilotError, match="best_fixed 999 is not one of its arms"):
        load_agent(tmp_path)
