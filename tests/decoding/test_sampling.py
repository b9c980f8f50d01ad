"""Sampling is exact and drafter-invariant, and refuses bad values."""

from __future__ import annotations

import math
from collections.abc import Sequence
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


def noise_at(seed: int, *positions: int, size: int = 100) -> torch.Tensor:
    rows = torch.tensor(positions)
    return gumbel(torch.full_like(rows, seed), rows, torch.arange(size))


def test_noise_depends_on_seed_position_and_token_only() -> None:
    assert torch.equal(noise_at(3, 5), noise_at(3, 5))
    assert torch.equal(noise_at(3, 5, size=7), noise_at(3, 5)[:, :7])
    assert torch.equal(noise_at(3, 9, 5, 5)[1:], torch.cat([noise_at(3, 5)] * 2))
    chosen = gumbel(torch.tensor([3]), torch.tensor([5]), torch.tensor([40, 2, 99]))
    assert torch.equal(chosen, noise_at(3, 5)[:, [40, 2, 99]])
    for other in (noise_at(5, 3), noise_at(3, 6), noise_at(4, 5), noise_at(2**63 - 1, 5)):
        assert not torch.equal(noise_at(3, 5), other)
    sampler = Sampler(Sampling(1.0, seed=3), 100)
    late = sampler.noise(4, 3, torch.device("cpu"))
    assert torch.equal(late[1:2], noise_at(3, 5))


def _reference(seed: int, position: int, token: int) -> float:
    """The definition of the noise, in Python's integers."""

    def mix(x: int, steps: Sequence[tuple[int, int]], width: int, key: int = 0) -> int:
        for shift, multiplier in steps:
            x = ((x ^ (x >> shift)) * multiplier) % 2**width ^ key
        return x

    rounds = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
    key = mix((seed + 0x9E3779B97F4A7C15) % 2**64, rounds, 64)
    key = mix((key ^ key >> 31) + position & 2**64 - 1, rounds, 64)
    key ^= key >> 31
    bits = token * 0x9E3779B1 % 2**32 ^ key % 2**32
    bits = mix(bits, ((16, 0x7FEB352D), (15, 0x846CA68B)), 32, key >> 32)
    sign = 0xFFFF0000 if bits >> 31 else 0
    bits = (bits ^ (bits >> 16 | sign)) % 2**31
    return -math.log(-math.log1p(-(bits + 0.5) / 2**31))


@pytest.mark.parametrize("seed", [0, 7, 2**40, 2**63 - 1])
def test_noise_is_the_same_hash_everywhere(seed: int) -> None:
    """A seed gives the same text on every device and in every release."""
    positions, tokens = [0, 1, 99, 2**20], [0, 1, 2, 1000, 151_935]
    rows = torch.tensor(positions)
    noise = gumbel(torch.full_like(rows, seed), rows, torch.tensor(tokens))
    expected = torch.tensor([[_reference(seed, t, v) for v in tokens] for t in positions])
    torch.testing.assert_close(noise, expected, rtol=1e-4, atol=1e-5)


def _uniform(noise: torch.Tensor) -> torch.Tensor:
    """Gumbel noise as the uniform numbers that it has been made of."""
    return torch.exp(-torch.exp(-noise.double())).flatten()


@pytest.mark.parametrize("bins", [16, 1024])
@pytest.mark.parametrize(
    ("seeds", "positions", "size"),
    [
        (range(1), range(200), 5000),
        (range(1000), range(1), 1000),
        (range(1), range(100_000), 10),
        ([2**62 + 5], range(20), 50_000),
    ],
)
def test_noise_follows_the_gumbel_distribution(
    seeds: Sequence[int], positions: Sequence[int], size: int, bins: int
) -> None:
    places = torch.cartesian_prod(torch.tensor(list(seeds)), torch.tensor(list(positions)))
    noise = gumbel(places[:, 0], places[:, 1], torch.arange(size))
    assert noise.isfinite().all()
    uniform = _uniform(noise)
    counts = torch.histc(uniform, bins, 0, 1).numpy()
    assert chisquare(counts).pvalue > 1e-4
    # The largest values decide which token is chosen.
    for share in (1e-2, 1e-3, 1e-4):
        expected = share * len(uniform)
        assert abs(int((uniform > 1 - share).sum()) - expected) < 5 * expected**0.5


@pytest.mark.parametrize("lag", [1, 2, 3, 64])
def test_noise_of_neighbours_is_unrelated(lag: int) -> None:
    """Neighbouring seeds, positions and tokens, and positions and seeds that change together."""
    rows, tokens = torch.arange(600), torch.arange(600)
    zero = torch.zeros_like(rows)
    by_position, by_seed, both = (
        gumbel(seeds, positions, tokens).double()
        for seeds, positions in ((zero, rows), (rows, zero), (rows, rows))
    )
    diagonal = gumbel(rows, rows.flip(0), tokens).double()
    pairs = [(x[:-lag], x[lag:]) for x in (by_position, by_seed, both, diagonal)]
    pairs += [(by_position[:, :-lag], by_position[:, lag:])]
    pairs += [(by_position[:-lag, :-lag], by_position[lag:, lag:])]
    for ours, theirs in pairs:
        both = torch.stack([ours.flatten(), theirs.flatten()])
        assert abs(float(torch.corrcoef(both)[0, 1])) < 5 / ours.numel() ** 0.5


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 1.5, 4.0])
@pytest.mark.parametrize("vary", ["seed", "position"])
def test_choices_follow_the_distribution_at_every_temperature(
    temperature: float, vary: str
) -> None:
    """Over many seeds at one position, and over the positions of one text."""
    generator = torch.Generator().manual_seed(int(10 * temperature))
    logits = 2 * torch.randn(300, generator=generator)
    numbers = torch.arange(40_000)
    zero = torch.zeros_like(numbers)
    places = (numbers, zero + 17) if vary == "seed" else (zero + 17, numbers)
    scores = logits / temperature + gumbel(*places, torch.arange(300))
    counts = torch.bincount(scores.argmax(dim=-1), minlength=300)
    expected = torch.softmax(logits.double() / temperature, dim=-1) * len(numbers)
    rare = expected < 5
    grouped = [torch.cat([x[~rare], x[rare].sum(0, keepdim=True)]) for x in (counts, expected)]
    grouped = [x[grouped[1] > 0] for x in grouped]
    assert chisquare(grouped[0].numpy(), grouped[1].numpy()).pvalue > 1e-4


@pytest.mark.parametrize("block", [1, 3, 16])
def test_noise_is_made_on_the_device_of_the_logits(block: int) -> None:
    """A host tensor among its inputs would be refused."""
    noise = Sampler(Sampling(1.0, seed=3), 10).noise(4, block, torch.device("meta"))
    assert (noise.shape, noise.device.type) == ((block, 10), "meta")


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


def test_forgotten_noise_is_computed_again() -> None:
    sampler = Sampler(Sampling(1.0, seed=3), 100)
    before = sampler.noise(4, 3, torch.device("cpu"))
    sampler.forget()
    assert len(sampler._noise) == 0
    assert torch.equal(sampler.noise(4, 3, torch.device("cpu")), before)


@pytest.mark.parametrize("block_size", [1, 2, 8])
@pytest.mark.parametrize("draft", ["shared", "argmax"])
def test_only_the_noise_of_one_block_is_kept(
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
        sizes = (8, 1, 8, 3)
        expected = [decoder.generate(ids, size, 40, sampling) for size in sizes]
        prefill = decoder.prefill(ids, 40, 8, sampling)
        for size, alone in zip(sizes, expected, strict=True):
            again = decoder.decode(prefill, size)
            assert (again.tokens, again.accepted) == (expected[0].tokens, alone.accepted)


def test_noise_does_not_depend_on_earlier_requests() -> None:
    sampler, device = Sampler(Sampling(1.0, seed=3), 10), torch.device("cpu")
    for position, n in ((4, 3), (5, 2), (6, 3), (6, 1), (9, 2), (20, 2), (7, 4), (1, 30)):
        expected = noise_at(3, *range(position, position + n), size=10)
        assert torch.equal(sampler.noise(position, n, device), expected)


def test_noise_that_is_kept_is_not_computed_or_copied_again() -> None:
    sampler = Sampler(Sampling(1.0, seed=3), 100)
    block, part = (sampler.noise(*place, torch.device("cpu")) for place in ((4, 6), (5, 3)))
    assert part.data_ptr() == block[1:].data_ptr()
