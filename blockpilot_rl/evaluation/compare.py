"""The honest comparison: agents against fixed sizes and the oracle, on held-out prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.controls import refuse_copied_answers, refuse_overlap
from blockpilot_rl.evaluation.oracle import (
    best_fixed_by_mean,
    best_fixed_by_total,
    gap_closed,
    oracle_arms,
)
from blockpilot_rl.evaluation.results import (
    ALL_PROMPTS,
    Comparison,
    FamilyOutcome,
    Outcome,
    Verdict,
)
from blockpilot_rl.evaluation.statistics import Interval, relative_gain
from blockpilot_rl.sweeps.table import SweepTable


def compare(
    train: SweepTable,
    validation: SweepTable | None,
    test: SweepTable,
    choices: Mapping[str, Choices],
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Judge the choices of agents on the test prompts.

    The best fixed size is chosen on the training prompts and judged, like the agents, on the test
    prompts. An agent is shipped if its gain over that size is above 0 for sure, that is, with an
    interval whose level is adjusted for the number of agents (Bonferroni), so that trying many of
    them does not make one look good by chance.

    Args:
        train: Rows that the agents learned from.
        validation: Rows that they were selected on, if those are others.
        test: Rows that they are judged on, with the same arms.
        choices: What each agent chose on the test rows.
        confidence: Level of the intervals.
        seed: Seed of the bootstrap.

    Raises:
        BlockPilotError: If the tables overlap, an agent knows the test answers, or shapes do not
            fit.
    """
    if not 0 < confidence < 1:
        raise BlockPilotError(f"confidence {confidence} must lie between 0 and 1, such as 0.95")
    if test.rows["id"].nunique() < 2:
        raise BlockPilotError(
            "the test split has a single prompt and an interval needs two or more; "
            "record more prompts with scripts/collect_sweep.py"
        )
    refuse_overlap((train, validation), test)
    _check_choices(choices, test)
    refuse_copied_answers(choices, test)
    judge = _Judge(test, best_fixed_by_mean(train), best_fixed_by_total(train), confidence, seed)
    agents = {name: judge.outcome(chosen) for name, chosen in choices.items()}
    best_fixed = judge.fixed_size(judge.best_fixed)
    default = test.metadata.default_block_size
    all_arms = np.arange(len(test.arms))
    return Comparison(
        split=_describe_split(train, validation, test),
        pair=_describe_pair(test),
        confidence=confidence,
        default=judge.fixed_size(test.arm_index(default)) if default in test.arms else None,
        best_fixed=best_fixed,
        best_fixed_total=judge.fixed_size(judge.best_fixed_total),
        # The average over every arm in turn is what a uniform draw achieves in expectation.
        random=judge.outcome(_free(np.repeat(all_arms[:, None], len(test), axis=1))),
        agents=agents,
        oracle=judge.outcome(_free(oracle_arms(test)[None])),
        oracle_crossfit=None,
        speedups=_speedups(test),
        verdict=_decide(judge, choices, agents),
    )


@dataclass(frozen=True, eq=False)
class _Judge:
    """Judges choices on the test rows against the best fixed sizes (arm indices)."""

    test: SweepTable
    best_fixed: int
    best_fixed_total: int
    confidence: float
    seed: int

    def outcome(self, choices: Choices, block_size: int | None = None) -> Outcome:
        """Measure everything about some choices."""
        test, rows, arms = self.test, np.arange(len(self.test)), choices.arms
        seconds = self._seconds(choices)
        speedups = test.seconds[:, 0] / seconds
        fixed = test.rewards[:, self.best_fixed]
        oracle = test.rewards.max(axis=1)
        passes = test.passes[rows, arms]
        tokens = test.emitted.sum() * len(arms)
        shares = np.bincount(arms.ravel(), minlength=len(test.arms)) / arms.size
        every = np.ones(len(test), dtype=bool)
        return Outcome(
            block_size=block_size,
            mean_speedup=float(speedups.mean()),
            total_speedup=float(test.seconds[:, 0].sum() / seconds.mean(axis=0).sum()),
            gain=self._gain(speedups, every, self.confidence),
            total_gain=relative_gain(
                test.seconds[:, self.best_fixed_total],
                seconds.mean(axis=0),
                test.rows["id"].to_numpy(),
                confidence=self.confidence,
                seed=self.seed,
            ),
            gain_by_seed=(speedups.mean(axis=1) / fixed.mean() - 1).tolist(),
            gap_closed=gap_closed(speedups.mean(), fixed.mean(), oracle.mean()),
            regret=float((oracle - speedups).mean()),
            acceptance_length=float(tokens / passes.sum()),
            acceptance_length_per_request=float((test.emitted / passes).mean()),
            tokens_per_second=float(tokens / seconds.sum()),
            arms=dict(zip(test.arms, shares.tolist(), strict=True)),
            policy_microseconds=float(choices.policy_seconds.mean() * 1e6),
            per_family={
                family: FamilyOutcome(
                    rows=int(mask.sum()),
                    mean_speedup=float(speedups[:, mask].mean()),
                    total_speedup=float(
                        test.seconds[mask, 0].sum() / seconds.mean(axis=0)[mask].sum()
                    ),
                    gain=self._gain(speedups, mask, self.confidence),
                )
                for family, mask in _families(test).items()
            },
        )

    def fixed_size(self, arm: int) -> Outcome:
        """Measure one size for every request, which no policy need decide."""
        return self.outcome(_free(np.full((1, len(self.test)), arm)), self.test.arms[arm])

    def gain(self, choices: Choices, confidence: float) -> Interval:
        """Gain in mean speedup over the best fixed size, at a level of its own."""
        speedups = self.test.seconds[:, 0] / self._seconds(choices)
        return self._gain(speedups, np.ones(len(self.test), dtype=bool), confidence)

    def _seconds(self, choices: Choices) -> np.ndarray:
        decode = self.test.seconds[np.arange(len(self.test)), choices.arms]
        return np.asarray(decode + choices.policy_seconds[:, None])

    def _gain(self, speedups: np.ndarray, mask: np.ndarray, confidence: float) -> Interval:
        return relative_gain(
            speedups.mean(axis=0)[mask],
            self.test.rewards[mask, self.best_fixed],
            self.test.rows["id"].to_numpy()[mask],
            confidence=confidence,
            seed=self.seed,
        )


def _decide(
    judge: _Judge, choices: Mapping[str, Choices], agents: Mapping[str, Outcome]
) -> Verdict:
    """Choose between the agent with the highest lower bound and the best fixed size."""
    size = judge.test.arms[judge.best_fixed]
    fixed = "plain decoding" if size == 1 else f"the best fixed size {size}"
    if not choices:
        return Verdict("fixed", size, "no learned agent was compared", None, None, judge.confidence)
    level = 1 - (1 - judge.confidence) / len(choices)
    gains = {name: judge.gain(chosen, level) for name, chosen in choices.items()}
    best = max(gains, key=lambda name: gains[name].low)
    gain = gains[best]
    adjusted = f", adjusted for {len(choices)} agents" if len(choices) > 1 else ""
    interval = f"{100 * level:.3g}% interval {gain.low:+.1%} to {gain.high:+.1%}{adjusted}"
    if gain.low > 0:
        reason = (
            f"{best} gains {gain.value:+.1%} in mean speedup over {fixed} ({interval}), its own "
            f"decisions included, and {agents[best].total_gain.value:+.1%} in total time"
        )
        return Verdict(best, None, reason, best, gain, level)
    reason = (
        f"no agent surely gains over {fixed}: the best of them, {best}, has {gain.value:+.1%} in "
        f"mean speedup ({interval}), its own decisions included"
    )
    return Verdict("fixed", size, reason, best, gain, level)


def _check_choices(choices: Mapping[str, Choices], test: SweepTable) -> None:
    for name, chosen in choices.items():
        if chosen.arms.shape[1] != len(test):
            raise BlockPilotError(
                f"agent {name!r} made {chosen.arms.shape[1]} choices for {len(test)} test rows"
            )
        if not ((chosen.arms >= 0) & (chosen.arms < len(test.arms))).all():
            raise BlockPilotError(
                f"agent {name!r} chose an arm that is none of the {len(test.arms)}"
            )


def _free(arms: np.ndarray) -> Choices:
    return Choices(arms, np.zeros(len(arms)))


def _families(table: SweepTable) -> dict[str, np.ndarray]:
    families = table.rows["family"].to_numpy()
    return {str(family): families == family for family in sorted(set(families))}


def _speedups(table: SweepTable) -> dict[str, dict[int, float]]:
    groups = {ALL_PROMPTS: np.ones(len(table), dtype=bool), **_families(table)}
    return {
        name: dict(zip(table.arms, table.rewards[mask].mean(axis=0).tolist(), strict=True))
        for name, mask in groups.items()
    }


def _describe_split(
    train: SweepTable, validation: SweepTable | None, test: SweepTable
) -> dict[str, object]:
    tables = {"train": train, "validation": validation, "test": test}
    counts = {
        f"{name}_prompts": 0 if table is None else int(table.rows["id"].nunique())
        for name, table in tables.items()
    }
    return {**counts, "families": {f: int(mask.sum()) for f, mask in _families(test).items()}}


def _describe_pair(table: SweepTable) -> dict[str, str]:
    metadata = table.metadata
    return {
        "target": metadata.target,
        "drafter": metadata.drafter,
        "fingerprint": metadata.fingerprint,
        "device": metadata.device,
        "dtype": metadata.latency_dtype,
    }
