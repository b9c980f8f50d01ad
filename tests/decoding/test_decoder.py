from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
import torch
from transformers import GenerationConfig

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.sampling import GREEDY, Sampling
from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.policies.config import PolicyConfig
from blockpilot_rl.policies.policy import BlockSizePolicy
from tests import benchmark_scripts
from tests.decoding.test_forward import EVERY, build
from tests.tiny_pair import (
    PROMPTS,
    VOCABULARY,
    encode,
    random_correction,
    save_tiny_pair,
    tiny_drafter,
    variant,
)

SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
BUDGET = 40
EXACTNESS = benchmark_scripts.load("exactness")


@pytest.fixture(scope="module")
def decoder(trained):
    return Decoder(trained)


def stopping(pair, *stops: int) -> Decoder:
    return Decoder(dataclasses.replace(pair, stop_token_ids=stops))


def transformers_tokens(pair, ids, budget=BUDGET, stops=(-1,), **options) -> list[int]:
    """What transformers' own greedy `generate` emits."""
    settings = GenerationConfig(
        max_new_tokens=budget, do_sample=False, eos_token_id=list(stops), pad_token_id=1
    )
    output = pair.target.generate(
        ids, attention_mask=torch.ones_like(ids), generation_config=settings, **options
    )
    return output[0, ids.shape[1] :].tolist()


def chooser(pair, arms=(1, 2, 4, 16), favourite=2) -> BlockSizePolicy:
    """A policy that always chooses the same arm."""
    config = PolicyConfig(
        arms=arms,
        state=StateLayout((("draft", 7), ("prompt", 1))),
        hidden=(),
        activation="tanh",
        fallback=arms[0],
        fingerprint=pair.fingerprint,
        target=pair.target_name,
        drafter=str(pair.drafter_name),
    )
    policy = BlockSizePolicy(config)
    torch.nn.init.zeros_(policy.net[-1].weight)
    torch.nn.init.zeros_(policy.net[-1].bias)
    policy.net[-1].bias.data[favourite] = 1.0
    return policy


@pytest.mark.parametrize("text", [*PROMPTS, "Z"])
def test_every_block_size_gives_the_targets_own_text(decoder, trained, text):
    """Token by token in fp32, against transformers' `generate` (z-lab/dflash#23, #172)."""
    ids = encode(trained, text)
    expected = transformers_tokens(trained, ids)
    for size in SIZES:
        generation = decoder.generate(ids, size, BUDGET)
        assert generation.tokens == expected
        assert generation.finish_reason == "length"


def test_blocks_are_accepted_whole_in_part_and_not_at_all(decoder, trained):
    """Checks that the pair of this file covers all three cases."""
    accepted = [decoder.generate(encode(trained, text), 8, BUDGET).accepted for text in PROMPTS]
    lengths = {length for row in accepted for length in row[1:-1]}
    assert {1, 2, 3, 5, 8} <= lengths
    assert max(len(row) for row in accepted) > min(len(row) for row in accepted)


@pytest.mark.parametrize("name", EVERY)
def test_every_family_is_lossless(trained, name):
    """Lean passes, and modules with the same interface: windows, soft caps, parallel layers."""
    target = build(EVERY[name])
    pair = dataclasses.replace(trained, target=target)
    decoder, ids = Decoder(pair), encode(pair, "abc")
    expected = transformers_tokens(pair, ids)
    for size in (1, 2, 5, 8):
        generation = decoder.generate(ids, size, BUDGET)
        assert generation.tokens == expected
        assert sum(generation.accepted) == BUDGET


@pytest.mark.parametrize("text", PROMPTS)
def test_transformers_own_dflash_gives_the_same(trained, decoder, text):
    """The drafter follows the interface of transformers' `speculation_type="dflash"`."""
    ids = encode(trained, text)
    tokens = transformers_tokens(
        trained, ids, assistant_model=trained.drafter, speculation_type="dflash"
    )
    assert tokens == decoder.generate(ids, 8, BUDGET).tokens


def test_transformers_own_dflash_accepts_as_much(trained, decoder):
    """Their passes over the target are as many as ours, so that the drafts are the same."""
    ids, passes = encode(trained, "a b c d"), []
    handle = trained.target.register_forward_hook(lambda *_: passes.append(1))
    transformers_tokens(trained, ids, assistant_model=trained.drafter, speculation_type="dflash")
    handle.remove()
    ours = decoder.generate(ids, 8, BUDGET)
    assert len(ours.passes) < BUDGET / 2
    # A last block is cut to the budget by theirs, clipped by ours.
    assert abs(len(passes) - len(ours.passes)) <= 1


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("budget", [1, 2, 7, 8, 9, 23])
def test_budgets(decoder, trained, size, budget):
    """Also budgets that are not multiples of the block; accepted lengths sum to the tokens."""
    ids = encode(trained, "hello there")
    generation = decoder.generate(ids, size, budget)
    assert generation.tokens == decoder.generate(ids, 1, BUDGET).tokens[:budget]
    assert sum(generation.accepted) == len(generation.tokens) == budget
    assert generation.accepted[0] == 1
    assert all(1 <= n <= size for n in generation.accepted[1:])


def test_records_say_what_was_used(decoder, trained):
    """A block size that is parsed and ignored would show (charlie12345/ROCmFPX#31)."""
    generation = decoder.generate(encode(trained, "a b c d"), 5, BUDGET)
    passes = len(generation.passes) - 1
    left = BUDGET - np.cumsum(generation.accepted)[:-1]
    assert generation.block_sizes == [1, *np.minimum(5, left + 1)]
    assert set(generation.block_sizes[1:-3]) == {5}
    assert generation.acceptance_length == pytest.approx((BUDGET - 1) / passes)
    assert [len(item.tokens) for item in generation.passes] == generation.accepted
    assert all(item.seconds > 0 for item in generation.passes)
    assert generation.decode_seconds == pytest.approx(
        sum(item.seconds for item in generation.passes[1:])
    )
    assert generation.prefill_seconds == generation.passes[0].seconds
    expected = (BUDGET - 1) / generation.decode_seconds
    assert generation.tokens_per_second == pytest.approx(expected)


def test_a_text_of_one_token_has_no_rates(decoder, trained):
    generation = decoder.generate(encode(trained, "Z"), 8, 1)
    assert (generation.acceptance_length, generation.tokens_per_second) == (1.0, 0.0)
    assert (generation.block_sizes, generation.decode_seconds) == ([1], 0.0)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_stop_tokens_end_the_text_wherever_they_fall(trained, size):
    """In the middle of a block, at its end, as the first token, or one of a list."""
    ids = encode(trained, "hello there")
    whole = Decoder(trained).generate(ids, 1, BUDGET).tokens
    for position in range(12):
        stop = whole[position]
        end = whole.index(stop) + 1
        generation = stopping(trained, stop).generate(ids, size, BUDGET)
        assert generation.tokens == whole[:end]
        assert generation.finish_reason == "stop"
        assert sum(generation.accepted) == end
        assert generation.tokens == transformers_tokens(trained, ids, stops=(stop,))
    unused = next(token for token in range(64) if token not in whole)
    several = stopping(trained, unused, whole[9], whole[5]).generate(ids, size, BUDGET)
    assert several.tokens == whole[: min(whole.index(whole[9]), whole.index(whole[5])) + 1]


def test_a_stop_falls_into_the_middle_of_an_accepted_block(decoder, trained):
    """Checks that the test above covers this case."""
    ids = encode(trained, "hello there")
    generation = decoder.generate(ids, 8, 12)
    tokens = generation.tokens
    starts = [sum(generation.accepted[:i]) for i in range(len(generation.accepted))]
    spans = zip(starts, generation.accepted, strict=True)
    assert any(
        tokens.index(tokens[start + 1]) == start + 1 for start, length in spans if length > 2
    )


def test_a_real_token_equal_to_the_mask_survives(trained):
    """z-lab/dflash#73 and #76 dropped it."""
    ids = encode(trained, "hello there")
    expected = transformers_tokens(trained, ids)
    for mask in (expected[0], expected[3], expected[9]):
        drafter = tiny_drafter(dflash_config={"mask_token_id": mask, "target_layer_ids": [0, 2]})
        drafter.load_state_dict(trained.drafter.state_dict())
        pair = dataclasses.replace(trained, drafter=drafter)
        for size in (2, 8):
            assert Decoder(pair).generate(ids, size, BUDGET).tokens == expected
    assert len(set(expected) & {expected[0], expected[3], expected[9]}) == 3


@pytest.mark.parametrize("size", [1, 4, 8])
def test_a_prefill_decoded_twice_gives_the_same(decoder, trained, size):
    prefill = decoder.prefill(encode(trained, "one two"), BUDGET)
    first, second = decoder.decode(prefill, size), decoder.decode(prefill, size)
    assert (first.tokens, first.accepted) == (second.tokens, second.accepted)
    assert decoder.decode(prefill, 8, 11).tokens == first.tokens[:11]


def test_a_request_leaves_no_trace_in_the_next(decoder, trained):
    """ggml-org/llama.cpp#22105 crashed on the second request."""
    for first in PROMPTS:
        decoder.generate(encode(trained, first), 8, BUDGET)
        after = decoder.generate(encode(trained, "one two"), 8, BUDGET)
        alone = Decoder(trained).generate(encode(trained, "one two"), 8, BUDGET)
        assert (after.tokens, after.accepted) == (alone.tokens, alone.accepted)


def test_an_abandoned_stream_leaves_no_trace(decoder, trained):
    prefill = decoder.prefill(encode(trained, "one two"), BUDGET)
    expected = decoder.decode(prefill, 8)
    abandoned = decoder.stream(prefill, 8)
    for _ in range(3):
        next(abandoned)
    after = decoder.decode(prefill, 8)
    assert (after.tokens, after.accepted) == (expected.tokens, expected.accepted)


@pytest.mark.parametrize("texts", [("one two", "hello there"), ("one two", "one two")])
def test_two_streams_stepped_alternately_equal_each_alone(decoder, trained, texts):
    alone = [decoder.generate(encode(trained, text), 8, BUDGET) for text in texts]
    streams = [decoder.stream(decoder.prefill(encode(trained, t), BUDGET), 8) for t in texts]
    passes: list[list] = [[], []]
    open_streams = [0, 1]
    while open_streams:
        for i in list(open_streams):
            item = next(streams[i], None)
            if item is None:
                open_streams.remove(i)
            else:
                passes[i].append(item.tokens)
    for record, expected in zip(passes, alone, strict=True):
        assert record == [item.tokens for item in expected.passes]


def test_two_streams_of_one_prefill_are_refused(decoder, trained):
    """They would write into one cache."""
    prefill = decoder.prefill(encode(trained, "one two"), BUDGET)
    first = decoder.stream(prefill, 8)
    next(first), next(first)
    second = decoder.decode(prefill, 8)
    with pytest.raises(BlockPilotError, match="prefill once for each stream"):
        next(first)
    assert second.tokens == decoder.generate(encode(trained, "one two"), 1, BUDGET).tokens
    third = decoder.stream(prefill, 8)
    next(third), next(third)
    decoder.state(prefill, ("draft",))
    with pytest.raises(BlockPilotError, match="prefill once for each stream"):
        next(third)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_differs_only_at_near_ties(trained, tmp_path, dtype):
    """Shapes round differently, so a near-tie may flip; nothing else may (z-lab/dflash#172)."""
    folder, _ = save_tiny_pair(tmp_path)
    trained.drafter.save_pretrained(tmp_path / "trained")
    pair = dataclasses.replace(load_pair(folder, tmp_path / "trained", dtype), stop_token_ids=())
    decoder = Decoder(pair)
    accepted = 0
    for text in PROMPTS:
        ids = encode(pair, text)
        plain, block = (decoder.generate(ids, size, BUDGET) for size in (1, 8))
        accepted += sum(n > 1 for n in block.accepted)
        if plain.tokens != block.tokens:
            found = EXACTNESS.divergence(decoder, decoder.prefill(ids, BUDGET, 8), 8)
            assert found["rounding"], found
    assert accepted > 3


def test_a_policy_chooses(decoder, trained):
    ids = encode(trained, "a b c d")
    generation = decoder.generate(ids, chooser(trained, favourite=2), BUDGET)
    fixed = decoder.generate(ids, 4, BUDGET)
    assert generation.block_sizes == fixed.block_sizes
    assert generation.tokens == fixed.tokens
    assert generation.policy_seconds > 0
    assert fixed.policy_seconds == 0
    after_prefill = sum(item.seconds for item in generation.passes[1:])
    assert generation.decode_seconds == pytest.approx(after_prefill + generation.policy_seconds)


def test_a_policy_of_another_pair_is_refused(decoder, trained):
    foreign = chooser(dataclasses.replace(trained, drafter=tiny_drafter(seed=9)))
    with pytest.raises(BlockPilotError, match="policy was trained on the pair"):
        decoder.generate(encode(trained, "a b c d"), foreign, BUDGET)


def test_a_policy_made_with_other_template_options_is_refused(trained):
    """They change acceptance, from 25% to 60% in z-lab/dflash#133."""
    ids, policy = encode(trained, "a b c d"), chooser(trained)
    thinking = Decoder(dataclasses.replace(trained, template={"enable_thinking": True}))
    with pytest.raises(BlockPilotError, match=r"trained with chat-template options \{\}"):
        thinking.generate(ids, policy, BUDGET)
    policy.config.template["enable_thinking"] = True
    generation = thinking.generate(ids, policy, BUDGET)
    assert generation.template == {"enable_thinking": True}
    # The template of prompts that are given as tokens is unknown.
    unknown = Decoder(dataclasses.replace(trained, template=None))
    assert unknown.generate(ids, policy, BUDGET).tokens == generation.tokens


@pytest.mark.parametrize("budget", [1, 2, BUDGET])
def test_a_policy_may_choose_more_or_less_than_the_drafters_size(decoder, trained, budget):
    """Caches are made for the largest arm, and for the drafter's own block that a state reads."""
    ids = encode(trained, "a b c d")
    expected = decoder.generate(ids, 1, budget).tokens
    for arms in ((1, 2, 4, 16), (1, 2)):
        policy = chooser(trained, arms, favourite=len(arms) - 1)
        generation = decoder.generate(ids, policy, budget)
        assert generation.tokens == expected
        left = budget - np.cumsum(generation.accepted)[:-1]
        assert generation.block_sizes[1:] == np.minimum(arms[-1], left + 1).tolist()


def test_a_block_larger_than_the_prefills_is_refused(decoder, trained):
    prefill = decoder.prefill(encode(trained, "a b c d"), BUDGET)
    with pytest.raises(BlockPilotError, match="block size 9 exceeds the prefill's 8"):
        decoder.decode(prefill, 9)
    wide = decoder.prefill(encode(trained, "a b c d"), BUDGET, 16)
    assert decoder.decode(wide, 16).tokens == decoder.decode(prefill, 8).tokens


def test_a_budget_larger_than_the_prefills_is_refused(decoder, trained):
    prefill = decoder.prefill(encode(trained, "a b c d"), 10)
    with pytest.raises(BlockPilotError, match="max_new_tokens 11 exceeds the prefill's 10"):
        decoder.decode(prefill, 8, 11)


@pytest.mark.parametrize(
    ("ids", "size", "budget", "message"),
    [
        (torch.zeros(1, 0, dtype=torch.long), 8, 9, "the prompt is empty"),
        (torch.ones(2, 5, dtype=torch.long), 8, 9, r"one request at a time, \[1, n\], not \[2, 5"),
        (torch.ones(5, dtype=torch.long), 8, 9, r"one request at a time, \[1, n\], not \[5\]"),
        (torch.ones(1, 5, dtype=torch.long), 8, 0, "max_new_tokens must be at least 1, not 0"),
        (torch.ones(1, 5, dtype=torch.long), -1, 9, "block size must be at least 1"),
        (
            torch.ones(1, 240, dtype=torch.long),
            8,
            9,
            r"prompt of 240 tokens \+ 9 new tokens \+ a block of 8 exceed the models' 256",
        ),
    ],
)
def test_requests_that_do_not_fit_are_refused_before_any_work(
    decoder, monkeypatch, ids, size, budget, message
):
    """Batches share one acceptance in Blaizzy/mlx-vlm#1833; wtdcode/vllm-backport#59 crashed."""

    def never(*_):
        raise AssertionError("the target ran")

    monkeypatch.setattr(decoder, "target", never)
    with pytest.raises(BlockPilotError, match=message):
        decoder.generate(ids, size, budget)


def test_the_longest_request_that_fits(decoder, trained):
    """All positions up to the models' limit are used without a crash."""
    ids = torch.randint(3, 60, (1, 200), generator=torch.Generator().manual_seed(0))
    expected = transformers_tokens(trained, ids, 48)
    for size in (1, 8):
        assert decoder.generate(ids, size, 48).tokens == expected
    with pytest.raises(BlockPilotError, match="exceed the models' 256 positions"):
        decoder.generate(ids, 8, 49)


def test_the_drafters_length_counts_too(tiny, tmp_path):
    short = load_pair(tiny[0], variant(tiny[1], tmp_path / "short", max_position_embeddings=40))
    with pytest.raises(BlockPilotError, match="exceed the models' 40 positions"):
        Decoder(short).generate(torch.ones(1, 20, dtype=torch.long), 8, 20)


@pytest.mark.parametrize(
    "changes",
    [
        {"has_own_embed_tokens": True, "has_own_lm_head": True},
        {"causal": True},
        {"correction_rank": 4},
    ],
)
def test_drafters_of_other_kinds_are_lossless_too(decoder, trained, changes):
    """The text is the target's with every drafter; only acceptance changes."""
    settings = {**trained.drafter.config.dflash_config, **changes}
    drafter = random_correction(tiny_drafter(dflash_config=settings))
    drafter.load_state_dict({**drafter.state_dict(), **trained.drafter.state_dict()})
    ids = encode(trained, "a b c d")
    plain = decoder.generate(ids, 1, BUDGET)
    for size in (2, 8):
        other = Decoder(dataclasses.replace(trained, drafter=drafter)).generate(ids, size, BUDGET)
        assert other.tokens == plain.tokens
    assert other.accepted != decoder.generate(ids, 8, BUDGET).accepted


def test_a_target_alone_decodes_plainly(trained):
    alone = Decoder(dataclasses.replace(trained, drafter=None))
    ids = encode(trained, "a b c d")
    assert alone.generate(ids, 1, BUDGET).tokens == Decoder(trained).generate(ids, 8, BUDGET).tokens
    with pytest.raises(BlockPilotError, match="block size 2 needs a drafter"):
        alone.generate(ids, 2, BUDGET)
    with pytest.raises(BlockPilotError, match="'draft' needs a drafter"):
        alone.state(alone.prefill(ids, 5), ("draft",))


def test_the_clock_covers_drafting_and_verifying(trained, monkeypatch):
    """Both are counted in every pass (z-lab/dflash#135), and no CUDA call is made on a CPU."""
    decoder = Decoder(trained)
    draft, target = decoder.drafter.draft, decoder.target

    def slow_draft(*arguments):
        time.sleep(0.02)
        return draft(*arguments)

    class SlowTarget:
        def __getattr__(self, name):
            return getattr(target, name)

        def __call__(self, *arguments):
            time.sleep(0.01)
            return target(*arguments)

    monkeypatch.setattr(decoder.drafter, "draft", slow_draft)
    monkeypatch.setattr(decoder, "target", SlowTarget())
    ids = encode(trained, "a b c d")
    assert all(item.seconds > 0.03 for item in decoder.generate(ids, 8, 9).passes[1:])
    assert all(item.seconds > 0.01 for item in decoder.generate(ids, 1, 5).passes)


def test_warm_up_runs_every_shape(trained, monkeypatch):
    """Even if every token is a stop token, which ends a text before any block."""
    decoder, seen = stopping(trained, *range(VOCABULARY)), []
    round_of = decoder._round

    def watch(prefill, *arguments):
        seen.append((arguments[3].length, prefill.sampler.sampling))
        return round_of(prefill, *arguments)

    monkeypatch.setattr(decoder, "_round", watch)
    for sampling in (GREEDY, Sampling(0.7, top_k=9)):
        seen.clear()
        decoder.warm_up((2, 16), sampling=sampling)
        assert dict.fromkeys(seen) == dict.fromkeys((size, sampling) for size in (1, 2, 8, 16))
        assert seen.count((1, sampling)) == 7
    assert decoder.generate(encode(trained, "a b c d"), 8, 9).finish_reason == "stop"


def test_two_decoders_of_one_pair(trained):
    """The second reads the weights that the first has stacked."""
    ids = encode(trained, "one two")
    first = Decoder(trained)
    before = first.generate(ids, 8, BUDGET)
    second = Decoder(trained)
    for decoder in (second, first):
        after = decoder.generate(ids, 8, BUDGET)
        assert (after.tokens, after.accepted) == (before.tokens, before.accepted)


@pytest.mark.parametrize("kind", ["text", "conversation", "tokens"])
def test_prompts_of_every_kind(decoder, trained, kind):
    ids, seen = encode(trained, "a b c d"), []
    prompts = {
        "text": "a b c d",
        "conversation": [{"role": "user", "content": "a b c d"}],
        "tokens": ids,
    }
    result = decoder.generate(prompts[kind], max_new_tokens=BUDGET, on_pass=seen.append)
    assert result.tokens == decoder.generate(ids, 8, BUDGET).tokens
    assert (result.block_size, result.prompt_tokens) == (8, ids.shape[1])
    text = trained.tokenizer.decode(result.tokens, skip_special_tokens=True)
    assert result.text == (None if kind == "tokens" else text)
    assert seen == result.passes
