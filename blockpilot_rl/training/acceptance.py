"""Acceptance length of a drafter in real decoding, by prompt family, length and language.

Training accuracy can look good even if decoding accepts few drafts, so training reports this too.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Sequence
from typing import Any

import pandas as pd
from rich.table import Table

from blockpilot_rl.decoding.acceptance import acceptance_warnings, is_repetitive
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.sampling import GREEDY, Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.progress import ProgressCallback, no_progress
from blockpilot_rl.prompts import Prompt
from blockpilot_rl.provenance import provenance

LENGTH_EDGES = (0, 64, 128, 256, 512)
"""Prompt lengths, in tokens, at which the bins of the report begin; the last bin is open."""

FEW_PROMPTS = 10
"""Groups with fewer prompts are marked as rough estimates."""


def measure_acceptance(
    decoder: Decoder,
    prompts: Sequence[Prompt],
    block_size: int,
    max_new_tokens: int,
    progress: ProgressCallback = no_progress,
    sampling: Sampling = GREEDY,
) -> pd.DataFrame:
    """Decode prompts and count tokens and target passes.

    Args:
        decoder: The pair's decoder.
        prompts: Held-out prompts.
        block_size: Block size of every pass.
        max_new_tokens: Budget of each text, in tokens.
        progress: Called after each prompt.
        sampling: How tokens are chosen. Prompt `i` is decoded with seed `sampling.seed + i`.

    Returns:
        One row for each prompt that needs a decode pass, with the columns `id`, `family`,
        `language`, `prompt_tokens`, `emitted`, `passes`, `acceptance_length` and `repetitive`. The
        first token of a text comes from prefill and is not counted.

    Raises:
        BlockPilotError: If no prompt needs a decode pass.
    """
    records = []
    for index, prompt in enumerate(prompts):
        ids = decoder.pair.encode(prompt.chat())
        seeded = dataclasses.replace(sampling, seed=sampling.seed + index)
        result = decoder.generate(ids, block_size, max_new_tokens, seeded)
        passes, emitted = len(result.passes) - 1, len(result.tokens) - 1
        if passes:
            records.append(
                {
                    "id": prompt.id,
                    "family": prompt.family,
                    "language": prompt.language,
                    "prompt_tokens": ids.shape[1],
                    "emitted": emitted,
                    "passes": passes,
                    "acceptance_length": emitted / passes,
                    "repetitive": is_repetitive(result.tokens),
                }
            )
        progress("acceptance", index + 1, len(prompts))
    if not records:
        raise BlockPilotError("every text ends with its first token, so nothing can be accepted")
    return pd.DataFrame(records)


def summarise_acceptance(frame: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Acceptance length by family and in total: pooled (tokens / passes) and mean over prompts."""
    return {**_by(frame, frame["family"]), "all": _summary(frame)}


def acceptance_report(
    decoder: Decoder,
    prompts: Sequence[Prompt],
    block_size: int,
    max_new_tokens: int,
    progress: ProgressCallback = no_progress,
    sampling: Sampling = GREEDY,
    *,
    unseen: Collection[str] = (),
    temperatures: Sequence[float] = (),
) -> dict[str, Any]:
    """Measure acceptance on held-out prompts; arguments as for `measure_acceptance`.

    Args:
        decoder: The pair's decoder.
        prompts: Held-out prompts.
        block_size: Block size of every pass.
        max_new_tokens: Budget of each text, in tokens.
        progress: Called after each prompt, for each temperature.
        sampling: How tokens are chosen.
        unseen: Families that the drafter was not trained on.
        temperatures: Further temperatures to measure.

    Returns:
        JSON-ready values. `acceptance_length` is the result of `summarise_acceptance`, and
        `by_source` (seen and unseen families), `by_prompt_tokens` and `by_language` are the same
        for other groups, all with `sampling`. `by_temperature` has its temperature and the further
        ones. `repetitive` is the share of texts that end in a loop, and `warnings` lists what looks
        wrong.
    """
    frame = measure_acceptance(decoder, prompts, block_size, max_new_tokens, progress, sampling)
    by_temperature = {f"{sampling.temperature:g}": _summary(frame)}
    for temperature in temperatures:
        if f"{temperature:g}" not in by_temperature:
            other = dataclasses.replace(sampling, temperature=temperature)
            measured = measure_acceptance(
                decoder, prompts, block_size, max_new_tokens, progress, other
            )
            by_temperature[f"{temperature:g}"] = _summary(measured)
    names = [f"{low} to {high - 1}" for low, high in itertools.pairwise(LENGTH_EDGES)]
    names.append(f"{LENGTH_EDGES[-1]} and more")
    edges = [*LENGTH_EDGES, math.inf]
    bins = pd.cut(frame["prompt_tokens"], edges, right=False, labels=names)
    sources = frame["family"].map(lambda family: "unseen" if family in unseen else "seen")
    return {
        "acceptance_length": summarise_acceptance(frame),
        "by_source": _by(frame, sources),
        "by_prompt_tokens": _by(frame, bins),
        "by_language": _by(frame, frame["language"]),
        "by_temperature": by_temperature,
        "unseen_families": sorted(set(unseen) & set(frame["family"])),
        "repetitive": float(frame["repetitive"].mean()),
        "warnings": acceptance_warnings(
            frame["emitted"].to_numpy(),
            frame["passes"].to_numpy(),
            frame["repetitive"].to_numpy(),
            block_size,
            frame["prompt_tokens"].to_numpy(),
            decoder.pair.trained_length,
        ),
        "block_size": block_size,
        "max_new_tokens": max_new_tokens,
        "sampling": sampling,
        "dtype": str(decoder.pair.dtype).removeprefix("torch."),
        "fingerprint": decoder.pair.fingerprint,
        "template": decoder.pair.template,
        "provenance": provenance(),
    }


def acceptance_groups(report: dict[str, Any]) -> list[dict[str, dict[str, float]]]:
    """Groups of an acceptance report in the order in which tables show them.

    Args:
        report: The result of `acceptance_report`.

    Returns:
        Sections of labelled groups: families, seen and unseen families, prompt lengths, languages,
        temperatures, everything. Sections that would repeat everything are left out.
    """
    unseen = report["unseen_families"]
    families = {
        f"{name} (unseen)" if name in unseen else name: group
        for name, group in report["acceptance_length"].items()
        if name != "all"
    }
    sources = {f"{name} families": group for name, group in report["by_source"].items()}
    lengths = {f"{name} tokens": group for name, group in report["by_prompt_tokens"].items()}
    temperatures = {f"T = {name}": group for name, group in report["by_temperature"].items()}
    everything = {"all": report["acceptance_length"]["all"]}
    return [
        families,
        sources if unseen else {},
        lengths,
        report["by_language"],
        temperatures if len(temperatures) > 1 else {},
        everything,
    ]


def acceptance_markdown(report: dict[str, Any]) -> str:
    """Render the result of `acceptance_report` as a Markdown table for a model card."""
    lines = ["| group | prompts | tokens per pass, pooled | per prompt |", "|---|---:|---:|---:|"]
    for name, values in _rows(report):
        numbers = (f"{values[key]:.2f}" for key in ("pooled", "per_prompt"))
        lines.append(f"| {name} | {values['prompts']:.0f} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def _rows(report: dict[str, Any]) -> list[tuple[str, dict[str, float]]]:
    return [row for section in acceptance_groups(report) for row in section.items()]


def acceptance_table(report: dict[str, Any]) -> Table:
    """Render the result of `acceptance_report`, with a note on groups of few prompts."""
    table = Table(title=f"acceptance length, block size {report['block_size']}, {report['dtype']}")
    for column in ("", "prompts", "pooled", "per prompt"):
        table.add_column(column, justify="right" if column else "left")
    few = []
    for section in acceptance_groups(report):
        for name, values in section.items():
            numbers = (f"{values[key]:.2f}" for key in ("pooled", "per_prompt"))
            table.add_row(name, f"{values['prompts']:.0f}", *numbers)
            if values["prompts"] < FEW_PROMPTS:
                few.append(name)
        if section:
            table.add_section()
    if few:
        table.caption = f"rough estimates, fewer than {FEW_PROMPTS} prompts: {', '.join(few)}"
    return table


def _by(frame: pd.DataFrame, groups: pd.Series[Any]) -> dict[str, dict[str, float]]:
    return {str(name): _summary(group) for name, group in frame.groupby(groups, observed=True)}


def _summary(frame: pd.DataFrame) -> dict[str, float]:
    return {
        "prompts": float(len(frame)),
        "pooled": float(frame["emitted"].sum() / frame["passes"].sum()),
        "per_prompt": float(frame["acceptance_length"].mean()),
    }
