from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.results import CurvePoint
from blockpilot_rl.evaluation.statistics import Interval
from blockpilot_rl.experiments.compare import CompareConfig, compare
from blockpilot_rl.experiments.curves import (
    best_fixed_choices,
    budget_curves,
    curve_point,
    decision_counts,
    learning_curve,
    prompt_counts,
    source_counts,
    source_curve,
    unseen_rows,
)
from blockpilot_rl.experiments.judging import make_judge
from blockpilot_rl.experiments.seeds import Splits, Trainer, random_prompts
from blockpilot_rl.sweeps.table import Sweep
from tests.evaluation.replicates import mixed, replicated
from tests.synthetic import synthetic_table

GROUPS = ("last_hidden",)


@pytest.fixture(scope="module")
def splits() -> Splits:
    return Splits.from_sweep(synthetic_table(n=300))


@pytest.fixture(scope="module")
def sampled() -> Splits:
    """Prompts of which some have several answers."""
    return Splits.from_sweep(mixed(synthetic_table(n=300), 150))


def test_prompts_are_halved_and_counted_once(splits):
    train, prompts = splits.train, len(splits.train)
    assert prompt_counts(train) == [prompts >> 2, prompts >> 1, prompts]
    assert prompt_counts(replicated(train, 3)) == prompt_counts(train)
    assert prompt_counts(train.select_rows(np.arange(20))) == [20]


def test_decisions_are_quartered():
    assert decision_counts(200_000) == [781, 3125, 12_500, 50_000, 200_000]
    assert decision_counts(100) == [100]


def test_a_point_has_the_numbers_of_the_outcome(splits):
    judge = make_judge(splits)
    rng = np.random.default_rng(0)
    arms = rng.integers(5, size=(3, len(judge.test)))
    chosen = Choices(arms, np.array([1e-3, 2e-3, 3e-3]))
    point, outcome = curve_point(judge, chosen, 50, 250), judge.outcome(chosen)
    assert (point.prompts, point.decodes) == (50, 250)
    assert point.gain == outcome.gain
    for name in ("mean_speedup", "gap_closed", "regret"):
        assert getattr(point, name) == pytest.approx(getattr(outcome, name))


def test_the_best_fixed_size_of_few_prompts_is_judged(splits):
    """A size that is not the best of all prompts."""
    chosen = best_fixed_choices(splits, 3, range(4))
    assert chosen.arms.shape == (4, len(splits.test))
    assert len(np.unique(chosen.arms)) > 1
    assert len(np.unique(best_fixed_choices(splits, 1000, range(4)).arms)) == 1
    assert (chosen.policy_seconds == 0).all()


def test_a_prompt_with_several_answers_costs_as_many_decodes(sampled):
    train, judge = sampled.train, make_judge(sampled)
    assert len(train) > train.rows["id"].nunique()
    trainer = Trainer(range(3), GROUPS)
    learning = learning_curve(trainer, judge, sampled, {})
    curves = budget_curves(trainer, judge, sampled, {}, learning)
    counts = [point.prompts for point in learning["fixed"]]
    assert counts[-1] == train.rows["id"].nunique()
    answers = [
        round(np.mean([len(random_prompts(train, count, seed)) for seed in range(3)]))
        for count in counts
    ]
    assert answers[-1] == len(train)
    assert all(paid > prompts for paid, prompts in zip(answers, counts, strict=True))
    paid = {price: [p.decodes for p in curves[price]["fixed"]] for price in ("decode", "replay")}
    assert paid == {"replay": answers, "decode": [5 * count for count in answers]}
    assert [point.prompts for point in curves["replay"]["fixed"]] == counts


def test_agents_that_learn_from_validation_answers_pay_for_them(sampled):
    point = CurvePoint(0, None, 1.5, Interval(0.0, 0.0, 0.0), 0.0, 0.0)
    counts = prompt_counts(sampled.train)
    points = [dataclasses.replace(point, prompts=count) for count in counts]
    learning = dict.fromkeys(("fixed", "reward-regression", "supervised"), points)

    def curves(splits: Splits, price: str, **hyperparams) -> dict[str, list[CurvePoint]]:
        trainer = Trainer(range(3), GROUPS, hyperparams=hyperparams)
        return budget_curves(trainer, make_judge(splits), splits, {}, learning)[price]

    found = curves(sampled, "decode")
    paid = {name: [point.decodes for point in found[name]] for name in learning}
    subsets = [[sampled.subset(count, seed) for seed in range(3)] for count in counts]
    train = [np.mean([len(part.train) for part in row]) for row in subsets]
    both = [np.mean([len(part.train) + len(part.validation) for part in row]) for row in subsets]
    assert both[-1] == len(sampled.train) + len(sampled.validation)
    assert paid["fixed"] == paid["supervised"] == [5 * round(rows) for rows in train]
    assert paid["reward-regression"] == [5 * round(rows) for rows in both]
    network = curves(sampled, "replay", **{"reward-regression": {"model": "mlp"}})
    assert network["reward-regression"][-1].decodes == len(sampled.train)
    alone = curves(dataclasses.replace(sampled, validation=None), "replay")
    assert alone["reward-regression"][-1].decodes == len(sampled.train)


def four_sources(n: int) -> Sweep:
    """Families a to d, of which d is unseen."""
    table = synthetic_table(n=n)
    family = np.array(["a", "b", "c", "d"])[np.arange(n) % 4]
    split = np.where(family == "d", "test", table.rows["split"])
    return dataclasses.replace(
        table,
        rows=table.rows.assign(family=family, split=split),
        metadata=dataclasses.replace(table.metadata, unseen_families=("d",)),
    )


def test_a_curve_over_sources_is_judged_on_unseen_ones():
    splits = Splits.from_sweep(four_sources(600))
    trainer, judge = Trainer(range(3), ("last_hidden",)), make_judge(splits)
    trained = {"ridge-regression": trainer.train("ridge-regression", splits)}
    curves = source_curve(trainer, judge, splits, trained)
    assert list(curves) == ["fixed", "ridge-regression"]
    mask = (splits.test.rows["family"] == "d").to_numpy()
    for points in curves.values():
        assert [point.sources for point in points] == [1, 2, 3]
        prompts = [point.prompts for point in points]
        assert prompts == sorted(prompts)
        assert prompts[-1] == splits.train.rows["id"].nunique()
    last = curves["ridge-regression"][-1]
    chosen = trained["ridge-regression"].choices.select(mask)
    assert last.gain == judge.select(mask).outcome(chosen).gain
    assert curves["fixed"][-1].gain.value == pytest.approx(0)


def test_each_seed_draws_its_families_and_fewer_are_a_part_of_more():
    splits = Splits.from_sweep(four_sources(400))
    drawn = {}
    for seed in range(6):
        fewer, more = (set(splits.of_sources(n, seed).train.rows["family"]) for n in (1, 2))
        assert (len(fewer), len(more)) == (1, 2)
        assert fewer < more
        drawn[seed] = frozenset(more)
        validation = splits.of_sources(1, seed).validation
        assert validation is None or set(validation.rows["family"]) == fewer
    assert len(set(drawn.values())) > 1


@pytest.mark.parametrize(
    ("families", "counts"),
    [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 4]), (9, [1, 2, 4, 8, 9])],
)
def test_numbers_of_sources(families, counts):
    table = synthetic_table(n=90)
    family = [f"family {row % families}" for row in range(90)]
    named = dataclasses.replace(table, rows=table.rows.assign(family=family))
    assert source_counts(named) == counts


def test_a_curve_over_sources_without_unseen_ones_is_refused_before_training():
    for table in (synthetic_table(n=200), four_sources(200).split("test")):
        seen = dataclasses.replace(
            table, metadata=dataclasses.replace(table.metadata, unseen_families=())
        )
        with pytest.raises(BlockPilotError, match="judged on unseen sources, and the test split"):
            unseen_rows(seen)
    with pytest.raises(BlockPilotError, match="collect-sweep --unseen"):
        compare(synthetic_table(n=200), CompareConfig(source_curve=True, jobs=1, seeds=1))
