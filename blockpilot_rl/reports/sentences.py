"""Sentences about results, made from the codes and numbers of their verdicts."""

from __future__ import annotations

from typing import Any

from blockpilot_rl.evaluation.results import Comparison, Verdict
from blockpilot_rl.evaluation.statistics import Interval
from blockpilot_rl.headroom.published import AcceptanceHeadroom
from blockpilot_rl.headroom.results import Headroom, HeadroomVerdict
from blockpilot_rl.reports.tables import gain_text


def comparison_values(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as values for JSON, with the reason of its verdict in words."""
    values = comparison.to_dict()
    values["verdict"]["reason"] = verdict_reason(comparison.verdict)
    return values


def headroom_values(found: Headroom | AcceptanceHeadroom) -> dict[str, Any]:
    """Return a headroom as values for JSON, with the reason of its verdict in words."""
    values = found.to_dict()
    values["verdict"]["reason"] = headroom_reason(found)
    return values


def verdict_line(comparison: Comparison) -> str:
    """State what to deploy and why."""
    verdict = comparison.verdict
    what = verdict.ship if verdict.block_size is None else f"fixed block size {verdict.block_size}"
    return f"Verdict: ship {what}: {verdict_reason(verdict)}."


def verdict_reason(verdict: Verdict) -> str:
    """State why an agent or a fixed size is shipped."""
    if verdict.code == "no_agents" or verdict.gain is None:
        return "no learned agent was compared"
    best, gain, fixed = verdict.best_agent, verdict.gain, _fixed_words(verdict.best_fixed)
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
    assert verdict.total_gain is not None
    return (
        f"{gains}, decision time included, and {verdict.total_gain.value:+z.1%} in total time; "
        f"{_worst_family_words(verdict)}{_passed_over_words(verdict.passed_over)}"
    )


def _worst_family_words(verdict: Verdict) -> str:
    """The gain in the worst family, and how the families compare with the allowed loss."""
    assert verdict.worst_family_gain is not None
    loss, margin = verdict.worst_family_gain.value, verdict.family_margin
    text = f"in its worst family, {verdict.worst_family}, it gains {loss:+z.1%}"
    if not verdict.within_margin:
        return f"{text}, which exceeds the allowed loss of {margin:.1%}"
    if verdict.unsure_families:
        one = len(verdict.unsure_families) == 1
        return (
            f"{text}; the {'interval' if one else 'intervals'} of "
            f"{', '.join(verdict.unsure_families)} {'reaches' if one else 'reach'} beyond the "
            f"allowed loss of {margin:.1%}"
        )
    return text if loss >= 0 else f"{text}, within the allowed loss of {margin:.1%}"


def _passed_over_words(names: list[str]) -> str:
    if not names:
        return ""
    verbs = ("has", "loses") if len(names) == 1 else ("have", "lose")
    return (
        f"; {' and '.join(names)} {verbs[0]} a higher lower bound but {verbs[1]} too much in a "
        "family"
    )


def headroom_reason(found: Headroom | AcceptanceHeadroom) -> str:
    """State why adapting the block size is worth it or not."""
    if isinstance(found, AcceptanceHeadroom):
        return _published_reason(found)
    verdict = found.verdict
    fixed, known = _fixed_words(verdict.block_size), _known_words(verdict)
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


def _fixed_words(size: int | None) -> str:
    return "plain decoding" if size == 1 else f"the best fixed size {size}"


def _bounds(interval: Interval) -> str:
    return f"{interval.low:+z.1%} to {interval.high:+z.1%}"
