"""Plots of a comparison, in colours that are safe for colour blindness (Okabe and Ito)."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from blockpilot_rl.evaluation.results import ALL_PROMPTS, Comparison, Curves, Outcome
from blockpilot_rl.evaluation.statistics import Interval

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D00", "#777777")
_MARKERS = "os^Dv<>P"
_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#8A8A8A"
_WIDTH = 7.0
_PANELS = 3
_LABELS = 5


def draw_plots(comparison: Comparison) -> dict[str, Figure]:
    """Draw every plot that the comparison has numbers for, by file name."""
    drawn = {"gains": plot_gains(comparison), "block_sizes": plot_arms(comparison)}
    drawn["speedups"] = plot_speedups(comparison)
    if comparison.verdict.best_agent is not None:
        drawn["families"] = plot_families(comparison)
    if comparison.learning_curve:
        drawn["learning_curve"] = plot_learning_curve(comparison)
    if comparison.budget_curves:
        drawn["budget_curves"] = plot_budget_curves(comparison)
    return drawn


def as_svg(figure: Figure) -> str:
    """Render a figure as an SVG element in the text colour of the page around it."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "blockpilot"}):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :].replace("#000000", "currentColor")


def plot_speedups(comparison: Comparison) -> Figure:
    """Plot mean speedup by fixed block size, over all prompts and by family."""
    families = [name for name in comparison.speedups if name != ALL_PROMPTS]
    figure, axes = _new(max(4.2, 0.9 + 0.22 * len(families)))
    for index, family in enumerate(families):
        _line(axes, comparison.speedups[family], label=family, linewidth=1.2, **_style(index))
    everything = comparison.speedups[ALL_PROMPTS]
    _line(axes, everything, color="black", linewidth=3, label="all prompts")
    best = comparison.best_fixed.block_size
    axes.axvline(list(everything).index(best or 1), color=_GREY, linestyle=":", zorder=0)
    axes.axhline(1, color=_GREY, linewidth=1, zorder=0)
    axes.set_xticks(range(len(everything)), [str(size) for size in everything])
    axes.set_xlabel(f"block size (1 is plain decoding; dotted: best fixed, {best})")
    axes.set_ylabel("mean speedup over plain decoding")
    axes.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside right center", frameon=False)
    return figure


def plot_gains(comparison: Comparison) -> Figure:
    """Plot the gain over the best fixed size and the share of the gap closed, with intervals."""
    outcomes = {**comparison.agents, "oracle": comparison.oracle}
    figure = Figure(figsize=(_WIDTH, 1.3 + 0.38 * len(outcomes)), layout="constrained")
    gains, gaps = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
    for row, (name, outcome) in enumerate(outcomes.items()):
        colour = _GREY if name == "oracle" else _BLUE
        _interval(gains, row, outcome.gain, color=colour)
        if name != "oracle":
            _interval(gaps, row, outcome.gap_closed_interval, color=colour)
        if len(outcome.gain_by_seed) > 1:
            seeds = np.full(len(outcome.gain_by_seed), row + 0.25)
            gains.plot(outcome.gain_by_seed, seeds, "|", color=_ORANGE, markersize=6)
    gains.set_yticks(range(len(outcomes)), list(outcomes))
    gains.set_ylim(len(outcomes) - 0.5, -0.5)
    gains.set_xlabel(
        f"gain in mean speedup over best fixed, {comparison.best_fixed.block_size}\n"
        f"({100 * comparison.confidence:.3g}% interval; ticks: single seeds)"
    )
    gaps.set_xlabel("share of the gap\nto the oracle closed")
    for axes, decimals in ((gains, None), (gaps, 0)):
        axes.axvline(0, color="black", linewidth=1, zorder=0)
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals))
        axes.spines[["top", "right"]].set_visible(False)
        axes.locator_params(axis="x", nbins=4)
        axes.grid(axis="x", alpha=0.3)
    return figure


def plot_families(comparison: Comparison) -> Figure:
    """Plot the gain of the best agent in each family, trained with and without that family."""
    best = comparison.verdict.best_agent
    assert best is not None
    views: dict[str, Outcome] = {"family seen in training": comparison.agents[best]}
    if comparison.left_out is not None:
        views["family left out of training"] = comparison.left_out.agents[best]
    families = list(comparison.agents[best].per_family)
    figure, axes = _new(1.4 + 0.42 * len(families))
    for index, (view, outcome) in enumerate(views.items()):
        shift = 0.24 * (index - (len(views) - 1) / 2)
        for row, family in enumerate(families):
            label = view if row == 0 else None
            gain = outcome.per_family[family].gain
            _interval(axes, row + shift, gain, label=label, **_style(index))
    margin = comparison.verdict.family_margin
    axes.axvline(0, color="black", linewidth=1, zorder=0)
    axes.axvline(-margin, color=_GREY, linestyle=":", zorder=0)
    axes.set_yticks(range(len(families)), families)
    axes.set_ylim(len(families) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel(f"gain of {best} over best fixed (dotted: margin of {margin:.1%})")
    axes.grid(axis="x", alpha=0.3)
    if len(views) > 1:
        figure.legend(loc="outside upper left", ncols=2, frameon=False)
    return figure


def plot_arms(comparison: Comparison) -> Figure:
    """Plot the share of requests that each agent and the oracle give to each block size."""
    outcomes = {**comparison.agents, "oracle": comparison.oracle}
    columns = min(_PANELS, len(outcomes))
    rows = -(-len(outcomes) // columns)
    figure = Figure(figsize=(_WIDTH, 0.7 + 1.3 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(outcomes) :]:
        axes.set_visible(False)
    for axes, (name, outcome) in zip(grid.flat, outcomes.items(), strict=False):
        positions = range(len(outcome.arms))
        axes.bar(positions, list(outcome.arms.values()), color=_GREY if name == "oracle" else _BLUE)
        axes.set_xticks(positions, [str(size) for size in outcome.arms], fontsize=8)
        axes.tick_params(axis="x", labelbottom=True)
        axes.set_title(name, loc="left", fontsize=10)
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.set_ylim(0, 1)
        axes.set_yticks([0, 0.5, 1])
        axes.set_axisbelow(True)
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("block size", fontsize=10)
    figure.supylabel("share of requests", fontsize=10)
    return figure


def plot_learning_curve(comparison: Comparison) -> Figure:
    """Plot the gain over the best fixed size by the number of training prompts."""
    figure, axes = _new(4.2)
    curves = comparison.learning_curve
    for index, (name, points) in enumerate(curves.items()):
        prompts = [point.prompts for point in points]
        axes.plot(prompts, [p.gain.value for p in points], label=name, **_style(index))
        low, high = [p.gain.low for p in points], [p.gain.high for p in points]
        axes.fill_between(prompts, low, high, alpha=0.1, linewidth=0, **_colour(index))
    axes.axhline(0, color="black", linewidth=1, zorder=0)
    axes.axhline(comparison.oracle.gain.value, color=_GREY, linestyle=":", label="oracle")
    _counts(axes, curves, lambda point: point.prompts)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel(f"training prompts (bands: {100 * comparison.confidence:.3g}% interval)")
    axes.set_ylabel("gain over best fixed")
    axes.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside right center", frameon=False)
    return figure


def plot_budget_curves(comparison: Comparison) -> Figure:
    """Plot the regret by the decodes paid for training, at both prices."""
    titles = {"decode": "a decode per label", "replay": "labels by replay"}
    figure = Figure(figsize=(_WIDTH, 4.2), layout="constrained")
    panels = figure.subplots(1, len(comparison.budget_curves), sharey=True, squeeze=False)[0]
    for axes, (price, curves) in zip(panels, comparison.budget_curves.items(), strict=True):
        for index, (name, points) in enumerate(curves.items()):
            decodes = [point.decodes for point in points]
            axes.plot(decodes, [p.regret for p in points], label=name, **_style(index))
        axes.axhline(
            comparison.best_fixed.regret,
            color="black",
            linewidth=1,
            label="best fixed, all prompts",
        )
        axes.set_title(titles[price], loc="left", fontsize=10)
        _counts(axes, curves, lambda point: point.decodes)
        axes.set_xlabel("decodes paid for training")
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("regret in mean speedup")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _new(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _colour(index: int) -> dict[str, Any]:
    return {"color": _COLOURS[index % len(_COLOURS)]}


def _style(index: int) -> dict[str, Any]:
    """Colour, marker and, after all colours are used, dashes."""
    dashes = ("-", "--", ":")[index // len(_COLOURS) % 3]
    marker = _MARKERS[index % len(_MARKERS)]
    return {**_colour(index), "marker": marker, "markersize": 4.5, "linestyle": dashes}


def _line(axes: Axes, speedups: dict[int, float], **style: Any) -> None:
    axes.plot(range(len(speedups)), list(speedups.values()), **style)


def _interval(axes: Axes, row: float, interval: Interval, **style: Any) -> None:
    """Draw a value with its interval; both can be NaN."""
    value, low, high = interval
    style = {"marker": "o", "markersize": 6.5, **style, "linestyle": "none"}
    axes.plot([low, high], [row, row], color=style["color"], linewidth=2, solid_capstyle="butt")
    axes.plot([value], [row], **style)


def _counts(axes: Axes, curves: Curves, count: Callable[[Any], Any]) -> None:
    """Set a logarithmic axis of counts with labels that do not overlap."""
    points = sorted({count(point) for points in curves.values() for point in points})
    apart = max(1.7, (points[-1] / points[0]) ** (1 / _LABELS))
    ticks: list[int] = []
    for point in points:
        if not ticks or point >= apart * ticks[-1]:
            ticks.append(point)
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
