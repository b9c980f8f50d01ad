"""Results about the headroom of a sweep: plain values that can be written as JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from blockpilot_rl.evaluation.measure import Measured
from blockpilot_rl.evaluation.oracle import CrossFit
from blockpilot_rl.evaluation.statistics import Interval


@dataclass(frozen=True)
class Group:
    """Headroom within one group of the test rows, such as a family.

    Attributes:
        rows: Number of test rows.
        best_fixed: The size with the largest mean speedup on the group's own training rows.
        overall_fixed: The size with the largest mean speedup on all training rows.
        oracle: The fastest size of each row.
    """

    rows: int
    best_fixed: Measured
    overall_fixed: Measured
    oracle: Measured


@dataclass(frozen=True)
class CostPoint:
    """Headroom if further tokens of a block cost more or less.

    Attributes:
        factor: Their cost relative to the sweep's device.
        token_cost: Extra verify time per further token, as a share of a plain pass.
        best_fixed: The size with the largest mean speedup on training prompts.
        best_fixed_speedup: Its mean speedup.
        default_speedup: Mean speedup of the drafter's own size; None if it is not an arm.
        per_family: Gain in mean speedup of the best size of each family.
        oracle: Gain in mean speedup of the fastest size of each row.
    """

    factor: float
    token_cost: float
    best_fixed: int
    best_fixed_speedup: float
    default_speedup: float | None
    per_family: Interval
    oracle: Interval


@dataclass(frozen=True)
class Steps:
    """Headroom of deciding at every step, on the test rows with a trace.

    Attributes:
        rows: Number of these rows.
        prompts: Number of their prompts.
        best_fixed: The best fixed size of all training rows.
        size_oracle: The fastest size of each row.
        step_oracle: The best size at every step, found by dynamic programming.
        prefix_oracle: The best number of verified tokens at every step, where the largest block is
            always drafted. Unlike `step_oracle` it does not profit from noise between the drafts of
            different sizes.
        rules: Simple rules, tuned on training rows with a trace.
    """

    rows: int
    prompts: int
    best_fixed: Measured
    size_oracle: Measured
    step_oracle: Measured
    prefix_oracle: Measured
    rules: dict[str, Measured]


@dataclass(frozen=True)
class HeadroomVerdict:
    """Whether adapting is worth it, as data. `reports.headroom.headroom_reason` words it.

    Attributes:
        worth: `"yes"` if a choice without learning gains enough, `"no"` if even choices that
            know the outcome gain too little, else `"maybe"`.
        min_gain: Gain that is worth it, as a fraction.
        block_size: The fixed size that gains are relative to.
        oracle_gain: Gain of the fastest size of each request.
        largest_gain: Largest upper bound among the choices that know the outcome.
        crossfit_gain: Gain of the oracle with prompts of several answers cross-fitted; None if
            there are none.
        crossfit_prompts: Number of these prompts.
        prefix_gain: Gain of the best prefix at every step; None if it was not measured.
        candidate: The choice without learning that gains enough, if there is one: the grouping with
            a best size each, or the name of the step rule.
        candidate_kind: `"group"` or `"rule"`.
        candidate_gain: Its gain.
        candidate_confidence: Level of that interval, adjusted for the number of candidates.
    """

    worth: str
    min_gain: float
    block_size: int | None
    oracle_gain: Interval
    largest_gain: float
    crossfit_gain: Interval | None = None
    crossfit_prompts: int | None = None
    prefix_gain: Interval | None = None
    candidate: str | None = None
    candidate_kind: str | None = None
    candidate_gain: Interval | None = None
    candidate_confidence: float | None = None


@dataclass(frozen=True)
class Headroom:
    """How much adapting the block size could gain on a sweep.

    Attributes:
        rows: Number of test rows.
        prompts: Number of their prompts.
        train_prompts: Number of prompts that fixed sizes are chosen on.
        speedups: Mean speedup of every fixed size on the test rows.
        default: The drafter's own size; None if it is not an arm.
        best_fixed: The size with the largest mean speedup on training prompts.
        best_fixed_total: The size with the least total time on training prompts.
        per_family: The best size of each family.
        per_language: The best size of each language.
        per_temperature: The best size of each temperature.
        oracle: The fastest size of each row.
        oracle_crossfit: An oracle that does not profit from noise; None without replicates.
        oracle_halves: The oracle chosen on one half of each answer and judged on the other; None if
            answers are too short.
        steps: Deciding at every step; None without traces.
        families: Headroom within each family.
        languages: Headroom within each language.
        temperatures: Headroom within each temperature.
        sources: Headroom on `seen sources` and on `unseen sources`.
        halves_by_source: `oracle_halves` on each of them.
        loops: Headroom on answers that end in a loop (`looping`) and on the others (`other`).
        costs: Headroom by the cost of further tokens; empty without a latency profile.
        verdict: Whether adapting is worth it.
        pair: Target, drafter, device and dtype that the numbers belong to.
        notes: Notes for the reader of the results.
        settings: How it was measured.
        provenance: Command, versions, git SHA, date.
    """

    rows: int
    prompts: int
    train_prompts: int
    speedups: dict[int, float]
    default: Measured | None
    best_fixed: Measured
    best_fixed_total: Measured
    per_family: Measured
    per_language: Measured
    per_temperature: Measured
    oracle: Measured
    oracle_crossfit: CrossFit | None
    oracle_halves: CrossFit | None
    steps: Steps | None
    families: dict[str, Group]
    languages: dict[str, Group]
    temperatures: dict[str, Group]
    sources: dict[str, Group]
    halves_by_source: dict[str, CrossFit]
    loops: dict[str, Group]
    costs: list[CostPoint]
    verdict: HeadroomVerdict
    pair: dict[str, str]
    notes: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON; `step_oracle` holds everything that is decided at every step."""
        values = dataclasses.asdict(self)
        steps = values.pop("steps")
        values["step_oracle"] = steps and {**steps.pop("step_oracle"), **steps}
        return values
