"""The headroom in words: tables of text cells, and the reason of its verdict."""

from __future__ import annotations

from typing import Any

from blockpilot_rl.evaluation.measure import Measured
from blockpilot_rl.headroom.published import AcceptanceHeadroom
from blockpilot_rl.headroom.results import Group, Headroom, HeadroomVerdict, Steps
from blockpilot_rl.reports.sentences import fixed_words
from blockpilot_rl.reports.tables import TextTable, counted, crossfit_rows, gain_text, slower_text


def headroom_tables(found: Headroom) -> list[TextTable]:
    """All tables of a sweep's headroom that it has numbers for."""
    tables = [_choices(found), _sizes(found)]
    if found.steps is not None:
        tables.append(_steps(found))
    for name in ("sources", "families", "languages", "temperatures", "loops"):
        groups: dict[str, Group] = getattr(found, name)
        if len(groups) > 1:
            tables.append(_groups(name, groups, found))
    if found.costs:
        tables.append(_costs(found))
    return tables


def acceptance_tables(found: AcceptanceHeadroom) -> list[TextTable]:
    """All tables of published results."""
    named: list[tuple[str, Measured]] = [
        (f"default size ({found.default.block_size})", found.default),
        (f"best fixed ({found.best_fixed.block_size}), in sample", found.best_fixed),
        (f"oracle among {_span(found.window_sizes)}", found.oracle),
        (f"oracle among {_span(tuple(found.sizes))}", found.oracle_all),
    ]
    if found.selection is not None:
        named.append(("published selection", found.selection.achieved))
    columns = ["choice", "acceptance\nlength", f"gain over {found.default.block_size}\n(interval)"]
    rows = [[name, f"{item.mean_speedup:.3f}", gain_text(item.gain)] for name, item in named]
    title = f"Acceptance length, {found.name}, {found.prompts} prompts"
    sizes = TextTable(
        "Mean acceptance length by block size",
        ["prompts", *map(str, found.sizes)],
        [[found.name, *(f"{value:.3f}" for value in found.sizes.values())]],
    )
    return [TextTable(title, columns, rows), sizes]


def _choices(found: Headroom) -> TextTable:
    fixed, total = found.best_fixed, found.best_fixed_total
    named: dict[str, Measured] = {}
    if found.default is not None:
        named[f"default size ({found.default.block_size})"] = found.default
    named[f"best fixed ({fixed.block_size})"] = fixed
    if total.block_size != fixed.block_size:
        named[f"best in total ({total.block_size})"] = total
    for name, groups, best in (
        ("family", found.families, found.per_family),
        ("language", found.languages, found.per_language),
        ("temperature", found.temperatures, found.per_temperature),
    ):
        if len(groups) > 1:
            named[f"best of each {name}"] = best
    named["oracle, one size per request"] = found.oracle
    rows = [[name, *_cells(item)] for name, item in named.items()]
    rows += [
        [name, speedup, "–", gain, "–", "–"]
        for name, speedup, gain in crossfit_rows(found.oracle_crossfit, found.oracle_halves)
    ]
    rows += [
        [f"{name}, {source}", speedup, "–", gain, "–", "–"]
        for source, halves in found.halves_by_source.items()
        for name, speedup, gain in crossfit_rows(halves)
    ]
    return TextTable(
        f"Speedup over plain decoding, {_judged(found)}; sizes chosen on {found.train_prompts:,} "
        "training prompts",
        _columns(found),
        rows,
    )


def _sizes(found: Headroom) -> TextTable:
    return TextTable(
        f"Mean speedup by block size, {_judged(found)}",
        ["prompts", *map(str, found.speedups)],
        [["all", *(f"{value:.3f}" for value in found.speedups.values())]],
    )


def _steps(found: Headroom) -> TextTable:
    steps = found.steps
    assert steps is not None
    named = {
        f"best fixed ({found.best_fixed.block_size})": steps.best_fixed,
        "oracle, one size per request": steps.size_oracle,
    }
    for name, rule in steps.rules.items():
        tuned = ", ".join(f"{key} {value:g}" for key, value in rule.settings.items())
        named[f"rule: {name} ({tuned.replace('_', ' ')})"] = rule
    named["oracle, prefix of the largest block at every step"] = steps.prefix_oracle
    named["oracle, any size at every step"] = steps.step_oracle
    return TextTable(
        f"Deciding at every step, {_judged(steps)} with a trace; rules tuned on training prompts",
        _columns(found),
        [[name, *_cells(item)] for name, item in named.items()],
    )


def _groups(name: str, groups: dict[str, Group], found: Headroom) -> TextTable:
    fixed = found.best_fixed.block_size
    rows = [
        [
            label,
            str(group.rows),
            f"{group.overall_fixed.mean_speedup:.3f}",
            str(group.best_fixed.block_size),
            f"{group.best_fixed.mean_speedup:.3f}",
            gain_text(group.best_fixed.gain),
            gain_text(group.oracle.gain),
        ]
        for label, group in groups.items()
    ]
    columns = [
        name,
        "test\nrows",
        f"best fixed\n({fixed})",
        "its own\nbest size",
        "mean\nspeedup",
        f"gain over {fixed}\n(interval)",
        f"oracle's gain over {fixed}\n(interval)",
    ]
    return TextTable(f"Headroom by {name}", columns, rows)


def _costs(found: Headroom) -> TextTable:
    rows = [
        [
            f"× {point.factor:g}",
            f"{point.token_cost:.1%}",
            str(point.best_fixed),
            f"{point.best_fixed_speedup:.3f}",
            "–" if point.default_speedup is None else f"{point.default_speedup:.3f}",
            gain_text(point.per_family),
            gain_text(point.oracle),
        ]
        for point in found.costs
    ]
    columns = [
        "cost of a\nfurther token",
        "of a plain\npass",
        "best\nfixed",
        "mean\nspeedup",
        "default's\nmean speedup",
        "best of each family\n(gain over best fixed)",
        "oracle\n(gain over best fixed)",
    ]
    return TextTable("Headroom by the cost of further tokens", columns, rows)


def _judged(found: Headroom | Steps) -> str:
    return counted(found.prompts, found.rows, "test prompts")


def _columns(found: Headroom) -> list[str]:
    level = f"{100 * found.settings['confidence']:.3g}% interval"
    return [
        "choice",
        "mean\nspeedup",
        "total\nspeedup",
        f"gain over best fixed\n({level})",
        f"gain in total time\n({level})",
        "slower than plain\n(mean loss)",
    ]


def _cells(item: Measured) -> list[str]:
    return [
        f"{item.mean_speedup:.3f}",
        f"{item.total_speedup:.3f}",
        gain_text(item.gain),
        gain_text(item.total_gain),
        slower_text(item),
    ]


def _span(sizes: tuple[int, ...]) -> str:
    return f"{sizes[0]}–{sizes[-1]}"


def headroom_values(found: Headroom | AcceptanceHeadroom) -> dict[str, Any]:
    """Return a headroom as values for JSON, with the reason of its verdict in words."""
    values = found.to_dict()
    values["verdict"]["reason"] = headroom_reason(found)
    return values


def headroom_reason(found: Headroom | AcceptanceHeadroom) -> str:
    """State why adapting the block size is worth it or not."""
    if isinstance(found, AcceptanceHeadroom):
        return _published_reason(found)
    verdict = found.verdict
    fixed, known = fixed_words(verdict.block_size), _known_words(verdict)
    if verdict.worth == "yes":
        gain = verdict.candidate_gain
        assert gain is not None
        assert verdict.candidate_confidence is not None
        return (
            f"adapting is worth it here: {_candidate_words(verdict)} alone gains "
            f"{gain.value:+.1%} in mean speedup ({100 * verdict.candidate_confidence:.3g}% "
            f"interval {gain.low:+.1%} to {gain.high:+.1%}) over {fixed}; {known}"
        )
    if verdict.worth == "no":
        return (
            f"adapting is not worth it here: {known} over {fixed}, at most "
            f"{verdict.largest_gain:+.1%}, which is less than the required {verdict.min_gain:.1%}; "
            f"ship {fixed}"
        )
    return (
        f"adapting may be worth it here: {known} over {fixed}, but no simple rule gains a "
        f"significant {verdict.min_gain:.1%}; train policies and compare them with "
        "`blockpilot compare`"
    )


def _known_words(verdict: HeadroomVerdict) -> str:
    """Describe the gain of choices that know the outcome."""
    text = f"knowing the fastest size of each request would gain {verdict.oracle_gain.value:+.1%}"
    if verdict.crossfit_gain is not None:
        text += (
            f" ({verdict.crossfit_gain.value:+.1%} if the {verdict.crossfit_prompts} prompts with "
            "several answers are cross-fitted)"
        )
    if verdict.prefix_gain is not None:
        text += f", the best prefix at every step {verdict.prefix_gain.value:+.1%}"
    return text


def _candidate_words(verdict: HeadroomVerdict) -> str:
    if verdict.candidate_kind == "group":
        return f"the best size of each {verdict.candidate}"
    return f"the step rule “{verdict.candidate}”"


def _published_reason(found: AcceptanceHeadroom) -> str:
    gain, sizes = found.oracle.gain, found.window_sizes
    worth = "is not" if found.verdict.worth == "no" else "may be"
    reason = (
        f"adapting {worth} worth it here: knowing the best of sizes {sizes[0]} to {sizes[-1]} for "
        f"each prompt gains {gain.value:+.1%} ({gain.low:+.1%} to {gain.high:+.1%}) in acceptance "
        f"length over fixed {found.default.block_size}, chosen and judged on the same decodes, and "
        "acceptance lengths do not show time"
    )
    selection = found.selection
    if selection is None:
        return reason
    if selection.equals_oracle:
        return (
            f"{reason}; the published selection equals the oracle's labels on all "
            f"{selection.prompts} prompts, so it does not show a prediction"
        )
    return (
        f"{reason}; the published selection is as good as the oracle on {selection.matches} of "
        f"{selection.prompts} prompts"
    )
