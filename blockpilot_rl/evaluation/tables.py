"""The tables of a comparison, as text cells that a console and a report show alike."""

from __future__ import annotations

import math
from dataclasses import dataclass

from blockpilot_rl.evaluation.results import ALL_PROMPTS, Comparison, Outcome
from blockpilot_rl.evaluation.statistics import Interval


@dataclass(frozen=True)
class TextTable:
    """A table of text; the first column holds names, the others numbers.

    Attributes:
        title: What it shows.
        columns: Heads of the columns; they may have several lines.
        rows: Cells, as many per row as there are columns.
    """

    title: str
    columns: list[str]
    rows: list[list[str]]


def named_outcomes(comparison: Comparison) -> dict[str, Outcome]:
    """All that was compared, from the drafter's own size to the oracle, by the name to show."""
    default, fixed, total = (
        comparison.default,
        comparison.best_fixed,
        comparison.best_fixed_total,
    )
    named = {} if default is None else {f"default size ({default.block_size})": default}
    named[f"best fixed ({fixed.block_size})"] = fixed
    if total.block_size != fixed.block_size:
        named[f"best in total ({total.block_size})"] = total
    return {**named, "random": comparison.random, **comparison.agents, "oracle": comparison.oracle}


def summary_table(comparison: Comparison) -> TextTable:
    """Speedup of each choice of the block size on the test prompts, and what it gains."""
    columns = [
        "choice",
        "mean\nspeedup",
        "total\nspeedup",
        f"gain over best fixed\n({100 * comparison.confidence:.3g}% interval)",
        "gap\nclosed",
        "regret",
    ]
    rows = [
        [
            name,
            f"{outcome.mean_speedup:.3f}",
            f"{outcome.total_speedup:.3f}",
            gain_text(outcome.gain),
            "–" if math.isnan(outcome.gap_closed) else f"{outcome.gap_closed:.0%}",
            f"{outcome.regret:.3f}",
        ]
        for name, outcome in named_outcomes(comparison).items()
    ]
    prompts = comparison.split["test_prompts"]
    return TextTable(f"Speedup over plain decoding, {prompts} test prompts", columns, rows)


def decoding_table(comparison: Comparison) -> TextTable:
    """What lies behind the speedups: acceptance, throughput and the price of deciding."""
    columns = ["choice", "τ pooled", "τ per request", "tokens/s", "policy µs"]
    rows = [
        [
            name,
            f"{outcome.acceptance_length:.2f}",
            f"{outcome.acceptance_length_per_request:.2f}",
            f"{outcome.tokens_per_second:.1f}",
            f"{outcome.policy_microseconds:.0f}" if outcome.policy_microseconds else "–",
        ]
        for name, outcome in named_outcomes(comparison).items()
    ]
    return TextTable("Acceptance length τ, throughput, time of a decision", columns, rows)


def arms_table(comparison: Comparison) -> TextTable:
    """How often each choice that can vary picks each block size."""
    chosen = {**comparison.agents, "oracle": comparison.oracle}
    columns = ["share of requests", *map(str, comparison.oracle.arms)]
    rows = [
        [name, *(f"{share:.0%}" if share else "–" for share in outcome.arms.values())]
        for name, outcome in chosen.items()
    ]
    return TextTable("Block sizes chosen on the test prompts", columns, rows)


def family_table(comparison: Comparison) -> TextTable:
    """Mean speedups by family: best fixed size, best agent and oracle."""
    fixed, oracle = comparison.best_fixed, comparison.oracle
    best = comparison.verdict.best_agent
    columns = ["family", "test\nrows", f"best fixed\n({fixed.block_size})"]
    columns += [] if best is None else [best, "its gain over\nbest fixed"]
    rows = []
    for family, outcome in fixed.per_family.items():
        row = [family, str(outcome.rows), f"{outcome.mean_speedup:.3f}"]
        if best is not None:
            agent = comparison.agents[best].per_family[family]
            row += [f"{agent.mean_speedup:.3f}", gain_text(agent.gain)]
        rows.append([*row, f"{oracle.per_family[family].mean_speedup:.3f}"])
    return TextTable("Mean speedup by family", [*columns, "oracle"], rows)


def speedup_table(comparison: Comparison) -> TextTable:
    """Mean speedup of every fixed size, overall and by family."""
    sizes = comparison.speedups[ALL_PROMPTS]
    rows = [
        [name, *(f"{speedup:.2f}" for speedup in speedups.values())]
        for name, speedups in comparison.speedups.items()
    ]
    return TextTable("Mean speedup by block size", ["prompts", *map(str, sizes)], rows)


def verdict_line(comparison: Comparison) -> str:
    """What to deploy and why, in one sentence."""
    verdict = comparison.verdict
    what = verdict.ship if verdict.block_size is None else f"fixed block size {verdict.block_size}"
    return f"Verdict: ship {what}: {verdict.reason}."


def gain_text(gain: Interval) -> str:
    """Render a gain in percent with its interval, if it has one."""
    if math.isnan(gain.low):
        return f"{gain.value:+.1%}"
    return f"{gain.value:+.1%} ({100 * gain.low:+.1f}, {100 * gain.high:+.1f})"
