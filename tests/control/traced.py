"""Small random traces and a latency profile in which every length has a different time."""

from __future__ import annotations

import dataclasses

import numpy as np

from blockpilot_rl.control.traces import StepTraces
from blockpilot_rl.decoding.latency import LatencyProfile, SamplingCost
from blockpilot_rl.decoding.replay import Trace
from blockpilot_rl.decoding.round_costs import RoundCosts

SIZES = (1, 2, 4)
PROFILE = LatencyProfile(
    block_sizes=SIZES,
    draft=((0.0, 0.0), (0.2, 0.001), (0.3, 0.001)),
    verify=((1.0, 0.01), (1.2, 0.01), (1.9, 0.012)),
    read_prompt=(0.05, 0.001),
    medians={},
    sampling=SamplingCost(draft=(0.1, 0.05), verify=(0.2, 0.07), noise=0.03),
)
COSTS = RoundCosts.from_profile(PROFILE)


def random_trace(rng: np.random.Generator, steps: int, sizes: tuple[int, ...] = SIZES) -> Trace:
    """Drafts of different sizes are right or wrong independently."""
    left = np.arange(steps, 0, -1)[:, None]
    right = rng.integers(1, np.array(sizes) + 1, size=(steps, len(sizes)))
    confidences = rng.uniform(size=(steps, sizes[-1] - 1))
    return Trace(np.minimum(right, left).astype(np.int16), confidences.astype(np.float16))


def padded(
    traces: list[Trace],
    prompt_tokens: list[int],
    sampled: list[bool] | None = None,
    budget: int | None = None,
) -> StepTraces:
    """Traces of `SIZES`, greedy unless `sampled` says otherwise."""
    warm = np.zeros(len(traces), dtype=bool) if sampled is None else np.array(sampled)
    found = StepTraces.pad(SIZES, traces, np.array(prompt_tokens), warm)
    if budget is None:
        return found
    return dataclasses.replace(found, budgets=np.full(len(traces), budget))


def some_traces(
    rows: int = 12, seed: int = 0, sampled: bool = False, budget: int | None = None
) -> StepTraces:
    """Several random traces of 1 to 40 anchors."""
    rng = np.random.default_rng(seed)
    traces = [random_trace(rng, int(rng.integers(1, 41))) for _ in range(rows)]
    return padded(traces, rng.integers(2, 90, rows).tolist(), [sampled] * rows, budget)
