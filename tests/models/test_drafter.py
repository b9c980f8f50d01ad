from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache, Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3Model

from blockpilot_rl.models.checkpoints import load_drafter
from blockpilot_rl.models.drafter import DFlashDraftModel
from tests.tiny_pair import MASK, tiny_drafter, variant

IDS = {"mask_token_id": MASK, "target_layer_ids": [0, 2]}


def noise_and_context(block: int = 4, context: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(1, block, 32, generator=generator)
    return noise, torch.randn(1, context, 64, generator=generator)


@torch.inference_mode()
def hidden(drafter: DFlashDraftModel, noise, context, **options) -> torch.Tensor:
    return drafter(noise_embeds=noise, context_hidden_states=context, **options).last_hidden_state


def test_both_config_shapes_load_to_the_same_model(tiny, tmp_path):
    """`block_size` at the top or inside `dflash_config` (vllm-project/speculators#662)."""
    outer = load_drafter(tiny[1])
    nested = variant(
        tiny[1], tmp_path / "nested", block_size=None, dflash_config={**IDS, "block_size": 8}
    )
    inner = load_drafter(nested)
    assert outer.config.block_size == inner.config.block_size == 8
    ours, theirs = outer.config.to_dict(), inner.config.to_dict()
    assert {**ours, "_name_or_path": ""} == {**theirs, "_name_or_path": ""}
    assert torch.equal(hidden(outer, *noise_and_context()), hidden(inner, *noise_and_context()))


@pytest.mark.parametrize("theta", [10_000.0, 500_000.0, 5_000_000.0])
def test_both_spellings_of_rope_theta_mean_the_same(tiny, tmp_path, theta):
    """A wrong theta loads silently (vllm-project/vllm#54373, speculators#613, speculators#921)."""
    old = variant(
        tiny[1], tmp_path / "old", rope_parameters=None, rope_theta=theta, rope_scaling=None
    )
    new = variant(
        tiny[1],
        tmp_path / "new",
        rope_parameters={"rope_type": "default", "rope_theta": theta},
    )
    results = [hidden(load_drafter(folder), *noise_and_context()) for folder in (old, new)]
    assert torch.equal(*results)
    expected = theta ** -(torch.arange(0, 8, 2) / 8)
    torch.testing.assert_close(load_drafter(old).rotary_emb.inv_freq, expected)
    same = torch.allclose(results[0], hidden(load_drafter(tiny[1]), *noise_and_context()))
    assert same == (theta == 10_000.0)


def test_without_context_it_is_a_bidirectional_qwen3():
    """The layers are bidirectional layers of Qwen3, as another implementation computes them."""
    drafter = tiny_drafter()
    shared = Qwen3Config().to_dict().keys() - {"model_type", "architectures", "dtype"}
    settings = {key: getattr(drafter.config, key) for key in shared if hasattr(drafter.config, key)}
    reference = Qwen3Model(Qwen3Config(**settings)).eval()
    state = {k: v for k, v in drafter.state_dict().items() if not k.startswith(("fc", "hidden_n"))}
    missing, unexpected = reference.load_state_dict(state, strict=False)
    assert (missing, unexpected) == (["embed_tokens.weight"], [])
    noise, context = noise_and_context(context=0)
    with torch.inference_mode():
        expected = reference(
            inputs_embeds=noise, attention_mask=torch.zeros(1, 1, 4, 4), use_cache=False
        ).last_hidden_state
    torch.testing.assert_close(hidden(drafter, noise, context), expected, atol=1e-5, rtol=1e-5)


def test_context_in_pieces_equals_context_at_once():
    drafter, (noise, context) = tiny_drafter(), noise_and_context()
    cache = DynamicCache()
    for piece in (context[:, :1], context[:, 1:4]):
        hidden(drafter, noise, piece, cache=cache)
        cache.crop(-noise.shape[1])
    result = hidden(drafter, noise, context[:, 4:], cache=cache)
    torch.testing.assert_close(result, hidden(drafter, noise, context), atol=1e-5, rtol=1e-5)


def test_a_block_sees_earlier_and_later_positions():
    drafter, (noise, context) = tiny_drafter(), noise_and_context()
    changed = noise.clone()
    changed[:, -1] += 1
    before, after = hidden(drafter, noise, context), hidden(drafter, changed, context)
    assert not torch.allclose(before[:, 0], after[:, 0])


@pytest.mark.parametrize("cached", [0, 3])
def test_padding_mask(cached):
    """A mask over all keys hides the padded context and nothing else."""
    drafter, (noise, context) = tiny_drafter(), noise_and_context()
    positions = torch.arange(10)[None]
    mask = torch.ones(1, 10, dtype=torch.long)
    everything = hidden(drafter, noise, context, position_ids=positions)
    assert torch.equal(
        hidden(drafter, noise, context, attention_mask=mask, position_ids=positions), everything
    )
    mask[:, :2] = 0
    cache = DynamicCache()
    if cached:
        hidden(drafter, noise, context[:, :cached], cache=cache)
        cache.crop(-noise.shape[1])
    masked = hidden(
        drafter,
        noise,
        context[:, cached:],
        attention_mask=mask,
        position_ids=positions[:, cached:],
        cache=cache,
    )
    short = hidden(drafter, noise, context[:, 2:], position_ids=positions[:, 2:])
    torch.testing.assert_close(masked, short, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(masked, everything)


WINDOW = {
    "num_hidden_layers": 1,
    "use_sliding_window": True,
    "sliding_window": 4,
    "max_window_layers": 0,
}


def sensitive(drafter: DFlashDraftModel, part: str, index: int) -> list[bool]:
    """Which positions of a block see one position of the `noise` or of the `context`."""
    noise, context = noise_and_context()
    changed = {"noise": noise.clone(), "context": context.clone()}
    changed[part][:, index] += 1
    difference = hidden(drafter, noise, context) - hidden(drafter, **changed)
    return (difference.abs().amax(-1)[0] > 1e-6).tolist()


@pytest.mark.parametrize("causal", [None, True, False])
def test_sliding_window_sees_only_what_is_near(causal):
    """The block is at 6..9; its first position sees 3 and up, its second 4 and up."""
    drafter = tiny_drafter(**WINDOW, is_causal=causal)
    assert sensitive(drafter, "context", 1) == [False] * 4
    assert sensitive(drafter, "context", 3) == [True, False, False, False]
    assert sensitive(drafter, "context", 4) == [True, True, False, False]


@pytest.mark.parametrize(
    ("changes", "second", "last"),
    [
        ({}, [True] * 4, [True] * 4),
        (WINDOW, [False, True, True, True], [False, False, False, True]),
        ({**WINDOW, "is_causal": False}, [True] * 4, [True] * 4),
        (
            {**WINDOW, "sliding_window": 2, "dflash_config": {**IDS, "causal": False}},
            [True, True, True, False],
            [False, False, True, True],
        ),
        ({"is_causal": True}, [False, True, True, True], [False, False, False, True]),
    ],
)
def test_which_positions_of_a_block_see_which(changes, second, last):
    """Windowed layers see no later positions unless the config says so (vllm-project/vllm#46104).

    z-lab's reference and speculators' training have the same default.
    """
    drafter = tiny_drafter(**{"num_hidden_layers": 1, **changes})
    assert sensitive(drafter, "noise", 1) == second
    assert sensitive(drafter, "noise", 3) == last


def test_a_window_counts_positions_not_slots():
    """Several blocks in a row, as in training, see the same as each block alone."""
    drafter, (noise, context) = tiny_drafter(**WINDOW), noise_and_context(block=3)
    blocks = torch.cat([noise, noise.flip(1)], dim=1)
    starts = (2, 5)
    positions = torch.cat([torch.arange(6), *(torch.arange(s, s + 3) for s in starts)])[None]
    mask = torch.zeros(1, 1, 6, 12, dtype=torch.bool)
    for i, start in enumerate(starts):
        rows = slice(3 * i, 3 * i + 3)
        mask[:, :, rows, :start] = True
        mask[:, :, rows, 6 + 3 * i : 9 + 3 * i] = True
    together = hidden(drafter, blocks, context, attention_mask=mask, position_ids=positions)
    for i, start in enumerate(starts):
        rows = slice(3 * i, 3 * i + 3)
        alone = hidden(drafter, blocks[:, rows], context[:, :start])
        torch.testing.assert_close(together[:, rows], alone, atol=1e-5, rtol=1e-5)


def test_a_window_with_the_cache_of_transformers_generation():
    """This cache drops positions that the window has passed."""
    drafter, (noise, context) = tiny_drafter(**WINDOW), noise_and_context()
    cache = DynamicCache(config=drafter.config)
    cache.activate_past_recording()
    hidden(drafter, noise, context[:, :5], cache=cache)
    cache.crop(-noise.shape[1])
    result = hidden(drafter, noise, context[:, 5:], cache=cache)
    torch.testing.assert_close(result, hidden(drafter, noise, context), atol=1e-5, rtol=1e-5)


def test_reduced_vocabulary_maps_to_the_targets():
    """Draft id i stands for i + d2t[i] (vllm-project/speculators)."""
    drafter = tiny_drafter(draft_vocab_size=4)
    drafter.d2t.copy_(torch.tensor([2, 2, 5, 60]))
    assert drafter.draft_token_ids.tolist() == [2, 3, 7, 63]
    assert tiny_drafter().draft_token_ids is None
