"""Sentences about a comparison, made from the codes and numbers of its verdict."""

from __future__ import annotations

from typing import Any

from blockpilot_rl.evaluation.results import Comparison, Verdict
from blockpilot_rl.evaluation.statistics import Interval
from blockpilot_rl.reports.tables import gain_text


def comparison_values(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as values for JSON, with the reason of its verdict in words."""
    values = comparison.to_dict()
    values["verdict"]["reason"] = verdict_reason(comparison.verdict)
    for name, source in comparison.sources.items():
        values["sources"][name]["verdict"]["reason"] = verdict_reason(source.verdict)
    return values


def verdict_lines(comparison: Comparison) -> list[str]:
    """State what to deploy and why: on all test prompts, on seen and on unseen sources."""
    lines = [verdict_line(comparison)]
    if len(comparison.sources) > 1:
        lines += [
            f"On {name}: ship {ship_words(source.verdict)}: {verdict_reason(source.verdict)}."
            for name, source in comparison.sources.items()
        ]
    return lines


def ship_words(verdict: Verdict) -> str:
    """Name what a verdict ships."""
    return verdict.ship if verdict.block_size is None else f"fixed block size {verdict.block_size}"


def verdict_line(comparison: Comparison) -> str:
    """State what to deploy and why."""
    verdict = comparison.verdict
    return f"Verdict: ship {ship_words(verdict)}: {verdict_reason(verdict)}."


def verdict_reason(verdict: Verdict) -> str:
    """State why an agent or a fixed size is shipped."""
    if verdict.code == "no_agents" or verdict.gain is None:
        return "no learned agent was compared"
    best, gain, fixed = verdict.best_agent, verdict.gain, fixed_words(verdict.best_fixed)
    adjusted = f", adjusted for {verdict.agents} agents" if verdict.agents > 1 else ""
    interval = f"{100 * verdict.confidence:.3g}% interval {_bounds(gain)}{adjusted}"
    if verdict.code == "no_gain":
        return (
            f"no agent is significantly faster than {fixed}; the best of them, {best}, gains "
            f"{gain.value:+z.1%} in mean speedup ({interval}), decision time included"
        )
    gains = f"{best} gains {gain.value:+z.1%} in mean speedup over {fixed} ({interval})"
    if verdict.code == "no_gain_over_constant":
        change = verdict.gain_over_constant
        assert change is not None
        return (
            f"{gains}, but {change.value:+z.1%} over always taking {verdict.constant}, one of its "
            f"own sizes ({_bounds(change)}), so it is not significantly faster than a fixed size"
        )
    if verdict.code == "unseen_loss":
        assert verdict.unseen_gain is not None
        return (
            f"{gains}, but {verdict.unseen_gain.value:+z.1%} on unseen sources "
            f"({_bounds(verdict.unseen_gain)})"
        )
    assert verdict.total_gain is not None
    return (
        f"{gains}, decision time included, and {verdict.total_gain.value:+z.1%} in total time; "
        f"{_riskiest_family_words(verdict)}{_passed_over_words(verdict.passed_over)}"
    )


def _riskiest_family_words(verdict: Verdict) -> str:
    """The gain in the family with the highest risk, and whether a family loses too much."""
    assert verdict.riskiest_family_gain is not None
    assert verdict.loss_probability is not None
    gain, margin = verdict.riskiest_family_gain, verdict.family_margin
    text = (
        f"all families estimated together, the one most at risk is {verdict.riskiest_family}, "
        f"{gain.value:+z.1%} ({_bounds(gain)}), which loses more than {margin:.1%} with a "
        f"probability of {verdict.loss_probability:.1%}"
    )
    if verdict.within_margin:
        return text
    return f"{text}; that is too likely in {', '.join(verdict.losing_families)}"


def _passed_over_words(names: list[str]) -> str:
    if not names:
        return ""
    verbs = ("has", "loses") if len(names) == 1 else ("have", "lose")
    return (
        f"; {' and '.join(names)} {verbs[0]} a higher lower bound but {verbs[1]} too much in a "
        "family or on unseen sources"
    )


def crossfit_line(comparison: Comparison) -> str:
    """Describe an oracle that does not profit from noise."""
    found = comparison.crossfit
    if found is None:
        return "None of these rows was measured twice, so the oracle could not be cross-fitted."
    how = {
        "replicates": "chosen on a prompt's other samples and judged on the one left out",
        "stopwatch": "chosen by predicted and judged by measured seconds",
    }[found.source]
    return (
        f"Cross-fitted oracle ({how}, {found.rows:,} rows of {found.prompts:,} prompts): mean "
        f"speedup {found.mean_speedup:.3f}, {gain_text(found.gain)} over best fixed. On the same "
        f"rows the in-sample oracle has {found.in_sample:.3f} and the best fixed size "
        f"{found.fixed:.3f}."
    )


def halves_line(comparison: Comparison) -> str:
    """Describe how much of the oracle's lead is noise within one answer."""
    found = comparison.halves
    if found is None:
        return "The answers are too short to choose on one half and judge on the other."
    return (
        "Chosen on one half of each answer and judged on the other, the oracle gains "
        f"{gain_text(found.gain)} over best fixed; chosen and judged on both halves it gains "
        f"{found.in_sample / found.fixed - 1:+z.1%}. The difference is an estimate of the noise "
        "within one answer."
    )


def fixed_words(size: int | None) -> str:
    """Name a fixed size within a sentence."""
    return "plain decoding" if size == 1 else f"the best fixed size {size}"


def _bounds(interval: Interval) -> str:
    return f"{interval.low:+z.1%} to {interval.high:+z.1%}"
