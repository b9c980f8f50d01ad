"""Plots of a comparison, in colours that stay apart without colour vision (Okabe and Ito)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from blockpilot_rl.evaluation.results import ALL_PROMPTS, Comparison
from blockpilot_rl.files import atomic_write

GAINS = "gains.png"
ARMS = "block_sizes.png"
SPEEDUPS = "speedups.png"

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D00", "#666666")
_MARKERS = "os^Dv<>P"
_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#8A8A8A"


def save_plots(comparison: Comparison, folder: Path) -> None:
    """Draw every plot into a folder.

    Args:
        comparison: What to draw.
        folder: Where the PNG files go.

    Raises:
        BlockPilotError: If the folder cannot be written.
    """
    drawers = {GAINS: plot_gains, ARMS: plot_arms, SPEEDUPS: plot_speedups}
    for name, draw in drawers.items():
        with atomic_write(folder / name) as partial:
            draw(comparison).savefig(partial, dpi=150)


def plot_speedups(comparison: Comparison) -> Figure:
    """Mean speedup against the fixed block size, over all prompts and by family."""
    figure, axes = _new(7.5, 4.5)
    families = [name for name in comparison.speedups if name != ALL_PROMPTS]
    for index, family in enumerate(families):
        _line(
            axes,
            comparison.speedups[family],
            color=_COLOURS[index % len(_COLOURS)],
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=4.5,
            linewidth=1.2,
            label=family,
        )
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
    """Gain over the best fixed size with its interval, per agent, and of the oracle."""
    outcomes = {**comparison.agents, "oracle": comparison.oracle}
    figure, axes = _new(7.5, 1.2 + 0.5 * len(outcomes))
    for row, (name, outcome) in enumerate(outcomes.items()):
        value, low, high = outcome.gain
        colour = _GREY if name == "oracle" else _BLUE
        axes.plot([low, high], [row, row], color=colour, linewidth=2.5, solid_capstyle="butt")
        axes.plot(value, row, "o", color=colour, markersize=8)
        if len(outcome.gain_by_seed) > 1:
            seeds = np.full(len(outcome.gain_by_seed), row + 0.22)
            axes.plot(outcome.gain_by_seed, seeds, "|", color=_ORANGE, markersize=7)
    axes.axvline(0, color="black", linewidth=1, zorder=0)
    axes.set_yticks(range(len(outcomes)), list(outcomes))
    axes.set_ylim(len(outcomes) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel(
        f"gain in mean speedup over best fixed, {comparison.best_fixed.block_size}\n"
        f"({100 * comparison.confidence:.3g}% interval; ticks: single seeds)"
    )
    axes.grid(axis="x", alpha=0.3)
    return figure


def plot_arms(comparison: Comparison) -> Figure:
    """Share of the requests that got each block size, per agent, and with the oracle."""
    outcomes = {**comparison.agents, "oracle": comparison.oracle}
    figure = Figure(figsize=(7.5, 0.9 + 1.1 * len(outcomes)), layout="constrained")
    grid = figure.subplots(len(outcomes), 1, sharex=True, sharey=True, squeeze=False)
    for axes, (name, outcome) in zip(grid[:, 0], outcomes.items(), strict=True):
        positions = range(len(outcome.arms))
        bars = axes.bar(
            positions, list(outcome.arms.values()), color=_GREY if name == "oracle" else _BLUE
        )
        axes.bar_label(
            bars, [f"{share:.0%}" if share else "" for share in outcome.arms.values()], fontsize=8
        )
        axes.set_xticks(positions, [str(size) for size in outcome.arms])
        axes.set_title(name, loc="left", fontsize=10)
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.set_ylim(0, 1.2)
        axes.set_yticks([0, 0.5, 1])
        axes.spines[["top", "right"]].set_visible(False)
    grid[-1, 0].set_xlabel("block size")
    figure.supylabel("share of requests", fontsize=10)
    return figure


def _new(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _line(axes: Axes, speedups: dict[int, float], **style: Any) -> None:
    axes.plot(range(len(speedups)), list(speedups.values()), **style)
