"""Linear maps of the lean passes: packed weights on CPUs, `F.linear` elsewhere.

`F.linear` with one row runs at a third of the memory's bandwidth. The operators that PyTorch's own
inductor uses multiply weights that oneDNN has packed once, in memory with huge pages.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import nn

Product = Callable[[torch.Tensor], torch.Tensor]
"""A linear map of the last dimension."""

_PACKED_ROWS = 16
"""Number of rows that packed weights are laid out for; fewer and more work too."""

_HUGE_PAGE = 1 << 21
_MADV_COLLAPSE = 25
"""A constant of Linux that Python's `mmap` does not have."""


@lru_cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether this CPU and this build of PyTorch multiply packed weights of a dtype correctly."""
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    weight = torch.arange(-24.0, 24.0).view(6, 8).to(dtype)
    states = torch.arange(-8.0, 8.0).view(2, 8).to(dtype)
    try:
        found = _packed_product(weight, None)(states)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return torch.allclose(found, F.linear(states, weight))


def product(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Product:
    """Make the linear map `x @ weight.T + bias`.

    Args:
        weight: `[out, in]`. CPUs that can multiply packed weights keep a packed copy; elsewhere the
            tensor itself is read.
        bias: `[out]`, or None.
    """
    if weight.device.type == "cpu" and can_pack(weight.dtype):
        return _packed_product(weight, bias)
    return lambda states: F.linear(states, weight, bias)


def _packed_product(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    multiply = torch.ops.mkldnn._linear_pointwise.default
    with torch.inference_mode():
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACKED_ROWS)
    use_huge_pages(torch.ops.mkldnn.data_ptr(packed), torch.ops.mkldnn._nbytes(packed))
    return lambda states: multiply(states, packed, bias, "none", (), "")


def use_huge_pages(address: int, size: int) -> None:
    """Move memory to huge pages where the system has them.

    A pass reads every weight once. With small pages the processor looks up a quarter of a million
    addresses meanwhile. Linux moves the whole pages that the memory touches at once since 6.1, and
    in the background before; elsewhere nothing happens.

    Args:
        address: First byte.
        size: Number of bytes.
    """
    if not sys.platform.startswith("linux") or not hasattr(mmap, "MADV_HUGEPAGE"):
        return
    advise = ctypes.CDLL(None, use_errno=True).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    first, end = address // _HUGE_PAGE * _HUGE_PAGE, address + size
    for page in range(first, end, _HUGE_PAGE):
        # Pages that are only partly in use are refused, which changes nothing.
        advise(page, _HUGE_PAGE, mmap.MADV_HUGEPAGE)
        advise(page, _HUGE_PAGE, _MADV_COLLAPSE)


def stacked_product(*linears: nn.Linear) -> Product:
    """Make one linear map of linears that read the same input.

    Where weights are not packed, they are stacked in place: the modules keep working, and their
    parameters become views of the stacked tensor.

    Raises:
        NotImplementedError: If some linears have a bias and others do not.
    """
    weights: list[torch.Tensor] = [linear.weight.detach() for linear in linears]
    bias = stacked_bias(linears)
    if weights[0].device.type == "cpu" and can_pack(weights[0].dtype):
        return product(torch.cat(weights) if len(weights) > 1 else weights[0], bias)
    return product(_stack(linears), bias)


def stacked_bias(linears: Sequence[nn.Linear]) -> torch.Tensor | None:
    """Join the biases of linears, `[out]`; None if they have none.

    Raises:
        NotImplementedError: If some linears have a bias and others do not.
    """
    biases: list[torch.Tensor | None] = [linear.bias for linear in linears]
    present = [bias.detach() for bias in biases if bias is not None]
    if present and len(present) < len(biases):
        raise NotImplementedError("some of the stacked linears have a bias and others do not")
    return torch.cat(present) if present else None


def _stack(linears: Sequence[nn.Linear]) -> torch.Tensor:
    """Stack the weights of linears, `[out, in]`, and let their parameters be views of the stack."""
    rows = [linear.weight.shape[0] for linear in linears]
    first: torch.Tensor = linears[0].weight.detach()
    if _are_stacked([linear.weight for linear in linears]):
        return first.as_strided((sum(rows), first.shape[1]), first.stride())
    weight = torch.cat([linear.weight.detach() for linear in linears])
    for linear, part in zip(linears, weight.split(rows), strict=True):
        linear.weight.data = part
    return weight


def _are_stacked(weights: Sequence[torch.Tensor]) -> bool:
    """Whether contiguous weights follow each other in one storage, as `_stack` leaves them."""
    return len({weight.untyped_storage().data_ptr() for weight in weights}) == 1 and all(
        above.is_contiguous() and above.data_ptr() + above.nbytes == below.data_ptr()
        for above, below in itertools.pairwise(weights)
    )
