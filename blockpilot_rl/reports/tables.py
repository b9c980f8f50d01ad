"""The tables of a comparison, as text cells that a console and a report show alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from blockpilot_rl.evaluation.measure import Measured
from blockpilot_rl.evaluation.oracle import CrossFit
from blockpilot_rl.evaluation.results import ALL_PROMPTS, Comparison, Outcome
from blockpilot_rl.evaluation.statistics import Interval
from blockpilot_rl.experiments.ablation import ALL_GROUPS


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


def comparison_tables(comparison: Comparison) -> list[TextTable]:
    """All tables of a comparison, in order. Tables without numbers are left out."""
    makers = (
        summary_table,
        decoding_table,
        arms_table,
        family_table,
        speedup_table,
        language_table,
        temperature_table,
        left_out_table,
        learning_table,
        budget_table,
        ablation_table,
        off_policy_table,
    )
    tables = [make(comparison) for make in makers]
    return [table for table in tables if table is not None] + paper_tables(comparison)


def summary_table(comparison: Comparison) -> TextTable:
    """Speedup of each choice of the block size on the test prompts, and what it gains."""
    columns = [
        "choice",
        "mean\nspeedup",
        "total\nspeedup",
        f"gain over best fixed\n({100 * comparison.confidence:.3g}% interval)",
        "gap closed\n(interval)",
        "regret",
    ]
    rows = [
        [
            name,
            f"{outcome.mean_speedup:.3f}",
            f"{outcome.total_speedup:.3f}",
            gain_text(outcome.gain),
            _share(outcome.gap_closed_interval),
            f"{outcome.regret:.3f}",
        ]
        for name, outcome in named_outcomes(comparison).items()
    ]
    rows += [
        [name, speedup, "–", gain, "–", "–"]
        for name, speedup, gain in crossfit_rows(comparison.crossfit, comparison.halves)
    ]
    return TextTable(
        f"Speedup over plain decoding, {split_text(comparison, 'test')}", columns, rows
    )


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
    return TextTable(f"Block sizes chosen, {split_text(comparison, 'test')}", columns, rows)


def family_table(comparison: Comparison) -> TextTable:
    """Mean speedups by family: best fixed size, best agent and oracle."""
    return _group_table(comparison, "family", lambda outcome: outcome.per_family)


def language_table(comparison: Comparison) -> TextTable | None:
    """The same by language, where the test rows have several."""
    if len(comparison.best_fixed.per_language) == 1:
        return None
    return _group_table(comparison, "language", lambda outcome: outcome.per_language)


def temperature_table(comparison: Comparison) -> TextTable | None:
    """The same by temperature, where the test rows have several."""
    if len(comparison.best_fixed.per_temperature) == 1:
        return None
    return _group_table(comparison, "temperature", lambda outcome: outcome.per_temperature)


def left_out_table(comparison: Comparison) -> TextTable | None:
    """Gains on families that were never seen, beside those on families that were."""
    left_out, best = comparison.left_out, comparison.verdict.best_agent
    if left_out is None:
        return None
    columns = ["family", "best fixed\nof the others", *left_out.agents]
    columns += [] if best is None else [f"{best},\nfamily seen"]
    rows = []
    for family, size in left_out.best_fixed.items():
        row = [family, str(size)]
        row += [gain_text(agent.per_family[family].gain) for agent in left_out.agents.values()]
        if best is not None:
            row.append(gain_text(comparison.agents[best].per_family[family].gain))
        rows.append(row)
    total = ["all", "–", *(gain_text(agent.gain) for agent in left_out.agents.values())]
    total += [] if best is None else [gain_text(comparison.agents[best].gain)]
    return TextTable("Gain on families left out of training", columns, [*rows, total])


def learning_table(comparison: Comparison) -> TextTable | None:
    """Gain over best fixed by the number of training prompts."""
    curves = comparison.learning_curve
    if not curves:
        return None
    counts = sorted({point.prompts for points in curves.values() for point in points})
    rows = []
    for name, points in curves.items():
        gains = {point.prompts: gain_text(point.gain) for point in points}
        rows.append([name, *(gains.get(count, "–") for count in counts)])
    columns = ["gain over best fixed", *(f"{count}\nprompts" for count in counts)]
    return TextTable("Learning curve over the number of training prompts", columns, rows)


def budget_table(comparison: Comparison) -> TextTable | None:
    """Gain over best fixed for what was paid in decodes, at either price."""
    titles = {"decode": "a decode per label", "replay": "labels by replay"}
    rows = [
        [name, titles[price], *(f"{p.decodes:,}: {p.gain.value:+z.1%}" for p in points)]
        for price, curves in comparison.budget_curves.items()
        for name, points in curves.items()
    ]
    if not rows:
        return None
    width = max(map(len, rows))
    columns = ["decodes: gain over best fixed", "price", *[""] * (width - 2)]
    padded = [row + ["–"] * (width - len(row)) for row in rows]
    return TextTable("What the decodes paid for training bring", columns, padded)


def ablation_table(comparison: Comparison) -> TextTable | None:
    """What agents gain that see some groups of the state only."""
    ablation = comparison.ablation
    if ablation is None:
        return None
    columns = [
        f"{ablation.algorithm} sees",
        "numbers",
        "mean\nspeedup",
        f"gain over best fixed\n({100 * comparison.confidence:.3g}% interval)",
        "gap\nclosed",
        "change against\nall groups",
    ]
    rows = [
        [
            name,
            str(row.width),
            f"{row.mean_speedup:.3f}",
            gain_text(row.gain),
            "–" if math.isnan(row.gap_closed) else f"{row.gap_closed:z.0%}",
            "–" if name == ALL_GROUPS else gain_text(row.change),
        ]
        for name, row in ablation.rows.items()
    ]
    return TextTable("What the groups of the state are worth", columns, rows)


def off_policy_table(comparison: Comparison) -> TextTable | None:
    """What logged decisions alone would have told of the best agent, beside the truth."""
    check = comparison.off_policy
    if check is None:
        return None
    rows = [["truth", f"{check.truth:.3f}", "–", "–", "–"]]
    for name, found in check.estimators.items():
        size = found.effective_sample_size
        worth = "–" if size is None else f"{size:.0f}"
        rows.append(
            [name, f"{found.mean:.3f}", f"{found.rmse:.3f}", f"{found.coverage:.0%}", worth]
        )
    columns = [
        f"mean speedup of {comparison.verdict.best_agent}",
        "mean\nestimate",
        "RMSE",
        f"{100 * check.confidence:.3g}% intervals\nthat hold the truth",
        "effective\nsample size",
    ]
    title = f"Off-policy estimates from {check.logs} logs of {check.decisions:,} decisions each"
    return TextTable(title, columns, rows)


def paper_tables(comparison: Comparison) -> list[TextTable]:
    """The paper's table, one per temperature of the test rows."""
    columns = ["choice", "sizes", "τ pooled", "τ per\nrequest", "mean\nspeedup", "total\nspeedup"]
    columns.append("gain over\nbest fixed")
    return [
        TextTable(
            f"The paper's table at temperature {temperature}",
            columns,
            [
                [
                    name,
                    row.block_sizes,
                    f"{row.acceptance_length:.2f}",
                    f"{row.acceptance_length_per_request:.2f}",
                    f"{row.mean_speedup:.3f}",
                    f"{row.total_speedup:.3f}",
                    gain_text(row.gain),
                ]
                for name, row in rows.items()
            ],
        )
        for temperature, rows in comparison.paper_table.items()
    ]


def speedup_table(comparison: Comparison) -> TextTable:
    """Mean speedup of every fixed size, overall and by family."""
    sizes = comparison.speedups[ALL_PROMPTS]
    rows = [
        [name, *(f"{speedup:.2f}" for speedup in speedups.values())]
        for name, speedups in comparison.speedups.items()
    ]
    title = f"Mean speedup by block size, {split_text(comparison, 'test')}"
    return TextTable(title, ["prompts", *map(str, sizes)], rows)


def counted(prompts: int, rows: int, kind: str = "prompts") -> str:
    """Number of prompts, and of their rows where those are more."""
    text = f"{prompts:,} {kind}"
    return text if rows == prompts else f"{text} ({rows:,} rows)"


def split_text(comparison: Comparison, name: str) -> str:
    """The same of a split that was compared on or learned from."""
    split, kind = comparison.split, "training" if name == "train" else name
    return counted(split[f"{name}_prompts"], split[f"{name}_rows"], f"{kind} prompts")


def crossfit_rows(*oracles: CrossFit | None) -> list[list[str]]:
    """Name, mean speedup and gain over best fixed of oracles that noise cannot flatter.

    They are judged on other rows than the rest, so each against the fixed size on its own, and
    beside the oracle that profits from noise there.
    """
    names = {
        "replicates": "oracle cross-fitted on other samples",
        "stopwatch": "oracle cross-fitted by stopwatch",
        "halves": "oracle of one half on the other",
    }
    return [
        [
            f"{names[found.source]}, {counted(found.prompts, found.rows)}",
            f"{found.mean_speedup:.3f}",
            f"{gain_text(found.gain)}; naive there {found.in_sample / found.fixed - 1:+z.1%}",
        ]
        for found in oracles
        if found is not None
    ]


def crossfit_line(comparison: Comparison) -> str:
    """What an oracle that cannot profit from noise achieves, in one sentence."""
    found = comparison.crossfit
    if found is None:
        return "None of these rows was measured twice, so the oracle could not be cross-fitted."
    how = {
        "replicates": "chosen on a prompt's other samples and judged on the one left out",
        "stopwatch": "chosen by predicted and judged by measured seconds",
    }[found.source]
    return (
        f"Cross-fitted oracle ({how}, {found.rows:,} rows of {found.prompts:,} prompts): mean "
        f"speedup {found.mean_speedup:.3f}, {gain_text(found.gain)} over best fixed; on the same "
        f"rows the oracle that profits from noise has {found.in_sample:.3f} and the best fixed "
        f"size {found.fixed:.3f}."
    )


def halves_line(comparison: Comparison) -> str:
    """How much of the oracle's lead is luck within a single answer."""
    found = comparison.halves
    if found is None:
        return "The answers are too short to choose on one half of them and judge on the other."
    return (
        "Chosen on one half of each answer and judged on the other, the oracle gains "
        f"{gain_text(found.gain)} over best fixed; chosen and judged on both halves "
        f"{found.in_sample / found.fixed - 1:+z.1%}. The difference is luck within single answers, "
        "as far as halves can tell."
    )


def verdict_line(comparison: Comparison) -> str:
    """What to deploy and why, in one sentence."""
    verdict = comparison.verdict
    what = verdict.ship if verdict.block_size is None else f"fixed block size {verdict.block_size}"
    return f"Verdict: ship {what}: {verdict.reason}."


def _group_table(
    comparison: Comparison, name: str, groups: Callable[[Outcome], dict[str, Measured]]
) -> TextTable:
    """Mean speedups by group: best fixed size, best agent and oracle."""
    fixed, oracle = comparison.best_fixed, groups(comparison.oracle)
    best = comparison.verdict.best_agent
    columns = [name, "test\nrows", f"best fixed\n({fixed.block_size})"]
    columns += [] if best is None else [best, "its gain over\nbest fixed"]
    rows = []
    for group, outcome in groups(fixed).items():
        row = [group, str(outcome.rows), f"{outcome.mean_speedup:.3f}"]
        if best is not None:
            agent = groups(comparison.agents[best])[group]
            row += [f"{agent.mean_speedup:.3f}", gain_text(agent.gain)]
        rows.append([*row, f"{oracle[group].mean_speedup:.3f}"])
    return TextTable(f"Mean speedup by {name}", [*columns, "oracle"], rows)


def _share(interval: Interval) -> str:
    """Render a share of the gap in percent with its interval, if there is a gap."""
    if math.isnan(interval.value):
        return "–"
    if math.isnan(interval.low) or interval.low == interval.high:
        return f"{interval.value:z.0%}"
    return f"{interval.value:z.0%} ({100 * interval.low:z.0f}, {100 * interval.high:z.0f})"


def gain_text(gain: Interval) -> str:
    """Render a gain in percent with its interval, if it has one."""
    if math.isnan(gain.low):
        return f"{gain.value:+z.1%}"
    return f"{gain.value:+z.1%} ({100 * gain.low:+z.1f}, {100 * gain.high:+z.1f})"
