"""Acceptance of a drafter in real decoding, by prompt family.

Training accuracy can look well while decoding accepts little, so this is what a recipe reports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.provenance import provenance
from blockpilot_rl.sweeps.prompts import Prompt, builtin_suite


def measure_acceptance(
    decoder: Decoder,
    prompts: Sequence[Prompt],
    block_size: int,
    max_new_tokens: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame:
    """Decode prompts and count tokens and passes.

    Args:
        decoder: The pair's decoder.
        prompts: Held-out prompts.
        block_size: Block size of every pass.
        max_new_tokens: Budget of each text.
        progress: Called with the finished prompts and their total.

    Returns:
        A row per prompt that needed a decode pass: `id, family, emitted, passes,
        acceptance_length` (first token excluded, as it comes from prefill).

    Raises:
        BlockPilotError: If no prompt needed one.
    """
    records = []
    for done, prompt in enumerate(prompts, start=1):
        ids = decoder.pair.encode(prompt.chat())
        result = decoder.generate(ids, block_size, max_new_tokens)
        passes = len(result.passes) - 1
        if passes:
            emitted = len(result.tokens) - 1
            records.append((prompt.id, prompt.family, emitted, passes, emitted / passes))
        progress(done, len(prompts))
    if not records:
        raise BlockPilotError("every prompt ended with its first token; there is nothing to accept")
    return pd.DataFrame(records, columns=["id", "family", "emitted", "passes", "acceptance_length"])


def summarise_acceptance(frame: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Acceptance by family and in all, pooled (tokens / passes) and as the mean over prompts."""
    summary = {}
    for name, group in [*frame.groupby("family"), ("all", frame)]:
        summary[str(name)] = {
            "prompts": float(len(group)),
            "pooled": float(group["emitted"].sum() / group["passes"].sum()),
            "per_prompt": float(group["acceptance_length"].mean()),
        }
    return summary


def acceptance_report(
    decoder: Decoder,
    count: int,
    block_size: int,
    max_new_tokens: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Measure acceptance on held-out prompts of the built-in suite.

    Args:
        decoder: The pair's decoder.
        count: Prompts of the validation split to decode.
        block_size: Block size of every pass.
        max_new_tokens: Budget of each text.
        progress: Called with the finished prompts and their total.

    Returns:
        JSON-ready values; `acceptance_length` is what `summarise_acceptance` gives.
    """
    prompts = builtin_suite(count, splits=["validation"])
    frame = measure_acceptance(decoder, prompts, block_size, max_new_tokens, progress)
    return {
        "acceptance_length": summarise_acceptance(frame),
        "block_size": block_size,
        "max_new_tokens": max_new_tokens,
        "dtype": str(decoder.pair.dtype).removeprefix("torch."),
        "fingerprint": decoder.pair.fingerprint,
        "provenance": provenance(),
    }
