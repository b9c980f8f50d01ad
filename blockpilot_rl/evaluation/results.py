"""What a comparison found, in plain values that turn into JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from blockpilot_rl.evaluation.measure import Measured
from blockpilot_rl.evaluation.off_policy import OffPolicyCheck
from blockpilot_rl.evaluation.oracle import CrossFit
from blockpilot_rl.evaluation.statistics import Interval

ALL_PROMPTS = "all"


@dataclass(frozen=True, kw_only=True)
class Outcome(Measured):
    """What one way of choosing among the arms of a sweep achieves on the test prompts.

    Numbers of an agent are averages over its seeds. Its seconds include its own decision, one per
    request.

    Attributes:
        gain_by_seed: Gain in mean speedup over the best fixed size for every seed.
        acceptance_length: Tokens of all requests / decode passes of all requests (pooled).
        acceptance_length_per_request: Mean over requests of tokens / decode passes.
        tokens_per_second: Tokens of all requests / seconds of all requests.
        arms: Share of the requests that got each block size.
        policy_microseconds: Time of one decision; 0 where nothing is decided.
        per_family: The measurements within each family.
        per_language: The measurements within each language.
        per_temperature: The measurements within each temperature.
    """

    gain_by_seed: list[float]
    acceptance_length: float
    acceptance_length_per_request: float
    tokens_per_second: float
    arms: dict[int, float]
    policy_microseconds: float
    per_family: dict[str, Measured]
    per_language: dict[str, Measured]
    per_temperature: dict[str, Measured]


@dataclass(frozen=True)
class Verdict:
    """What to deploy.

    Attributes:
        ship: Name of an agent, or `"fixed"`.
        block_size: The size to ship if that is `"fixed"`, else None.
        reason: Why, in one sentence.
        confidence: Level of the deciding interval, adjusted for the number of agents.
        family_margin: Loss in a family up to which an agent may be shipped, as a fraction.
        best_agent: The agent that is shipped, or else the one whose gain has the highest lower
            bound; None if none was compared.
        gain: Its gain with the interval that decided.
        worst_family: Family where that agent gains least.
        worst_family_gain: Its gain there.
        within_margin: Whether the agent loses no more than the margin in any family.
        unsure_families: Families where its interval reaches beyond the margin.
    """

    ship: str
    block_size: int | None
    reason: str
    confidence: float
    family_margin: float
    best_agent: str | None = None
    gain: Interval | None = None
    worst_family: str | None = None
    worst_family_gain: Interval | None = None
    within_margin: bool | None = None
    unsure_families: list[str] | None = None


@dataclass(frozen=True)
class LeftOut:
    """What is achieved on each family by agents that never saw that family.

    Attributes:
        best_fixed: By family, the size that is best on the training prompts of the others.
        fixed: These sizes, measured on all test prompts.
        agents: The agents, measured on all test prompts against these sizes.
    """

    best_fixed: dict[str, int]
    fixed: Outcome
    agents: dict[str, Outcome]


@dataclass(frozen=True)
class CurvePoint:
    """What agents that learned from part of the training data achieve on all test prompts.

    Attributes:
        prompts: Training prompts.
        decodes: Decodes paid for what was learned; None where prompts are what is counted.
        mean_speedup: Mean over requests of plain seconds / seconds, averaged over seeds.
        gain: Gain in mean speedup over the best fixed size of all training prompts.
        gap_closed: Share of the way from that size to the oracle.
        regret: Mean over requests of the oracle's speedup less the one achieved.
    """

    prompts: int
    decodes: int | None
    mean_speedup: float
    gain: Interval
    gap_closed: float
    regret: float


Curves = dict[str, list[CurvePoint]]


@dataclass(frozen=True)
class AblationRow:
    """What agents achieve that saw some groups of the state only.

    Attributes:
        groups: The groups.
        width: How many numbers they are.
        mean_speedup: Mean over requests of plain seconds / seconds, averaged over seeds.
        gain: Gain in mean speedup over the best fixed size, as a fraction.
        gap_closed: Share of the way from that size to the oracle.
        change: Relative difference in mean speedup to the agents that saw all groups.
    """

    groups: list[str]
    width: int
    mean_speedup: float
    gain: Interval
    gap_closed: float
    change: Interval


@dataclass(frozen=True)
class Ablation:
    """What each group of the state is worth to one algorithm.

    Attributes:
        algorithm: The algorithm.
        rows: What it achieves by the groups it sees: each alone, all but each, and all.
    """

    algorithm: str
    rows: dict[str, AblationRow]


@dataclass(frozen=True)
class PaperRow:
    """One row of the paper's table, on the test rows of one temperature.

    Attributes:
        block_sizes: The size, or what is chosen among, in words.
        acceptance_length: Tokens of all requests / decode passes of all requests (pooled).
        acceptance_length_per_request: Mean over requests of tokens / decode passes.
        mean_speedup: Mean over requests of plain seconds / seconds.
        total_speedup: Plain seconds of all requests / seconds of all requests.
        gain: Gain in mean speedup over the best fixed size.
    """

    block_sizes: str
    acceptance_length: float
    acceptance_length_per_request: float
    mean_speedup: float
    total_speedup: float
    gain: Interval


@dataclass(frozen=True)
class Comparison:
    """Everything that was compared on the test prompts of one sweep.

    Attributes:
        split: Number of prompts and rows per split, and of test rows per family.
        pair: Target, drafter, device and dtype that the numbers belong to.
        confidence: Level of the intervals of the outcomes.
        default: The size the drafter was trained for; None if it is not an arm.
        best_fixed: The size with the largest mean speedup over the training prompts.
        best_fixed_total: The size with the least total time over the training prompts.
        random: A size drawn anew for every request, in expectation.
        agents: The learned agents, by name.
        oracle: The fastest size of each request, an upper bound that no policy can reach.
        crossfit: An oracle that is chosen on one measurement and judged on another; None where
            there is a single one.
        halves: The oracle of one half of each answer, judged on the other; None if the answers are
            too short.
        speedups: Mean speedup by block size, over all prompts and by family.
        verdict: What to deploy.
        off_policy: What logged decisions alone would have told of the best agent; None if none was
            compared.
        left_out: The view by family left out; None if it was not asked for.
        learning_curve: Points per agent over the number of training prompts, if asked for.
        budget_curves: Points per price and agent over the number of decodes, if asked for.
        ablation: What each state group is worth; None if it was not asked for.
        paper_table: The paper's table by temperature, if the classifier was compared.
        notes: What a reader of the results must know.
        settings: How the agents were trained and compared.
        provenance: Command, versions, git SHA, date.
    """

    split: dict[str, Any]
    pair: dict[str, str]
    confidence: float
    default: Outcome | None
    best_fixed: Outcome
    best_fixed_total: Outcome
    random: Outcome
    agents: dict[str, Outcome]
    oracle: Outcome
    crossfit: CrossFit | None
    halves: CrossFit | None
    speedups: dict[str, dict[int, float]]
    verdict: Verdict
    off_policy: OffPolicyCheck | None
    left_out: LeftOut | None = None
    learning_curve: Curves = field(default_factory=dict)
    budget_curves: dict[str, Curves] = field(default_factory=dict)
    ablation: Ablation | None = None
    paper_table: dict[str, dict[str, PaperRow]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Render as values for JSON; what the oracle has cross-fitted stands with it."""
        values = dataclasses.asdict(self)
        values["oracle"]["crossfit"] = self.crossfit and self.crossfit.mean_speedup
        return values
