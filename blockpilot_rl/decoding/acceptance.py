"""What makes acceptance suspicious: hardly any draft is accepted, or the texts end in loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

NEAR_ONE = 1.2
"""Acceptance length below which a pair is suspected of not belonging together."""

FEW_PASSES = 20
"""Decode passes below which an acceptance length is too rough to suspect anything."""

MANY_LOOPS = 0.2
"""Share of texts that end in a loop above which acceptance says little about other texts."""


def acceptance_warnings(
    emitted: np.ndarray, passes: np.ndarray, repetitive: np.ndarray, block_size: int
) -> list[str]:
    """Say what should be looked into, a line each.

    Args:
        emitted: Tokens that decode passes emitted, `[texts]`; the first token of a text, which
            comes from prefill, does not count.
        passes: Decode passes of each text, `[texts]`.
        repetitive: Whether each text ends in a loop, `[texts]`.
        block_size: Block size of the passes.
    """
    total = int(passes.sum())
    if not total:
        return []
    warnings, pooled = [], emitted.sum() / total
    if block_size > 1 and total >= FEW_PASSES and pooled < NEAR_ONE:
        warnings.append(
            f"acceptance length {pooled:.2f} at block size {block_size} is near 1: hardly any "
            "draft is accepted. Is this the drafter of this target? Check its target_layer_ids, "
            "rope_parameters (rope_theta), mask_token_id and dtype, and the chat template"
        )
    if repetitive.mean() > MANY_LOOPS:
        rest = ~repetitive
        others = "no others"
        if rest.any():
            others = f"{emitted[rest].sum() / passes[rest].sum():.2f} on the others"
        looping = (
            f"{repetitive.mean():.0%} of the texts end" if len(passes) > 1 else "the text ends"
        )
        warnings.append(
            f"{looping} in a loop, which is easy to draft: acceptance length {pooled:.2f} in all, "
            f"{others}"
        )
    return warnings


def is_repetitive(tokens: Sequence[int]) -> bool:
    """Whether a text ends in a loop: its last 24 tokens or more repeat a phrase of up to 16."""
    for period in range(1, 17):
        tail = list(tokens[-max(24, 3 * period) :])
        if len(tail) >= 24 and tail[period:] == tail[:-period]:
            return True
    return False
