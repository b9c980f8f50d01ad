"""Where models and learners can run."""

from __future__ import annotations

import torch

from blockpilot_rl.errors import BlockPilotError, one_line


def check_device(device: str) -> None:
    """Check that a device computes, before anything is loaded or made.

    Raises:
        BlockPilotError: If not.
    """
    try:
        # The result is read back, as `meta` makes tensors that hold nothing.
        (torch.ones(1, device=device) + 1).item()
    # Builds without an accelerator, absent ones and full ones fail each in their own way.
    except Exception as error:
        raise BlockPilotError(
            f"models cannot run on {device}: {one_line(error)}; try cpu"
        ) from error
