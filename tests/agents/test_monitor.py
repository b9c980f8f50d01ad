from __future__ import annotations

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from blockpilot_rl.agents import ALGORITHMS, Monitor, Score, make_agent
from tests.agents.quick import QUICK
from tests.synthetic import ARMS, synthetic_table


@pytest.fixture(scope="module")
def table():
    return synthetic_table(800)


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


def test_frequencies_name_arms_that_were_never_chosen(table):
    score = Score.of(table, np.zeros(len(table), dtype=np.int64), best_fixed=8)
    assert score.arm_frequencies == {1: 1.0, 2: 0.0, 4: 0.0, 8: 0.0, 16: 0.0}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_leaves_its_curves(algorithm, table, tmp_path):
    """Reward, regret, gap closed and arm frequencies, of the whole validation split."""
    progress = []
    monitor = Monitor(tmp_path, lambda step, total: progress.append((step, total)))
    agent = make_agent(algorithm, hyperparams=QUICK[algorithm])
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
    assert monitor.result == expected
    steps = [step for step, _ in progress]
    assert steps == sorted(steps)
    assert all(step <= total for step, total in progress)


@pytest.mark.parametrize("algorithm", ["ppo", "supervised", "reward-regression"])
def test_the_best_on_validation_is_kept(algorithm, table):
    monitor = Monitor()
    make_agent(algorithm, hyperparams=QUICK[algorithm]).learn(
        table.split("train"), table.split("validation"), monitor
    )
    rewards = [score.reward for _, score in monitor.history]
    assert len(rewards) > 2
    assert monitor.result.reward == max(rewards)
    assert max(rewards) > min(rewards)


def test_ppo_logs_what_stable_baselines_logs(table, tmp_path):
    monitor = Monitor(tmp_path)
    make_agent("ppo", hyperparams=QUICK["ppo"]).learn(table.split("train"), None, monitor)
    monitor.close()
    tags = set(EventAccumulator(str(tmp_path)).Reload().Tags()["scalars"])
    assert {"rollout/ep_rew_mean", "train/entropy_loss", "train/approx_kl"} <= tags
