from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.decoding.state import (
    GROUPS,
    StateLayout,
    compute_state,
    draft_features,
    next_token_features,
    prompt_features,
    sampling_features,
    state_layout,
    validate_groups,
)
from blockpilot_rl.errors import BlockPilotError
from tests.tiny_pair import encode

LAYOUT = StateLayout((("last_hidden", 4), ("next_token", 3), ("prompt", 1)))


def test_next_token_features():
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log() + 3
    entropy = 0.5 * math.log(2) + 0.25 * math.log(4) + 0.25 * math.log(8)
    expected = torch.tensor([entropy, 0.5, 0.25])
    torch.testing.assert_close(next_token_features(logits), expected)
    certain = next_token_features(torch.tensor([1000.0, 0.0, 0.0]))
    torch.testing.assert_close(certain, torch.tensor([0.0, 1.0, 1.0]))


def test_features_of_half_precision_are_float32():
    logits = torch.tensor([1.0, 2.0, 4.0])
    torch.testing.assert_close(next_token_features(logits.half()), next_token_features(logits))
    assert draft_features(logits.bfloat16()[None]).dtype == torch.float32


def test_prompt_and_draft_features():
    torch.testing.assert_close(prompt_features(20), torch.tensor([math.log(20)]))
    logits = torch.tensor([[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]]).log()
    torch.testing.assert_close(draft_features(logits), torch.tensor([0.7, 0.5]))


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), [0, 1, 0]),
        (Sampling(0.0, top_k=5, top_p=0.5), [0, 1, 0]),
        (Sampling(0.5), [0.5, 1, 0]),
        (Sampling(2.0, top_k=4, seed=9), [2, 1, 0.25]),
        (Sampling(1.0, top_p=0.75), [1, 0.75, 0]),
    ],
)
def test_sampling_features(sampling, expected):
    assert sampling_features(sampling).tolist() == expected
    state = compute_state(
        ("sampling",), torch.zeros(1), torch.zeros(2), 3, lambda: None, sampling=sampling
    )
    assert state.tolist() == expected


@pytest.mark.parametrize("features", [None, torch.zeros(0)])
def test_features_of_a_pair_without_drafter_are_refused(features):
    with pytest.raises(BlockPilotError, match="'features' needs a drafter"):
        compute_state(
            ("features",), torch.zeros(1), torch.zeros(2), 3, lambda: None, features=features
        )


def test_groups_come_in_the_order_asked_for():
    hidden, logits = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 1.0, 0.0])
    state = compute_state(("prompt", "last_hidden", "next_token"), hidden, logits, 20, lambda: None)
    expected = torch.cat([prompt_features(20), hidden, next_token_features(logits)])
    torch.testing.assert_close(state, expected)


def test_the_draft_is_made_only_if_it_is_asked_for():
    hidden, logits, calls = torch.zeros(2), torch.zeros(3), []

    def draft():
        calls.append(1)
        return torch.zeros(2, 4)

    compute_state(("last_hidden",), hidden, logits, 5, draft)
    assert calls == []
    assert compute_state(("draft",), hidden, logits, 5, draft).tolist() == [0.25, 0.25]


def test_the_decoders_state(trained):
    """Each group is computed from transformers' own pass; it fits the layout."""
    decoder, ids = Decoder(trained), encode(trained, "a b c d")
    prefill = decoder.prefill(ids, 20)
    state = decoder.state(prefill, GROUPS)
    assert len(state) == decoder.state_layout(GROUPS).width == 32 + 3 + 1 + 7 + 3 + 64
    assert state.dtype == torch.float32
    with torch.inference_mode():
        output = trained.target(ids, output_hidden_states=True)
    torch.testing.assert_close(state[:32], output.hidden_states[-1][0, -1], atol=1e-5, rtol=1e-5)
    expected = next_token_features(output.logits[0, -1])
    torch.testing.assert_close(state[32:35], expected, atol=1e-5, rtol=1e-5)
    assert state[35].item() == pytest.approx(math.log(ids.shape[1]))
    assert ((state[36:43] > 0) & (state[36:43] <= 1)).all()
    assert state[43:46].tolist() == [0, 1, 0]
    layers = [output.hidden_states[layer + 1][0, -1] for layer in decoder.layer_ids]
    torch.testing.assert_close(state[46:], torch.cat(layers), atol=1e-5, rtol=1e-5)


def test_the_state_disturbs_no_decoding(trained):
    decoder, ids = Decoder(trained), encode(trained, "one two")
    prefill = decoder.prefill(ids, 40)
    before = decoder.state(prefill, GROUPS)
    alone = decoder.generate(ids, 8, 40)
    generation = decoder.decode(prefill, 8)
    assert (generation.tokens, generation.accepted) == (alone.tokens, alone.accepted)
    assert torch.equal(decoder.state(prefill, GROUPS), before)


def test_context_read_for_the_state_is_kept(trained, monkeypatch):
    """For decodes in any order, with an abandoned stream and a new state between them."""
    decoder, ids = Decoder(trained), encode(trained, "a b c d")
    alone = {size: decoder.generate(ids, size, 30) for size in (1, 3, 8)}
    prompt, read = ids.shape[1], []
    extend = decoder.drafter.extend

    def recording(features, cache):
        read.append((cache.length, features.shape[1]))
        extend(features, cache)

    monkeypatch.setattr(decoder.drafter, "extend", recording)
    prefill = decoder.prefill(ids, 30)
    before = decoder.decode(prefill, 8)
    assert before.accepted == alone[8].accepted
    state = decoder.state(prefill, ("draft",))
    assert read.count((0, prompt)) == 2
    for size in (8, 3, 1, 8):
        found = decoder.decode(prefill, size)
        assert (found.tokens, found.accepted) == (alone[size].tokens, alone[size].accepted)
    abandoned = decoder.stream(prefill, 8)
    for _ in range(3):
        next(abandoned)
    assert torch.equal(decoder.state(prefill, ("draft",)), state)
    found = decoder.decode(prefill, 3)
    assert (found.tokens, found.accepted) == (alone[3].tokens, alone[3].accepted)
    assert read.count((0, prompt)) == 2
    assert all(start >= prompt for start, _ in read[-3:])


def test_context_read_by_a_decode_is_not_kept(trained, monkeypatch):
    """The next one, with another block size, must take as long as if it were the first."""
    decoder, ids = Decoder(trained), encode(trained, "a b c d")
    prefill, read = decoder.prefill(ids, 30), []
    extend = decoder.drafter.extend

    def recording(features, cache):
        read.append(cache.length)
        extend(features, cache)

    monkeypatch.setattr(decoder.drafter, "extend", recording)
    for size in (8, 3):
        decoder.decode(prefill, size)
    assert read.count(0) == 2


def test_columns_of_a_recorded_state():
    assert LAYOUT.columns(("prompt", "last_hidden")).tolist() == [7, 0, 1, 2, 3]
    assert LAYOUT.select(("prompt", "next_token")).groups == (("prompt", 1), ("next_token", 3))
    assert LAYOUT.width == 8
    assert LAYOUT.names == ("last_hidden", "next_token", "prompt")
    np.testing.assert_array_equal(LAYOUT.columns(LAYOUT.names), np.arange(8))


def test_widths_of_a_pair():
    layout = state_layout(32, 8, ("draft", "last_hidden", "prompt", "next_token"))
    assert layout.groups == (("draft", 7), ("last_hidden", 32), ("prompt", 1), ("next_token", 3))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "no state group given; choose from last_hidden, next_token, prompt, draft"),
        (("last_hiden",), r"unknown state group 'last_hiden'.*Did you mean 'last_hidden'\?"),
        (("prompt", "prompt"), "state groups are repeated: prompt, prompt"),
    ],
)
def test_bad_group_names(names, message):
    with pytest.raises(BlockPilotError, match=message):
        validate_groups(names)
    with pytest.raises(BlockPilotError, match=message):
        StateLayout(tuple((name, 1) for name in names))


def test_bad_layouts():
    with pytest.raises(BlockPilotError, match="positive widths"):
        StateLayout((("prompt", 0),))
    with pytest.raises(BlockPilotError, match=r"\['draft'\] were not recorded"):
        LAYOUT.select(("prompt", "draft"))
