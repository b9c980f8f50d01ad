from __future__ import annotations

import sys

import pytest

from blockpilot_rl.agents import ALGORITHMS, make_agent
from blockpilot_rl.agents.hyperparameters import to_dict
from blockpilot_rl.agents.tuning import SEARCH_FOLDER, TuningConfig, search_space, tune
from blockpilot_rl.errors import BlockPilotError
from tests.synthetic import synthetic_table

TUNABLE = tuple(
    name for name in ALGORITHMS if name not in ("fixed", "ridge-regression", "random", "oracle")
)
FEW = {"n_timesteps": 640, "eval_freq": 320}


@pytest.fixture(scope="module")
def tables():
    table = synthetic_table(500)
    return table.split("train"), table.split("validation")


def config(**changes):
    settings = {"n_trials": 4, "sampler": "tpe", "pruner": "none", "n_startup_trials": 2}
    return TuningConfig(**{**settings, **changes})


def search(tables, algorithm="epsilon-greedy", fixed=FEW, **changes):
    return tune(
        algorithm,
        *tables,
        config(**changes),
        seed=1,
        state_groups=("last_hidden", "next_token", "prompt"),
        fixed=fixed,
    )


def test_every_learner_has_a_search_space():
    assert {path.stem for path in SEARCH_FOLDER.glob("*.yml")} == {*TUNABLE, "reward-regression"}


@pytest.mark.parametrize("algorithm", TUNABLE)
def test_both_ends_of_every_range_are_valid(algorithm):
    for name, spec in search_space(algorithm).items():
        for value in spec.get("choices", (spec.get("low"), spec.get("high"))):
            agent = make_agent(algorithm, hyperparams={name: value})
            found = to_dict(agent.hyperparams)[name]
            assert found == value
            assert type(found) is type(value)


def test_the_best_trial_is_the_one_with_the_highest_reward(tables):
    tuned = search(tables)
    values = [trial.value for trial in tuned.study.trials]
    assert len(values) == 4
    assert tuned.reward == max(values) > min(values)
    again = make_agent("epsilon-greedy", seed=1, hyperparams=tuned.hyperparams).learn(*tables)
    score = again.choose(tables[1])
    assert tables[1].speedups[range(len(score)), score].mean() == pytest.approx(tuned.reward)


def test_the_same_seed_searches_the_same(tables):
    first, second = (search(tables, sampler="random", n_trials=2) for _ in range(2))
    assert first.hyperparams == second.hyperparams
    assert first.reward == second.reward


def test_given_hyperparameters_are_not_searched(tables):
    tuned = search(tables, fixed={**FEW, "alpha": 123.0, "epsilon": 0.5}, n_trials=2)
    assert tuned.hyperparams["alpha"] == 123.0
    assert set(tuned.study.best_params) == {"components"}


def test_lists_can_be_chosen(tables):
    tuned = search(tables, "expected-reward", {"epochs": 1}, n_trials=3)
    assert isinstance(tuned.hyperparams["hidden"], list)
    assert tuned.hyperparams["hidden"] in [[], [32], [64], [128], [64, 64]]


@pytest.mark.parametrize("pruner", ["median", "halving"])
def test_trials_that_fall_behind_are_ended(tables, pruner):
    fixed = {**FEW, "eval_freq": 64}
    tuned = search(tables, fixed=fixed, pruner=pruner, n_trials=8, n_startup_trials=1)
    states = [trial.state.name for trial in tuned.study.trials]
    assert "PRUNED" in states
    assert states[0] == "COMPLETE"
    steps = {len(trial.intermediate_values) for trial in tuned.study.trials}
    assert min(steps) < max(steps) == 10


def test_a_study_in_a_database_is_gone_on_with(tables, tmp_path):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    for expected in (2, 4):
        tuned = search(tables, storage=storage, study_name="mine", n_trials=2)
        assert len(tuned.study.trials) == expected


def test_a_database_that_cannot_be_opened(tables):
    with pytest.raises(BlockPilotError, match="--storage nonsense"):
        search(tables, storage="nonsense")


def test_nothing_left_to_search(tables):
    fixed = {name: 1 for name in search_space("supervised")} | {"hidden": [8]}
    with pytest.raises(BlockPilotError, match="is given already"):
        search(tables, "supervised", fixed)


def test_without_optuna(tables, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(BlockPilotError, match=r"pip install 'blockpilot-rl\[optuna\]'"):
        search(tables)
