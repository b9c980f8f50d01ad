"""The oracle of one half of an answer, judged on the other: an honest view without replicates."""

from __future__ import annotations

import numpy as np

from blockpilot_rl.evaluation.oracle import CrossFit
from blockpilot_rl.sweeps.table import Sweep


def half_oracle(
    table: Sweep, fixed: int, *, confidence: float = 0.95, seed: int = 0
) -> CrossFit | None:
    """Judge an oracle that chooses by one half of each answer and is judged on the other.

    The fastest of many arms owes part of its lead to luck: where the drafts of an arm happened to
    end in this one answer, which no state of the prompt can tell. Luck in one half of the answer is
    of no use in the other, so what is left of the lead there is what the prompt and its answer have
    lastingly in common. Precisely, for an answer of `E` tokens behind the first:

    - Under every arm, the passes that begin before token `E / 2` are the first half, the others the
      second; a pass over the middle belongs to the first with all its tokens.
    - An arm's time per token in a half is the seconds of an average pass of that arm in the row,
      times its passes in the half, over the tokens that they emit. Only accepted lengths differ
      between the halves.
    - The arm with the least time per token in the second half is judged on the first, and that of
      the first half on the second; both halves weigh the same. The speedup of the row is plain
      decoding's time per token over the average of the two. A fixed size, and the oracle that
      profits from luck (`in_sample`), take one arm for both halves.

    Rows with an arm that has no pass in its second half, as of very short answers, are left out.

    It is no strict bound. Half an answer is a noisy guide too, so a policy that knows what to
    expect of the prompt could do better; and halves that differ foreseeably, such as a remark and
    then a list, count as noise here.

    Args:
        table: Rows to judge on.
        fixed: Index of an arm to judge beside it.
        confidence: Level of the interval.
        seed: Seed of the bootstrap.

    Returns:
        What it achieves; None if fewer than two prompts have rows of two halves.
    """
    passes, tokens = _halves(table)
    rows = (passes > 0).all(axis=(0, 2))
    ids = table.rows["id"].to_numpy()[rows]
    if len(np.unique(ids)) < 2:
        return None
    per_pass = (table.seconds / table.passes)[rows]
    first, second = per_pass * passes[:, rows] / tokens[:, rows]
    plain = first[:, 0]
    every = np.arange(len(ids))
    crossed = first[every, second.argmin(axis=1)] + second[every, first.argmin(axis=1)]
    same = first + second
    return CrossFit.of(
        "halves",
        ids,
        2 * plain / crossed,
        2 * plain / same.min(axis=1),
        2 * plain / same[:, fixed],
        confidence=confidence,
        seed=seed,
    )


def _halves(table: Sweep) -> tuple[np.ndarray, np.ndarray]:
    """Passes of the two halves under every arm and the tokens they emit, `[2, n, arms]` each."""
    passes = np.zeros((2, *table.seconds.shape), dtype=np.int64)
    tokens = np.zeros_like(passes)
    for row, emitted in enumerate(table.emitted):
        for arm, lengths in enumerate(table.accepted[row]):
            ends = np.cumsum(lengths)
            early = int(np.searchsorted(2 * (ends - lengths), emitted))
            passes[:, row, arm] = early, len(lengths) - early
            tokens[:, row, arm] = ends[early - 1], emitted - ends[early - 1]
    return passes, tokens
