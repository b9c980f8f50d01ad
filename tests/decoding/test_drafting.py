from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache

from blockpilot_rl.decoding.drafting import Blocks, LeanDrafter
from blockpilot_rl.decoding.forward import target_forward
from tests.tiny_pair import MASK, random_correction, tiny_drafter, tiny_target

WINDOW = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
VARIANTS = {
    "plain": {},
    "biased": {"attention_bias": True},
    "window": WINDOW,
    "window-both-ways": {**WINDOW, "is_causal": False},
    "causal": {"is_causal": True},
    "corrected": {
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [0, 2], "correction_rank": 4}
    },
    "corrected-half": {
        "draft_vocab_size": 32,
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [0, 2], "correction_rank": 4},
    },
    "wide-heads": {"head_dim": 16},
    "yarn": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1e6,
            "factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
}


def lean(drafter, target=None) -> LeanDrafter:
    return LeanDrafter(drafter, target_forward(target or tiny_target(), [0, 2]))


def features(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(1, n, 64, generator=torch.Generator().manual_seed(seed))


def draft(ours: LeanDrafter, anchor: int, block_size: int, cache) -> torch.Tensor:
    """Draft logits of one block, `[1, block_size - 1, draft_vocab]`."""
    token = torch.tensor([anchor])
    return ours.greedy_logits(ours.draft(token[None], block_size, cache), token)


@torch.inference_mode()
def reference(drafter, target, context, anchor: int, block_size: int) -> torch.Tensor:
    """The drafter's own modules on a whole context, read by the target's own head.

    A correction head reads the drafts that these logits themselves make most probable.
    """
    embed = target.get_input_embeddings()
    ids = torch.tensor([[anchor] + [MASK] * (block_size - 1)])
    hidden = drafter(
        noise_embeds=embed(ids),
        context_hidden_states=context,
        cache=DynamicCache(),
    ).last_hidden_state
    if drafter.correction is None:
        return target.lm_head(hidden[:, 1:])
    ids, logits, before = drafter.draft_token_ids, [], torch.tensor([anchor])
    for state in hidden[0, 1:].split(1):
        read = target.lm_head(drafter.correction(state, embed(before)))
        logits.append(read if ids is None else read[:, ids])
        before = logits[-1].argmax(-1)
        before = before if ids is None else ids[before]
    return torch.stack(logits, dim=1)


@pytest.mark.parametrize("name", VARIANTS)
@torch.inference_mode()
def test_equals_the_modules(name):
    """For every block size, with the context read in pieces."""
    target, drafter = tiny_target(), random_correction(tiny_drafter(**VARIANTS[name]))
    ours, context = lean(drafter, target), features(11)
    cache = ours.new_cache(1, 30)
    for end in (6, 7, 11):
        ours.extend(context[:, cache.length : end], cache)
        for block_size in (2, 5, 8, 16):
            logits = draft(ours, 7, block_size, cache)
            expected = reference(drafter, target, context[:, :end], 7, block_size)
            torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
            assert cache.length == end


@pytest.mark.parametrize("name", VARIANTS)
@torch.inference_mode()
def test_many_blocks_at_once_equal_one_by_one(name):
    """Of all sizes, several in a text, and of texts in any order."""
    ours = lean(random_correction(tiny_drafter(**VARIANTS[name])))
    texts = [features(14, seed=1), features(14, seed=2), features(14, seed=3)]
    cache = ours.new_cache(3, 50)
    ours.extend(torch.cat(texts), cache)
    rows, starts = torch.tensor([2, 0, 0, 0, 1, 1]), torch.tensor([5, 3, 9, 9, 14, 1])
    anchors, sizes = torch.tensor([9, 5, 8, 8, 6, 7]), torch.tensor([3, 8, 2, 16, 8, 2])
    blocks = Blocks(rows, starts, anchors, sizes)
    states = ours.draft_at(blocks, cache)
    assert len(states) == sizes.sum()
    assert cache.length == 14
    for i, (row, start) in enumerate(zip(rows.tolist(), starts.tolist(), strict=True)):
        size, first = int(sizes[i]), int(blocks.firsts[i])
        alone = ours.new_cache(1, 30)
        ours.extend(texts[row][:, :start], alone)
        expected = draft(ours, int(anchors[i]), size, alone)
        logits = ours.greedy_logits(states[None, first + 1 : first + size], anchors[i : i + 1])
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_blocks_leave_no_trace():
    """The entries that they wrote after the context are never read."""
    ours = lean(tiny_drafter())
    cache = ours.new_cache(1, 30)
    ours.extend(features(5), cache)
    few = Blocks(*(torch.tensor([value]) for value in (0, 4, 7, 5)))
    first = ours.draft_at(few, cache)
    ours.draft_at(Blocks(*(torch.tensor([value]) for value in (0, 2, 9, 16))), cache)
    assert torch.equal(ours.draft_at(few, cache), first)


@torch.inference_mode()
def test_rope_is_the_drafters_own():
    """A target's rotary layout must not leak into the drafter (vllm-project/speculators#921)."""
    target = tiny_target(rope_parameters={"rope_type": "default", "rope_theta": 50.0})
    drafter = tiny_drafter()
    ours, context = lean(drafter, target), features(9)
    cache = ours.new_cache(1, 30)
    ours.extend(context, cache)
    logits = draft(ours, 7, 8, cache)
    expected = reference(drafter, target, context, 7, 8)
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_a_reduced_vocabulary_reads_some_rows_of_the_head():
    target, whole, reduced = tiny_target(), tiny_drafter(), tiny_drafter(draft_vocab_size=3)
    reduced.load_state_dict({**whole.state_dict(), "d2t": torch.tensor([4, 10, 40])})
    drafters = [lean(drafter, target) for drafter in (whole, reduced)]
    logits = []
    for ours in drafters:
        cache = ours.new_cache(1, 30)
        ours.extend(features(5), cache)
        logits.append(draft(ours, 7, 4, cache))
    torch.testing.assert_close(logits[1], logits[0][..., [4, 11, 42]])
    assert drafters[1].to_target_ids(torch.tensor([[2, 0]])).tolist() == [[42, 4]]
    assert drafters[0].to_target_ids(torch.tensor([[2, 0]])).tolist() == [[2, 0]]


@torch.inference_mode()
def test_the_rotary_table_grows_with_the_cache():
    target, drafter = tiny_target(), tiny_drafter(max_position_embeddings=2048)
    ours, context = lean(drafter, target), features(600)
    cache = ours.new_cache(1, 610)
    ours.extend(context, cache)
    logits = draft(ours, 7, 4, cache)
    expected = reference(drafter, target, context, 7, 4)
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_entries_of_a_draft_are_never_read():
    """The block's own entries after `length` are stale; drafting twice gives the same."""
    ours = lean(tiny_drafter())
    cache = ours.new_cache(1, 30)
    ours.extend(features(5), cache)
    first = draft(ours, 7, 8, cache)
    draft(ours, 9, 16, cache)
    assert torch.equal(draft(ours, 7, 8, cache), first)


@pytest.mark.parametrize("name", ["plain", "corrected"])
@torch.inference_mode()
def test_half_precision_runs_in_half_precision(name):
    target, drafter = tiny_target().bfloat16(), tiny_drafter(**VARIANTS[name]).bfloat16()
    ours = lean(drafter, target)
    cache = ours.new_cache(1, 30)
    ours.extend(features(5).bfloat16(), cache)
    logits = draft(ours, 7, 8, cache)
    assert cache.states.dtype == logits.dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["plain", "corrected"])
@torch.inference_mode()
def test_proposals_depend_on_the_draft_before_them(name):
    """For any choice: here always the least probable token, not the most probable one."""
    ours = lean(random_correction(tiny_drafter(**VARIANTS[name])))
    cache = ours.new_cache(1, 30)
    ours.extend(features(5), cache)
    states, anchor = ours.draft(torch.tensor([[7]]), 8, cache)[0], torch.tensor([7])
    seen = []

    def choose(logits, first):
        seen.append((first, len(logits)))
        return logits.min(-1).indices

    tokens = ours.propose(states, anchor, choose)
    before = torch.cat([anchor, tokens[:-1]])
    assert torch.equal(ours.logits(states, before).min(-1).indices, tokens)
    assert seen == ([(0, 7)] if name == "plain" else [(index, 1) for index in range(7)])
    moved = ours.logits(states, before.flip(0))
    assert torch.equal(moved, ours.logits(states, before)) == (name == "plain")
