from __future__ import annotations

import shutil
import sys

import pytest
import torch
import transformers

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.fit import check_layer_ids, check_mask_token, max_positions, token_ids
from blockpilot_rl.models.pairs import load_pair
from tests.tiny_pair import MASK, tiny_drafter, tiny_target, tiny_tokenizer, variant

IDS = {"mask_token_id": MASK, "target_layer_ids": [0, 2]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 63}, "vocabulary 63 against 64"),
        ({"num_target_layers": 5}, "drafter made for 5 target layers, target has 4"),
        (
            {"num_target_layers": None, "dflash_config": {**IDS, "target_layer_ids": [0, 3]}},
            r"reads target layers \[3\], but the target's usable layers are 0..2",
        ),
        (
            {"num_target_layers": None, "dflash_config": {**IDS, "target_layer_ids": [-1, 2]}},
            r"reads target layers \[-1\]",
        ),
        ({"dflash_config": {**IDS, "mask_token_id": 64}}, "64 is outside the target's vocabulary"),
        ({"dflash_config": {**IDS, "mask_token_id": -1}}, "mask_token_id -1 must be at least 0"),
        ({"dflash_config": {**IDS, "mask_token_id": 1}}, "1 is the target's pad_token_id"),
        ({"dflash_config": {**IDS, "mask_token_id": 2}}, "2 is the target's eos_token_id"),
    ],
)
def test_a_drafter_of_another_target_is_refused(tiny, tmp_path, changes, message):
    """Depth, vocabulary and mask (vllm-project/speculators#705, NVIDIA-NeMo/Automodel#2461)."""
    other = variant(tiny[1], tmp_path / "other", **changes)
    with pytest.raises(BlockPilotError, match=message):
        load_pair(tiny[0], other)


@pytest.mark.parametrize("name", ["eos_token", "pad_token"])
def test_a_mask_that_the_tokenizer_alone_calls_special_is_refused(tiny, tmp_path, name):
    """Its end-of-text token stops texts too, so it cannot be a mask."""
    target = shutil.copytree(tiny[0], tmp_path / "target")
    tokenizer = tiny_tokenizer()
    setattr(tokenizer, name, tokenizer.convert_ids_to_tokens(60))
    tokenizer.save_pretrained(target)
    drafter = variant(tiny[1], tmp_path / "drafter", dflash_config={**IDS, "mask_token_id": 60})
    with pytest.raises(BlockPilotError, match=f"mask token 60 is the target's {name}_id"):
        load_pair(target, drafter)
    assert load_pair(tiny[0], drafter).drafter.config.mask_token_id == 60


def test_another_hidden_size_is_refused_naming_both(tiny, tmp_path):
    tiny_drafter(hidden_size=40).save_pretrained(tmp_path)
    with pytest.raises(BlockPilotError, match="hidden size 40 against 32"):
        load_pair(tiny[0], tmp_path)


@pytest.mark.parametrize(
    ("offsets", "message"), [([0, 0, 62], "tokens 0 to 64"), ([-1, 0, 0], "tokens -1 to 2")]
)
def test_draft_tokens_outside_the_vocabulary_are_refused(tiny, tmp_path, offsets, message):
    drafter = tiny_drafter(draft_vocab_size=3)
    drafter.d2t.copy_(torch.tensor(offsets))
    drafter.save_pretrained(tmp_path)
    with pytest.raises(BlockPilotError, match=message):
        load_pair(tiny[0], tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (transformers.T5Config(), "is an encoder-decoder"),
        (transformers.BartConfig(), "is an encoder-decoder"),
        (transformers.MambaConfig(), "has layers of kind .*rejected drafts would stay"),
        (transformers.RwkvConfig(), "has a rwkv state: rejected drafts would stay"),
        (transformers.JambaConfig(), "rejected drafts would stay"),
        (transformers.Zamba2Config(), "rejected drafts would stay"),
        (transformers.Qwen3NextConfig(), "has layers of kind .*rejected drafts would stay"),
        (
            transformers.Lfm2Config(full_attn_idxs=[0, 2], num_hidden_layers=4),
            r"layers of kind \['conv'\]",
        ),
        (transformers.RecurrentGemmaConfig(), "rejected drafts would stay"),
        (transformers.FalconH1Config(), "rejected drafts would stay"),
        (transformers.DeepseekV4Config(), "rejected drafts would stay"),
        (transformers.Gemma3Config(), "is a multimodal gemma3 model; give a text-only model"),
        (transformers.LlavaConfig(), "is a multimodal llava model"),
        (transformers.Qwen2_5_VLConfig(), "is a multimodal qwen2_5_vl model"),
    ],
    ids=lambda value: getattr(value, "model_type", None),
)
def test_targets_that_cannot_take_drafts_back_are_refused(tiny, tmp_path, config, message):
    """Recurrent states keep rejected tokens (huggingface/transformers#49036).

    The config alone decides, before any weight is read: there are no weights here.
    """
    config.save_pretrained(tmp_path)
    with pytest.raises(BlockPilotError, match=message):
        load_pair(tmp_path, tiny[1])


def test_layers_and_masks_of_a_target():
    target = tiny_target()
    check_layer_ids(target, (0, 2, 1))
    with pytest.raises(BlockPilotError, match=r"layers \[3, -1\], .* usable layers are 0..2"):
        check_layer_ids(target, (0, 3, -1))
    check_mask_token(target, 3)
    target.generation_config.eos_token_id = [2, 3]
    with pytest.raises(BlockPilotError, match="mask token 3 is the target's eos_token_id"):
        check_mask_token(target, 3)


def test_special_tokens_may_be_absent_one_or_many():
    one, many = transformers.LlamaConfig(eos_token_id=2), transformers.LlamaConfig()
    many.eos_token_id = [5, 9]
    assert token_ids("eos_token_id", one, many) == {2, 5, 9}
    assert token_ids("nothing_of_this_name", one) == set()


LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 48,
    "long_factor": [2.0] * 48,
    "original_max_position_embeddings": 4096,
}


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        (transformers.LlamaConfig(max_position_embeddings=77), 77),
        (transformers.GPT2Config(n_positions=77), 77),
        (transformers.MptConfig(max_seq_len=77), 77),
        (transformers.BloomConfig(), sys.maxsize),
        (
            transformers.Phi3Config(max_position_embeddings=131072, rope_parameters=LONGROPE),
            4096,
        ),
    ],
    ids=lambda value: getattr(value, "model_type", None),
)
def test_positions_that_a_model_can_address(config, positions):
    """Models without `max_position_embeddings` have another limit or none."""
    assert max_positions(config) == positions


@pytest.mark.parametrize("reduced", [False, True])
def test_copies_of_the_targets_modules_are_dropped_and_others_kept(tiny, tmp_path, reduced):
    """Real checkpoints repeat gigabytes of the target; a tuned target has other embeddings."""
    target = tiny_target()
    ids = torch.tensor([3, 4, 40]) if reduced else torch.arange(64)
    copies = {
        "embed_tokens.weight": target.get_input_embeddings().weight.detach().clone(),
        "lm_head.weight": target.lm_head.weight.detach()[ids].clone(),
    }
    changes = {"draft_vocab_size": 3} if reduced else {}
    owned = {f"has_own_{name.removesuffix('.weight')}": True for name in copies}
    drafter = tiny_drafter(dflash_config={**IDS, **owned}, **changes)
    maps = {"d2t": ids - torch.arange(3)} if reduced else {}
    drafter.load_state_dict({**drafter.state_dict(), **copies, **maps})
    drafter.save_pretrained(tmp_path / "copies")
    pair = load_pair(tiny[0], tmp_path / "copies")
    assert (pair.drafter.own("embed_tokens"), pair.drafter.own("lm_head")) == (None, None)
    half = load_pair(tiny[0], tmp_path / "copies", "bfloat16")
    assert half.fingerprint == pair.fingerprint

    drafter.embed_tokens.weight.data[5] += 1
    drafter.lm_head.weight.data[1] += 1
    drafter.save_pretrained(tmp_path / "others")
    other = load_pair(tiny[0], tmp_path / "others")
    assert torch.equal(other.drafter.own("embed_tokens").weight, drafter.embed_tokens.weight)
    assert torch.equal(other.drafter.own("lm_head").weight, drafter.lm_head.weight)
    assert other.fingerprint != pair.fingerprint
