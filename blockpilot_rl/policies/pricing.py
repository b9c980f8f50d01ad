"""The prices that a policy chooses by on the device at hand."""

from __future__ import annotations

import logging
from pathlib import Path

from blockpilot_rl.decoding.calibration import (
    Calibration,
    describe_device,
    find_calibration,
    name_dtype,
)
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import Pair
from blockpilot_rl.policies.policy import BlockSizePolicy

AUTO = "auto"
"""Use the kept calibration of the pair and device, if there is one."""

logger = logging.getLogger(__name__)


def price_policy(
    policy: BlockSizePolicy, pair: Pair, calibration: Calibration | str | Path | None = AUTO
) -> BlockSizePolicy:
    """Let a policy choose by the prices of the pair's device, and log which prices these are.

    Args:
        policy: The policy. A reward policy stays as it is, with a warning if the device is another
            one than it was trained for.
        pair: The pair that will decode.
        calibration: A calibration or its file; `"auto"` for the one that `blockpilot calibrate`
            has kept; None for the prices that the policy was exported with.

    Returns:
        The policy for this device.

    Raises:
        BlockPilotError: If the calibration cannot be read or used, or is given for a reward policy.
    """
    if policy.config.head != "acceptance":
        if calibration not in (AUTO, None):
            policy.for_device(_load(calibration))
        policy.check_device(describe_device(pair.device), name_dtype(pair.dtype))
        return policy
    if calibration not in (AUTO, None):
        given = _load(calibration)
        logger.info("the policy uses the calibration of %s in %s", given.device, given.dtype)
        return policy.for_device(given)
    if calibration == AUTO:
        priced = _kept(policy, pair)
        if priced is not None:
            return priced
    prices = policy.config.prices
    assert prices is not None
    logger.info(
        "the policy uses the prices that it was exported with, of %s in %s; `blockpilot calibrate` "
        "measures those of this device",
        prices.device,
        prices.dtype,
    )
    return policy


def _kept(policy: BlockSizePolicy, pair: Pair) -> BlockSizePolicy | None:
    """Price a policy by the kept calibration; one that cannot be used is named and left out."""
    try:
        found = find_calibration(pair)
        if found is None:
            return None
        path, calibration = found
        priced = policy.for_device(calibration)
    except BlockPilotError as error:
        logger.warning("the kept calibration is not used: %s", error)
        return None
    logger.info(
        "the policy uses the calibration of %s in %s from %s",
        calibration.device,
        calibration.dtype,
        path,
    )
    return priced


def _load(calibration: Calibration | str | Path | None) -> Calibration:
    if isinstance(calibration, Calibration):
        return calibration
    return Calibration.load(Path(str(calibration)))
