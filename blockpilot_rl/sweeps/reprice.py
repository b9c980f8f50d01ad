"""Re-pricing: predict the seconds of a recorded sweep on another device, without decoding.

Texts and accepted lengths do not depend on the device. The seconds do, and the device's latency
profile predicts them.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from blockpilot_rl.decoding.calibration import Calibration
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.provenance import provenance
from blockpilot_rl.sweeps.table import Sweep
from blockpilot_rl.sweeps.traces import TRACE_FILE, load_traces, save_sweep


def reprice(sweep: Sweep, calibration: Calibration) -> Sweep:
    """Replace the seconds of a sweep with those of a calibrated device.

    Measured seconds belong to the old device and become NaN. `latency`, `latency_dtype` and
    `device` become those of the calibration, and the provenance of the recording moves to
    `recorded`. Everything else stays.

    Args:
        sweep: The sweep.
        calibration: A calibration of the same pair on the other device.

    Returns:
        The sweep with new seconds.

    Raises:
        BlockPilotError: If the calibration belongs to another pair or lacks a block size.
    """
    old = sweep.metadata
    calibration.check_pair(old.fingerprint, old.target, old.drafter)
    now = provenance()
    before = {key: value for key, value in old.provenance.items() if key != "measured"}
    metadata = dataclasses.replace(
        old,
        latency=calibration.latency.to_dict(),
        latency_dtype=calibration.dtype,
        device=calibration.device,
        provenance={
            **before,
            **now,
            "calibration": calibration.origin,
            "recorded": before.get("recorded", {key: before.get(key) for key in now}),
        },
    )
    seconds = predict_seconds(sweep, calibration.latency)
    return dataclasses.replace(
        sweep,
        metadata=metadata,
        seconds=seconds,
        measured_seconds=np.full(seconds.shape, np.nan),
    )


def reprice_folder(folder: str | Path, out: str | Path, calibration: Calibration) -> Sweep:
    """Re-price a sweep on disk with its traces into a new folder.

    Args:
        folder: Folder of the sweep.
        out: The new folder.
        calibration: A calibration of the same pair on the other device.

    Returns:
        The re-priced sweep.

    Raises:
        BlockPilotError: If the sweep or its traces cannot be read, the calibration does not fit, or
            `out` holds files.
    """
    sweep = Sweep.load(folder)
    traces = load_traces(folder, sweep) if (Path(folder) / TRACE_FILE).exists() else {}
    repriced = reprice(sweep, calibration)
    save_sweep(out, repriced, traces)
    return repriced


def sweep_latency(sweep: Sweep) -> LatencyProfile:
    """Return the latency profile of a sweep.

    A sweep without a profile gets one whose passes take the mean seconds of a pass of its rows, at
    any context length.
    """
    if sweep.metadata.latency:
        return LatencyProfile.from_dict(sweep.metadata.latency)
    seconds = sweep.seconds.sum(axis=0) / sweep.passes.sum(axis=0)
    return LatencyProfile(
        block_sizes=sweep.arms,
        draft=((0.0, 0.0),) * len(sweep.arms),
        verify=tuple((float(each), 0.0) for each in seconds),
        read_prompt=(0.0, 0.0),
        medians={},
    )


def predict_seconds(sweep: Sweep, profile: LatencyProfile) -> np.ndarray:
    """Predict the seconds of every row under every block size, `[n, arms]`.

    Args:
        sweep: The sweep. Its own seconds are not read.
        profile: The latency profile.

    Raises:
        BlockPilotError: If the profile lacks a block size.
    """
    return profile.price(
        sweep.arms,
        sweep.accepted,
        sweep.rows["prompt_tokens"].to_numpy(),
        (sweep.rows["temperature"] > 0).to_numpy(),
        sweep.metadata.budget,
    )
