from __future__ import annotations

import platform
from pathlib import Path

import pytest
import torch

from blockpilot_rl.decoding import products


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 2, 5, 16, 40])
@pytest.mark.parametrize("bias", [False, True])
def test_packed_products_equal_plain_ones(dtype, rows, bias):
    if not products.can_pack(dtype):
        pytest.skip("this processor multiplies no packed weights")
    linear = torch.nn.Linear(48, 80, bias=bias).to(dtype)
    states = torch.randn(2, rows, 48).to(dtype)
    packed = products.stacked_product(linear)(states)
    with torch.no_grad():
        expected = linear(states)
    if dtype == torch.bfloat16:
        assert torch.equal(packed, expected)
    torch.testing.assert_close(packed, expected)


@pytest.mark.parametrize("failure", [AttributeError, NotImplementedError, RuntimeError])
def test_without_packed_products_plain_ones_are_used(monkeypatch, failure):
    """Builds without oneDNN lack the operators; processors may lack the dtype."""

    def fail(*_):
        raise failure("no such operator")

    monkeypatch.setattr(products, "_packed_product", fail)
    can_pack = products.can_pack.__wrapped__
    assert not can_pack(torch.float32)
    monkeypatch.setattr(products, "can_pack", can_pack)
    weight, states = torch.randn(5, 4), torch.randn(3, 4)
    assert torch.equal(products.product(weight)(states), states @ weight.T)


def test_wrong_packed_products_are_not_used(monkeypatch):
    monkeypatch.setattr(
        products, "_packed_product", lambda weight, bias: lambda x: x @ weight.T + 1
    )
    assert not products.can_pack.__wrapped__(torch.float32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_other_dtypes_are_not_packed(dtype):
    assert not products.can_pack(dtype)


HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def huge_pages() -> int:
    """Kilobytes of this process in huge pages."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))


@pytest.mark.skipif(not HUGE.exists(), reason="this system has no huge pages")
def test_weights_move_to_huge_pages_and_keep_their_values():
    if not products.can_pack(torch.float32):
        pytest.skip("this processor multiplies no packed weights")
    weight, states = torch.eye(4096, 1024), torch.randn(2, 1024)
    before, product = huge_pages(), products.product(weight)
    assert torch.equal(product(states), states @ weight.T)
    release = tuple(map(int, platform.release().split("-")[0].split(".")[:2]))
    if release >= (6, 1) and "[never]" not in HUGE.read_text(encoding="utf-8"):
        assert huge_pages() > before


@pytest.mark.parametrize(("address", "size"), [(0, 1 << 21), (1 << 46, 1 << 22), (4096, 1), (0, 0)])
def test_memory_that_cannot_be_moved_stays(address, size):
    products.use_huge_pages(address, size)


@pytest.mark.parametrize("system", ["darwin", "win32", "freebsd14"])
def test_other_systems_move_no_memory(system, monkeypatch):
    monkeypatch.setattr(products.sys, "platform", system)
    monkeypatch.setattr(products.ctypes, "CDLL", None)
    products.use_huge_pages(1 << 21, 1 << 21)
