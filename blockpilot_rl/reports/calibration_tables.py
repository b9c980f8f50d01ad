"""Tables and lines that describe a calibration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blockpilot_rl.decoding.calibration import Calibration
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.reports.tables import TextTable

AIM = 0.07
"""Median error of the predicted times above which a calibration should be repeated."""

WIDE = 0.3
"""Width of the measured intervals, as a share of the medians, above which the device was busy."""


def calibration_table(calibration: Calibration) -> TextTable:
    """Table of the seconds of each pass at the middle context length, with the medians."""
    profile = calibration.latency
    medians, sizes = profile.medians, profile.block_sizes
    middle = len(medians["contexts"]) // 2
    context = medians["contexts"][middle]
    at = np.array([1.0, context])
    columns = ["block\nsize"]
    cells = [[str(size) for size in sizes]]
    for name, lines in (("draft", profile.draft), ("verify", profile.verify)):
        columns += [f"{name}\nms", "measured\n(95% interval)"]
        bounds = medians.get(f"{name}_intervals")
        cells.append([f"{1e3 * float(np.array(line) @ at):.2f}" for line in lines])
        cells.append(
            [
                _measured(median, None if bounds is None else bounds[middle][index])
                for index, median in enumerate(medians[name][middle])
            ]
        )
    title = f"Time of a pass after {context} tokens of context, {calibration.dtype}"
    return TextTable(title, columns, [list(row) for row in zip(*cells, strict=True)])


def describe_calibration(calibration: Calibration) -> list[str]:
    """Summarise a calibration in lines: costs, noise of the measurement, and the check."""
    return [
        _describe_cost(calibration),
        _describe_sampling(calibration.latency),
        *_noise_lines(calibration),
        *_check_lines(calibration),
    ]


def _measured(median: float, bounds: Sequence[float] | None) -> str:
    if bounds is None:
        return f"{1e3 * median:.2f}"
    return f"{1e3 * median:.2f} ({1e3 * bounds[0]:.2f}, {1e3 * bounds[1]:.2f})"


def _describe_cost(calibration: Calibration) -> str:
    profile = calibration.latency
    cost = profile.token_cost(float(np.mean(profile.medians["contexts"])))
    return (
        f"{calibration.target} with {calibration.drafter} on {calibration.device}: a further token "
        f"of a block costs {cost:.1%} of a plain pass"
    )


def _describe_sampling(profile: LatencyProfile) -> str:
    sizes = (profile.block_sizes[0], profile.block_sizes[-1])
    added = np.sum(profile.sampling.lines(sizes), axis=0) * 1e3
    return (
        f"A temperature adds {added[0]:.2f} ms to a step of block size {sizes[0]}, {added[1]:.2f} "
        f"ms to one of {sizes[1]}, and {1e3 * profile.noise_seconds:.2f} ms for the noise of each "
        "position"
    )


def _noise_lines(calibration: Calibration) -> list[str]:
    medians = calibration.latency.medians
    widths: list[float] = []
    for name in ("draft", "verify"):
        bounds, values = (np.array(medians.get(key, [])) for key in (f"{name}_intervals", name))
        if len(bounds):
            timed = values > 0
            widths.extend(np.diff(bounds)[timed, 0] / values[timed])
    if not widths or np.median(widths) <= WIDE:
        return []
    return [
        f"The intervals are {np.median(widths):.0%} of the medians wide: the machine was busy, so "
        "calibrate again while nothing else runs"
    ]


def _check_lines(calibration: Calibration) -> list[str]:
    check = calibration.check
    if check is None:
        return []
    low, high = check["interval"]
    lines = [
        f"Predicted decode time is off by {check['median_error']:.1%} in the median of "
        f"{check['pairs']} real decodes at temperature {check['temperature']:g} (95% interval "
        f"{low:.1%} to {high:.1%}), bias {check['bias']:+.1%}"
    ]
    if "unadjusted_error" in check:
        lines[0] += (
            ", adjusted for the speed of the machine at each decode; without the adjustment by "
            f"{check['unadjusted_error']:.1%}"
        )
    if check["untimed"]:
        lines.append(f"{check['untimed']} further texts ended with their first token")
    if check["median_error"] > AIM:
        lines.append(
            f"That is more than {AIM:.0%}: calibrate again while nothing else runs on the machine"
        )
    return lines
