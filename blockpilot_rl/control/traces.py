"""Traces of several answers as arrays, on which any schedule of rounds can be walked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from blockpilot_rl.decoding.replay import Trace, draft_columns
from blockpilot_rl.errors import BlockPilotError

_NO_BUDGET = 2**31


@dataclass(frozen=True, eq=False)
class StepTraces:
    """Traces of several answers, padded to the longest.

    Attributes:
        block_sizes: Draft lengths that were traced, increasing from 1.
        accepted: Tokens that a round emits that is anchored at each output token and drafts and
            verifies each length, clipped to the end of the text, `[rows, anchors, lengths]`; 0 in
            the padding.
        confidences: The drafter's probabilities of its drafts at the temperature of the text,
            `[rows, anchors, lengths, drafts]`, or `[rows, anchors, 1, drafts]` if they are those of
            the longest draft for every length; 0 in the padding.
        anchors: Number of output tokens that can be anchors (all but the last), `[rows]`.
        prompt_tokens: Length of each prompt, `[rows]`.
        sampled: Whether an answer has a temperature above 0, `[rows]`.
        budgets: Budget of each text, near whose end blocks are shorter; a large number if all are
            whole, `[rows]`.
        next_token: Entropy, top-1 probability and top-2 margin of the target's distribution that
            each output token was chosen from, `[rows, anchors, 3]`; None if they were not traced.
    """

    block_sizes: tuple[int, ...]
    accepted: np.ndarray
    confidences: np.ndarray
    anchors: np.ndarray
    prompt_tokens: np.ndarray
    sampled: np.ndarray
    budgets: np.ndarray
    next_token: np.ndarray | None = None

    @classmethod
    def pad(
        cls,
        block_sizes: tuple[int, ...],
        traces: Sequence[Trace],
        prompt_tokens: np.ndarray,
        sampled: np.ndarray,
    ) -> StepTraces:
        """Pad traces of different lengths.

        Args:
            block_sizes: Draft lengths of the traces.
            traces: The trace of each answer.
            prompt_tokens: Length of each prompt.
            sampled: Whether each answer has a temperature above 0.
        """
        anchors = np.array([len(trace.accepted) for trace in traces])
        shape = (len(traces), int(anchors.max(initial=0)))
        drafts = block_sizes[-1] - 1
        extended = all(trace.is_extended for trace in traces)
        chains = draft_columns(block_sizes) if extended else [slice(-drafts, None)]
        accepted = np.zeros((*shape, len(block_sizes)), np.int16)
        confidences = np.zeros((*shape, len(chains), drafts), np.float16)
        next_token = np.zeros((*shape, 3), np.float16) if extended else None
        for row, (trace, steps) in enumerate(zip(traces, anchors, strict=True)):
            accepted[row, :steps] = trace.accepted
            proposed = trace.confidences if trace.proposed is None else trace.proposed
            for column, own in enumerate(chains):
                chain = proposed[:, own]
                confidences[row, :steps, column, : chain.shape[1]] = chain
            if next_token is not None and trace.next_token is not None:
                next_token[row, :steps] = trace.next_token[:-1]
        return cls(
            block_sizes,
            accepted,
            confidences,
            anchors,
            np.asarray(prompt_tokens),
            np.asarray(sampled),
            np.array([trace.max_new_tokens or _NO_BUDGET for trace in traces]),
            next_token,
        )

    def __len__(self) -> int:
        """Number of answers."""
        return len(self.anchors)

    def select(self, rows: np.ndarray) -> StepTraces:
        """Keep some answers, by number or by a boolean mask."""
        return StepTraces(
            self.block_sizes,
            self.accepted[rows],
            self.confidences[rows],
            self.anchors[rows],
            self.prompt_tokens[rows],
            self.sampled[rows],
            self.budgets[rows],
            None if self.next_token is None else self.next_token[rows],
        )

    @cached_property
    def columns(self) -> np.ndarray:
        """Column of each draft length, -1 if it was not traced, `[longest + 1]`."""
        columns = np.full(self.block_sizes[-1] + 1, -1)
        columns[list(self.block_sizes)] = np.arange(len(self.block_sizes))
        return columns

    def shortened(self, rows: np.ndarray, positions: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Draft lengths as the decoder shortens them near the end of a budget, `[n]`.

        Args:
            rows: Answers, `[n]`.
            positions: Output tokens that anchor the drafts, `[n]`.
            lengths: Chosen draft lengths, `[n]`.
        """
        return np.asarray(np.minimum(lengths, np.maximum(1, self.budgets[rows] - positions)))

    def find(self, lengths: np.ndarray) -> np.ndarray:
        """Find the columns of draft lengths.

        Raises:
            BlockPilotError: If a length was not traced.
        """
        known = (lengths >= 1) & (lengths < len(self.columns))
        found = np.where(known, self.columns[np.where(known, lengths, 0)], -1)
        if (found < 0).any():
            wrong = int(lengths[found < 0].flat[0])
            raise BlockPilotError(
                f"a draft length of {wrong} was not traced; the traces have {self.block_sizes}"
            )
        return np.asarray(found)


def acceptance_rate(traces: StepTraces) -> float:
    """Return the share of judged drafts that are accepted, for the longest draft at all anchors."""
    real = np.arange(traces.accepted.shape[1]) < traces.anchors[:, None]
    emitted = traces.accepted[:, :, -1][real]
    accepted, rejected = (emitted - 1).sum(), (emitted < traces.block_sizes[-1]).sum()
    return float(accepted / (accepted + rejected))
