"""Tables of a comparison as text cells, for the console and for reports."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from blockpilot_rl.evaluation.measure import GROUPINGS, LOOPS, SEEN, UNSEEN, Measured
from blockpilot_rl.evaluation.oracle import CrossFit
from blockpilot_rl.evaluation.results import (
    ALL_GROUPS,
    ALL_PROMPTS,
    Comparison,
    Outcome,
    SourceResult,
    Verdict,
)
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


def comparison_tables(comparison: Comparison) -> list[TextTable]:
    """All tables of a comparison that it has numbers for."""
    tables = [
        summary_table(comparison),
        temperature_table(comparison),
        sources_table(comparison),
        decoding_table(comparison),
        arms_table(comparison),
        *group_tables(comparison).values(),
        pooled_table(comparison),
        *slower_tables(comparison),
        speedup_table(comparison),
        left_out_table(comparison),
        learning_table(comparison),
        source_table(comparison),
        budget_table(comparison),
        ablation_table(comparison),
        portability_table(comparison),
        off_policy_table(comparison),
        *paper_tables(comparison),
    ]
    return [table for table in tables if table is not None]


def named_outcomes(comparison: Comparison) -> dict[str, Outcome]:
    """Everything that is compared, from the drafter's own size to the oracle, by displayed name."""
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
    """Speedup of each choice on the test prompts and its gain over the best fixed size."""
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


def temperature_table(comparison: Comparison) -> TextTable | None:
    """Gains over one fixed size for all temperatures, and over the best one of each."""
    found = comparison.by_temperature
    if found is None:
        return None
    fixed = found.best_fixed
    sizes = ", ".join(f"{size} at {name}" for name, size in fixed.block_sizes.items())
    columns = [
        "choice",
        "mean\nspeedup",
        f"gain over {comparison.best_fixed.block_size} for all\n"
        f"({100 * comparison.confidence:.3g}% interval)",
        f"gain over best fixed of each\n({sizes})",
    ]
    rows = [["best fixed of each", f"{fixed.mean_speedup:.3f}", gain_text(fixed.gain), "–"]]
    rows += [
        [name, f"{agent.mean_speedup:.3f}", gain_text(agent.gain), gain_text(found.agents[name])]
        for name, agent in comparison.agents.items()
    ]
    return TextTable("All temperatures as one task", columns, rows)


def portability_table(comparison: Comparison) -> TextTable | None:
    """Gains of policies where a further token has another cost."""
    found = comparison.portability
    if found is None:
        return None
    columns = [
        "a further token costs\n(of a plain pass)",
        "best fixed",
        f"{found.algorithm},\ntrained once",
        f"{found.reward_algorithm},\ntrained there",
        "share kept",
        f"{found.reward_algorithm},\ntrained once",
        "oracle",
    ]
    rows = [
        [
            f"{100 * point.token_cost:.3g}%" + (" (the sweep's)" if point.is_own else ""),
            f"{point.best_fixed} ({point.best_fixed_speedup:.3f})",
            gain_text(point.carried),
            gain_text(point.retrained),
            _share(point.kept),
            gain_text(point.carried_reward),
            gain_text(point.oracle),
        ]
        for point in found.points
    ]
    return TextTable("Gain over best fixed on devices with other prices", columns, rows)


def sources_table(comparison: Comparison) -> TextTable:
    """Gains over the best fixed size, and what to ship, on seen and on unseen sources."""
    sources = {name: comparison.sources.get(name) for name in (SEEN, UNSEEN)}

    def row(name: str, cell: Callable[[SourceResult], str]) -> list[str]:
        return [name, *("–" if found is None else cell(found) for found in sources.values())]

    rows = [
        row(
            f"best fixed ({comparison.best_fixed.block_size}), mean speedup",
            lambda found: f"{found.best_fixed.mean_speedup:.3f}",
        ),
        *(row(name, partial(_agent_gain, name)) for name in comparison.agents),
        row("oracle", lambda found: gain_text(found.oracle.gain)),
        row(
            "oracle chosen on one half of the answer",
            lambda found: "–" if found.halves is None else gain_text(found.halves.gain),
        ),
        row("ship", lambda found: _shipped(found.verdict)),
    ]
    heads = [
        name if found is None else f"{name}\n({counted(found.prompts, found.rows)})"
        for name, found in sources.items()
    ]
    return TextTable(
        "Gain over best fixed on sources that training has seen and on others",
        ["choice", *heads],
        rows,
    )


def pooled_table(comparison: Comparison) -> TextTable | None:
    """Gains of the best agent by family, each alone and all estimated together."""
    best = comparison.verdict.best_agent
    if best is None:
        return None
    found = comparison.families[best]
    rows = [
        [
            name,
            str(family.prompts),
            f"{family.gain:+z.1%} ± {100 * family.standard_error:.1f}",
            gain_text(family.pooled),
            f"{family.loss_probability:.1%}",
        ]
        for name, family in found.families.items()
    ]
    rows.append(["mean of families", "–", "–", gain_text(found.mean), "–"])
    columns = [
        "family",
        "prompts",
        "gain alone ±\nstandard error",
        f"estimated together\n({100 * comparison.confidence:.3g}% interval)",
        f"probability of a loss\nbeyond {found.margin:.1%}",
    ]
    title = f"Gain of {best} over best fixed by family; spread between families {found.spread:.1%}"
    return TextTable(title, columns, rows)


def _agent_gain(name: str, found: SourceResult) -> str:
    return gain_text(found.agents[name].gain)


def _shipped(verdict: Verdict) -> str:
    return verdict.ship if verdict.block_size is None else f"fixed {verdict.block_size}"


def decoding_table(comparison: Comparison) -> TextTable:
    """Acceptance length, throughput, and time of a decision."""
    columns = [
        "choice",
        "τ pooled",
        "τ per request",
        "tokens/s",
        "policy µs",
        "slower than plain\n(mean loss)",
    ]
    rows = [
        [
            name,
            f"{outcome.acceptance_length:.2f}",
            f"{outcome.acceptance_length_per_request:.2f}",
            f"{outcome.tokens_per_second:.1f}",
            f"{outcome.policy_microseconds:.0f}" if outcome.policy_microseconds else "–",
            slower_text(outcome),
        ]
        for name, outcome in named_outcomes(comparison).items()
    ]
    return TextTable("Acceptance length τ, throughput and time of a decision", columns, rows)


def arms_table(comparison: Comparison) -> TextTable:
    """Share of the requests that agents and oracle give to each block size."""
    chosen = {**comparison.agents, "oracle": comparison.oracle}
    columns = ["share of requests", *map(str, comparison.oracle.arms)]
    rows = [
        [name, *(f"{share:.0%}" if share else "–" for share in outcome.arms.values())]
        for name, outcome in chosen.items()
    ]
    return TextTable(f"Block sizes chosen, {split_text(comparison, 'test')}", columns, rows)


def group_tables(comparison: Comparison) -> dict[str, TextTable]:
    """Mean speedups of the best fixed size, the best agent and the oracle, by grouping.

    There is a table by family, and by language, by temperature and for answers that end in a loop
    if the test rows have several of them.
    """
    tables = {}
    for grouping in (*GROUPINGS, LOOPS):
        if grouping == "family" or len(_groups(comparison.best_fixed, grouping)) > 1:
            tables[grouping] = _group_table(comparison, grouping)
    return tables


def slower_tables(comparison: Comparison) -> list[TextTable]:
    """Requests slower than plain decoding, over all prompts, by family and by language."""
    tables = (
        _slower_table(comparison, "family"),
        _slower_table(comparison, "language"),
    )
    return [table for table in tables if len(table.rows) > 2]


def left_out_table(comparison: Comparison) -> TextTable | None:
    """Gains on families left out of training, and of the best agent trained with them."""
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


def source_table(comparison: Comparison) -> TextTable | None:
    """Gain over best fixed on unseen sources by the number of families trained on."""
    curves = comparison.source_curve
    if not curves:
        return None
    rows = [[name, *(gain_text(point.gain) for point in points)] for name, points in curves.items()]
    heads = [f"{p.sources}\n({p.prompts:,} prompts)" for p in next(iter(curves.values()))]
    title = "Gain on unseen sources by the number of families trained on"
    return TextTable(title, ["gain over best fixed", *heads], rows)


def budget_table(comparison: Comparison) -> TextTable | None:
    """Gain over best fixed by the number of decodes paid for training, at both prices."""
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
    return TextTable("Gain by decodes paid for training", columns, padded)


def ablation_table(comparison: Comparison) -> TextTable | None:
    """Gains of agents that see some state groups only."""
    ablation = comparison.ablation
    if ablation is None:
        return None
    columns = [
        f"{ablation.algorithm} sees",
        "numbers",
        "mean\nspeedup",
        f"gain over best fixed\n({100 * comparison.confidence:.3g}% interval)",
        "gap\nclosed",
        "change from\nall groups",
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
    return TextTable("Gain by state groups", columns, rows)


def off_policy_table(comparison: Comparison) -> TextTable | None:
    """Estimates of the best agent's mean speedup from logged decisions, and the truth."""
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
        f"estimator of the mean\nspeedup of {comparison.verdict.best_agent}",
        "mean\nestimate",
        "RMSE",
        f"{100 * check.confidence:.3g}% intervals\nthat contain the truth",
        "effective\nsample size",
    ]
    title = f"Off-policy estimates from {check.logs} logs of {check.decisions:,} decisions each"
    return TextTable(title, columns, rows)


def paper_tables(comparison: Comparison) -> list[TextTable]:
    """The paper's table at each temperature of the test rows."""
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
    """Mean speedup of every fixed size, over all prompts and by family."""
    sizes = comparison.speedups[ALL_PROMPTS]
    rows = [
        [name, *(f"{speedup:.2f}" for speedup in speedups.values())]
        for name, speedups in comparison.speedups.items()
    ]
    title = f"Mean speedup by block size, {split_text(comparison, 'test')}"
    return TextTable(title, ["prompts", *map(str, sizes)], rows)


def counted(prompts: int, rows: int, kind: str = "prompts") -> str:
    """Number of prompts, and of their rows if there are more."""
    text = f"{prompts:,} {kind}"
    return text if rows == prompts else f"{text} ({rows:,} rows)"


def split_text(comparison: Comparison, name: str) -> str:
    """The same for a split of the comparison."""
    split, kind = comparison.split, "training" if name == "train" else name
    return counted(split[f"{name}_prompts"], split[f"{name}_rows"], f"{kind} prompts")


def crossfit_rows(*oracles: CrossFit | None) -> list[list[str]]:
    """Name, mean speedup and gain over best fixed of oracles that do not profit from noise.

    Each is judged on its own rows, so it is compared with the fixed size and with the in-sample
    oracle on these rows.
    """
    names = {
        "replicates": "oracle cross-fitted on other samples",
        "stopwatch": "oracle cross-fitted by stopwatch",
        "halves": "oracle chosen on one half of the answer",
    }
    return [
        [
            f"{names[found.source]}, {counted(found.prompts, found.rows)}",
            f"{found.mean_speedup:.3f}",
            f"{gain_text(found.gain)}; in-sample {found.in_sample / found.fixed - 1:+z.1%}",
        ]
        for found in oracles
        if found is not None
    ]


def _groups(outcome: Outcome, grouping: str) -> dict[str, Measured]:
    groups: dict[str, Measured] = getattr(outcome, f"per_{grouping}")
    return groups


def _group_table(comparison: Comparison, name: str) -> TextTable:
    """Mean speedups by group: best fixed size, best agent and oracle."""
    fixed, oracle = comparison.best_fixed, _groups(comparison.oracle, name)
    best = comparison.verdict.best_agent
    columns = [name, "test\nrows", f"best fixed\n({fixed.block_size})"]
    columns += [] if best is None else [best, "its gain over\nbest fixed"]
    rows = []
    for group, outcome in _groups(fixed, name).items():
        row = [group, str(outcome.rows), f"{outcome.mean_speedup:.3f}"]
        if best is not None:
            agent = _groups(comparison.agents[best], name)[group]
            row += [f"{agent.mean_speedup:.3f}", gain_text(agent.gain)]
        rows.append([*row, f"{oracle[group].mean_speedup:.3f}"])
    return TextTable(f"Mean speedup by {name}", [*columns, "oracle"], rows)


def _slower_table(comparison: Comparison, name: str) -> TextTable:
    """Share of requests slower than plain decoding by group: best fixed size and every agent."""
    fixed = comparison.best_fixed
    outcomes = {f"best fixed\n({fixed.block_size})": fixed, **comparison.agents}
    rows = [
        [group, *(slower_text(_groups(outcome, name)[group]) for outcome in outcomes.values())]
        for group in _groups(fixed, name)
    ]
    total = [ALL_PROMPTS, *(slower_text(outcome) for outcome in outcomes.values())]
    title = f"Share of requests slower than plain decoding (their mean loss), by {name}"
    return TextTable(title, [name, *outcomes], [*rows, total])


def slower_text(measured: Measured) -> str:
    """Render the share of requests slower than plain decoding and their mean loss."""
    if not measured.slower_share:
        return "–"
    return f"{measured.slower_share:.1%} ({-measured.slower_loss:+z.1%})"


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
