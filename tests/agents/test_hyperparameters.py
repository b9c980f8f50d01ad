from __future__ import annotations

import pytest
import yaml

from blockpilot_rl.agents import ALGORITHMS, make_agent
from blockpilot_rl.agents.hyperparameters import HYPERPARAMS_FOLDER, read_yaml, to_dict
from blockpilot_rl.errors import BlockPilotError


def test_there_is_a_file_for_every_algorithm_and_no_other():
    assert {path.stem for path in HYPERPARAMS_FOLDER.glob("*.yml")} == set(ALGORITHMS)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_files_hold_just_what_the_algorithm_takes(algorithm):
    values = read_yaml(HYPERPARAMS_FOLDER / f"{algorithm}.yml")
    assert to_dict(make_agent(algorithm).hyperparams) == values


@pytest.mark.parametrize(
    ("overrides", "name", "value"),
    [
        ({"learning_rate": "1e-3"}, "learning_rate", 1e-3),
        ({"learning_rate": 1}, "learning_rate", 1.0),
        ({"n_timesteps": 1e6}, "n_timesteps", 1_000_000),
        ({"hidden": [32, 16]}, "hidden", (32, 16)),
        ({"hidden": "32,16"}, "hidden", (32, 16)),
        ({"hidden": 32}, "hidden", (32,)),
        ({"hidden": []}, "hidden", ()),
        ({"activation": "relu"}, "activation", "relu"),
    ],
)
def test_values_are_read_as_their_types(overrides, name, value):
    found = getattr(make_agent("ppo", hyperparams=overrides).hyperparams, name)
    assert found == value
    assert type(found) is type(value)


def test_null_where_it_is_allowed():
    assert make_agent("fixed", hyperparams={"block_size": None}).hyperparams.block_size is None
    assert make_agent("fixed", hyperparams={"block_size": 4}).hyperparams.block_size == 4


@pytest.mark.parametrize(
    ("algorithm", "overrides", "message"),
    [
        ("ppo", {"learning_rat": 1}, "Did you mean 'learning_rate'"),
        ("random", {"epochs": 1}, "it has none"),
        ("ppo", {"learning_rate": "fast"}, "learning_rate must be a finite number, not 'fast'"),
        ("ppo", {"learning_rate": True}, "must be a finite number"),
        ("ppo", {"learning_rate": "inf"}, "learning_rate must be a finite number, not 'inf'"),
        ("ppo", {"learning_rate": float("nan")}, "must be a finite number, not nan"),
        ("ppo", {"learning_rate": 10**400}, "must be a finite number"),
        ("ppo", {"n_steps": float("inf")}, "n_steps must be a whole number, not inf"),
        ("reward-regression", {"alphas": [1, "inf"]}, "alphas must be a finite number"),
        ("ppo", {"hidden": [8, 10**12]}, "at most 65536, not 1000000000000"),
        ("supervised", {"hidden": 65537}, "at most 65536, not 65537"),
        ("ppo", {"n_timesteps": None}, "n_timesteps must be a whole number"),
        ("ppo", {"n_timesteps": 1.5}, "n_timesteps must be a whole number"),
        ("ppo", {"n_timesteps": 0}, "n_timesteps must be at least 1"),
        ("ppo", {"learning_rate": 0}, "learning_rate must be positive"),
        ("ppo", {"ent_coef": -1}, "ent_coef must be 0 or more"),
        ("ppo", {"batch_size": 1000}, "divide n_envs"),
        ("ppo", {"activation": "gelu"}, "activation must be tanh or relu"),
        ("ppo", {"hidden": [0]}, "positive widths"),
        ("ppo", {"reward_baseline": "mean"}, "reward_baseline must be best_fixed or none"),
        ("a2c", {"n_steps": 0}, "n_steps must be at least 1"),
        ("dqn", {"exploration_final_eps": 0}, r"exploration_final_eps must lie in \(0, 1\]"),
        ("dqn", {"buffer_size": 8}, r"buffer_size must be at least 2 \* n_envs"),
        ("linucb", {"alpha": 0}, "alpha must be positive"),
        ("linucb", {"components": 0}, "components must be at least 1"),
        ("linucb", {"width": -1}, "width must be 0 or more"),
        ("lints", {"posterior_draws": 0}, "posterior_draws must be at least 1"),
        ("epsilon-greedy", {"epsilon": 1.5}, r"epsilon must lie in \[0, 1\]"),
        ("squarecb", {"gamma_scale": 0}, "gamma_scale must be positive"),
        ("bootstrapped", {"n_heads": 1}, "n_heads must be at least 2"),
        ("neural-linear", {"hidden": []}, "hidden must hold at least one width"),
        ("neural-linear", {"buffer_size": 8}, "buffer_size must be at least batch_size"),
        ("expected-reward", {"learning_rate": 0}, "learning_rate must be positive"),
        ("reward-regression", {"model": "forest"}, "model must be ridge or mlp, not 'forest'"),
        ("reward-regression", {"folds": 1}, "folds must be at least 2"),
        ("reward-regression", {"repeats": 0}, "repeats must be at least 1"),
        ("reward-regression", {"target": "log"}, "target must be pooled or recorded, not 'log'"),
        ("supervised", {"epochs": 0}, "epochs must be at least 1"),
        ("supervised", {"activation": "gelu"}, "activation must be tanh or relu"),
        ("reward-regression", {"alphas": []}, "at least one"),
        ("reward-regression", {"alphas": [0]}, "at least 0.001"),
        ("reward-regression", {"alphas": [1, 0.0009]}, "at least 0.001"),
        ("reward-regression", {"folds": 10**21}, "folds must be at least 2, at most 1000"),
        ("reward-regression", {"repeats": 10**12}, "repeats must be at least 1, at most 1000"),
        ("fixed", {"block_size": 0}, "at least 1"),
    ],
)
def test_bad_values(algorithm, overrides, message):
    with pytest.raises(BlockPilotError, match=message):
        make_agent(algorithm, hyperparams=overrides)


@pytest.mark.parametrize(
    "text",
    ["- 1\n", "1: 2\n", "a: [\n", "", "a: 2020-13-45\n", "a: 2020-01-01\n", "a: .inf\n"],
)
def test_bad_files(tmp_path, text):
    path = tmp_path / "h.yml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BlockPilotError, match=r"h\.yml"):
        read_yaml(path)


def test_missing_file(tmp_path):
    with pytest.raises(BlockPilotError, match="cannot read"):
        read_yaml(tmp_path / "h.yml")


def test_saved_values_read_back_the_same():
    settings = make_agent("ppo", hyperparams={"hidden": [8]}).hyperparams
    again = yaml.safe_load(yaml.safe_dump(to_dict(settings)))
    assert make_agent("ppo", hyperparams=again).hyperparams == settings


def test_hyperparams_cannot_be_changed():
    settings = make_agent("fixed").hyperparams
    with pytest.raises(AttributeError):
        settings.block_size = 4
