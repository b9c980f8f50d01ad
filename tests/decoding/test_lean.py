from __future__ import annotations

import pytest
import torch
from torch import nn

from blockpilot_rl.decoding.lean import KVCache, LeanLayer, causal_mask, rope_table
from tests.tiny_pair import tiny_drafter, tiny_target


def lean_layer(layer: nn.Module) -> LeanLayer:
    return LeanLayer(layer, heads=4, kv_heads=2, head_dim=8)


@pytest.mark.parametrize("length", [0, 1, 5, 9])
def test_crop_forgets_from_a_position_on(length):
    """`DynamicCache.crop(0)` once emptied nothing or everything; a count beyond the end stays.

    Positive counts raise since transformers 5.20, hence a cache and a crop of our own.
    """
    cache = KVCache(torch.zeros(1, 1, 1, 10, 2), torch.zeros(1, 1, 1, 10, 2), length=5)
    cache.crop(length)
    assert cache.length == min(length, 5)
    assert cache.max_length == 10


def test_select_keeps_rows_in_order():
    keys = torch.arange(3.0).view(1, 3, 1, 1, 1).expand(2, 3, 1, 4, 1)
    cache = KVCache(keys, keys + 10, length=2)
    cache.select(torch.tensor([2, 0]))
    assert cache.keys[1, :, 0, 0, 0].tolist() == [2, 0]
    assert cache.values[0, :, 0, 0, 0].tolist() == [12, 10]
    assert cache.length == 2


def test_weights_are_stacked_without_a_copy():
    layer = tiny_target().model.layers[0]
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    lean = lean_layer(layer)
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())
    layer.self_attn.k_proj.weight.data.fill_(7.0)
    assert (lean.qkv[32:48] == 7).all()
    assert not (lean.qkv[:32] == 7).any()
    assert not (lean.qkv[48:] == 7).any()
    again = lean_layer(layer)
    assert again.qkv.data_ptr() == lean.qkv.data_ptr()
    assert torch.equal(again.qkv, lean.qkv)
    assert torch.equal(again.gate_up, lean.gate_up)


def test_weights_that_share_a_storage_in_another_order():
    """One storage may hold projections in any order, as a memory-mapped checkpoint does."""
    layer = tiny_target().model.layers[0]
    names = ("v_proj", "q_proj", "k_proj")
    original = {name: getattr(layer.self_attn, name).weight.detach().clone() for name in names}
    storage = torch.cat([original[name] for name in names])
    for name, part in zip(names, storage.split([16, 32, 16]), strict=True):
        getattr(layer.self_attn, name).weight.data = part
    expected = torch.cat([original[name] for name in ("q_proj", "k_proj", "v_proj")])
    assert torch.equal(lean_layer(layer).qkv, expected)


def test_a_fused_drafter_can_still_be_saved(tmp_path):
    drafter = tiny_drafter()
    before = {name: value.clone() for name, value in drafter.state_dict().items()}
    for layer in drafter.layers:
        lean_layer(layer)
    drafter.save_pretrained(tmp_path)
    loaded = type(drafter).from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(before[name], loaded[name]) for name in before)


def test_causal_mask_repeats_for_each_query_group():
    assert causal_mask(1, 9, 2, torch.device("cpu")) is None
    mask = causal_mask(2, 4, 2, torch.device("cpu"))
    one_group = [[True, True, True, False], [True, True, True, True]]
    assert mask.shape == (1, 1, 4, 4)
    assert mask[0, 0].tolist() == [*one_group, *one_group]


def test_rope_table_is_the_models_own():
    rotary = tiny_target(rope_parameters={"rope_type": "default", "rope_theta": 100.0})
    cos, sin = rope_table(rotary.model.rotary_emb, 6, torch.zeros(1))
    angles = torch.arange(6.0)[:, None] * 100.0 ** -(torch.arange(0, 8, 2) / 8)
    torch.testing.assert_close(cos, angles.cos().repeat(1, 2))
    torch.testing.assert_close(sin, angles.sin().repeat(1, 2))
