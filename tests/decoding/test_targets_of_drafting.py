"""What a drafter reads of its target: the embedding table, and the head with its bias."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPTJConfig,
    GPTJForCausalLM,
    PhiConfig,
    PhiForCausalLM,
)

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.models.fit import share_modules
from blockpilot_rl.models.pairs import load_pair
from tests.tiny_pair import MASK, tiny_drafter

IDS = {"mask_token_id": MASK, "target_layer_ids": [0, 2]}
SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4}


def phi():
    config = PhiConfig(**SIZES, intermediate_size=48, max_position_embeddings=256, pad_token_id=1)
    return PhiForCausalLM(config)


def gemma():
    config = Gemma3TextConfig(
        **SIZES, intermediate_size=48, num_key_value_heads=2, head_dim=8, pad_token_id=0
    )
    return Gemma3ForCausalLM(config)


def gptj():
    config = GPTJConfig(
        vocab_size=64, n_embd=32, n_layer=4, n_head=4, rotary_dim=4, n_positions=256, pad_token_id=1
    )
    return GPTJForCausalLM(config)


def pair_of(tiny, make, **settings):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        target = make().eval()
        head = target.get_output_embeddings()
        if head.bias is not None:
            torch.nn.init.normal_(head.bias, std=5.0)
    changes = {"draft_vocab_size": settings.pop("draft_vocab_size", None)}
    drafter = tiny_drafter(dflash_config={**IDS, **settings}, **changes)
    if changes["draft_vocab_size"] is not None:
        drafter.d2t.copy_(torch.arange(len(drafter.d2t)))
    return dataclasses.replace(load_pair(*tiny), target=target, drafter=drafter, stop_token_ids=())


@torch.inference_mode()
def drafted(pair, anchor=5, context=9, size=6):
    """Draft logits of one block, from the lean pass and from the modules."""
    decoder = Decoder(pair)
    drafter, target = pair.drafter, pair.target
    features = torch.randn(1, context, 64, generator=torch.Generator().manual_seed(1))
    cache = decoder.drafter.new_cache(1, context + size)
    decoder.drafter.extend(features, cache)
    states = decoder.drafter.draft(torch.tensor([[anchor]]), size, cache)
    ours = decoder.drafter.logits(states, torch.full((1, size - 1), anchor))
    tokens = torch.tensor([[anchor, *[MASK] * (size - 1)]])
    scale = drafter.config.dflash_config.get("input_embedding_scale", 1.0)
    noise = F.embedding(tokens, target.get_input_embeddings().weight) * scale
    hidden = drafter(noise_embeds=noise, context_hidden_states=features).last_hidden_state[:, 1:]
    logits = target.get_output_embeddings()(hidden)
    logits = logits * drafter.config.dflash_config.get("output_multiplier", 1.0)
    cap = drafter.config.dflash_config.get("final_logit_softcapping")
    if cap:
        logits = torch.tanh(logits / cap) * cap
    ids = drafter.draft_token_ids
    return ours, logits if ids is None else logits[..., ids]


@pytest.mark.parametrize("draft_vocab_size", [None, 20])
@pytest.mark.parametrize("make", [phi, gptj])
def test_drafts_use_the_bias_of_the_targets_head(tiny, make, draft_vocab_size):
    pair = pair_of(tiny, make, draft_vocab_size=draft_vocab_size)
    assert pair.target.get_output_embeddings().bias.abs().max() > 3
    ours, theirs = drafted(pair)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"input_embedding_scale": 32**0.5},
        {"input_embedding_scale": 2.5, "output_multiplier": 0.2},
        {"final_logit_softcapping": 3.0, "output_multiplier": 4},
    ],
)
@pytest.mark.parametrize("make", [gemma, phi])
def test_drafts_follow_the_scales_of_the_drafters_config(tiny, make, settings):
    """The embedding table is read unscaled, also where the target's module scales it."""
    ours, theirs = drafted(pair_of(tiny, make, **settings))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("make", [gemma, phi, gptj])
def test_texts_are_those_of_plain_decoding(tiny, make):
    pair = pair_of(tiny, make, output_multiplier=0.5, final_logit_softcapping=2.0)
    decoder, ids = Decoder(pair), torch.arange(3, 12)[None]
    plain = decoder.generate(ids, 1, 20).tokens
    assert decoder.generate(ids, 6, 20).tokens == plain


def test_a_copy_of_a_head_with_a_bias_stays_the_drafters_own(tiny):
    """The copy has no bias, so its logits are not those of the target's head."""
    pair = pair_of(tiny, phi, has_own_lm_head=True)
    head = pair.target.get_output_embeddings()
    pair.drafter.lm_head.weight.data.copy_(head.weight.data)
    share_modules(pair.target, pair.drafter)
    assert pair.drafter.own("lm_head") is not None
    head.bias = None
    share_modules(pair.target, pair.drafter)
    assert pair.drafter.own("lm_head") is None
