"""Measures choices among the block sizes of a sweep on its test rows, and decides what to ship."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.measure import LOOPS, SOURCE, UNSEEN, Requests
from blockpilot_rl.evaluation.oracle import oracle_arms
from blockpilot_rl.evaluation.pooling import FamilyRule, PooledFamilies, pool_families
from blockpilot_rl.evaluation.results import Outcome, Verdict
from blockpilot_rl.evaluation.statistics import Interval
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True, eq=False)
class Judge:
    """Measures choices on the test rows against the best fixed sizes and the oracle.

    Attributes:
        test: The rows.
        best_fixed: Arm index of the size that is best in mean speedup on the training prompts; one
            for all, or one per row where the rows have different training prompts, `[n]`.
        best_fixed_total: The same for the size that is best in total time.
        confidence: Level of the intervals.
        seed: Seed of the bootstrap.
    """

    test: Sweep
    best_fixed: int | np.ndarray
    best_fixed_total: int | np.ndarray
    confidence: float
    seed: int

    @cached_property
    def requests(self) -> Requests:
        """The test rows as requests."""
        return Requests.from_sweep(
            self.test,
            self.best_fixed,
            self.best_fixed_total,
            confidence=self.confidence,
            seed=self.seed,
        )

    def select(self, rows: np.ndarray) -> Judge:
        """Judge some of the rows only, given as a boolean mask `[n]`."""
        fixed, total = (
            each if np.ndim(each) == 0 else np.asarray(each)[rows]
            for each in (self.best_fixed, self.best_fixed_total)
        )
        return Judge(self.test.select_rows(rows), fixed, total, self.confidence, self.seed)

    def seconds(self, choices: Choices) -> np.ndarray:
        """Seconds of every row, decisions included, `[seeds, n]`."""
        decode = self.test.seconds[np.arange(len(self.test)), choices.arms]
        return np.asarray(decode + choices.policy_seconds)

    def total_gain(self, choices: Choices) -> Interval:
        """Gain in total time over the fixed size that is best in total time."""
        return self.requests.total_gain(self.seconds(choices))

    def families(self, choices: Choices, rule: FamilyRule) -> PooledFamilies:
        """Estimate the gains by family together.

        Args:
            choices: The choices.
            rule: When a family loses too much.
        """
        return pool_families(
            self.requests,
            self.seconds(choices),
            margin=rule.margin,
            risk=rule.risk,
            confidence=self.confidence,
        )

    def outcome(self, choices: Choices, block_size: int | None = None) -> Outcome:
        """Measure everything about some choices.

        Args:
            choices: The choices.
            block_size: The size, if it is the same for every row.
        """
        test, arms, seconds = self.test, choices.arms, self.seconds(choices)
        passes = test.passes[np.arange(len(test)), arms]
        tokens = test.emitted.sum() * len(arms)
        shares = np.bincount(arms.ravel(), minlength=len(test.arms)) / arms.size
        requests = self.requests
        speedups = requests.plain / seconds
        measured = requests.measure(seconds, block_size=block_size)
        return Outcome(
            **vars(measured),
            gain_by_seed=(
                speedups.mean(axis=1) / requests.mean_speedups(seconds).fixed - 1
            ).tolist(),
            acceptance_length=float(tokens / passes.sum()),
            acceptance_length_per_request=float((test.emitted / passes).mean()),
            tokens_per_second=float(tokens / seconds.sum()),
            arms=dict(zip(test.arms, shares.tolist(), strict=True)),
            policy_microseconds=float(choices.policy_seconds.mean() * 1e6),
            per_family=requests.measure_groups("family", seconds),
            per_language=requests.measure_groups("language", seconds),
            per_temperature=requests.measure_groups("temperature", seconds),
            per_source=requests.measure_groups(SOURCE, seconds),
            per_loops=requests.measure_groups(LOOPS, seconds),
        )

    def fixed_size(self, arm: int) -> Outcome:
        """Measure one size for every row, which takes no decision."""
        arms = np.full((1, len(self.test)), arm)
        return self.outcome(Choices.free(arms), self.test.arms[arm])

    def oracle(self) -> Outcome:
        """Measure the fastest size of every row."""
        return self.outcome(Choices.free(oracle_arms(self.test)[None]))

    def random(self) -> Outcome:
        """Measure a random size for every row: the average over all arms."""
        arms = np.arange(len(self.test.arms))
        return self.outcome(Choices.free(np.repeat(arms[:, None], len(self.test), axis=1)))


def decide(
    judge: Judge,
    best_fixed: int,
    choices: Mapping[str, Choices],
    families: Mapping[str, PooledFamilies],
    rule: FamilyRule,
) -> Verdict:
    """Choose between the agents and the best fixed size.

    An agent may be shipped if it is significantly faster than the best fixed size and than each of
    the sizes that it takes itself, if it is not significantly slower than the best fixed size on
    unseen sources, and if no family credibly loses more than the margin. If several agents pass,
    the one whose gain has the highest lower bound is shipped. The comparison with an agent's own
    sizes rules out constants and mixtures of constants: an agent that also learned from validation
    prompts could use a better constant.

    Args:
        judge: Measures gains at a level that is adjusted for the number of agents (Bonferroni).
        best_fixed: The best fixed block size.
        choices: What each agent chose.
        families: The gains of each agent by family, estimated together.
        rule: When a family loses too much.
    """
    fixed = Verdict(
        ship="fixed",
        block_size=best_fixed,
        code="no_agents",
        best_fixed=best_fixed,
        agents=len(choices),
        confidence=judge.confidence,
        family_margin=rule.margin,
    )
    if not choices:
        return fixed
    level = 1 - (1 - judge.confidence) / len(choices)
    gains = {
        name: judge.requests.gain(judge.seconds(chosen), level) for name, chosen in choices.items()
    }
    unseen = {name: _unseen_gain(judge, chosen, level) for name, chosen in choices.items()}
    ranked = sorted(gains, key=lambda name: gains[name].low, reverse=True)
    over_constants = {
        name: _over_constants(judge, choices[name], level) for name in ranked if gains[name].low > 0
    }
    adapting = [name for name, (_, change) in over_constants.items() if change.low > 0]
    general = [name for name in adapting if not _is_loss(unseen[name])]
    shippable = [name for name in general if not families[name].losing]
    best = (shippable or ranked)[0]
    constant, change = over_constants.get(best, (None, None))
    verdict = dataclasses.replace(
        fixed,
        ship=best if shippable else "fixed",
        block_size=None if shippable else best_fixed,
        code=_code(best, gains[best], adapting, general, shippable),
        confidence=level,
        best_agent=best,
        gain=gains[best],
        total_gain=judge.total_gain(choices[best]),
        unseen_gain=unseen[best],
        constant=constant,
        gain_over_constant=change,
        passed_over=adapting[: adapting.index(best)] if shippable else [],
    )
    return _with_families(verdict, judge, choices[best], families[best])


def _with_families(
    verdict: Verdict, judge: Judge, choices: Choices, families: PooledFamilies
) -> Verdict:
    """Describe the best agent's families."""
    measured = judge.requests.measure_groups("family", judge.seconds(choices))
    worst = min(measured, key=lambda family: measured[family].gain.value)
    riskiest = families.families[families.worst]
    return dataclasses.replace(
        verdict,
        worst_family=worst,
        worst_family_gain=measured[worst].gain,
        within_margin=not families.losing,
        unsure_families=[
            name
            for name, found in families.families.items()
            if not found.pooled.low >= -families.margin
        ],
        losing_families=families.losing,
        riskiest_family=families.worst,
        riskiest_family_gain=riskiest.pooled,
        loss_probability=riskiest.loss_probability,
    )


def _code(
    best: str, gain: Interval, adapting: list[str], general: list[str], shippable: list[str]
) -> str:
    if shippable:
        return "ships"
    if not gain.low > 0:
        return "no_gain"
    if best not in adapting:
        return "no_gain_over_constant"
    return "family_loss" if best in general else "unseen_loss"


def _unseen_gain(judge: Judge, choices: Choices, confidence: float) -> Interval | None:
    """Gain on unseen sources; None unless there are seen and unseen ones."""
    mask = judge.requests.groups[SOURCE] == UNSEEN
    if mask.all() or not mask.any():
        return None
    seconds = np.compress(mask, judge.seconds(choices), axis=-1)
    return judge.requests.select(mask).gain(seconds, confidence)


def _is_loss(gain: Interval | None) -> bool:
    return gain is not None and gain.high < 0


def _over_constants(judge: Judge, choices: Choices, confidence: float) -> tuple[int, Interval]:
    """Compare choices with each of their own sizes as a fixed size.

    Returns:
        The size with the least lower bound of the relative difference, and that difference.
    """
    seconds, sizes = judge.seconds(choices), judge.test.seconds
    changes = {
        judge.test.arms[arm]: judge.requests.change(seconds, sizes[:, arm], confidence)
        for arm in np.unique(choices.arms)
    }
    return min(changes.items(), key=lambda item: item[1].low)
