"""The check that a device can run models."""

from __future__ import annotations

import torch

from blockpilot_rl.errors import BlockPilotError, one_line


def check_device(device: str) -> None:
    """Check that a device can compute, before anything is loaded.

    Raises:
        BlockPilotError: If it cannot.
    """
    try:
        # The result is read back, because tensors on `meta` hold no data.
        (torch.ones(1, device=device) + 1).item()
    # Builds without an accelerator, absent devices and full devices raise different errors.
    except Exception as error:
        raise BlockPilotError(
            f"models cannot run on {device}: {one_line(error)}; try cpu"
        ) from error
