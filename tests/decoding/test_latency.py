from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from blockpilot_rl.decoding.latency import LatencyProfile, SamplingCost, validate_arms
from blockpilot_rl.errors import BlockPilotError

PROFILE = LatencyProfile(
    block_sizes=(1, 4),
    draft=((0.0, 0.0), (0.01, 0.0001)),
    verify=((0.03, 0.0002), (0.05, 0.0003)),
    read_prompt=(0.004, 0.00001),
    medians={"contexts": [10, 20]},
)
WARM = dataclasses.replace(
    PROFILE, sampling=SamplingCost(draft=(0.002, 0.001), verify=(0.004, 0.003), noise=0.0005)
)
COSTS = {"draft": [0.0, 0.0], "verify": [0.0, 0.0], "noise": 0.0}


def test_every_pass_costs_what_its_context_costs():
    """Contexts 20, 23 and 24: a context grows by the emitted tokens."""
    blocks = 3 * (0.01 + 0.05) + (20 + 23 + 24) * (0.0001 + 0.0003)
    reading = 0.004 + 20 * 0.00001
    assert PROFILE.decode_seconds(4, 20, [3, 1, 2]) == pytest.approx(blocks + reading)
    plain = 2 * 0.03 + (20 + 21) * 0.0002
    assert PROFILE.decode_seconds(1, 20, np.array([1, 1])) == pytest.approx(plain)
    assert PROFILE.decode_seconds(4, 20, []) == 0.0


def test_shorter_blocks_near_the_end_of_a_budget_cost_their_own_size():
    """A budget of 8, passes at tokens 0, 4 and 6: blocks of 4, 4 and 2, noise up to the end."""
    measured = dataclasses.replace(
        WARM,
        block_sizes=(1, 2, 4),
        draft=((0.0, 0.0), (0.006, 0.0), (0.01, 0.0)),
        verify=((0.03, 0.0), (0.04, 0.0), (0.05, 0.0)),
        read_prompt=(0.0, 0.0),
    )
    whole = measured.decode_seconds(4, 20, [4, 2, 1])
    assert whole == pytest.approx(3 * 0.06)
    found = measured.decode_seconds(4, 20, [4, 2, 1], max_new_tokens=8)
    assert found == pytest.approx(0.06 + 0.06 + 0.046)
    assert measured.decode_seconds(4, 20, [4, 2, 1], max_new_tokens=99) == pytest.approx(whole)
    sampled = measured.decode_seconds(4, 20, [4, 2, 1], sampled=True, max_new_tokens=8)
    choosing = 2 * (0.002 + 2 * 0.001 + 0.004 + 3 * 0.003) + (0.002 + 0.004 + 0.003)
    assert sampled - found == pytest.approx(choosing + 8 * 0.0005)


def test_sizes_between_measured_ones_are_interpolated():
    """A draft of 2 or 3 tokens is not priced below the smallest measured one, of 4."""
    np.testing.assert_allclose(PROFILE.draft_table()[[0, 1, 2, 4], 0], [0, 0, 0.01, 0.01])
    np.testing.assert_allclose(PROFILE.verify_table()[[1, 4], 0], [0.03, 0.05])
    three = dataclasses.replace(
        PROFILE, block_sizes=(1, 2, 6), draft=((0.0, 0.0), (0.01, 0.0), (0.03, 0.0)),
        verify=((0.03, 0.0),) * 3,
    )  # fmt: skip
    np.testing.assert_allclose(three.draft_table()[:, 0], [0, 0, 0.01, 0.015, 0.02, 0.025, 0.03])


def test_a_temperature_adds_to_every_pass_and_every_position():
    """A block of 4 proposes 3 and chooses 4 tokens; noise reaches to the end of the last block."""
    for size, emitted in ((4, [3, 1, 2]), (1, [1, 1])):
        greedy = WARM.decode_seconds(size, 20, emitted)
        assert greedy == PROFILE.decode_seconds(size, 20, emitted)
        assert PROFILE.decode_seconds(size, 20, emitted, sampled=True) == greedy
    added = WARM.decode_seconds(4, 20, [3, 1, 2], sampled=True) - PROFILE.decode_seconds(
        4, 20, [3, 1, 2]
    )
    choosing = 0.002 + 2 * 0.001 + 0.004 + 3 * 0.003
    assert added == pytest.approx(3 * choosing + (3 + 1 + 4) * 0.0005)
    plain = WARM.decode_seconds(1, 20, [1, 1], sampled=True) - PROFILE.decode_seconds(1, 20, [1, 1])
    assert plain == pytest.approx(2 * 0.004 + 2 * 0.0005)
    assert WARM.decode_seconds(4, 20, [], sampled=True) == 0.0


def test_acceptance_and_time_may_disagree():
    """vllm-project/vllm#26504: a longer acceptance length can be slower."""
    slow = dataclasses.replace(PROFILE, verify=((0.03, 0.0), (0.2, 0.0)))
    plain = slow.decode_seconds(1, 20, [1] * 6)
    blocks = slow.decode_seconds(4, 20, [2, 2, 2])
    assert blocks > plain


def test_a_size_that_was_not_measured():
    with pytest.raises(BlockPilotError, match=r"block size 3 is not in the latency profile \(1, 4"):
        PROFILE.decode_seconds(3, 20, [1])


def test_survives_json():
    for profile in (PROFILE, WARM):
        assert LatencyProfile.from_dict(json.loads(json.dumps(profile.to_dict()))) == profile


def test_a_pass_between_two_measured_sizes():
    """Verifying 2 or 3 tokens is interpolated between 1 and 4; drafts are not interpolated."""
    np.testing.assert_allclose(
        PROFILE.verify_lines((1, 2, 4)),
        [(0.03, 0.0002), (0.03 + 0.02 / 3, 0.0002 + 0.0001 / 3), (0.05, 0.0003)],
    )
    np.testing.assert_allclose(PROFILE.step_lines((4,)), [(0.06, 0.0004)])
    with pytest.raises(BlockPilotError, match="a pass of 5 tokens is outside"):
        PROFILE.verify_lines((5,))
    with pytest.raises(BlockPilotError, match="block size 2 is not in the latency profile"):
        PROFILE.draft_lines((2,))


def test_another_cost_of_further_tokens():
    flat, steep = PROFILE.scaled(0.0), PROFILE.scaled(3.0)
    assert flat.verify == (PROFILE.verify[0],) * 2
    np.testing.assert_allclose(steep.verify[1], (0.03 + 3 * 0.02, 0.0002 + 3 * 0.0001))
    assert steep.verify[0] == PROFILE.verify[0]
    # The shortest draft is what it is here, as there is none without it.
    assert flat.draft == steep.draft == PROFILE.draft
    np.testing.assert_allclose(PROFILE.scaled(1.0).verify, PROFILE.verify)
    assert flat.token_cost(100) == 0.0
    assert PROFILE.token_cost(0) == pytest.approx((0.05 / 0.03 - 1) / 3)
    assert steep.token_cost(100) == pytest.approx(3 * PROFILE.token_cost(100))
    assert WARM.scaled(2.0).sampling == SamplingCost((0.002, 0.002), (0.004, 0.006), 0.0005)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"read_prompt": None}, "not a latency profile: TypeError"),
        (
            {"verify": [["a", 0.0]]},
            "not a latency profile: TypeError: the text 'a' is not a number",
        ),
        ({"verify": [["0.1", 0.0]]}, "the text '0.1' is not a number"),
        ({"block_sizes": [1, 4.0]}, "4.0 is not a whole number"),
        ({"block_sizes": [True, 4]}, "true is not a whole number"),
        ({"draft": []}, "needs a line for every block size"),
        ({"verify": [[0.0, 0.0], [0.1, 0.0]]}, "verify has a pass that takes no time"),
        (
            {"verify": [[0.1, 0.0], [math.inf, 0.0]]},
            "verify has a number that is negative, not finite",
        ),
        (
            {"verify": [[0.1, 0.0], [math.nan, 0.0]]},
            "verify has a number that is negative, not finite",
        ),
        ({"draft": [[0.0, 0.0], [-0.1, 0.0]]}, "draft has a number that is negative, not finite"),
        ({"read_prompt": [10**400, 0.0]}, "not a latency profile: OverflowError"),
        ({"block_sizes": [4, 1]}, r"block sizes \[4, 1\] must increase from 1"),
        ({"medians": None}, "medians must be an object"),
        ({"sampling": None}, "not a latency profile: TypeError"),
        ({"sampling": {}}, "not a latency profile: KeyError: 'draft'"),
        ({"sampling": {"draft": [1]}}, "not a latency profile: KeyError: 'verify'"),
        ({"sampling": [1, 2]}, "not a latency profile: TypeError"),
        ({"sampling": {**COSTS, "verify": [0.1]}}, "not a latency profile: ValueError"),
        (
            {"sampling": {**COSTS, "noise": -1}},
            "sampling has a number that is negative, not finite",
        ),
        ({"sampling": {**COSTS, "draft": [0, math.nan]}}, "sampling has a number that is negative"),
    ],
)
def test_invalid_profiles_are_refused(change, message):
    with pytest.raises(BlockPilotError, match=message):
        LatencyProfile.from_dict({**PROFILE.to_dict(), **change})
    for name in ("draft", "sampling"):
        lacking = {key: value for key, value in PROFILE.to_dict().items() if key != name}
        with pytest.raises(BlockPilotError, match=f"not a latency profile: KeyError: '{name}'"):
            LatencyProfile.from_dict(lacking)


@pytest.mark.parametrize("arms", [(), (1,), (2, 4), (1, 4, 4), (1, 4, 2), (0, 1)])
def test_arms_are_increasing_from_one(arms):
    message = "must be two or more increasing block sizes that begin with 1"
    with pytest.raises(BlockPilotError, match=message):
        validate_arms(arms)
