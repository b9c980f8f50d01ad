"""No reader of JSON takes anything but a number for a number."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from blockpilot_rl.agents.monitor import Score
from blockpilot_rl.agents.problem import Problem
from blockpilot_rl.decoding.calibration import _read_check
from blockpilot_rl.decoding.latency import LatencyProfile, SamplingCost
from blockpilot_rl.decoding.state import DEFAULT_GROUPS
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import number, whole_number
from blockpilot_rl.policies.config import PolicyConfig, TrainedOn
from blockpilot_rl.sweeps.metadata import SweepMetadata
from tests.synthetic import synthetic_table

PROFILE = LatencyProfile(
    (1, 4), ((0.0, 0.0), (0.1, 1e-6)), ((0.2, 1e-6), (0.3, 1e-6)), (0.1, 1e-6), {},
    SamplingCost((0.1, 0.2), (0.1, 0.2), 0.3),
)  # fmt: skip
PROBLEM = Problem.from_sweep(synthetic_table(40), DEFAULT_GROUPS)
POLICY = PolicyConfig(
    arms=PROBLEM.arms,
    state=PROBLEM.state,
    hidden=(8, 4),
    activation="relu",
    fallback=PROBLEM.best_fixed,
    fingerprint="f" * 16,
    target="target",
    drafter="drafter",
    trained_on=TrainedOn((0.0, 1.0), ("en",), (3, 90)),
)
CHECK = {
    "interval": [0.1, 0.2],
    "median_error": 0.1,
    "bias": 0.1,
    "temperature": 0.0,
    "pairs": 3,
    "untimed": 0,
    "decodes": [{"tokens": 4, "predicted": 0.1, "measured": 0.1}],
}
READERS = {
    "policy": (PolicyConfig.from_dict, POLICY.to_dict()),
    "problem": (Problem.from_dict, PROBLEM.to_dict()),
    "sweep": (SweepMetadata.from_dict, synthetic_table(40).metadata.to_dict()),
    "latency profile": (LatencyProfile.from_dict, PROFILE.to_dict()),
    "check of a profile": (_read_check, CHECK),
    "requests of a policy": (
        TrainedOn.from_dict,
        {"temperatures": [0.0], "languages": ["en"], "prompt_tokens": [1, 9]},
    ),
    "score": (
        Score.from_dict,
        {"reward": 1.0, "best_fixed": 1.0, "oracle": 1.0, "arm_frequencies": {"1": 0.5}},
    ),
}
NOT_NUMBERS: list[Any] = ["4", "0.5", True, float("nan"), float("inf"), 10**400, None, [1], {}]


def numbers_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every number in a JSON value."""
    if type(value) in (int, float):
        yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            # What is only recorded, or checked elsewhere.
            if key not in ("latency", "medians", "provenance", "template"):
                yield from numbers_in(item, (*path, key))


@pytest.mark.parametrize("name", READERS)
def test_only_numbers_are_read_as_numbers(name):
    read, good = READERS[name]
    good = json.loads(json.dumps(good))
    read(copy.deepcopy(good))
    places = list(numbers_in(good))
    assert places
    for *parents, last in places:
        for bad in NOT_NUMBERS:
            values = copy.deepcopy(good)
            part = values
            for key in parents:
                part = part[key]
            if bad is None and name == "check of a profile":
                continue  # The ends of an interval may be empty.
            part[last] = bad
            with pytest.raises((BlockPilotError, TypeError, ValueError)):
                print(f"{[*parents, last]} = {bad!r:.20} was read as", read(values))


@pytest.mark.parametrize("bad", NOT_NUMBERS)
def test_numbers_are_not_converted(bad):
    for read in (number, whole_number):
        with pytest.raises(TypeError, match="is not a"):
            read(bad)


def test_numbers_keep_their_values():
    assert (number(3), number(0.5), whole_number(-3)) == (3.0, 0.5, -3)
    with pytest.raises(TypeError):
        whole_number(2.0)
