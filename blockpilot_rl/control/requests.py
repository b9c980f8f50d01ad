"""Traced requests of a sweep: what a controller knows after prefill, and what happens then."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from blockpilot_rl.control.simulate import Simulated, simulate
from blockpilot_rl.control.traces import StepTraces
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.replay import Trace
from blockpilot_rl.decoding.round_costs import RoundCosts
from blockpilot_rl.decoding.state import DEFAULT_GROUPS
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.policies.rate_prior import RatePrior
from blockpilot_rl.policies.rules import Rule, Start
from blockpilot_rl.sweeps.selection import select_temperature
from blockpilot_rl.sweeps.table import Sweep
from blockpilot_rl.sweeps.traces import load_traces

FOLDS = 5
"""Parts of the training prompts; the prior of each part is fitted to the others."""


@dataclass(frozen=True, eq=False)
class TracedRequests:
    """Traced requests and their costs.

    Attributes:
        traces: Their traces.
        rates: Acceptance rate that a prior expects of each, `[rows]`.
        costs: Seconds of the parts of a round.
        ids: Prompt of each, `[rows]`.
        rows: Row of each in the sweep, `[rows]`.
    """

    traces: StepTraces
    rates: np.ndarray
    costs: RoundCosts
    ids: np.ndarray
    rows: np.ndarray

    @classmethod
    def alike(cls, traces: StepTraces, rate: float, costs: RoundCosts) -> TracedRequests:
        """Take each answer as a request of its own prompt, of which the same rate is expected."""
        rows = np.arange(len(traces))
        return cls(traces, np.full(len(traces), rate), costs, rows.astype(str), rows)

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.rates)

    def select(self, rows: np.ndarray) -> TracedRequests:
        """Keep some requests, by number or by a boolean mask."""
        return TracedRequests(
            self.traces.select(rows), self.rates[rows], self.costs, self.ids[rows], self.rows[rows]
        )

    def start(self) -> Start:
        """Return what a rule needs to begin."""
        traces = self.traces
        return Start(self.rates, traces.sampled, traces.block_sizes, self.costs)

    def simulate(self, rule: Rule, *, record: bool = False) -> Simulated:
        """Decode all requests with a rule."""
        return simulate(self.traces, rule.begin(self.start()), self.costs, record=record)

    def seconds(self, rule: Rule) -> np.ndarray:
        """Decode time of every request under a rule, `[rows]`."""
        return self.simulate(rule).seconds

    def priced(self, costs: RoundCosts) -> TracedRequests:
        """Return the same requests on another device."""
        return dataclasses.replace(self, costs=costs)

    def without_prior(self, rate: float) -> TracedRequests:
        """Return the same requests where the same acceptance rate is expected of each."""
        return dataclasses.replace(self, rates=np.full(len(self), rate))


@dataclass(frozen=True, eq=False)
class StepSplits:
    """The traced requests of a sweep by split, with the prior that expects their rates.

    Attributes:
        train: Requests to tune on. Their rates are those of priors that have not seen them.
        validation: Requests to choose by; None if there are none.
        test: Requests to measure on.
        prior: The prior, fitted to all training rows, traced or not.
        rate: Acceptance rate of all training rows together.
        table: The rows of the sweep that `TracedRequests.rows` refers to.
    """

    train: TracedRequests
    validation: TracedRequests | None
    test: TracedRequests
    prior: RatePrior
    rate: float
    table: Sweep


def load_step_splits(
    sweep: str | Path | None = None,
    profile: LatencyProfile | None = None,
    *,
    temperature: str | None = None,
    state_groups: Sequence[str] = DEFAULT_GROUPS,
    chain: float = 0.0,
) -> StepSplits:
    """Read the traced requests of a sweep.

    Args:
        sweep: Folder of a sweep with traces; None for the bundled sweep.
        profile: Prices; None for those of the sweep.
        temperature: Use the rows of this temperature, or `all`; by default the greedy rows of a
            sweep that has several temperatures.
        state_groups: State groups that the prior reads.
        chain: Seconds that each further draft takes after the drafter's pass; see `RoundCosts`.

    Raises:
        BlockPilotError: If there are no traces, the sweep has no latency profile and none is given,
            or the training or test split has no trace.
    """
    table, _ = select_temperature(Sweep.load(sweep), temperature)
    traces = load_traces(sweep, table)
    return step_splits(table, traces, profile, state_groups=state_groups, chain=chain)


def step_splits(
    table: Sweep,
    traces: Mapping[int, Trace],
    profile: LatencyProfile | None = None,
    *,
    state_groups: Sequence[str] = DEFAULT_GROUPS,
    chain: float = 0.0,
) -> StepSplits:
    """Split traced requests; see `load_step_splits`.

    Args:
        table: The sweep.
        traces: Traces of some rows, by row number.
        profile: Prices; None for those of the sweep.
        state_groups: State groups that the prior reads.
        chain: Seconds that each further draft takes after the drafter's pass.
    """
    if profile is None:
        if not table.metadata.latency:
            raise BlockPilotError(
                "the sweep has no latency profile; measure one with `blockpilot calibrate`"
            )
        profile = LatencyProfile.from_dict(table.metadata.latency)
    costs = RoundCosts.from_profile(profile, chain)
    split, states = table.rows["split"].to_numpy(), table.states
    states = states[:, table.metadata.state.columns(state_groups)].astype(np.float64)
    accepted, rejected = judged_drafts(table)
    known = np.flatnonzero(split == "train")
    prior = RatePrior.fit(states[known], accepted[known], rejected[known])
    rates = prior.rates(states)
    rates[known] = _unseen_rates(table, states, accepted, rejected, known)

    def requests(name: str) -> TracedRequests | None:
        rows = np.array([row for row in sorted(traces) if split[row] == name], dtype=np.int64)
        if len(rows) == 0:
            return None
        padded = StepTraces.pad(
            table.arms,
            [traces[int(row)] for row in rows],
            table.rows["prompt_tokens"].to_numpy()[rows],
            table.temperatures[rows] > 0,
        )
        ids = table.rows["id"].to_numpy(dtype=object)[rows]
        return TracedRequests(padded, rates[rows], costs, ids, rows)

    train, test = requests("train"), requests("test")
    if train is None or test is None:
        raise BlockPilotError(
            "training and test prompts need traces; record them with "
            "`blockpilot collect-sweep --trace`"
        )
    judged = accepted[known].sum() + rejected[known].sum()
    rate = float(accepted[known].sum() / judged)
    return StepSplits(train, requests("validation"), test, prior, rate, table)


def judged_drafts(table: Sweep) -> tuple[np.ndarray, np.ndarray]:
    """Count accepted and rejected drafts of the longest block, `[n]` each.

    A pass judges the drafts that it accepts and the first one that it rejects.
    """
    longest = table.arms[-1]
    lengths = [np.asarray(row[-1]) for row in table.accepted]
    accepted = np.array([(row - 1).sum() for row in lengths], dtype=np.float64)
    rejected = np.array([(row < longest).sum() for row in lengths], dtype=np.float64)
    return accepted, rejected


def _unseen_rates(
    table: Sweep,
    states: np.ndarray,
    accepted: np.ndarray,
    rejected: np.ndarray,
    rows: np.ndarray,
) -> np.ndarray:
    """Rates of training rows by priors that were fitted to other prompts, `[n]`."""
    ids = table.rows["id"].to_numpy(dtype=str)[rows]
    _, prompt = np.unique(ids, return_inverse=True)
    fold = np.random.default_rng(0).permutation(int(prompt.max()) + 1)[prompt] % FOLDS
    rates = np.zeros(len(rows))
    for part in np.unique(fold):
        own, others = rows[fold == part], rows[fold != part]
        if len(others) == 0:
            others = own
        prior = RatePrior.fit(states[others], accepted[others], rejected[others])
        rates[fold == part] = prior.rates(states[own])
    return rates
