"""Re-pricing: what a recorded sweep would cost on another device, without decoding again.

The text and the accepted lengths do not depend on the device, only the seconds do, and they follow
from the device's latency profile: passes, and for rows at a temperature what sampling adds.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from blockpilot_rl.decoding.calibration import Calibration
from blockpilot_rl.decoding.latency import LatencyProfile, context_sum, noise_positions
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.provenance import provenance
from blockpilot_rl.sweeps.table import Sweep


def reprice(table: Sweep, calibration: Calibration) -> Sweep:
    """Give a sweep the seconds of a calibrated device.

    Measured seconds, which belong to the old device, become NaN; latency, its dtype and device
    become the calibration's. What was recorded stays as it is; the command, versions and machine of
    the recording move to `recorded` in the provenance.

    Args:
        table: The sweep.
        calibration: Of the same pair, on the other device.

    Raises:
        BlockPilotError: If the calibration is of another pair, or lacks an arm.
    """
    old = table.metadata
    if calibration.fingerprint != old.fingerprint:
        raise BlockPilotError(
            f"the calibration is of the pair {calibration.target} with {calibration.drafter} "
            f"({calibration.fingerprint}), the sweep of {old.target} with {old.drafter} "
            f"({old.fingerprint}); calibrate with the sweep's --target and --drafter"
        )
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
    seconds = predict_seconds(table, calibration.latency)
    return dataclasses.replace(
        table,
        metadata=metadata,
        seconds=seconds,
        measured_seconds=np.full(seconds.shape, np.nan),
    )


def predict_seconds(table: Sweep, profile: LatencyProfile) -> np.ndarray:
    """Seconds of every row under every arm by a profile, `[n, arms]`.

    Args:
        table: The sweep; its own seconds play no part.
        profile: What the passes cost.

    Raises:
        BlockPilotError: If the profile lacks an arm.
    """
    prompt_tokens = table.rows["prompt_tokens"].to_numpy()
    sampled = (table.rows["temperature"] > 0).to_numpy()
    contexts = np.array(
        [
            [context_sum(int(tokens), emitted) for emitted in row]
            for tokens, row in zip(prompt_tokens, table.accepted, strict=True)
        ]
    )
    noise = np.zeros(contexts.shape)
    for row in np.flatnonzero(sampled):
        noise[row] = list(map(noise_positions, table.arms, table.accepted[row]))
    return profile.price(table.arms, table.passes, contexts, prompt_tokens, noise)
