"""Warnings about acceptance: few drafts are accepted, prompts are too long, or texts loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from blockpilot_rl.decoding.generation import Generation

NEAR_ONE = 1.2
"""An acceptance length below this suggests that drafter and target do not fit."""

FEW_PASSES = 20
"""With fewer decode passes an acceptance length is too noisy for a warning."""

LEAST_LOOP = 24
"""Smallest number of tokens of a loop."""

MANY_LOOPS = 0.2
"""If more texts than this share end in a loop, acceptance says little about other texts."""


def acceptance_warnings(
    emitted: np.ndarray,
    passes: np.ndarray,
    repetitive: np.ndarray,
    block_size: int,
    prompt_tokens: np.ndarray | None = None,
    trained_length: int | None = None,
) -> list[str]:
    """Describe what looks wrong, one line each.

    Args:
        emitted: Tokens that decode passes emitted, `[texts]`. The first token of a text comes from
            prefill and does not count.
        passes: Decode passes of each text, `[texts]`.
        repetitive: Whether each text ends in a loop, `[texts]`.
        block_size: Block size of the passes.
        prompt_tokens: Length of each prompt, `[texts]`; None if unknown.
        trained_length: Tokens of the longest text that the drafter was trained on; None if unknown.
    """
    total = int(passes.sum())
    if not total:
        return []
    warnings, pooled = [], emitted.sum() / total
    too_long = np.zeros(len(passes), dtype=bool)
    if block_size > 1 and prompt_tokens is not None and trained_length is not None:
        too_long = prompt_tokens > trained_length
    if too_long.any():
        which = (
            f"{too_long.sum()} of {len(passes)} prompts are" if len(passes) > 1 else "the prompt is"
        )
        warnings.append(
            f"{which} longer than {trained_length} tokens, the longest text that the drafter was "
            "trained on; it accepts fewer drafts there"
        )
    known = int(passes[~too_long].sum())
    acceptance = emitted[~too_long].sum() / max(known, 1)
    if block_size > 1 and known >= FEW_PASSES and acceptance < NEAR_ONE:
        warnings.append(
            f"acceptance length {acceptance:.2f} at block size {block_size} is near 1: hardly any "
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


def generation_warnings(generation: Generation, trained_length: int | None) -> list[str]:
    """Describe what looks wrong in one text of `Decoder.generate`, one line each.

    Args:
        generation: The text.
        trained_length: As for `acceptance_warnings`.
    """
    return acceptance_warnings(
        np.array([len(generation.tokens) - 1]),
        np.array([len(generation.passes) - 1]),
        np.array([is_repetitive(generation.tokens)]),
        generation.block_size or 1,
        np.array([generation.prompt_tokens or 0]),
        trained_length,
    )


def is_repetitive(tokens: Sequence[int]) -> bool:
    """Check whether a text ends in a loop: a phrase that is repeated until the end.

    The phrase can have any length up to a third of the text. It must occur at least three times,
    the last time maybe cut off, and the loop must have at least 24 tokens. The very last token may
    be another one, such as a stop token. Takes linear time.

    Args:
        tokens: Token ids of the text.
    """
    backwards = [int(token) for token in tokens][::-1]
    return _begins_with_loop(backwards) or _begins_with_loop(backwards[1:])


def _begins_with_loop(tokens: list[int]) -> bool:
    # The first period + lengths[period] tokens repeat with this period.
    lengths = _prefix_lengths(tokens)
    return any(
        period + lengths[period] >= max(LEAST_LOOP, 3 * period)
        for period in range(1, len(tokens) // 3 + 1)
    )


def _prefix_lengths(tokens: list[int]) -> list[int]:
    """Compute for each position how many tokens from there equal the first tokens (Z algorithm)."""
    count = len(tokens)
    lengths, start, end = [0] * count, 0, 0
    for position in range(1, count):
        length = min(end - position, lengths[position - start]) if position < end else 0
        while position + length < count and tokens[length] == tokens[position + length]:
            length += 1
        lengths[position] = length
        if position + length > end:
            start, end = position, position + length
    return lengths
