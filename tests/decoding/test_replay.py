from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from blockpilot_rl.decoding import replay as module
from blockpilot_rl.decoding.batched import continue_batch
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.replay import (
    decode_probabilities,
    draft_columns,
    encode_probabilities,
    is_drafted,
    replay,
    trace,
)
from blockpilot_rl.decoding.sampling import GREEDY, Sampling, gumbel
from blockpilot_rl.decoding.state import next_token_features
from blockpilot_rl.models.drafter import DFlashDraftModel
from tests.tiny_pair import PROMPTS, answers, encode

ARMS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
TEXTS = (*PROMPTS, "Z")
SAMPLINGS = [
    Sampling(temperature, top_k, top_p, draft=draft)
    for temperature, top_k, top_p in ((0.6, 0, 1.0), (1.0, 0, 1.0), (1.0, 12, 0.9))
    for draft in ("shared", "argmax")
]


def continuations(pair, texts, budget, sampling=GREEDY):
    """Answers to texts, each with its own seed."""
    ids = [encode(pair, text)[0] for text in texts]
    target = Decoder(pair).target
    seeds = [seed + 1 if sampling.temperature else 0 for seed in range(len(ids))]
    return continue_batch(target, ids, budget, pair.stop_token_ids, sampling, seeds)


def assert_replay_is_exact(pair, texts, budget, arms=ARMS, sampling=GREEDY):
    """The tokens that the real decoder emits in each pass."""
    decoder = Decoder(pair)
    items = continuations(pair, texts, budget, sampling)
    replayed = replay(decoder.drafter, items, arms)
    for text, item, by_arm in zip(texts, items, replayed, strict=True):
        for size, accepted in zip(arms, by_arm, strict=True):
            real = decoder.generate(encode(pair, text), size, budget, item.sampling)
            assert real.tokens == item.output_ids.tolist()
            assert accepted == real.accepted[1:], (text, size)
            assert sum(accepted) == len(real.tokens) - 1
    return replayed


@pytest.fixture(params=["trained", "corrected"])
def any_pair(request):
    """A pair whose drafter drafts at once, and one whose drafter corrects draft after draft."""
    return request.getfixturevalue(request.param)


def test_equals_the_decoder_step_by_step_for_all_block_sizes(any_pair):
    replayed = assert_replay_is_exact(any_pair, TEXTS, 40)
    lengths = {length for row in replayed for arm in row for length in arm}
    assert {1, 2, 5, 8} <= lengths


@pytest.mark.parametrize("budget", [2, 3, 17])
def test_the_last_pass_is_clipped_to_the_budget(trained, budget):
    assert_replay_is_exact(trained, TEXTS, budget)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_sampled_texts_equal_the_decoder_step_by_step(any_pair, sampling):
    """One-step independent drafts collapse acceptance at T > 0 (z-lab/dflash#169)."""
    replayed = assert_replay_is_exact(any_pair, TEXTS[:3], 24, (1, 2, 5, 8, 16), sampling)
    if sampling.draft == "shared":
        assert max(max(arm) for row in replayed for arm in row) > 1


def test_noise_is_computed_once_where_arms_share_a_position(trained, monkeypatch):
    drafter, items = Decoder(trained).drafter, continuations(trained, TEXTS[:3], 24, SAMPLINGS[2])
    made = []

    def watch(seeds, positions, tokens):
        made.append(list(zip(seeds.tolist(), positions.tolist(), strict=True)))
        return gumbel(seeds, positions, tokens)

    monkeypatch.setattr(module, "gumbel", watch)
    for work in (replay, trace):
        made.clear()
        work(drafter, items * 2, (1, 2, 8))
        assert made
        assert all(len(set(places)) == len(places) for places in made)


def test_texts_that_stop_and_many_texts(trained):
    """More than share a pass, of different length and end."""
    pair = dataclasses.replace(trained, stop_token_ids=(15, 39))
    texts = [f"{text} {tail}" for text in PROMPTS for tail in ("", "a", "bc", "def", "again")]
    replayed = assert_replay_is_exact(pair, texts, 20, (1, 3, 8))
    assert len({sum(row[0]) for row in replayed}) > 2


def test_texts_sampled_differently_are_not_replayed_together(trained):
    items = [*answers(trained, TEXTS[:1], 4), *continuations(trained, TEXTS, 4, SAMPLINGS[0])]
    with pytest.raises(ValueError, match="sampled differently"):
        replay(Decoder(trained).drafter, items, (1, 4))


def test_a_text_of_one_token_has_no_pass(trained):
    items = answers(trained, TEXTS[:2], 1)
    assert replay(Decoder(trained).drafter, items, (1, 4)) == [[[], []], [[], []]]
    for item in trace(Decoder(trained).drafter, items, (1, 4)):
        assert (item.accepted.shape, item.confidences.shape) == ((0, 2), (0, 3))
        assert item.trajectory(1) == []


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLINGS[0]])
def test_a_reduced_draft_vocabulary(trained, sampling):
    """Tokens that cannot be drafted end a block in replay as in decoding."""
    source = trained.drafter
    kept = [token for token in range(64) if token % 5]
    config = type(source.config)(**{**source.config.to_dict(), "draft_vocab_size": len(kept)})
    reduced = DFlashDraftModel(config).eval()
    offsets = torch.tensor(kept) - torch.arange(len(kept))
    reduced.load_state_dict({**source.state_dict(), "d2t": offsets})
    pair = dataclasses.replace(trained, drafter=reduced)
    items = continuations(trained, PROMPTS, 40, sampling)
    whole = replay(Decoder(trained).drafter, items, (8,))
    assert assert_replay_is_exact(pair, PROMPTS, 40, (8,), sampling) != whole


@pytest.mark.parametrize("sampling", [GREEDY, *SAMPLINGS[2:4]])
def test_trajectories_follow_from_a_trace(any_pair, sampling):
    decoder = Decoder(any_pair)
    items = continuations(any_pair, TEXTS, 40, sampling)
    replayed = replay(decoder.drafter, items, ARMS)
    for item, by_arm in zip(trace(decoder.drafter, items, ARMS), replayed, strict=True):
        assert [item.trajectory(arm) for arm in range(len(ARMS))] == by_arm
        assert item.accepted.shape == (39, len(ARMS))
        assert (item.accepted[:, 0] == 1).all()
        assert (item.accepted[-1] == 1).all()
        assert (item.accepted.dtype, item.confidences.dtype) == (np.int16, np.float16)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLINGS[2]])
@pytest.mark.parametrize("budget", [2, 3, 7, 18])
def test_blocks_of_every_size_near_the_end_of_a_budget(any_pair, budget, sampling):
    assert_replay_is_exact(any_pair, TEXTS[:2], budget, tuple(range(1, 17)), sampling)


def test_blocks_are_shorter_near_the_end_of_a_budget_only(trained):
    """A block has no more drafts than tokens are left; a stop token shortens no block."""
    decoder, ids = Decoder(trained), encode(trained, TEXTS[0])
    real = decoder.generate(ids, 8, 20)
    left = 20 - np.cumsum(real.accepted)[:-1]
    assert real.block_sizes[1:] == np.minimum(8, left + 1).tolist()
    assert real.block_sizes[-1] < 8
    cut = dataclasses.replace(trained, stop_token_ids=(real.tokens[12],))
    stopped = Decoder(cut).generate(ids, 8, 40)
    assert set(stopped.block_sizes[1:]) == {8}
    (item,) = continue_batch(decoder.target, [ids[0]], 40, cut.stop_token_ids)
    assert (item.max_new_tokens, len(item.output_ids)) == (40, len(stopped.tokens))
    assert replay(decoder.drafter, [item], (8,)) == [[stopped.accepted[1:]]]
    assert (trace(decoder.drafter, [item], (1, 8))[0].sizes((1, 8)) == (1, 8)).all()


def chain(decoder, prefill, anchor, size, position):
    """What the decoder drafts: confidences, margins, probabilities of the drafts, and drafts."""
    sampling, rows = prefill.sampler.sampling, []

    def choose(logits, first):
        drafts = prefill.sampler.propose(logits, position + first, decoder.drafter.token_ids)
        probs = torch.softmax(logits, dim=-1).topk(2).values
        tempered = torch.softmax(logits / (sampling.temperature or 1), dim=-1)
        chosen = tempered.gather(1, drafts[:, None])[:, 0]
        rows.append(torch.stack([probs[:, 0], probs[:, 0] - probs[:, 1], chosen], dim=1))
        return drafts

    states = decoder.drafter.draft(anchor, size, prefill.draft_cache)[0]
    drafts = decoder.drafter.propose(states, anchor[0], choose)
    return torch.cat(rows).numpy(), drafts.tolist()


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLINGS[0], SAMPLINGS[3]])
@pytest.mark.parametrize("budget", [30, 60])
def test_a_trace_is_what_decoding_would_do_from_there(any_pair, sampling, budget):
    """From some positions on, as a separate prompt with the same noise and the budget left."""
    assert_trace_is_exact(any_pair, TEXTS[0], budget, sampling)


def assert_trace_is_exact(pair, text, budget, sampling):
    """The tokens, chains and distributions that the decoder has at some anchors."""
    decoder = Decoder(pair)
    (item,) = continuations(pair, (text,), 30, sampling)
    item = dataclasses.replace(item, max_new_tokens=budget)
    (found,) = trace(decoder.drafter, [item], ARMS)
    columns = draft_columns(ARMS)
    for anchor in (0, 3, 11, 16, 20, 24, 27, 28):
        ids = torch.cat([item.prompt_ids, item.output_ids[:anchor]])[None]
        prefill = decoder.prefill(ids, budget - anchor, max(ARMS), item.sampling)
        assert prefill.first_token == item.output_ids[anchor]
        described = next_token_features(prefill.logits)
        np.testing.assert_allclose(found.next_token[anchor], described, rtol=2e-3, atol=1e-3)
        for arm, size in enumerate(ARMS):
            step = next(itertools.islice(decoder.stream(prefill, size), 1, None))
            assert min(len(step.tokens), 29 - anchor) == found.accepted[anchor, arm]
            assert step.block_size == found.sizes(ARMS)[anchor, arm]
            with torch.inference_mode():
                prefill.draft_cache.crop(0)
                decoder.drafter.extend(prefill.features, prefill.draft_cache)
                token = torch.tensor([[prefill.first_token]])
                if size == 1:
                    continue
                values, _ = chain(decoder, prefill, token, step.block_size, ids.shape[1] + 1)
            fields = (found.confidences, found.margins, found.proposed)
            for field, expected in zip(fields, values.T, strict=True):
                if field is None:
                    assert sampling.is_greedy
                    continue
                own = field[anchor, columns[arm]]
                np.testing.assert_allclose(own[: len(expected)], expected, rtol=0.045, atol=5e-5)
                assert (own[len(expected) :] == 0).all()


def test_probabilities_keep_their_size_in_256_codes():
    values = np.geomspace(np.exp(-10), 1, 10_000)
    found = decode_probabilities(encode_probabilities(values)).astype(float)
    error = np.abs(found / values - 1)
    assert (error <= np.sqrt(-10 * np.log(values)) / 255 + 2e-3).all()
    again = decode_probabilities(encode_probabilities(found))
    np.testing.assert_array_equal(again, found)
    extremes = decode_probabilities(encode_probabilities(np.array([0.0, 1e-9, 1.0])))
    np.testing.assert_allclose(extremes, [4.5e-5, 4.5e-5, 1], rtol=0.01)


def test_the_columns_of_each_block_size():
    assert draft_columns((1, 2, 4)) == [slice(0, 0), slice(0, 1), slice(1, 4)]
    drafted = is_drafted((1, 2, 4), anchors=3, max_new_tokens=4)
    assert drafted.tolist() == [[True] * 4, [True, True, True, False], [True, True, False, False]]
    assert is_drafted((1, 2, 4), 3, None).all()
