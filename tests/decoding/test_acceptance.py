from __future__ import annotations

import numpy as np
import pytest

from blockpilot_rl.decoding.acceptance import acceptance_warnings, is_repetitive

EMITTED, PASSES = np.array([10, 90, 6]), np.array([10, 10, 3])
LOOPING = np.array([False, True, False])


def test_acceptance_near_one_is_named():
    """Acceptance near 1 is how a wrong theta or layer id shows (vllm-project/vllm#54373)."""
    emitted, fine = np.array([29, 29]), np.array([False, False])
    [warning] = acceptance_warnings(emitted, np.array([29, 27]), fine, 8)
    assert "acceptance length 1.04 at block size 8 is near 1" in warning
    assert "rope_theta" in warning
    assert "target_layer_ids" in warning
    assert acceptance_warnings(emitted, np.array([24, 24]), fine, 8) == []
    assert acceptance_warnings(emitted, emitted, fine, 1) == []


@pytest.mark.parametrize(("passes", "warns"), [(19, False), (20, True)])
def test_few_passes_give_no_warning(passes, warns):
    found = acceptance_warnings(np.array([passes]), np.array([passes]), np.array([False]), 8)
    assert bool(found) == warns


@pytest.mark.parametrize(
    ("prompts", "trained_length", "expected"),
    [
        ([500, 30], 400, ["1 of 2 prompts are longer than 400 tokens"]),
        ([500, 401], 400, ["2 of 2 prompts are longer than 400 tokens"]),
        ([400, 30], 400, ["acceptance length 1.00 at block size 8 is near 1"]),
        ([500, 30], None, ["acceptance length 1.00 at block size 8 is near 1"]),
        (None, 400, ["acceptance length 1.00 at block size 8 is near 1"]),
    ],
)
def test_long_prompts_are_not_blamed_on_the_drafter(prompts, trained_length, expected):
    """The acceptance of the other texts shows whether the drafter is good."""
    passes = np.array([60, 19 if prompts == [500, 30] and trained_length else 30])
    lengths = None if prompts is None else np.array(prompts)
    found = acceptance_warnings(passes, passes, passes < 0, 8, lengths, trained_length)
    assert [warning[: len(text)] for warning, text in zip(found, expected, strict=True)] == expected
    assert acceptance_warnings(passes, passes, passes < 0, 1, lengths, trained_length) == []


def test_a_bad_drafter_is_named_next_to_long_prompts():
    passes, prompts = np.array([60, 30]), np.array([500, 30])
    found = acceptance_warnings(passes, passes, passes < 0, 8, prompts, 400)
    assert len(found) == 2
    assert "longer than 400" in found[0]
    assert "near 1" in found[1]
    [alone] = acceptance_warnings(passes[:1], passes[:1], passes[:1] < 0, 8, prompts[:1], 400)
    assert alone.startswith("the prompt is longer than 400 tokens")


def test_loops_are_named_with_the_acceptance_of_other_texts():
    [warning] = acceptance_warnings(EMITTED, PASSES, LOOPING, 8)
    assert "33% of the texts end in a loop" in warning
    assert "length 4.61 in all, 1.23 on the others" in warning
    [warning] = acceptance_warnings(EMITTED[1:2], PASSES[1:2], LOOPING[1:2], 8)
    assert warning.startswith("the text ends in a loop")
    assert "length 9.00 in all, no others" in warning
    assert acceptance_warnings(EMITTED[2:], PASSES[2:], LOOPING[2:], 8) == []


def test_texts_without_a_pass():
    assert acceptance_warnings(np.array([0]), np.array([0]), np.array([False]), 8) == []


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([], False),
        ([7], False),
        ([7] * 24, True),
        ([7] * 23, False),
        ([1, 2, 3, *[4, 5] * 12], True),
        (list(range(17)) * 10, True),
        ([*range(40), *[*range(16)] * 3], True),
        ([*range(40), *[*range(17)] * 3], True),
        ([*range(40), *[*range(17)] * 2, *range(16)], False),
        ([*range(500), *[*range(200)] * 3], True),
        (list(range(60)), False),
        ([*[4, 5] * 20, 6], True),
        ([*[4, 5] * 20, 6, 7], False),
        ([*[4, 5] * 20, *range(20)], False),
    ],
)
def test_repetition(tokens, expected):
    """A text that ends in a loop is flagged: it says little about other texts."""
    assert is_repetitive(tokens) == expected
    assert is_repetitive(np.array(tokens, dtype=np.int32)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_loops_of_any_period_are_flagged(seed):
    """After any beginning, cut off anywhere, and before a stop token."""
    rng = np.random.default_rng(seed)
    period = int(rng.integers(1, 120))
    phrase = rng.integers(5_000, size=period).tolist()
    times = int(rng.integers(max(3, -(-24 // period)), 40))
    loop = phrase * times + phrase[: int(rng.integers(period + 1))]
    beginning = rng.integers(5_000, 10_000, size=int(rng.integers(200))).tolist()
    assert is_repetitive(loop)
    assert is_repetitive(beginning + loop)
    assert is_repetitive([*beginning, *loop, 20_000])
    assert not is_repetitive(beginning + loop + list(range(20_000, 20_030)))


@pytest.mark.parametrize("seed", range(20))
def test_texts_that_do_not_repeat_to_the_end_are_not_flagged(seed):
    """A phrase that occurs twice, and random words of a small vocabulary."""
    rng = np.random.default_rng(seed)
    phrase = rng.permutation(10_000)[: int(rng.integers(12, 200))].tolist()
    assert not is_repetitive(phrase * 2)
    assert not is_repetitive([*range(10_000, 10_100), *phrase, *phrase])
    assert not is_repetitive(rng.integers(8, size=300).tolist())


def test_long_texts_take_linear_time():
    """Quadratic time would take minutes."""
    assert is_repetitive([7] * 200_000)
    assert not is_repetitive([*[7] * 200_000, 8, 9])
    assert is_repetitive([*range(50_000)] * 3)
