"""Results of a comparison: plain values that can be written as JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from blockpilot_rl.evaluation.measure import Measured
from blockpilot_rl.evaluation.off_policy import OffPolicyCheck
from blockpilot_rl.evaluation.oracle import CrossFit
from blockpilot_rl.evaluation.pooling import PooledFamilies
from blockpilot_rl.evaluation.statistics import Interval

ALL_PROMPTS = "all"
"""Name of the group of all prompts, next to the families."""

ALL_GROUPS = "all groups"
"""Name of all state groups in an ablation."""


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
        per_source: The measurements on `seen sources` and on `unseen sources`.
        per_loops: The measurements on answers that end in a loop (`looping`) and on the others
            (`other`).
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
    per_source: dict[str, Measured]
    per_loops: dict[str, Measured]


@dataclass(frozen=True)
class Verdict:
    """What to deploy, as data. `reports.sentences.verdict_reason` puts the reason into words.

    Attributes:
        ship: Name of an agent, or `"fixed"`.
        block_size: The size to ship if that is `"fixed"`, else None.
        code: The reason. `"ships"`: the agent passes all tests. Otherwise a fixed size is shipped:
            `"no_agents"` if none was compared, `"no_gain"` if none is significantly faster than the
            best fixed size, `"no_gain_over_constant"` if the best is not significantly faster than
            each of its own sizes, `"unseen_loss"` if it is significantly slower than the best fixed
            size on unseen sources, `"family_loss"` if a family credibly loses more than the margin.
        best_fixed: The best fixed block size.
        agents: Number of agents compared.
        confidence: Level of the deciding intervals, adjusted for the number of agents.
        family_margin: Largest loss in a family with which an agent is shipped, as a fraction.
        best_agent: The agent that is shipped, or else the one whose gain has the highest lower
            bound; None if none was compared.
        gain: Its gain in mean speedup over the best fixed size, at that level.
        total_gain: Its gain in total time, at the level of the comparison.
        constant: Among the sizes that it takes, the one that it beats by the least certain margin;
            None if it is not significantly faster than the best fixed size.
        gain_over_constant: Its gain over always taking that size.
        unseen_gain: Its gain on unseen sources, at that level; None unless there are seen and
            unseen ones.
        worst_family: Family where it gains least, each family taken alone.
        worst_family_gain: Its gain there.
        within_margin: Whether no family credibly loses more than the margin.
        unsure_families: Families whose pooled interval reaches beyond the margin.
        losing_families: Families that credibly lose more than the margin.
        riskiest_family: Family with the highest probability of a loss beyond the margin.
        riskiest_family_gain: Its pooled gain.
        loss_probability: That probability.
        passed_over: Agents with a higher lower bound that lose too much in a family, or on unseen
            sources.
    """

    ship: str
    block_size: int | None
    code: str
    best_fixed: int
    agents: int
    confidence: float
    family_margin: float
    best_agent: str | None = None
    gain: Interval | None = None
    total_gain: Interval | None = None
    constant: int | None = None
    gain_over_constant: Interval | None = None
    worst_family: str | None = None
    worst_family_gain: Interval | None = None
    within_margin: bool | None = None
    unsure_families: list[str] | None = None
    unseen_gain: Interval | None = None
    losing_families: list[str] = field(default_factory=list)
    riskiest_family: str | None = None
    riskiest_family_gain: Interval | None = None
    loss_probability: float | None = None
    passed_over: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SourceResult:
    """Results on the test prompts of seen or of unseen sources.

    Attributes:
        prompts: Number of these prompts.
        rows: Number of their rows.
        families: Their families.
        best_fixed: The best fixed size of all training prompts.
        agents: The agents.
        oracle: The fastest size of each request.
        halves: The oracle chosen on one half of each answer and judged on the other; None if the
            answers are too short.
        verdict: What to deploy, judged on these prompts alone.
    """

    prompts: int
    rows: int
    families: list[str]
    best_fixed: Measured
    agents: dict[str, Measured]
    oracle: Measured
    halves: CrossFit | None
    verdict: Verdict


@dataclass(frozen=True)
class LeftOut:
    """What agents achieve on each family after training without that family.

    Attributes:
        best_fixed: By family, the size that is best on the training prompts of the other families.
        fixed: These sizes on all test prompts.
        agents: The agents on all test prompts, against these sizes.
    """

    best_fixed: dict[str, int]
    fixed: Outcome
    agents: dict[str, Outcome]


@dataclass(frozen=True)
class CurvePoint:
    """What agents that learned from part of the training data achieve on all test prompts.

    Attributes:
        prompts: Number of training prompts.
        decodes: Number of decodes that the training data cost; None where only prompts count.
        mean_speedup: Mean over requests of plain seconds / seconds, averaged over seeds.
        gain: Gain in mean speedup over the best fixed size of all training prompts.
        gap_closed: Share of the way from that size to the oracle.
        regret: Mean over requests of the oracle's speedup minus the one achieved.
        sources: Number of families that were trained on; None where only prompts count.
    """

    prompts: int
    decodes: int | None
    mean_speedup: float
    gain: Interval
    gap_closed: float
    regret: float
    sources: int | None = None


Curves = dict[str, list[CurvePoint]]


@dataclass(frozen=True)
class AblationRow:
    """What agents achieve when they see only some state groups.

    Attributes:
        groups: The state groups.
        width: Number of values in these groups.
        mean_speedup: Mean over requests of plain seconds / seconds, averaged over seeds.
        gain: Gain in mean speedup over the best fixed size, as a fraction.
        gap_closed: Share of the way from that size to the oracle.
        change: Relative difference in mean speedup to agents that see all groups.
    """

    groups: list[str]
    width: int
    mean_speedup: float
    gain: Interval
    gap_closed: float
    change: Interval


@dataclass(frozen=True)
class Ablation:
    """How much each state group adds for one algorithm.

    Attributes:
        algorithm: The algorithm.
        rows: What it achieves with each group alone, with all but each, and with all.
    """

    algorithm: str
    rows: dict[str, AblationRow]


@dataclass(frozen=True)
class PortabilityPoint:
    """What policies gain where a further token of a block has a given cost.

    Attributes:
        token_cost: Cost of a further token, as a share of a plain pass.
        is_own: Whether this is the cost of the sweep's own device.
        best_fixed: Best fixed size there, chosen on training prompts.
        best_fixed_speedup: Its mean speedup on the test prompts.
        carried: Gain over it of the policy that was trained once and priced for this device.
        carried_reward: Gain of a reward policy that was trained once, for the sweep's own device.
        retrained: Gain of a reward policy that was trained for this device.
        kept: Gain of the carried policy as a share of that of the retrained one; NaN if the latter
            does not gain significantly.
        oracle: Gain of the fastest size of each request.
    """

    token_cost: float
    is_own: bool
    best_fixed: int
    best_fixed_speedup: float
    carried: Interval
    carried_reward: Interval
    retrained: Interval
    kept: Interval
    oracle: Interval


@dataclass(frozen=True)
class Portability:
    """How a policy that was trained once does on devices with other prices.

    Attributes:
        algorithm: Agent whose policy was trained once.
        reward_algorithm: Agent of the reward policies.
        points: Results by cost of a further token, increasing.
    """

    algorithm: str
    reward_algorithm: str
    points: list[PortabilityPoint]


@dataclass(frozen=True)
class ByTemperature:
    """Agents against the best fixed size of each temperature.

    Attributes:
        best_fixed: These sizes, chosen on training prompts; `block_sizes` names them.
        agents: Gain in mean speedup of each agent over them.
    """

    best_fixed: Outcome
    agents: dict[str, Interval]


@dataclass(frozen=True)
class PaperRow:
    """One row of the paper's table, on the test rows of one temperature.

    Attributes:
        block_sizes: The size, or the sizes to choose from, as text.
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
    """Results of comparing agents with fixed sizes and the oracle on the test prompts of a sweep.

    Attributes:
        split: Number of prompts and rows per split, and of test rows per family.
        pair: Target, drafter, device and dtype that the numbers belong to.
        confidence: Level of the intervals of the outcomes.
        default: The size that the drafter was trained for; None if it is not an arm.
        best_fixed: The size with the largest mean speedup over the training prompts.
        best_fixed_total: The size with the least total time over the training prompts.
        random: A random size for every request, in expectation.
        agents: The learned agents, by name.
        oracle: The fastest size of each request: an upper bound that no policy can reach.
        crossfit: An oracle that is chosen on one measurement and judged on another; None if there
            is only one measurement.
        halves: The oracle chosen on one half of each answer and judged on the other; None if the
            answers are too short.
        speedups: Mean speedup by block size, over all prompts and by family.
        verdict: What to deploy.
        families: Gains of each agent by family, estimated together.
        sources: The same comparison on `seen sources` and on `unseen sources` alone, where there
            are at least two prompts of each.
        off_policy: Estimates of the best agent's speedup from logged decisions alone; None if no
            agent was compared.
        left_out: Results by family left out of training, if requested.
        learning_curve: Points per agent over the number of training prompts, if requested.
        source_curve: Points per agent over the number of training families, judged on unseen
            sources, if requested.
        budget_curves: Points per price and agent over the number of decodes, if requested.
        ablation: How much each state group adds, if requested.
        portability: How a policy does on devices with other prices, if requested.
        by_temperature: Agents against the best fixed size of each temperature; None if the test
            rows have one temperature.
        paper_table: The paper's table by temperature, if the classifier was compared.
        notes: Notes for the reader of the results.
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
    families: dict[str, PooledFamilies] = field(default_factory=dict)
    sources: dict[str, SourceResult] = field(default_factory=dict)
    left_out: LeftOut | None = None
    learning_curve: Curves = field(default_factory=dict)
    source_curve: Curves = field(default_factory=dict)
    budget_curves: dict[str, Curves] = field(default_factory=dict)
    ablation: Ablation | None = None
    portability: Portability | None = None
    by_temperature: ByTemperature | None = None
    paper_table: dict[str, dict[str, PaperRow]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON; the oracle holds its cross-fitted mean speedup."""
        values = dataclasses.asdict(self)
        values["oracle"]["crossfit"] = self.crossfit and self.crossfit.mean_speedup
        return values
