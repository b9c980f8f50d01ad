"""Texts that are decoded at the same time, step by step in turn, do not touch each other.

State left over from one request changed or crashed the next one in ggml-org/llama.cpp#22105.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import pytest

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.generation import Pass
from blockpilot_rl.decoding.sampling import GREEDY, Sampling
from tests.tiny_pair import encode, tiny_drafter, tiny_target

BUDGET = 40
SIZES = [(8, 8), (1, 5)]
SAMPLINGS = [(GREEDY, GREEDY), (Sampling(1.0, seed=3), Sampling(0.6, seed=4))]


def start(decoder: Decoder, text: str, size: int, sampling: Sampling) -> Iterator[Pass]:
    prefill = decoder.prefill(encode(decoder.pair, text), BUDGET, size, sampling)
    return decoder.stream(prefill, size)


def tokens_of(passes: Sequence[Pass]) -> list[tuple[int, ...]]:
    return [item.tokens for item in passes]


def in_turn(*streams: Iterator[Pass]) -> list[list[Pass]]:
    """Step every stream once in each round, until all have ended."""
    seen: list[list[Pass]] = [[] for _ in streams]
    alive = dict(enumerate(streams))
    while alive:
        for index, stream in list(alive.items()):
            item = next(stream, None)
            if item is None:
                del alive[index]
            else:
                seen[index].append(item)
    return seen


@pytest.fixture(scope="module")
def other(trained):
    """Another pair, whose drafts are hardly ever accepted."""
    return dataclasses.replace(trained, target=tiny_target(seed=5), drafter=tiny_drafter())


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("samplings", SAMPLINGS)
@pytest.mark.parametrize("which", ["one decoder", "two decoders", "two pairs"])
def test_stepped_in_turn_they_equal_each_alone(trained, other, which, samplings, sizes):
    first = Decoder(trained)
    second = {
        "one decoder": first,
        "two decoders": Decoder(trained),
        "two pairs": Decoder(other),
    }[which]
    works = [
        (first, "one two", sizes[0], samplings[0]),
        (second, "hello there", sizes[1], samplings[1]),
    ]
    alone = [tokens_of(list(start(*work))) for work in works]
    together = [tokens_of(passes) for passes in in_turn(*(start(*work) for work in works))]
    assert together == alone
    assert [sum(map(len, tokens)) for tokens in together] == [BUDGET, BUDGET]


@pytest.mark.parametrize("samplings", SAMPLINGS)
def test_a_request_may_come_while_another_is_decoded(trained, samplings):
    """Its prefill falls between two steps of the other."""
    decoder = Decoder(trained)
    alone = [
        tokens_of(list(start(decoder, text, 8, sampling)))
        for text, sampling in zip(("one two", "a b c d"), samplings, strict=True)
    ]
    begun = start(decoder, "one two", 8, samplings[0])
    head = [next(begun) for _ in range(3)]
    late = start(decoder, "a b c d", 8, samplings[1])
    rest, whole = in_turn(begun, late)
    assert tokens_of([*head, *rest]) == alone[0]
    assert tokens_of(whole) == alone[1]
