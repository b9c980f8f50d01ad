from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.replay import Trace
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.oracle import mixed_arms
from blockpilot_rl.files import _plain
from blockpilot_rl.headroom.measure import COST_FACTORS, HeadroomSettings, measure_headroom
from blockpilot_rl.reports.headroom import headroom_tables
from blockpilot_rl.sweeps.reprice import predict_seconds
from blockpilot_rl.sweeps.table import Sweep
from tests.evaluation.replicates import joined, mixed, replicated
from tests.synthetic import ARMS, synthetic_table

PROFILE = LatencyProfile(
    block_sizes=ARMS,
    draft=((0.0, 0.0), *[(0.003, 0.0)] * (len(ARMS) - 1)),
    verify=tuple((0.03 + 0.0018 * (size - 1), 1e-6) for size in ARMS),
    read_prompt=(0.001, 1e-5),
    medians={"contexts": [10, 20]},
)


def hand_made(seconds, families, splits, **columns) -> Sweep:
    """A sweep with block sizes 1, 2 and 4 and these seconds."""
    table = synthetic_table(len(seconds)).select_arms((1, 2, 4))
    rows = table.rows.assign(family=families, split=splits, **columns)
    return dataclasses.replace(table, rows=rows, seconds=np.array(seconds, dtype=float))


@pytest.fixture(scope="module")
def priced() -> Sweep:
    """A synthetic sweep whose seconds come from a profile."""
    table = synthetic_table(400)
    table = dataclasses.replace(
        table, metadata=dataclasses.replace(table.metadata, latency=PROFILE.to_dict())
    )
    return dataclasses.replace(table, seconds=predict_seconds(table, PROFILE))


@pytest.fixture(scope="module")
def traced(priced):
    """Traces of every row; the drafter's confidence partly predicts how far a draft is right."""
    rng = np.random.default_rng(5)
    traces = {}
    for row, emitted in enumerate(priced.emitted):
        rate = rng.uniform(0.3, 0.95, size=(int(emitted), 1))
        right = rng.uniform(size=(int(emitted), ARMS[-1] - 1)) < rate
        run = 1 + np.cumprod(right, axis=1).sum(axis=1)
        left = np.arange(emitted, 0, -1)
        accepted = np.minimum(np.minimum(run[:, None], ARMS), left[:, None])
        confidences = np.repeat(rate, ARMS[-1] - 1, axis=1)
        traces[row] = Trace(accepted.astype(np.int16), confidences.astype(np.float16))
    lengths = [[np.array(traces[r].trajectory(a)) for a in range(len(ARMS))] for r in traces]
    table = dataclasses.replace(priced, accepted=lengths)
    return dataclasses.replace(table, seconds=predict_seconds(table, PROFILE)), traces


@pytest.fixture(scope="module")
def found(traced):
    return measure_headroom(*traced)


def test_sizes_are_chosen_on_train_and_judged_on_test():
    table = hand_made(
        [
            [1.0, 0.5, 1.0],  # train, prose: 2
            [1.0, 0.5, 1.0],
            [1.0, 0.5, 1.0],
            [1.0, 0.8, 0.4],  # train, code: 4
            [1.0, 0.8, 0.4],
            [1.0, 1.0, 0.5],  # test, prose: 4, unlike on the training prompts
            [1.0, 0.5, 0.8],
            [4.0, 5.0, 1.0],  # test, code: 4
            [1.0, 0.5, 2.0],  # test, a family never seen
        ],
        ["prose"] * 3 + ["code"] * 2 + ["prose"] * 2 + ["code", "news"],
        ["train"] * 5 + ["test"] * 4,
        language=["en"] * 8 + ["de"],
    )
    found = measure_headroom(table)
    assert (found.rows, found.prompts, found.train_prompts) == (4, 4, 5)
    # Mean speedups on train: 1.7 with size 2 and 1.6 with size 4; in total 3.1 and 3.8 seconds.
    assert found.best_fixed.block_size == found.best_fixed_total.block_size == 2
    assert found.best_fixed.mean_speedup == pytest.approx((1 + 2 + 0.8 + 2) / 4)
    assert found.best_fixed.total_speedup == pytest.approx(7 / 7)
    assert found.best_fixed.gain.value == 0.0
    assert found.default is None
    assert found.per_family.block_sizes == {"code": 4, "news": 2, "prose": 2}
    assert found.per_family.mean_speedup == pytest.approx((1 + 2 + 4 + 2) / 4)
    assert found.per_family.gain.value == pytest.approx(9 / 5.8 - 1)
    assert found.per_family.total_gain.value == pytest.approx(7 / 3 - 1)
    assert found.per_language.block_sizes == {"de": 2, "en": 2}
    assert found.per_temperature.block_sizes == {"0": 2}
    assert found.oracle.mean_speedup == pytest.approx((2 + 2 + 4 + 2) / 4)
    assert found.oracle_crossfit is None
    prose = found.families["prose"]
    assert (prose.rows, prose.best_fixed.block_size) == (2, 2)
    assert prose.oracle.gain.value == pytest.approx(4 / 3 - 1)
    code = found.families["code"]
    assert (code.rows, code.overall_fixed.mean_speedup) == (1, pytest.approx(0.8))
    # With one prompt there is no interval.
    assert code.oracle.gain.value == pytest.approx(4 / 0.8 - 1)
    assert np.isnan(code.oracle.gain.low)
    assert found.steps is None
    assert found.costs == []


def test_mean_and_total_can_name_different_sizes():
    table = hand_made(
        [[1.0, 0.8, 0.5], [1.0, 0.8, 0.5], [100.0, 80.0, 95.0]] * 2,
        "any",
        ["train"] * 3 + ["test"] * 3,
    )
    found = measure_headroom(table)
    assert (found.best_fixed.block_size, found.best_fixed_total.block_size) == (4, 2)
    assert found.best_fixed_total.total_gain.value == 0.0
    assert found.best_fixed.total_gain.value == pytest.approx(81.6 / 96 - 1)


def test_pure_noise_flatters_the_oracle_but_not_the_cross_fitted_one():
    """Two answers of one prompt that have nothing in common: there is nothing to learn."""
    n, rng = 400, np.random.default_rng(0)
    table = synthetic_table(n).select_arms((1, 2, 4, 8))
    table = table.select_rows(np.repeat(np.arange(n), 2))
    seconds = np.exp(0.2 * rng.normal(size=(2 * n, 4)))
    seconds[:, 0] = 1.5
    rows = table.rows.assign(temperature=1.0, seed=np.tile([0, 1], n), family="any")
    found = measure_headroom(dataclasses.replace(table, rows=rows, seconds=seconds))
    assert found.oracle.gain.low > 0.1
    crossfit = found.oracle_crossfit
    assert crossfit is not None
    assert crossfit.in_sample / crossfit.fixed > 1.15
    assert abs(crossfit.mean_speedup / crossfit.fixed - 1) < 0.04
    assert crossfit.prompts == found.prompts
    assert crossfit.rows == found.rows == 2 * found.prompts
    assert crossfit.gain.low < 0 < crossfit.gain.high < 0.06
    assert found.verdict.worth == "maybe"
    assert found.verdict.crossfit_gain is not None


def test_noise_at_a_temperature_does_not_flatter_a_mixed_sweep():
    """Greedy answers with nothing to gain, and samples of a prompt with nothing in common."""
    table = synthetic_table(200).select_arms((1, 2, 4))
    table = dataclasses.replace(table, seconds=np.tile([1.5, 1.0, 1.1], (200, 1)))
    hot = replicated(table.select_rows(np.arange(60)), 2)
    opposite = np.repeat([[1.5, 0.8, 1.6], [1.5, 1.6, 0.8]], 60, axis=0)
    found = measure_headroom(joined(table, dataclasses.replace(hot, seconds=opposite)))
    assert found.rows == found.prompts + found.oracle_crossfit.rows
    assert found.oracle.gain.low > 0.05
    assert found.oracle_crossfit.gain.high < 0
    assert found.verdict.worth == "maybe"
    assert found.verdict.crossfit_prompts == found.oracle_crossfit.prompts


def test_gains_of_greedy_rows_count_in_a_mixed_sweep():
    table = mixed(synthetic_table(300), 100)
    found = measure_headroom(table, None, HeadroomSettings(min_gain=0.001))
    test = table.split("test")
    fixed = test.speedups[:, test.arm_index(found.best_fixed.block_size)]
    crossed = test.speedups[np.arange(len(test)), mixed_arms(test)].mean() / fixed.mean() - 1
    assert found.verdict.worth == "maybe"
    prompts = found.oracle_crossfit.prompts
    assert found.verdict.crossfit_gain.value == pytest.approx(crossed)
    assert found.verdict.crossfit_prompts == prompts
    assert set(found.temperatures) == {"0", "1"}
    title, *_ = [item.title for item in headroom_tables(found)]
    assert f"{found.prompts} test prompts ({found.rows} rows)" in title
    assert "Headroom by temperatures" in [item.title for item in headroom_tables(found)]


def test_oracles_without_noise_have_their_own_rows():
    found = measure_headroom(mixed(synthetic_table(300), 100, noise=0.1))
    rows = {row[0]: row for row in headroom_tables(found)[0].rows}
    for name, oracle in (
        ("oracle cross-fitted on other samples", found.oracle_crossfit),
        ("oracle chosen on one half of the answer", found.oracle_halves),
    ):
        (cells,) = [row for label, row in rows.items() if label.startswith(name)]
        assert f"{oracle.prompts} prompts ({oracle.rows} rows)" in cells[0]
        assert cells[1] == f"{oracle.mean_speedup:.3f}"
        value, low, high = oracle.gain
        assert cells[3].startswith(f"{value:+.1%} ({100 * low:+.1f}, {100 * high:+.1f}); in-sample")
    assert found.oracle_halves.rows == found.rows
    values = _plain(found.to_dict())
    assert len(values["oracle_crossfit"]["gain"]) == len(values["oracle_halves"]["gain"]) == 3


def test_intervals_take_whole_prompts():
    """Ten copies of every row are not ten times the evidence."""
    table = synthetic_table(200)
    test = (table.rows["split"] == "test").to_numpy()
    index = np.concatenate([np.flatnonzero(~test), np.repeat(np.flatnonzero(test), 10)])
    once, often = measure_headroom(table), measure_headroom(table.select_rows(index))
    assert often.prompts == once.prompts
    assert often.rows == 10 * once.rows
    assert often.oracle.gain == pytest.approx(once.oracle.gain, rel=1e-6)


def test_the_default_is_beaten_by_a_short_block():
    """The checkpoint's own size can be the worst (osaurus-ai/vmlx-swift#276)."""
    found = measure_headroom(synthetic_table(300))
    assert found.default is not None
    assert found.best_fixed.block_size is not None
    assert found.best_fixed.block_size < found.default.block_size == 16
    assert found.default.gain.high < 0
    assert found.speedups[16] == pytest.approx(found.default.mean_speedup)


def test_the_cost_of_further_tokens_moves_the_answer(found):
    assert [point.factor for point in found.costs] == list(COST_FACTORS)
    here = found.costs[COST_FACTORS.index(1.0)]
    assert here.best_fixed == found.best_fixed.block_size
    assert here.best_fixed_speedup == pytest.approx(found.best_fixed.mean_speedup)
    assert here.oracle.value == pytest.approx(found.oracle.gain.value)
    assert here.token_cost == pytest.approx(0.0018 / 0.03, rel=1e-3)
    sizes = [point.best_fixed for point in found.costs]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 16 > sizes[-1]
    # If every block costs the same, the largest is best for almost all.
    assert found.costs[0].token_cost == 0
    assert found.costs[0].oracle.value < found.oracle.gain.value / 2


def test_deciding_at_every_step(found):
    steps = found.steps
    assert steps is not None
    assert (steps.rows, steps.prompts) == (found.rows, found.prompts)
    assert steps.best_fixed == dataclasses.replace(found.best_fixed, block_size=None)
    assert steps.size_oracle == found.oracle
    assert steps.step_oracle.mean_speedup > steps.size_oracle.mean_speedup
    confident, recent = steps.rules["confident prefix"], steps.rules["recent acceptance"]
    # Here the confidence shows how easy the text is, and the past does not.
    assert confident.gain.low > 0
    assert confident.mean_speedup < steps.prefix_oracle.mean_speedup
    assert recent.mean_speedup < steps.step_oracle.mean_speedup
    assert set(confident.settings) == {"threshold"}
    assert set(recent.settings) == {"memory", "prior_weight"}
    assert found.verdict.worth == "yes"
    assert (found.verdict.candidate_kind, found.verdict.candidate) == ("rule", "confident prefix")


def test_traces_of_a_part_of_the_rows(traced):
    table, traces = traced
    test = np.flatnonzero((table.rows["split"] == "test").to_numpy())
    train = np.flatnonzero((table.rows["split"] == "train").to_numpy())
    kept = {int(row): traces[int(row)] for row in (*train[:40], *test[5:25])}
    found = measure_headroom(table, kept)
    assert found.steps is not None
    assert found.steps.rows == 20
    arm = table.arms.index(found.best_fixed.block_size)
    mean = table.speedups[test[5:25], arm].mean()
    assert found.steps.best_fixed.mean_speedup == pytest.approx(mean)
    # Without a trace to tune on, nothing is measured.
    assert measure_headroom(table, {int(test[0]): traces[int(test[0])]}).steps is None


def test_the_verdict_needs_a_large_enough_gain(priced):
    small = measure_headroom(priced, settings=HeadroomSettings(min_gain=0.001))
    assert small.verdict.worth == "maybe"
    large = measure_headroom(priced, settings=HeadroomSettings(min_gain=0.5))
    assert large.verdict.worth == "no"
    assert large.verdict.block_size == large.best_fixed.block_size


def test_known_families_make_it_worth_it():
    rng = np.random.default_rng(0)
    n = 300
    code = rng.uniform(size=n) < 0.5
    best = np.where(code, 2, 1)
    seconds = np.ones((n, 3))
    seconds[np.arange(n), best] = rng.uniform(0.4, 0.5, size=n)
    splits = np.where(np.arange(n) < 150, "train", "test")
    found = measure_headroom(hand_made(seconds, np.where(code, "code", "prose"), splits))
    assert found.verdict.worth == "yes"
    assert (found.verdict.candidate_kind, found.verdict.candidate) == ("group", "family")


def test_json_and_tables(found):
    values = _plain(found.to_dict())
    for key in ("default", "best_fixed", "per_family", "oracle", "step_oracle", "families"):
        assert values[key], key
    assert values["oracle_crossfit"] is None
    assert values["best_fixed"]["block_size"] == found.best_fixed.block_size
    assert values["step_oracle"]["mean_speedup"] == found.steps.step_oracle.mean_speedup
    assert set(values["step_oracle"]["rules"]) == {"confident prefix", "recent acceptance"}
    assert len(values["oracle"]["gain"]) == 3
    tables = headroom_tables(found)
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)
    titles = [item.title for item in tables]
    assert "Headroom by families" in titles
    assert "Headroom by languages" not in titles


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"confidence": 1.0}, "confidence must be"),
        ({"min_gain": -0.1}, "min_gain must be"),
        ({"min_gain": float("nan")}, "min_gain must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(BlockPilotError, match=message):
        HeadroomSettings(**settings)


def test_a_test_split_of_a_single_prompt():
    seconds = [[1.0, 0.8, 0.5]] * 3
    with pytest.raises(BlockPilotError, match="a single prompt"):
        measure_headroom(hand_made(seconds, "any", ["train", "train", "test"]))
    with pytest.raises(BlockPilotError, match="no 'test' rows"):
        measure_headroom(hand_made(seconds, "any", "train"))


def test_a_folder_is_measured_on_its_greedy_rows(tmp_path):
    table = mixed(synthetic_table(150), 60)
    table.save(tmp_path / "sweep")
    greedy = measure_headroom(table.default_rows())
    for sweep in (tmp_path / "sweep", str(tmp_path / "sweep")):
        found = measure_headroom(sweep)
        assert found.best_fixed == greedy.best_fixed
        assert "150 greedy rows of 270" in found.notes[0]
    hot = measure_headroom(tmp_path / "sweep", settings=HeadroomSettings(temperature="1"))
    assert list(hot.temperatures) == ["1"]
    assert hot.notes == []
    with pytest.raises(BlockPilotError, match="temperature selects rows of a sweep's folder"):
        measure_headroom(table, settings=HeadroomSettings(temperature="1"))


def test_looping_answers_are_measured_separately():
    table = synthetic_table(200)
    looping = np.arange(200) % 3 == 0
    table = dataclasses.replace(table, rows=table.rows.assign(repetitive=looping))
    found = measure_headroom(table)
    assert set(found.loops) == {"looping", "other"}
    assert sum(group.rows for group in found.loops.values()) == found.rows
    assert "Headroom by loops" in [item.title for item in headroom_tables(found)]
    others = measure_headroom(table.select_rows(~looping))
    alone = found.loops["other"].best_fixed
    assert alone.mean_speedup == pytest.approx(others.best_fixed.mean_speedup)
