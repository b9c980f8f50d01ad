"""The best schedule in hindsight, by dynamic programming."""

from __future__ import annotations

from typing import Literal

import numpy as np

from blockpilot_rl.control.traces import StepTraces
from blockpilot_rl.decoding.round_costs import RoundCosts


def oracle_seconds(
    traces: StepTraces,
    costs: RoundCosts,
    lengths: tuple[int, ...] | None = None,
    verify: Literal["block", "prefix"] = "prefix",
) -> np.ndarray:
    """Compute the decode time of every answer under the best schedule, `[rows]`.

    The least time from an anchor is that of the best round there plus the least time from the next
    anchor. What the drafter reads after plain rounds is left out, so no schedule is faster. Noise
    is counted up to the end of the text, which every schedule needs.

    Args:
        traces: The answers.
        costs: Seconds of the parts of a round.
        lengths: Draft lengths to choose from; None for all that were traced.
        verify: `block` verifies whole blocks, `prefix` any number of their tokens.
    """
    lengths = traces.block_sizes if lengths is None else lengths
    columns = traces.find(np.array(lengths))
    steps, every = traces.accepted.shape[1], np.arange(len(traces))
    least = np.zeros((len(traces), steps + 1))
    for at in range(steps - 1, -1, -1):
        accepted = traces.accepted[:, at, columns].astype(np.int64)
        contexts = traces.prompt_tokens + at
        best = np.full(len(traces), np.inf)
        for index, length in enumerate(lengths):
            drafted = traces.shortened(every, np.full(len(traces), at), np.array(length))
            draft = costs.draft_seconds(drafted, contexts, traces.sampled)
            choices = [length] if verify == "block" else range(1, length + 1)
            for verified in (np.minimum(drafted, choice) for choice in choices):
                emitted = np.minimum(accepted[:, index], verified)
                total = draft + costs.verify_seconds(verified, contexts, traces.sampled)
                total += least[every, at + emitted]
                best = np.minimum(best, total)
        least[:, at] = np.where(at < traces.anchors, best, 0.0)
    noise = traces.sampled * traces.anchors * costs.noise
    fastest: np.ndarray = least[:, 0] + costs.read[0] + costs.read[1] * traces.prompt_tokens
    if 1 in lengths:
        fastest = np.minimum(fastest, _plain_seconds(traces, costs))
    return np.asarray(fastest + noise)


def _plain_seconds(traces: StepTraces, costs: RoundCosts) -> np.ndarray:
    """Seconds of plain decoding without noise, `[rows]`."""
    positions = np.arange(traces.accepted.shape[1])
    contexts = traces.prompt_tokens[:, None] + positions
    ones = np.ones_like(contexts)
    seconds = costs.verify_seconds(ones, contexts, traces.sampled[:, None])
    return np.asarray((seconds * (positions < traces.anchors[:, None])).sum(axis=1))
