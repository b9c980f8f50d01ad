from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from blockpilot_rl.decoding.latency import DEFAULT_ARMS
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.leakage import shuffle_states
from blockpilot_rl.evaluation.oracle import best_fixed_by_mean, oracle_arms
from blockpilot_rl.files import write_json
from blockpilot_rl.reports.sentences import comparison_values, verdict_reason
from blockpilot_rl.reports.tables import group_tables, summary_table
from blockpilot_rl.sweeps.table import Sweep
from tests.evaluation.replicates import mixed, replicated
from tests.experiments.judged import judged
from tests.synthetic import synthetic_table

Splits = tuple[Sweep, Sweep, Sweep]


@pytest.fixture(scope="module")
def splits() -> Splits:
    table = synthetic_table(n=900)
    return table.split("train"), table.split("validation"), table.split("test")


def regression(train: Sweep, test: Sweep) -> np.ndarray:
    """Choose by a quadratic prediction of every arm's speedup."""
    mean, scale = train.states.mean(axis=0), train.states.std(axis=0)
    inputs = []
    for table in (train, test):
        scaled = (table.states - mean) / scale
        inputs.append(np.column_stack([scaled, scaled**2, np.ones(len(table))]))
    gram = inputs[0].T @ inputs[0] + 10 * np.eye(inputs[0].shape[1])
    return (inputs[1] @ np.linalg.solve(gram, inputs[0].T @ train.speedups)).argmax(axis=1)


def once(arms: np.ndarray, seconds: float = 0.0) -> Choices:
    return Choices(arms[None], np.array([seconds]))


def always(table: Sweep, block_size: int, seconds: float = 0.0) -> Choices:
    return once(np.full(len(table), table.arm_index(block_size)), seconds)


def with_seconds(splits: Splits, per_pass: list[float]) -> Splits:
    """The same prompts on a device with other costs of a pass."""
    train, validation, test = (
        dataclasses.replace(table, seconds=table.passes * np.array(per_pass)) for table in splits
    )
    return train, validation, test


def test_an_agent_wins_if_states_predict_speedups(splits):
    train, validation, test = splits
    chosen = once(regression(train, test), 1e-4)
    found = judged(train, validation, test, {"regression": chosen})
    agent = found.agents["regression"]
    assert found.verdict.ship == "regression"
    assert found.verdict.block_size is None
    assert agent.gain.low > 0
    assert 0 < agent.gap_closed < 1
    assert 0 < agent.regret < found.best_fixed.regret
    assert found.best_fixed.mean_speedup < agent.mean_speedup < found.oracle.mean_speedup


@pytest.mark.parametrize("seed", range(5))
def test_an_agent_of_shuffled_states_is_not_shipped(splits, seed):
    """An adaptive choice that loses to a fixed one must not go unnoticed.

    As it did in vllm-project/vllm#52362 and sgl-project/sglang#36136.
    """
    train, validation, test = splits
    shuffled = shuffle_states(train, np.random.default_rng(seed))
    chosen = once(regression(shuffled, test), 1e-4)
    found = judged(train, validation, test, {"regression": chosen})
    assert found.verdict.ship == "fixed"
    assert found.verdict.block_size == found.best_fixed.block_size == 8
    assert found.verdict.code == "no_gain"


def test_a_better_constant_is_not_shipped_as_a_policy(splits):
    """An agent that learns from validation prompts too may find a better size."""
    train, validation, test = splits
    worse = dataclasses.replace(train, seconds=train.seconds * [1, 1, 1, 4, 4])
    found = judged(worse, validation, test, {"constant": always(test, 8, 1e-6)})
    assert found.best_fixed.block_size == 4
    assert found.verdict.gain.low > 0
    assert (found.verdict.ship, found.verdict.block_size) == ("fixed", 4)
    assert (found.verdict.code, found.verdict.constant) == ("no_gain_over_constant", 8)
    coin = np.where(np.random.default_rng(1).random(len(test)) < 0.55, 2, 3)
    found = judged(worse, validation, test, {"coin": once(coin, 1e-6)})
    assert found.verdict.gain.low > 0
    assert (found.verdict.ship, found.verdict.block_size) == ("fixed", 4)


def test_the_verdict_depends_on_time_not_on_acceptance_length(splits):
    """Acceptance stays high while the action turns from gain to loss (vllm-project/vllm#26504)."""
    train, validation, test = with_seconds(splits, [1.0, 1.3, 1.5, 3.0, 8.0])
    by_time = regression(train, test)
    found = judged(
        train,
        validation,
        test,
        {"by-acceptance": always(test, 16, 1e-6), "by-time": once(by_time, 1e-6)},
    )
    acceptance, timed = found.agents["by-acceptance"], found.agents["by-time"]
    assert acceptance.acceptance_length > timed.acceptance_length
    assert acceptance.gain.high < 0 < timed.gain.low
    assert found.verdict.ship == "by-time"
    assert found.best_fixed.block_size == 4
    assert found.default is not None
    assert found.default.block_size == 16
    assert found.default.mean_speedup < 1 < found.best_fixed.mean_speedup


def test_plain_decoding_is_shipped_if_speculation_is_slower(splits):
    """The drafter's own size can be slower than no speculation (lablup/mlxcel#1937)."""
    train, validation, test = with_seconds(splits, [1.0, 2.0, 4.0, 8.0, 16.0])
    found = judged(train, validation, test, {"eager": always(test, 4)})
    assert (found.verdict.ship, found.verdict.block_size) == ("fixed", 1)
    assert found.verdict.best_fixed == 1
    assert found.best_fixed.mean_speedup == 1.0


def test_decision_time_counts(splits):
    """Deciding takes time (bstnxbt/dflash-mlx#32), which the reward must include."""
    train, validation, test = splits
    free = judged(train, validation, test, {"idle": always(test, 8)}).agents["idle"]
    paid = judged(train, validation, test, {"idle": always(test, 8, 0.05)}).agents["idle"]
    arm = test.arm_index(8)
    assert free.gain == (0, 0, 0)
    assert paid.gain.high < 0
    assert paid.policy_microseconds == pytest.approx(50_000)
    expected = test.seconds[:, 0] / (test.seconds[:, arm] + 0.05)
    assert paid.mean_speedup == pytest.approx(expected.mean())
    total = test.seconds[:, 0].sum() / (test.seconds[:, arm] + 0.05).sum()
    assert paid.total_speedup == pytest.approx(total)
    assert paid.tokens_per_second < free.tokens_per_second


def test_the_best_fixed_size_is_chosen_on_training_prompts(splits):
    train, validation, test = splits
    slow_there = dataclasses.replace(train, seconds=train.seconds * [1, 1, 0.1, 1, 1])
    found = judged(slow_there, validation, test, {})
    assert found.best_fixed.block_size == 4
    assert found.best_fixed.mean_speedup == pytest.approx(test.speedups[:, 2].mean())
    assert max(found.speedups["all"], key=found.speedups["all"].__getitem__) == 8


def test_all_numbers_agree_with_a_calculation_by_hand():
    table = synthetic_table(n=40).select_arms((1, 4))
    learned = table.select_rows(np.arange(30))
    test = table.select_rows(np.arange(30, 32))
    test = dataclasses.replace(
        test,
        output_tokens=[np.arange(11), np.arange(31)],
        accepted=[
            [np.ones(10, dtype=int), np.array([5, 5])],
            [np.ones(30, dtype=int), np.array([3] * 10)],
        ],
        seconds=np.array([[1.0, 0.5], [3.0, 4.0]]),
    )
    learned = dataclasses.replace(learned, seconds=np.tile([1.0, 0.9], (30, 1)))
    found = judged(learned, None, test, {"smart": once(np.array([1, 0]), 0.5)})
    fixed, agent, oracle = found.best_fixed, found.agents["smart"], found.oracle
    assert fixed.block_size == 4
    assert fixed.mean_speedup == (2 + 0.75) / 2
    assert fixed.total_speedup == 4 / 4.5
    # Averages differ by definition (vllm-project/vllm#52816), so both are given.
    assert fixed.acceptance_length == 40 / 12
    assert fixed.acceptance_length_per_request == (5 + 3) / 2
    assert fixed.tokens_per_second == 40 / 4.5
    assert oracle.mean_speedup == (2 + 1) / 2
    assert oracle.arms == {1: 0.5, 4: 0.5}
    assert agent.mean_speedup == pytest.approx((1 / 1 + 3 / 3.5) / 2)
    assert agent.total_speedup == 4 / 4.5
    assert agent.gain.value == pytest.approx(agent.mean_speedup / fixed.mean_speedup - 1)
    assert agent.regret == pytest.approx(oracle.mean_speedup - agent.mean_speedup)
    assert agent.gap_closed == pytest.approx((agent.mean_speedup - 1.375) / (1.5 - 1.375))
    assert found.random.mean_speedup == (1 + fixed.mean_speedup) / 2
    assert found.random.acceptance_length == 80 / (40 + 12)
    assert found.split["validation_prompts"] == 0


def test_seeds_are_averaged(splits):
    train, validation, test = splits
    first, second = regression(train, test), np.full(len(test), 1)
    both = Choices(np.stack([first, second]), np.array([1e-4, 3e-4]))
    found = judged(
        train,
        validation,
        test,
        {"both": both, "first": once(first, 1e-4), "second": once(second, 3e-4)},
    )
    a, b, ab = (found.agents[name] for name in ("first", "second", "both"))
    assert ab.mean_speedup == pytest.approx((a.mean_speedup + b.mean_speedup) / 2)
    assert ab.gain.value == pytest.approx((a.gain.value + b.gain.value) / 2)
    assert ab.gain_by_seed == pytest.approx([a.gain.value, b.gain.value])
    assert ab.policy_microseconds == pytest.approx(200)
    assert ab.arms[2] == pytest.approx((a.arms[2] + 1) / 2)
    assert sum(ab.arms.values()) == pytest.approx(1)


def test_seeds_do_not_count_as_further_prompts(splits):
    train, validation, test = splits
    arms = regression(train, test)
    one = once(arms)
    nine = Choices(np.tile(arms, (9, 1)), np.zeros(9))
    found = judged(train, validation, test, {"one": one, "nine": nine})
    assert found.agents["one"].gain == pytest.approx(found.agents["nine"].gain)


def test_the_level_is_adjusted_for_the_number_of_agents(splits):
    """A gain on four prompts is significant for one agent, but not for the best of ten."""
    train, validation, test = splits
    fixed, answers = test.arm_index(8), oracle_arms(test)
    favoured = np.full(len(test), fixed)
    favoured[np.flatnonzero(answers != fixed)[:4]] = answers[answers != fixed][:4]
    alone = judged(train, validation, test, {"favoured": once(favoured)})
    assert alone.verdict.ship == "favoured"
    assert alone.verdict.gain == alone.agents["favoured"].gain
    idle = {f"idle-{i}": always(test, 8, 1e-3) for i in range(9)}
    among = judged(train, validation, test, {**idle, "favoured": once(favoured)})
    assert among.agents["favoured"].gain.low > 0
    assert among.verdict.ship == "fixed"
    assert among.verdict.best_agent == "favoured"
    assert among.verdict.confidence == pytest.approx(0.995)
    assert (among.verdict.code, among.verdict.agents) == ("no_gain", 10)


def test_families_add_up_to_all_rows(splits):
    train, validation, test = splits
    found = judged(train, validation, test, {"r": once(regression(train, test))})
    agent = found.agents["r"]
    assert set(agent.per_family) == {"easy", "hard"} == set(found.split["families"])
    rows = sum(family.rows for family in agent.per_family.values())
    mean = sum(f.rows * f.mean_speedup for f in agent.per_family.values()) / rows
    assert rows == len(test)
    assert mean == pytest.approx(agent.mean_speedup)
    assert found.speedups["easy"][8] == found.best_fixed.per_family["easy"].mean_speedup


def test_a_family_that_loses_is_named_in_the_verdict(splits):
    """An agent may gain over all prompts and still be worse for one kind of them."""
    train, validation, test = splits
    fixed, answers = test.arm_index(8), oracle_arms(test)
    hard = (test.rows["family"] == "hard").to_numpy()
    # Mostly the answers for easy prompts, and too large a size for some of the hard ones.
    arms = np.where(hard, fixed, answers)
    arms[~hard] = np.where(np.arange((~hard).sum()) % 4, arms[~hard], fixed)
    arms[np.flatnonzero(hard)[::3]] = test.arm_index(16)
    found = judged(train, validation, test, {"partial": once(arms)})
    verdict = found.verdict
    assert (verdict.ship, verdict.block_size) == ("fixed", 8)
    assert (verdict.best_agent, verdict.worst_family) == ("partial", "hard")
    assert verdict.gain.low > 0
    assert verdict.worst_family_gain == found.agents["partial"].per_family["hard"].gain
    assert verdict.worst_family_gain.value < -0.01
    assert verdict.within_margin is False
    assert verdict.code == "family_loss"
    assert verdict.total_gain == found.agents["partial"].total_gain
    kind = judged(train, validation, test, {"partial": once(arms)}, family_margin=0.5).verdict
    assert (kind.ship, kind.within_margin, kind.unsure_families) == ("partial", True, [])
    assert (kind.code, kind.passed_over) == ("ships", [])
    assert verdict.losing_families == [verdict.riskiest_family] == ["hard"]
    # The loss is within this margin, its pooled interval is not.
    value, low, _ = verdict.riskiest_family_gain
    unsure = judged(
        train, validation, test, {"partial": once(arms)}, family_margin=-0.7 * value - 0.3 * low
    ).verdict
    assert (unsure.ship, unsure.within_margin) == ("partial", True)
    assert unsure.unsure_families == ["hard"]
    assert 0.025 < unsure.loss_probability < 0.5
    strict = judged(
        train,
        validation,
        test,
        {"partial": once(arms)},
        family_margin=unsure.family_margin,
        family_risk=unsure.loss_probability / 2,
    ).verdict
    assert (strict.code, strict.losing_families) == ("family_loss", ["hard"])


def with_unseen(table: Sweep, *families: str) -> Sweep:
    metadata = dataclasses.replace(table.metadata, unseen_families=families)
    return dataclasses.replace(table, metadata=metadata)


def unseen_splits(splits) -> tuple[Sweep, Sweep, Sweep]:
    """The splits without hard prompts to learn from."""
    train, validation, test = (with_unseen(table, "hard") for table in splits)
    easy = [table.select_rows((table.rows["family"] == "easy").to_numpy()) for table in
            (train, validation)]  # fmt: skip
    return easy[0], easy[1], test


def test_seen_and_unseen_sources_have_verdicts_of_their_own(splits):
    train, validation, test = unseen_splits(splits)
    fixed, answers = best_fixed_by_mean(train), oracle_arms(test)
    hard = (test.rows["family"] == "hard").to_numpy()
    arms = np.where(hard, fixed, answers)
    arms[np.flatnonzero(~hard)[::4]] = fixed
    found = judged(train, validation, test, {"easy only": once(arms)}, family_margin=0.5)
    seen, unseen = found.sources["seen sources"], found.sources["unseen sources"]
    assert (seen.families, unseen.families) == (["easy"], ["hard"])
    assert seen.rows + unseen.rows == len(test)
    assert seen.verdict.ship == "easy only"
    assert (unseen.verdict.ship, unseen.verdict.code) == ("fixed", "no_gain")
    assert unseen.agents["easy only"].gain.value == pytest.approx(0)
    assert found.agents["easy only"].per_source["seen sources"] == seen.agents["easy only"]
    values = comparison_values(found)["sources"]["unseen sources"]
    assert values["verdict"]["reason"].startswith("no agent is significantly faster")


def test_an_agent_that_loses_on_unseen_sources_is_not_shipped(splits):
    train, validation, test = unseen_splits(splits)
    fixed, answers = best_fixed_by_mean(train), oracle_arms(test)
    hard = (test.rows["family"] == "hard").to_numpy()
    arms = np.where(hard, fixed, answers)
    arms[np.flatnonzero(~hard)[::9]] = fixed
    arms[np.flatnonzero(hard)[::9]] = test.arm_index(1)
    found = judged(train, validation, test, {"easy only": once(arms)}, family_margin=0.5)
    assert found.agents["easy only"].gain.low > 0
    assert (found.verdict.ship, found.verdict.code) == ("fixed", "unseen_loss")
    assert found.verdict.unseen_gain.high < 0


def test_an_unseen_family_that_is_trained_on_is_refused(splits):
    for part in range(2):
        tables = [with_unseen(table, "hard") for table in splits]
        easy = (tables[part].rows["family"] == "easy").to_numpy()
        tables[part] = tables[part].select_rows(easy)
        with pytest.raises(BlockPilotError, match=r"leakage: .* of unseen families outside"):
            judged(*tables, {})
    # The test rows name the unseen families, whatever the training rows say.
    with pytest.raises(BlockPilotError, match=r"leakage: .* of unseen families outside"):
        judged(splits[0], splits[1], with_unseen(splits[2], "hard"), {})


def test_a_sweep_without_unseen_sources_has_one_column(splits):
    found = judged(*splits, {})
    assert list(found.sources) == ["seen sources"]
    assert found.sources["seen sources"].rows == len(splits[2])
    assert found.verdict.unseen_gain is None


def test_an_agent_within_the_margin_is_shipped_before_one_with_a_higher_bound(splits):
    train, validation, test = splits
    fixed, answers = test.arm_index(8), oracle_arms(test)
    hard = (test.rows["family"] == "hard").to_numpy()
    partial = np.where(hard, fixed, answers)
    partial[np.flatnonzero(~hard)[::4]] = fixed
    partial[np.flatnonzero(hard)[::3]] = test.arm_index(16)
    mild = np.full(len(test), fixed)
    mild[np.flatnonzero(answers != fixed)[:6]] = answers[answers != fixed][:6]
    found = judged(train, validation, test, {"partial": once(partial), "mild": once(mild)})
    gains = {name: agent.gain for name, agent in found.agents.items()}
    assert gains["partial"].low > gains["mild"].low > 0
    assert (found.verdict.ship, found.verdict.best_agent) == ("mild", "mild")
    assert (found.verdict.code, found.verdict.passed_over) == ("ships", ["partial"])


def test_the_report_names_best_fixed_next_to_a_default_that_is_worst(splits):
    """The checkpoint's own size can lose to every other one.

    As it did in z-lab/dflash#151 and in six of six cells of osaurus-ai/vmlx-swift#276.
    """
    found = judged(*with_seconds(splits, [1.0, 1.2, 1.4, 3.0, 12.0]), {})
    speedups = found.speedups["all"]
    assert found.default is not None
    assert found.default.block_size == 16 == min(speedups, key=speedups.__getitem__)
    assert found.best_fixed.block_size == 4
    assert found.default.gain.high < 0
    assert set(speedups) >= {1, 2, 4}


def test_plain_decoding_and_small_sizes_are_arms():
    """No speculation beat the drafter's own size, 16, in lablup/mlxcel#1937."""
    for arms in (DEFAULT_ARMS, Sweep.load().arms):
        assert arms[:4] == (1, 2, 3, 4)
        assert len([arm for arm in arms if arm < 16]) >= 6


def test_a_policy_that_always_decodes_plainly_is_visible(splits):
    """An adaptive head that silently falls back (ZinYY/AdaFlash#2) has one size and no gain."""
    train, validation, test = splits
    found = judged(train, validation, test, {"off": always(test, 8, 1e-4)})
    assert found.agents["off"].arms == {1: 0, 2: 0, 4: 0, 8: 1, 16: 0}
    assert found.agents["off"].gain.high < 0
    assert found.verdict.ship == "fixed"


def test_gap_closed_has_an_interval(splits):
    train, validation, test = splits
    found = judged(train, validation, test, {"r": once(regression(train, test))})
    agent, oracle, fixed = found.agents["r"], found.oracle, found.best_fixed
    assert agent.gap_closed_interval.value == pytest.approx(agent.gap_closed)
    assert 0 < agent.gap_closed_interval.low < agent.gap_closed < agent.gap_closed_interval.high
    assert oracle.gap_closed_interval == pytest.approx((1, 1, 1))
    assert fixed.gap_closed_interval == (0, 0, 0)


def test_rows_of_one_prompt_are_one_cluster(splits):
    """Three samples of each prompt make no interval narrower."""
    train, validation, test = splits
    arms = regression(train, test)
    single = judged(train, validation, test, {"r": once(arms)})
    rows = replicated(test, 3)
    tripled = judged(train, validation, rows, {"r": once(np.tile(arms, 3))})
    assert tripled.agents["r"].gain == pytest.approx(single.agents["r"].gain)
    assert tripled.agents["r"].total_gain == pytest.approx(single.agents["r"].total_gain)
    assert tripled.split["test_prompts"] == len(test)
    assert tripled.split["test_rows"] == 3 * len(test)
    assert tripled.crossfit is not None
    assert tripled.to_dict()["oracle"]["crossfit"] == tripled.crossfit.mean_speedup
    assert tripled.halves.gain == pytest.approx(single.halves.gain)


def test_a_mixed_sweep_is_judged_by_temperature_too(splits):
    train, validation, test = splits
    arms, rows = regression(train, test), mixed(test, 100)
    chosen = np.concatenate([arms, np.tile(arms[:100], 2)])
    found = judged(train, validation, rows, {"r": once(chosen)})
    assert found.split["test_prompts"] == len(test)
    assert found.split["test_rows"] == len(test) + 200
    assert found.split["train_rows"] == found.split["train_prompts"] == len(train)
    agent = found.agents["r"]
    assert {name: group.rows for name, group in agent.per_temperature.items()} == {
        "0": len(test),
        "1": 200,
    }
    cold = judged(train, validation, test, {"r": once(arms)}).agents["r"]
    assert agent.per_temperature["0"].gain == pytest.approx(cold.gain)
    assert agent.per_temperature["0"].mean_speedup == pytest.approx(cold.mean_speedup)
    assert (found.crossfit.source, found.crossfit.prompts) == ("replicates", 100)
    assert found.crossfit.rows == 200
    assert f"{len(test)} test prompts ({len(rows)} rows)" in summary_table(found).title
    assert [row[:2] for row in group_tables(found)["temperature"].rows] == [
        ["0", str(len(test))],
        ["1", "200"],
    ]


def test_prompts_in_several_languages_are_judged_by_language_too(splits):
    """A language can lose although every family gains; the verdict depends on families only."""
    train, validation, test = splits
    spoken = np.where(np.arange(len(test)) < 40, "de", "en")
    rows = dataclasses.replace(test, rows=test.rows.assign(language=spoken))
    arms = regression(train, test)
    arms[:40] = rows.speedups[:40].argmin(axis=1)
    found = judged(train, validation, rows, {"r": once(arms)})
    agent = found.agents["r"]
    assert {name: group.rows for name, group in agent.per_language.items()} == {
        "de": 40,
        "en": len(test) - 40,
    }
    best = test.arm_index(found.best_fixed.block_size)
    for name, mask in (("de", spoken == "de"), ("en", spoken == "en")):
        group, earned = agent.per_language[name], test.speedups[mask, arms[mask]].mean()
        assert group.mean_speedup == pytest.approx(earned)
        assert group.gain.value == pytest.approx(earned / test.speedups[mask, best].mean() - 1)
    assert agent.per_language["de"].gain.high < 0 < agent.per_language["en"].gain.low
    assert [row[:2] for row in group_tables(found)["language"].rows] == [
        ["de", "40"],
        ["en", str(len(test) - 40)],
    ]
    plain = judged(train, validation, test, {"r": once(arms)})
    assert found.verdict == plain.verdict
    assert "language" not in group_tables(plain)


def test_off_policy_estimates_agree_with_the_speedup_of_the_best_agent(splits):
    train, validation, test = splits
    both = np.stack([regression(train, test), np.full(len(test), 3)])
    found = judged(train, validation, test, {"r": Choices(both, np.zeros(2))})
    check = found.off_policy
    assert check is not None
    assert (check.logs, check.decisions, check.confidence) == (20, len(test), 0.95)
    assert check.truth == pytest.approx(found.agents["r"].mean_speedup)
    for name in ("IPS", "SNIPS", "DR"):
        estimator = check.estimators[name]
        assert estimator.mean == pytest.approx(check.truth, abs=estimator.rmse)
        assert estimator.coverage >= 0.8
        assert len(test) / 5 < estimator.effective_sample_size < len(test) / 2
    assert check.estimators["DR"].rmse < check.estimators["IPS"].rmse


def test_the_keys_of_the_json(splits, tmp_path):
    train, validation, test = splits
    found = judged(train, validation, test, {"r": once(regression(train, test), 1e-4)})
    write_json(tmp_path / "c.json", found.to_dict())
    values = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    assert values["split"]["test_prompts"] == len(test)
    for name in ("default", "best_fixed"):
        assert {"block_size", "mean_speedup", "total_speedup"} <= values[name].keys()
    assert values["oracle"]["crossfit"] is None
    agent = values["agents"]["r"]
    assert len(agent["gain"]) == 3
    assert agent["gain"][1] <= agent["gain"][0] <= agent["gain"][2]
    assert list(agent["arms"]) == ["1", "2", "4", "8", "16"]
    for name in (
        "mean_speedup",
        "total_speedup",
        "gap_closed",
        "regret",
        "acceptance_length",
        "acceptance_length_per_request",
        "tokens_per_second",
        "policy_microseconds",
    ):
        assert isinstance(agent[name], float)
    assert values["verdict"].keys() >= {"ship", "block_size", "code"}
    assert comparison_values(found)["verdict"]["reason"] == verdict_reason(found.verdict)


def test_without_agents_the_best_fixed_size_is_shipped(splits):
    train, validation, test = splits
    found = judged(train, validation, test, {})
    assert (found.verdict.ship, found.verdict.block_size) == ("fixed", 8)
    assert found.verdict.gain is None


def test_a_default_size_that_is_not_an_arm_is_left_out(splits):
    train, validation, test = (table.select_arms((1, 2, 8)) for table in splits)
    assert judged(train, validation, test, {}).default is None


def test_training_on_test_prompts_is_refused(splits):
    train, validation, test = splits
    with pytest.raises(BlockPilotError, match="leakage"):
        judged(train, validation, train, {})
    with pytest.raises(BlockPilotError, match="leakage"):
        judged(train, test, test, {})


def test_knowing_the_answers_is_refused(splits):
    train, validation, test = splits
    with pytest.raises(BlockPilotError, match="leakage: agent 'copycat'"):
        judged(train, validation, test, {"copycat": once(oracle_arms(test))})


def test_choices_of_the_wrong_shape_are_refused(splits):
    train, validation, test = splits
    with pytest.raises(BlockPilotError, match="'short' made 3 choices"):
        judged(train, validation, test, {"short": once(np.zeros(3, dtype=int))})
    with pytest.raises(BlockPilotError, match="'wild' chose an arm"):
        judged(train, validation, test, {"wild": once(np.full(len(test), 9))})
    with pytest.raises(BlockPilotError, match="confidence 95"):
        judged(train, validation, test, {}, confidence=95)
    with pytest.raises(BlockPilotError, match="single prompt"):
        judged(train, validation, test.select_rows(np.array([0])), {})
