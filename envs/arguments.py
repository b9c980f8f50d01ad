"""How the environments read actions, rows, seeds and options from callers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from blockpilot_rl.errors import BlockPilotError, closest


def read_indices(values: Any, count: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Read whole numbers from Python numbers, NumPy scalars and arrays, or tensors.

    Args:
        values: One number, or an array or tensor of numbers.
        count: Numbers must be below this.
        name: Name of a number, for the message.
        shape: Expected shape. A single number stands for all.

    Returns:
        int64, of the expected shape.

    Raises:
        BlockPilotError: If the values are not whole numbers in the range, or have another shape.
    """
    try:
        array = np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.dtype.kind not in "iu" or (array.size != 1 and array.shape != shape):
        expected = "a whole number" if shape == () else f"{shape[0]} whole numbers"
        found = repr(values) if np.isscalar(values) else f"{array.dtype} of shape {array.shape}"
        raise BlockPilotError(f"{name} must be {expected}, got {found}")
    wrong = array[(array < 0) | (array >= count)]
    if wrong.size:
        raise BlockPilotError(f"{name} {wrong.flat[0]} is outside 0..{count - 1}")
    if array.size == 1:
        array = array.reshape(())
    return np.broadcast_to(array, shape).astype(np.int64)


def read_index(value: Any, count: int, name: str) -> int:
    """Read one whole number, also from an array or tensor of one; see `read_indices`."""
    return int(read_indices(value, count, name, ()))


def read_seed(seed: Any) -> int | None:
    """Read a seed: None, or a whole number of 0 or more of any integer type.

    Raises:
        BlockPilotError: If it is neither.
    """
    return None if seed is None else read_index(seed, 2**63, "seed")


def read_row(options: Mapping[str, Any] | None) -> Any:
    """Read the option `row` of a reset; None if it is not given.

    Raises:
        BlockPilotError: If another option is given.
    """
    for name in options or {}:
        if name != "row":
            raise BlockPilotError(
                f"reset has no option {name!r}; it has 'row'.{closest(str(name), ['row'])}"
            )
    return (options or {}).get("row")


def check_render_mode(render_mode: str | None, modes: tuple[str, ...] = ()) -> None:
    """Check the render mode of an environment.

    Raises:
        BlockPilotError: If the environment does not have it.
    """
    if render_mode is not None and render_mode not in modes:
        known = "".join(f", or {mode!r}" for mode in modes)
        raise BlockPilotError(f"render_mode must be None{known}, got {render_mode!r}")
