"""Measures choices among the block sizes of a sweep on its test rows, and decides what to ship."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.measure import LOOPS, Requests
from blockpilot_rl.evaluation.oracle import oracle_arms
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

    def seconds(self, choices: Choices) -> np.ndarray:
        """Seconds of every row, decisions included, `[seeds, n]`."""
        decode = self.test.seconds[np.arange(len(self.test)), choices.arms]
        return np.asarray(decode + choices.policy_seconds)

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
    agents: Mapping[str, Outcome],
    family_margin: float,
) -> Verdict:
    """Choose between the agents and the best fixed size.

    An agent may be shipped if it is significantly faster than the best fixed size and than each of
    the sizes that it takes itself, and loses at most the margin in every family. If several agents
    pass, the one whose gain has the highest lower bound is shipped. The comparison with an agent's
    own sizes rules out constants and mixtures of constants: an agent that also learned from
    validation prompts could use a better constant.

    Args:
        judge: Measures gains at a level that is adjusted for the number of agents (Bonferroni).
        best_fixed: The best fixed block size.
        choices: What each agent chose.
        agents: What each agent achieved.
        family_margin: Largest loss in a single family, as a fraction, with which an agent is
            shipped. The point estimate counts; families whose intervals reach further are listed.
    """
    fixed = Verdict(
        ship="fixed",
        block_size=best_fixed,
        code="no_agents",
        best_fixed=best_fixed,
        agents=len(choices),
        confidence=judge.confidence,
        family_margin=family_margin,
    )
    if not choices:
        return fixed
    level = 1 - (1 - judge.confidence) / len(choices)
    gains = {
        name: judge.requests.gain(judge.seconds(chosen), level) for name, chosen in choices.items()
    }
    ranked = sorted(gains, key=lambda name: gains[name].low, reverse=True)
    over_constants = {
        name: _over_constants(judge, choices[name], level) for name in ranked if gains[name].low > 0
    }
    adapting = [name for name, (_, change) in over_constants.items() if change.low > 0]
    shippable = [name for name in adapting if _worst(agents[name])[1].value >= -family_margin]
    best = (shippable or ranked)[0]
    worst, loss = _worst(agents[best])
    constant, change = over_constants.get(best, (None, None))
    return dataclasses.replace(
        fixed,
        ship=best if shippable else "fixed",
        block_size=None if shippable else best_fixed,
        code=_code(best, shippable, adapting, gains[best]),
        confidence=level,
        best_agent=best,
        gain=gains[best],
        total_gain=agents[best].total_gain,
        constant=constant,
        gain_over_constant=change,
        worst_family=worst,
        worst_family_gain=loss,
        within_margin=loss.value >= -family_margin,
        unsure_families=_unsure_families(agents[best], family_margin),
        passed_over=adapting[: adapting.index(best)] if shippable else [],
    )


def _code(best: str, shippable: list[str], adapting: list[str], gain: Interval) -> str:
    if shippable:
        return "ships"
    if not gain.low > 0:
        return "no_gain"
    return "family_loss" if best in adapting else "no_gain_over_constant"


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


def _worst(outcome: Outcome) -> tuple[str, Interval]:
    """Family with the least gain, and that gain."""
    name = min(outcome.per_family, key=lambda family: outcome.per_family[family].gain.value)
    return name, outcome.per_family[name].gain


def _unsure_families(outcome: Outcome, margin: float) -> list[str]:
    """Families whose intervals reach beyond the margin."""
    groups = outcome.per_family.items()
    return [family for family, measured in groups if not measured.gain.low >= -margin]
