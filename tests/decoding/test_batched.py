from __future__ import annotations

import dataclasses

import pytest
import torch

from blockpilot_rl.decoding.batched import PREFILL_ROWS, continue_batch
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.forward import LeanForward, ModuleForward, target_forward
from blockpilot_rl.decoding.sampling import Sampling, greedy
from tests.tiny_pair import PROMPTS, encode

TEXTS = (*PROMPTS, "Z", "a rather longer prompt than all the others")


def answer(pair, texts=TEXTS, budget=24, stops=()):
    target = target_forward(pair.target, [0, 2])
    return continue_batch(target, [encode(pair, text)[0] for text in texts], budget, stops)


@pytest.mark.parametrize("stops", [(), (49,), (15, 2, 39), tuple(range(3, 64, 3))])
def test_every_row_equals_plain_decoding(trained, stops):
    """Also when rows end at different times and leave the batch."""
    decoder = Decoder(dataclasses.replace(trained, stop_token_ids=stops))
    for text, item in zip(TEXTS, answer(trained, stops=stops), strict=True):
        ids = encode(trained, text)
        assert torch.equal(item.prompt_ids, ids[0])
        assert item.output_ids.tolist() == decoder.generate(ids, 1, 24).tokens


def test_some_row_stops_early_and_some_does_not(trained):
    """Checks that the test above covers this case."""
    assert max(len(item.output_ids) for item in answer(trained, stops=(49,))) < 12
    lengths = sorted(len(item.output_ids) for item in answer(trained, stops=(15, 2, 39)))
    assert lengths[0] == 1
    assert len(set(lengths)) > 2


@pytest.mark.parametrize("stops", [(), (49,), (15, 2, 39)])
def test_hidden_states_are_those_of_the_whole_text(trained, stops):
    target = target_forward(trained.target, [0, 2])
    for item in answer(trained, stops=stops):
        text = torch.cat([item.prompt_ids, item.output_ids])[None, :-1]
        with torch.inference_mode():
            hidden = target(text, target.new_cache(1, text.shape[1]))
        torch.testing.assert_close(item.features, hidden.features[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(item.last, hidden.last[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("budget", [1, 2, 3])
def test_small_budgets(trained, budget):
    whole = answer(trained)
    for short, item in zip(answer(trained, budget=budget), whole, strict=True):
        assert short.output_ids.tolist() == item.output_ids[:budget].tolist()
        assert len(short.features) == len(short.last) == len(short.prompt_ids) + budget - 1


@pytest.mark.parametrize("make", [LeanForward, ModuleForward])
def test_more_prompts_than_are_read_in_one_pass(trained, make):
    target = make(trained.target, [0, 2])
    texts = [(text * 4)[: 1 + 7 * index % 23] for index, text in enumerate(TEXTS * 4)]
    prompts = [encode(trained, text)[0] for text in texts]
    assert len(prompts) > 2 * PREFILL_ROWS
    for ids, item in zip(prompts, continue_batch(target, prompts, 8, (15,)), strict=True):
        (alone,) = continue_batch(target, [ids], 8, (15,))
        assert torch.equal(item.prompt_ids, ids)
        assert torch.equal(item.output_ids, alone.output_ids)
        torch.testing.assert_close(item.features, alone.features, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("rows", [1, 2 * PREFILL_ROWS])
def test_texts_grow_beyond_the_first_table_of_positions(trained, rows):
    """Also for prompts that fit into it, since their answers may not."""
    rng = torch.Generator().manual_seed(0)
    prompts = [torch.randint(3, 60, (508,), generator=rng) for _ in range(rows)]
    lean, modules = (make(trained.target, [0, 2]) for make in (LeanForward, ModuleForward))
    found, expected = (continue_batch(target, prompts, 8, ()) for target in (lean, modules))
    for item, other in zip(found, expected, strict=True):
        assert torch.equal(item.output_ids, other.output_ids)
        torch.testing.assert_close(item.last, other.last, atol=1e-4, rtol=1e-4)


def test_the_first_of_equals_is_chosen():
    logits = torch.tensor([[0.0, 2.0, 2.0], [1.0, 0.0, 1.0]])
    assert greedy(logits).tolist() == greedy(logits.bfloat16()).tolist() == [1, 0]


SAMPLINGS = (
    Sampling(0.6, top_k=9),
    Sampling(1.0),
    Sampling(1.0, top_k=20, top_p=0.8),
    Sampling(0.6, top_p=0.9),
    Sampling(0.0, top_k=5, top_p=0.5),
)


@pytest.mark.parametrize("stops", [(), (15, 2, 39)])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_sampled_rows_are_the_decoders_for_every_block_size(trained, sampling, stops):
    """Each row depends on its own seed only, not on the other rows of the batch."""
    decoder = Decoder(dataclasses.replace(trained, stop_token_ids=stops))
    seeds = [11, 3, 3, 7, 0, 1]
    prompts = [encode(trained, text)[0] for text in TEXTS]
    items = continue_batch(decoder.target, prompts, 24, stops, sampling, seeds)
    for ids, seed, item in zip(prompts, seeds, items, strict=True):
        assert item.sampling == dataclasses.replace(sampling, seed=seed)
        for size in (1, 2, 5, 16):
            real = decoder.generate(ids[None], size, 24, item.sampling)
            assert item.output_ids.tolist() == real.tokens


def test_the_seed_decides_a_sampled_row(trained):
    decoder = Decoder(trained)
    prompts = [encode(trained, TEXTS[0])[0]] * 3
    first, second, again = (
        item.output_ids.tolist()
        for item in continue_batch(decoder.target, prompts, 24, (), Sampling(1.0), [4, 5, 4])
    )
    assert first == again != second
    (alone,) = continue_batch(decoder.target, prompts[:1], 24, (), Sampling(1.0, seed=5))
    assert alone.output_ids.tolist() == second


def test_a_seed_is_needed_for_each_row(trained):
    prompts = [encode(trained, text)[0] for text in TEXTS]
    with pytest.raises(ValueError, match="zip"):
        continue_batch(Decoder(trained).target, prompts, 4, (), Sampling(1.0), [0])
