from __future__ import annotations

import pytest
import torch

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.checkpoints import load_drafter
from blockpilot_rl.models.correction import CorrectionHead
from blockpilot_rl.models.drafter import DFlashDraftModel
from tests.tiny_pair import random_correction, tiny_drafter, variant

SETTINGS = {"mask_token_id": 63, "target_layer_ids": [0, 2]}


def test_an_untrained_head_corrects_nothing():
    hidden, before = torch.randn(2, 5, 32), torch.randn(2, 5, 32)
    head = CorrectionHead(32, 4)
    assert torch.equal(head(hidden, before), hidden)
    head.output.weight.data.fill_(1.0)
    assert not torch.equal(head(hidden, before), hidden)


def test_the_correction_depends_on_state_and_token():
    head = CorrectionHead(32, 4)
    hidden, before = torch.randn(5, 32), torch.randn(5, 32)
    mixed = head.mix(hidden, before)
    assert mixed.shape == (5, 4)
    assert not torch.allclose(head.mix(hidden.flip(0), before), mixed)
    assert not torch.allclose(head.mix(hidden, before.flip(0)), mixed)
    torch.testing.assert_close(head.mix(hidden, 3 * before), mixed, atol=1e-4, rtol=1e-4)


def test_save_and_load(tmp_path):
    drafter = random_correction(tiny_drafter(dflash_config={**SETTINGS, "correction_rank": 4}))
    drafter.save_pretrained(tmp_path)
    loaded = load_drafter(tmp_path)
    assert loaded.config.correction_rank == 4
    assert drafter.state_dict().keys() == loaded.state_dict().keys()
    for name, tensor in drafter.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_the_loader_of_transformers_reads_it_too(tmp_path):
    drafter = random_correction(tiny_drafter(dflash_config={**SETTINGS, "correction_rank": 4}))
    drafter.save_pretrained(tmp_path / "whole")
    loaded = DFlashDraftModel.from_pretrained(tmp_path / "whole")
    assert torch.equal(loaded.correction.output.weight, drafter.correction.output.weight)


def test_missing_tensors_are_not_initialised(tmp_path):
    """Random corrections would ruin every draft, so an untrained head corrects nothing."""
    tiny_drafter().save_pretrained(tmp_path / "plain")
    settings = {**SETTINGS, "correction_rank": 4}
    folder = variant(tmp_path / "plain", tmp_path / "lacking", dflash_config=settings)
    loaded = DFlashDraftModel.from_pretrained(folder)
    assert (loaded.correction.output.weight == 0).all()
    with pytest.raises(BlockPilotError, match="missing tensors"):
        load_drafter(folder)


def test_an_added_head_runs_in_the_drafters_dtype():
    drafter = tiny_drafter().bfloat16()
    drafter.add_correction(4)
    assert {p.dtype for p in drafter.parameters()} == {torch.bfloat16}
    assert drafter.config.correction_rank == 4


def test_a_head_that_the_config_does_not_name_is_refused(tmp_path):
    drafter = tiny_drafter(dflash_config={**SETTINGS, "correction_rank": 4})
    drafter.config.dflash_config.pop("correction_rank")
    drafter.save_pretrained(tmp_path)
    with pytest.raises(BlockPilotError, match=r"unclaimed tensors \['correction"):
        load_drafter(tmp_path)


@pytest.mark.parametrize("rank", [0, -1, 2.5, "8", True])
def test_an_invalid_rank_is_refused(rank):
    with pytest.raises(BlockPilotError, match="correction_rank"):
        tiny_drafter(dflash_config={**SETTINGS, "correction_rank": rank})
