"""Sampling is exact, drafter-invariant and refuses what it cannot do."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from scipy.stats import chisquare

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.sampling import Sampler, Sampling, gumbel
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import Pair
from tests.tiny_pair import PROMPTS, VOCABULARY, encode, tiny_pair


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return Decoder(tiny_pair(tmp_path_factory.mktemp("pair")))


@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.parametrize("draft", ["shared", "argmax"])
def test_text_is_the_same_for_every_block_size(
    decoder: Decoder, temperature: float, draft: str
) -> None:
    for seed in range(4):
        ids = torch.arange(3, 9 + seed)[None]
        plain = decoder.generate(ids, 1, 30, Sampling(temperature, seed=seed))
        for block_size in (2, 3, 8):
            sampling = Sampling(temperature, seed=seed, draft=draft)  # type: ignore[arg-type]
            result = decoder.generate(ids, block_size, 30, sampling)
            assert result.tokens == plain.tokens
            assert sum(result.accepted) == len(result.tokens)


def test_seeds_differ(decoder: Decoder) -> None:
    ids = torch.arange(3, 20)[None]
    texts = {tuple(decoder.generate(ids, 4, 20, Sampling(1.0, seed=s)).tokens) for s in range(5)}
    assert len(texts) == 5


def test_drafts_with_shared_noise_agree_more_often(decoder: Decoder) -> None:
    """One-step independent drafts collapse acceptance at T > 0 (z-lab/dflash#169)."""
    totals = {"shared": 0, "argmax": 0}
    for draft in totals:
        for seed in range(12):
            sampling = Sampling(1.0, seed=seed, draft=draft)  # type: ignore[arg-type]
            result = decoder.generate(torch.arange(3, 12)[None], 8, 40, sampling)
            totals[draft] += len(result.passes)
    assert totals["shared"] < totals["argmax"]


def test_choices_follow_the_target_distribution() -> None:
    """Softmax q with argmax proposals is biased (antirez/ds4#482); Gumbel-max is exact."""
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0, 0.5, 1.5]])
    sampling = [Sampling(0.7, seed=seed) for seed in range(4000)]
    drawn = torch.cat([Sampler(s, 6).choose(logits, 17) for s in sampling])
    counts = torch.bincount(drawn, minlength=6).numpy()
    expected = torch.softmax(logits[0].double() / 0.7, dim=-1).numpy() * len(drawn)
    assert chisquare(counts, expected).pvalue > 1e-3


def test_first_token_follows_the_target_distribution(decoder: Decoder) -> None:
    """Over many seeds, the token that prefill emits is an exact sample of the real target."""
    ids = torch.arange(3, 15)[None]
    first = decoder.prefill(ids, 2).logits
    drawn = [decoder.generate(ids, 4, 1, Sampling(1.0, seed=s)).tokens[0] for s in range(1500)]
    probs = torch.softmax(first.double(), dim=-1)
    order = probs.argsort(descending=True)[:5]
    counts = [drawn.count(int(token)) for token in order]
    counts.append(len(drawn) - sum(counts))
    expected = [float(probs[token]) * len(drawn) for token in order]
    expected.append(len(drawn) - sum(expected))
    assert chisquare(counts, expected).pvalue > 1e-3


def test_top_k_and_top_p_limit_the_choice() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    top_k = {int(Sampler(Sampling(5.0, top_k=2, seed=s), 4).choose(logits, 0)) for s in range(200)}
    assert top_k == {0, 1}
    top_p = {int(Sampler(Sampling(1.0, top_p=0.5, seed=s), 4).choose(logits, 0)) for s in range(99)}
    assert top_p == {0}


def test_whole_numbers_are_temperatures_too() -> None:
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    whole = Sampler(Sampling(temperature=1, top_p=1, seed=2), 50).choose(logits, 3)
    assert torch.equal(whole, Sampler(Sampling(temperature=1.0, seed=2), 50).choose(logits, 3))


def test_noise_depends_on_seed_and_position_alone() -> None:
    assert torch.equal(gumbel(3, 5, 100), gumbel(3, 5, 100))
    assert not torch.equal(gumbel(3, 5, 100), gumbel(5, 3, 100))
    sampler = Sampler(Sampling(1.0, seed=3), 100)
    late = sampler.noise(4, 3, torch.device("cpu"))
    assert torch.equal(late[1], gumbel(3, 5, 100))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"seed": -1}, "seed"),
        ({"draft": "best"}, "draft"),
    ],
)
def test_bad_values_are_refused(options: dict[str, object], named: str) -> None:
    with pytest.raises(BlockPilotError, match=named):
        Sampling(**options)  # type: ignore[arg-type]


def test_greedy_needs_no_noise() -> None:
    sampler = Sampler(Sampling(), 4)
    assert sampler.sampling.is_greedy
    assert int(sampler.choose(torch.tensor([[0.0, 3.0, 1.0, 3.0]]), 0)) == 1
    assert len(sampler._noise) == 0


def test_forgotten_noise_is_made_anew() -> None:
    sampler = Sampler(Sampling(1.0, seed=3), 100)
    before = sampler.noise(4, 3, torch.device("cpu"))
    sampler.forget()
    assert len(sampler._noise) == 0
    assert torch.equal(sampler.noise(4, 3, torch.device("cpu")), before)


@pytest.mark.parametrize("block_size", [1, 2, 8])
@pytest.mark.parametrize("draft", ["shared", "argmax"])
def test_no_more_noise_is_held_than_a_block_needs(
    trained: Pair, block_size: int, draft: Literal["shared", "argmax"]
) -> None:
    """At a vocabulary of 151,936 the noise of a text of 2048 tokens would be 1.2 GB."""
    decoder, sampling = Decoder(trained), Sampling(1.0, seed=4, draft=draft)
    prefill = decoder.prefill(encode(trained, PROMPTS[0]), 40, 8, sampling)
    rows = [len(prefill.sampler._noise) for _ in decoder.stream(prefill, block_size)]
    assert len(rows) > 5
    assert max(rows) <= block_size
    assert prefill.sampler._noise.untyped_storage().nbytes() <= block_size * VOCABULARY * 4


def test_a_prompt_sampled_twice_gives_the_same_text(trained: Pair, corrected: Pair) -> None:
    """Also with drafts proposed one by one, and with any block size before."""
    for pair in (trained, corrected):
        decoder, sampling = Decoder(pair), Sampling(1.0, seed=4)
        ids = encode(pair, PROMPTS[0])
        expected = [decoder.generate(ids, size, 40, sampling) for size in (8, 1, 8, 3)]
        prefill = decoder.prefill(ids, 40, 8, sampling)
        for alone in expected:
            size = alone.block_sizes[-1]
            again = decoder.decode(prefill, size)
            assert (again.tokens, again.accepted) == (expected[0].tokens, alone.accepted)


def test_noise_is_the_same_wherever_it_was_asked_for_before() -> None:
    sampler, device = Sampler(Sampling(1.0, seed=3), 10), torch.device("cpu")
    for position, n in ((4, 3), (5, 2), (6, 3), (6, 1), (9, 2), (20, 2), (7, 4), (1, 30)):
        expected = torch.stack([gumbel(3, t, 10) for t in range(position, position + n)])
        assert torch.equal(sampler.noise(position, n, device), expected)


def test_noise_that_is_held_is_neither_made_nor_copied_again() -> None:
    sampler = Sampler(Sampling(1.0, seed=3), 100)
    block, part = (sampler.noise(*place, torch.device("cpu")) for place in ((4, 6), (5, 3)))
    assert part.data_ptr() == block[1:].data_ptr()
