"""What was found about the headroom of a sweep, in plain values that turn into JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from blockpilot_rl.evaluation.measure import Measured
from blockpilot_rl.evaluation.oracle import CrossFit
from blockpilot_rl.evaluation.statistics import Interval


@dataclass(frozen=True)
class Group:
    """Headroom within one family, language or temperature.

    Attributes:
        rows: Test rows.
        best_fixed: The size that is best in mean speedup on the group's own training prompts.
        overall_fixed: The size that is best over all groups.
        oracle: The fastest size of each row.
    """

    rows: int
    best_fixed: Measured
    overall_fixed: Measured
    oracle: Measured


@dataclass(frozen=True)
class CostPoint:
    """How the answer changes when further tokens of a block cost more or less.

    Attributes:
        factor: Their cost relative to the sweep's device.
        token_cost: Extra verify time per further token, as a share of a plain pass.
        best_fixed: Best fixed size by mean speedup on training prompts.
        best_fixed_speedup: Its mean speedup.
        default_speedup: Mean speedup of the drafter's own size; None if it is no arm.
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
    """Headroom of deciding at every step, on the test rows that have a trace.

    Attributes:
        rows: These rows.
        prompts: Their prompts.
        best_fixed: The best fixed size (of all training rows) on them.
        size_oracle: The fastest size of each of them.
        step_oracle: The best size at every step, found by dynamic programming.
        prefix_oracle: The same where the largest block is drafted each time and only the number of
            verified tokens is chosen, so that no luck among drafts of different sizes helps.
        rules: Simple rules, tuned on training rows that have a trace.
    """

    rows: int
    prompts: int
    best_fixed: Measured
    size_oracle: Measured
    step_oracle: Measured
    prefix_oracle: Measured
    rules: dict[str, Measured]


@dataclass(frozen=True)
class Worth:
    """Whether adapting is worth it.

    Attributes:
        worth: `"yes"`, `"no"`, or `"maybe"`.
        reason: Why, in one sentence.
    """

    worth: str
    reason: str


@dataclass(frozen=True)
class Headroom:
    """Everything that was found about the headroom of a sweep.

    Attributes:
        rows: Judged test rows.
        prompts: Their prompts.
        train_prompts: Prompts that fixed sizes were chosen on.
        speedups: Mean speedup of every fixed size on the test rows.
        default: The drafter's own size; None if it is no arm.
        best_fixed: The size with the largest mean speedup on training prompts.
        best_fixed_total: The size with the least total time on training prompts.
        per_family: The best size of each family.
        per_language: The best size of each language.
        per_temperature: The best size of each temperature.
        oracle: The fastest size of each row.
        oracle_crossfit: An oracle that cannot profit from noise; None without replicates.
        oracle_halves: The oracle of one half of each answer, judged on the other; None if
            answers are too short.
        steps: Deciding at every step; None without traces.
        families: Headroom within each family.
        languages: Headroom within each language.
        temperatures: Headroom within each temperature.
        costs: How the answer changes with the cost of further tokens; empty without a profile.
        verdict: Whether adapting is worth it here.
        pair: Target, drafter, device and dtype that the numbers belong to.
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
    costs: list[CostPoint]
    verdict: Worth
    pair: dict[str, str]
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Render as values for JSON; what is decided at every step stands with its oracle."""
        values = dataclasses.asdict(self)
        steps = values.pop("steps")
        values["step_oracle"] = steps and {**steps.pop("step_oracle"), **steps}
        return values
