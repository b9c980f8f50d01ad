from __future__ import annotations

import json
import sys

import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage

from blockpilot_rl.agents import ALGORITHMS, make_agent, tuning
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
def test_poor_trials_are_pruned(tables, pruner):
    fixed = {**FEW, "eval_freq": 64}
    tuned = search(tables, fixed=fixed, pruner=pruner, n_trials=8, n_startup_trials=1)
    states = [trial.state.name for trial in tuned.study.trials]
    assert "PRUNED" in states
    assert states[0] == "COMPLETE"
    steps = {len(trial.intermediate_values) for trial in tuned.study.trials}
    assert min(steps) < max(steps) == 10


def test_a_study_in_a_database_is_resumed(tables, tmp_path):
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


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_resumed_study_equals_one_long_search(tables, tmp_path, sampler):
    """And does not repeat its trials."""
    whole = search(tables, n_trials=6, sampler=sampler, study_name="a")
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    for trials in (2, 3, 1):
        resumed = search(
            tables, n_trials=trials, sampler=sampler, storage=storage, study_name="mine"
        )
    found, expected = (
        [(trial.params, trial.value) for trial in tuned.study.trials] for tuned in (resumed, whole)
    )
    assert found == expected
    assert len({json.dumps(params) for params, _ in found}) > 1


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"algorithm": "linucb"}, "algorithm"),
        ({"state_groups": ("prompt",)}, "state_groups"),
        ({"seed": 2}, "seed"),
        ({"fixed": {**FEW, "epsilon": 0.5}}, "fixed"),
        ({"seed_of_sweep": 5}, "data"),
        ({"arms": (1, 4, 16)}, "arms"),
    ],
)
def test_a_study_of_something_else_is_not_resumed(tables, tmp_path, changes, name):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    search(tables, n_trials=1, storage=storage, study_name="mine")
    train, validation = tables
    if "seed_of_sweep" in changes:
        table = synthetic_table(500, seed=changes["seed_of_sweep"])
        train, validation = table.split("train"), table.split("validation")
    if "arms" in changes:
        train, validation = (table.select_arms(changes["arms"]) for table in (train, validation))
    with pytest.raises(BlockPilotError, match=f"is of {name} .* name another --study-name"):
        tune(
            changes.get("algorithm", "epsilon-greedy"),
            train,
            validation,
            config(n_trials=1, storage=storage, study_name="mine"),
            seed=changes.get("seed", 1),
            state_groups=changes.get("state_groups", ("last_hidden", "next_token", "prompt")),
            fixed=changes.get("fixed", FEW),
        )


def test_a_study_that_does_not_record_what_it_searches_is_not_resumed(tables, tmp_path):
    optuna = pytest.importorskip("optuna")
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    study = optuna.create_study(study_name="mine", storage=storage, direction="maximize")
    study.optimize(lambda trial: trial.suggest_float("epsilon", 0, 1), n_trials=1)
    with pytest.raises(BlockPilotError, match="does not record what it searches"):
        search(tables, storage=storage, study_name="mine")


def test_a_trial_that_diverges_fails_and_the_search_continues(tables, monkeypatch):
    rates = iter([1e30, 0.001, 1e30, 0.001])

    def suggest(trial, space):
        return {"learning_rate": next(rates)}

    monkeypatch.setattr(tuning, "_suggest", suggest)
    tuned = search(tables, "supervised", {"epochs": 3}, n_trials=4)
    assert [trial.state.name for trial in tuned.study.trials] == ["FAIL", "COMPLETE"] * 2
    assert tuned.hyperparams["learning_rate"] == 0.001


@pytest.mark.parametrize("algorithm", ["supervised", "ppo", "network-regression"])
def test_a_search_in_which_every_trial_diverges_is_one_line(tables, algorithm):
    steps = {"epochs": 2} if algorithm != "ppo" else {"n_timesteps": 8192, "eval_freq": 4096}
    with pytest.raises(BlockPilotError, match="training diverged in all of them"):
        search(tables, algorithm, {**steps, "learning_rate": 1e30}, n_trials=2)


@pytest.mark.parametrize(
    "failing", ["set_trial_user_attr", "set_trial_state_values", "set_study_user_attr"]
)
def test_a_failing_database_is_one_line(tables, tmp_path, monkeypatch, failing):
    """As on a full disk, or while another process holds its lock."""

    def fail(*_, **__):
        raise StorageInternalError("an exception of the database") from OSError("disk is full")

    monkeypatch.setattr(RDBStorage, failing, fail)
    storage = f"sqlite:///{tmp_path}/study.db"
    with pytest.raises(BlockPilotError, match=r"study.db \(disk is full\); finished trials"):
        search(tables, n_trials=2, storage=storage, study_name="s")
