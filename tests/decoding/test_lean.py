from __future__ import annotations

import pytest
import torch
from torch import nn

from blockpilot_rl.decoding import lean, products
from blockpilot_rl.decoding.lean import KVCache, LeanLayer
from tests.tiny_pair import tiny_drafter, tiny_target


def lean_layer(layer: nn.Module) -> LeanLayer:
    return LeanLayer(layer, heads=4, kv_heads=2, head_dim=8)


@pytest.mark.parametrize("length", [0, 1, 5, 9])
def test_crop_forgets_from_a_position_on(length):
    """`DynamicCache.crop(0)` once emptied nothing or everything; a count beyond the end stays.

    Positive counts raise since transformers 5.20, hence a cache and a crop of our own.
    """
    cache = KVCache(torch.zeros(1, 1, 2, 10, 2), length=5)
    cache.crop(length)
    assert cache.length == min(length, 5)
    assert cache.max_length == 10


def test_select_keeps_rows_in_order():
    states = torch.arange(3.0).view(1, 3, 1, 1, 1).repeat(2, 1, 2, 4, 1)
    states[:, :, 1] += 10
    cache = KVCache(states, length=2)
    cache.select(torch.tensor([2, 0]))
    assert cache.states[1][:, 0, 0, 0].tolist() == [2, 0]
    assert cache.states[0][:, 1, 0, 0].tolist() == [12, 10]
    assert cache.length == 2


@pytest.fixture
def unpacked(monkeypatch):
    """A build of PyTorch, or a processor, that multiplies no packed weights."""
    monkeypatch.setattr(products, "can_pack", lambda dtype: False)


def test_weights_are_stacked_without_a_copy(unpacked):
    layer = tiny_target().model.layers[0]
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    states, own = torch.eye(32), lean_layer(layer)
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())
    layer.self_attn.k_proj.weight.data.fill_(7.0)
    assert (own.qkv(states)[:, 32:48] == 7).all()
    assert not (own.qkv(states)[:, :32] == 7).any()
    assert not (own.qkv(states)[:, 48:] == 7).any()
    storage = layer.self_attn.q_proj.weight.data_ptr()
    assert torch.equal(lean_layer(layer).qkv(states), own.qkv(states))
    assert layer.self_attn.q_proj.weight.data_ptr() == storage


def test_weights_that_share_a_storage_in_another_order(unpacked):
    """One storage may hold projections in any order, as a memory-mapped checkpoint does."""
    layer = tiny_target().model.layers[0]
    names = ("v_proj", "q_proj", "k_proj")
    original = {name: getattr(layer.self_attn, name).weight.detach().clone() for name in names}
    storage = torch.cat([original[name] for name in names])
    for name, part in zip(names, storage.split([16, 32, 16]), strict=True):
        getattr(layer.self_attn, name).weight.data = part
    expected = torch.cat([original[name] for name in ("q_proj", "k_proj", "v_proj")])
    assert torch.equal(lean_layer(layer).qkv(torch.eye(32)), expected.T)


def test_a_norm_rounds_as_the_modules_do():
    norm = tiny_target().bfloat16().model.norm
    norm.weight.data = torch.rand(32).bfloat16() + 0.5
    states = torch.randn(50, 32).bfloat16()
    with torch.no_grad():
        assert torch.equal(lean.Norm(norm)(states), norm(states))


@pytest.mark.parametrize("packed", [True, False])
def test_a_lean_drafter_can_still_be_saved(tmp_path, packed, monkeypatch):
    if not packed:
        monkeypatch.setattr(products, "can_pack", lambda dtype: False)
    drafter = tiny_drafter()
    before = {name: value.clone() for name, value in drafter.state_dict().items()}
    for layer in drafter.layers:
        lean_layer(layer)
    drafter.save_pretrained(tmp_path)
    loaded = type(drafter).from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(before[name], loaded[name]) for name in before)


def test_rope_table_is_the_models_own():
    target = tiny_target(rope_parameters={"rope_type": "default", "rope_theta": 100.0})
    table = lean.RopeTable(target.model.rotary_emb, torch.zeros(1))
    angles = torch.arange(6.0)[:, None] * 100.0 ** -(torch.arange(0, 8, 2) / 8)
    torch.testing.assert_close(table.cos[:6, 0], angles.cos().repeat(1, 2))
    torch.testing.assert_close(table.sin[:6, 0], torch.cat([-angles.sin(), angles.sin()], 1))
    table.reach(700)
    assert len(table.cos) >= 700


@pytest.mark.parametrize("unpack", [True, False])
@torch.inference_mode()
def test_a_pass_equals_the_modules_with_and_without_packed_weights(unpack, monkeypatch):
    if unpack:
        monkeypatch.setattr(products, "can_pack", lambda dtype: False)
    model, ids = tiny_target(), torch.arange(5, 14)[None]
    forward = lean.LeanForward(model, [1])
    cache = forward.new_cache(1, 9)
    hidden = [forward(ids[:, :4], cache), forward(ids[:, 4:5], cache), forward(ids[:, 5:], cache)]
    logits = forward.logits(torch.cat([part.last for part in hidden], dim=1))
    torch.testing.assert_close(logits, model(ids).logits, atol=1e-5, rtol=1e-5)
