from __future__ import annotations

import dataclasses

import pytest
import torch

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.replay import replay
from blockpilot_rl.models.drafter import DFlashDraftModel
from tests.tiny_pair import PROMPTS, answers, encode

ARMS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
TEXTS = (*PROMPTS, "Z")


def assert_replay_is_exact(pair, texts, budget, arms=ARMS):
    """Step by step what the real decoder accepts; returns all of it."""
    decoder = Decoder(pair)
    items = answers(pair, texts, budget)
    replayed = replay(decoder.drafter, items, arms)
    for text, item, by_arm in zip(texts, items, replayed, strict=True):
        for size, accepted in zip(arms, by_arm, strict=True):
            real = decoder.generate(encode(pair, text), size, budget)
            assert real.tokens == item.output_ids.tolist()
            assert accepted == real.accepted[1:], (text, size)
            assert sum(accepted) == len(real.tokens) - 1
    return replayed


def test_equals_the_decoder_step_by_step_for_all_block_sizes(trained):
    replayed = assert_replay_is_exact(trained, TEXTS, 40)
    lengths = {length for row in replayed for arm in row for length in arm}
    assert {1, 2, 5, 8} <= lengths


@pytest.mark.parametrize("budget", [2, 3, 17])
def test_the_last_pass_is_clipped_to_the_budget(trained, budget):
    assert_replay_is_exact(trained, TEXTS, budget)


def test_a_text_of_one_token_has_no_pass(trained):
    items = answers(trained, TEXTS[:2], 1)
    assert replay(Decoder(trained).drafter, items, (1, 4)) == [[[], []], [[], []]]


def test_a_reduced_draft_vocabulary(trained):
    """Tokens that cannot be drafted end a block in replay as in decoding."""
    source = trained.drafter
    kept = [token for token in range(64) if token % 5]
    config = type(source.config)(**{**source.config.to_dict(), "draft_vocab_size": len(kept)})
    reduced = DFlashDraftModel(config).eval()
    offsets = torch.tensor(kept) - torch.arange(len(kept))
    reduced.load_state_dict({**source.state_dict(), "d2t": offsets})
    pair = dataclasses.replace(trained, drafter=reduced)
    whole = replay(Decoder(trained).drafter, answers(trained), (8,))
    assert assert_replay_is_exact(pair, PROMPTS, 40, (8,)) != whole
