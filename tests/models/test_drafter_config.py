from __future__ import annotations

import json

import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.checkpoints import load_drafter
from blockpilot_rl.models.drafter_config import DFlashConfig, default_target_layer_ids
from tests.tiny_pair import MASK, tiny_drafter, variant

IDS = {"mask_token_id": MASK, "target_layer_ids": [0, 2]}


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ({"mask_token_id": MASK, "target_layer_ids": [0, 2]}, {}),
        ({"num_target_layers": None}, {**IDS, "num_target_layers": 4}),
        ({"block_size": 8, **IDS}, {**IDS, "block_size": 8}),
    ],
)
def test_settings_can_be_outside_or_inside_dflash_config(tiny, tmp_path, outer, inner):
    folder = variant(tiny[1], tmp_path / "drafter", **{**outer, "dflash_config": inner})
    ours, theirs = (load_drafter(path).config.to_dict() for path in (folder, tiny[1]))
    assert {**ours, "_name_or_path": ""} == {**theirs, "_name_or_path": ""}


def test_saved_and_loaded_config_is_the_same(tmp_path):
    drafter = tiny_drafter(block_size=None, dflash_config={**IDS, "block_size": 5})
    drafter.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["block_size"] == 5
    assert load_drafter(tmp_path).config.dflash_config == IDS


@pytest.mark.parametrize(
    ("target_layers", "draft_layers", "ids"),
    [
        (30, 5, [1, 8, 14, 20, 27]),
        (36, 5, [1, 9, 17, 25, 33]),
        (28, 5, [1, 7, 13, 19, 25]),
        (30, 1, [15]),
    ],
)
def test_default_layer_ids_round_half_to_even(target_layers, draft_layers, ids):
    """Steps of 6.5 give 7.5 and 20.5, which round to 8 and 20 (z-lab/dflash)."""
    assert default_target_layer_ids(target_layers, draft_layers) == ids
    config = DFlashConfig(
        num_target_layers=target_layers,
        num_hidden_layers=draft_layers,
        dflash_config={"mask_token_id": 3},
    )
    assert config.target_layer_ids == ids


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dflash_config": {**IDS, "target_layer_ids": [0, 3]}}, r"\[3\] are outside 0..2"),
        ({"dflash_config": {**IDS, "target_layer_ids": [-1, 2]}}, r"\[-1\] are outside 0..2"),
        ({"dflash_config": {"mask_token_id": MASK}, "num_target_layers": None}, "names no target"),
        ({"dflash_config": {"target_layer_ids": [0, 2]}}, "has no mask_token_id"),
        ({"dflash_config": {**IDS, "mask_token_id": "63"}}, "'63' must be a whole number"),
        ({"pad_token_id": MASK}, "mask_token_id 63 is also the pad_token_id"),
        ({"eos_token_id": MASK}, "mask_token_id 63 is also the eos_token_id"),
        ({"eos_token_id": [2, MASK]}, "mask_token_id 63 is also the eos_token_id"),
        ({"block_size": 1}, "block_size 1 must be at least 2"),
        ({"block_size": "x"}, "'x' must be a whole number"),
    ],
)
def test_required_settings_are_checked(changes, message):
    """The last layer's output is normalised (vllm-project/speculators#705); pad and eos are text.

    A mask id that occurs in text makes acceptance collapse (NVIDIA-NeMo/Automodel#2461).
    """
    with pytest.raises(BlockPilotError, match=message):
        tiny_drafter(**changes)


def test_the_mask_comes_from_the_config():
    """sgl-project/SpecForge#500: the id was a constant."""
    assert tiny_drafter(dflash_config={**IDS, "mask_token_id": 7}).config.mask_token_id == 7
