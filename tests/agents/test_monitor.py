from __future__ import annotations

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from blockpilot_rl.agents import ALGORITHMS, Monitor, Score, make_agent
from tests.agents.quick import BRIEF
from tests.synthetic import ARMS, synthetic_table


@pytest.fixture(scope="module")
def table():
    return synthetic_table(500)


def test_score_is_the_mean_over_all_prompts(table):
    choices = np.arange(len(table)) % len(ARMS)
    score = Score.of(table, choices, best_fixed=8)
    speedups = [table.seconds[i, 0] / table.seconds[i, c] for i, c in enumerate(choices)]
    fixed = (table.seconds[:, 0] / table.seconds[:, 3]).mean()
    oracle = (table.seconds[:, 0] / table.seconds.min(axis=1)).mean()
    assert score.reward == pytest.approx(np.mean(speedups))
    assert score.best_fixed == pytest.approx(fixed)
    assert score.regret == pytest.approx(oracle - np.mean(speedups))
    assert score.gap_closed == pytest.approx((np.mean(speedups) - fixed) / (oracle - fixed))
    assert score.arm_frequencies == {arm: 0.2 for arm in ARMS}
    assert score.to_dict()["best_fixed"] == score.best_fixed


def test_frequencies_name_arms_that_were_never_chosen(table):
    score = Score.of(table, np.zeros(len(table), dtype=np.int64), best_fixed=8)
    assert score.arm_frequencies == {1: 1.0, 2: 0.0, 4: 0.0, 8: 0.0, 16: 0.0}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_leaves_its_curves(algorithm, table, tmp_path):
    """Reward, regret, gap closed and arm frequencies, of the whole validation split."""
    progress = []
    monitor = Monitor(tmp_path, lambda step, total: progress.append((step, total)))
    agent = make_agent(algorithm, hyperparams=BRIEF[algorithm])
    agent.learn(table.split("train"), table.split("validation"), monitor)
    monitor.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    curves = {"validation/reward", "validation/regret", "validation/gap_closed"}
    curves |= {f"arm_frequency/{arm}" for arm in ARMS}
    assert curves <= set(events.Tags()["scalars"])
    reward = events.Scalars("validation/reward")
    assert [(e.step, pytest.approx(e.value)) for e in reward] == [
        (step, score.reward) for step, score in monitor.history
    ]
    validation = table.split("validation")
    expected = Score.of(validation, agent.choose(validation), agent.problem.best_fixed)
    # These two learn from these prompts too; their scores are of choices when they were left out.
    if algorithm not in ("ridge-regression", "acceptance"):
        assert monitor.result == expected
    steps = [step for step, _ in progress]
    assert steps == sorted(steps)
    assert all(step <= total for step, total in progress)


@pytest.mark.parametrize("algorithm", ["ppo", "supervised", "squarecb"])
def test_the_best_on_validation_is_kept(algorithm, table):
    """Every evaluation covers the whole split; a few episodes would choose by noise."""
    monitor = Monitor()
    make_agent(algorithm, hyperparams=BRIEF[algorithm]).learn(
        table.split("train"), table.split("validation"), monitor
    )
    rewards = [score.reward for _, score in monitor.history]
    assert len(rewards) > 2
    assert monitor.result.reward == max(rewards)
    assert max(rewards) > min(rewards)


def test_hyperparameters_are_shown_with_the_result(table, tmp_path):
    """In the form of TensorBoard's hparams tab, lists and null as text."""
    monitor = Monitor(tmp_path)
    agent = make_agent("supervised", seed=3, hyperparams={"epochs": 2, "hidden": [8, 4]})
    agent.learn(table.split("train"), table.split("validation"), monitor)
    monitor.close()
    metadata = EventAccumulator(str(tmp_path)).Reload().summary_metadata
    start = HParamsPluginData.FromString(
        metadata["_hparams_/session_start_info"].plugin_data.content
    ).session_start_info.hparams
    assert start["algorithm"].string_value == "supervised"
    assert start["seed"].number_value == 3
    assert start["epochs"].number_value == 2
    assert start["hidden"].string_value == "[8, 4]"
    assert start["state_groups"].string_value == "last_hidden,next_token,prompt"
    experiment = HParamsPluginData.FromString(
        metadata["_hparams_/experiment"].plugin_data.content
    ).experiment
    assert {info.name.tag for info in experiment.metric_infos} == {
        "validation/reward",
        "validation/regret",
        "validation/gap_closed",
    }


def test_a_callback_on_scores_can_end_the_training(table):
    class EnoughError(Exception):
        pass

    seen = []

    def watch(step, score):
        seen.append((step, score.reward))
        if len(seen) == 2:
            raise EnoughError

    agent = make_agent("supervised", hyperparams={"epochs": 9})
    with pytest.raises(EnoughError):
        agent.learn(table.split("train"), table.split("validation"), Monitor(on_score=watch))
    assert [step for step, _ in seen] == [1, 2]
