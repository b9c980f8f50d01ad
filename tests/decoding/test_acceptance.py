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
def test_few_passes_say_nothing_of_a_drafter(passes, warns):
    found = acceptance_warnings(np.array([passes]), np.array([passes]), np.array([False]), 8)
    assert bool(found) == warns


def test_loops_are_named_with_what_is_left_without_them():
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
        ([7] * 24, True),
        ([7] * 23, False),
        ([1, 2, 3, *[4, 5] * 12], True),
        ([*range(40), *[*range(16)] * 3], True),
        ([*range(40), *[*range(17)] * 3], False),
        (list(range(60)), False),
        ([*[4, 5] * 20, 6], False),
    ],
)
def test_repetition(tokens, expected):
    """A text that ends in a loop is flagged: nothing predicts real texts less."""
    assert is_repetitive(tokens) == expected
