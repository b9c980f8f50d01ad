from __future__ import annotations

import pytest

from blockpilot_rl.cli.lists import assignments, part_of, whole_numbers, words
from blockpilot_rl.errors import BlockPilotError


def test_words():
    assert words("a, b,,c ") == ("a", "b", "c")
    assert words("") == ()


def test_whole_numbers():
    assert whole_numbers("1, 2,16", "--arms") == (1, 2, 16)
    for text in ("1,two", "1.5", "-1", "1e3", "²"):
        with pytest.raises(BlockPilotError, match=r"--arms must be whole numbers such as 1,2,4,8"):
            whole_numbers(text, "--arms")


def test_parts_count_from_one():
    assert part_of("1/1") == (0, 1)
    assert part_of("3/4") == (2, 4)
    for text in ("0/2", "3/2", "1", "1/", "/2", "a/b", "-1/2", "1/2/3"):
        with pytest.raises(BlockPilotError, match="--part must be I/N with 1 <= I <= N"):
            part_of(text)


def test_assignments_are_yaml():
    words = ["enable_thinking:false", "effort:low", "n:3", "url:a:b", "none:null"]
    assert assignments(words, "--template") == {
        "enable_thinking": False,
        "effort": "low",
        "n": 3,
        "url": "a:b",
        "none": None,
    }
    assert assignments([], "--template") == {}
    for word in ("loud", "loud:", ":true", ""):
        with pytest.raises(BlockPilotError, match="--template must be KEY:VALUE, such as size:3"):
            assignments([word], "--template")
    for word in ("a:[", "a:2020-13-45", "a:0b_", "a:" + "[" * 5000):
        with pytest.raises(BlockPilotError, match=r"--template a:.*: the value is not YAML"):
            assignments([word], "--template")


@pytest.mark.parametrize(
    "text", ["2020-01-01", "[2020-01-01]", ".inf", ".nan", "&a [*a]", "!!set {a}"]
)
def test_assignments_hold_what_can_be_recorded(text):
    with pytest.raises(BlockPilotError, match=r"--template day:.* has no JSON counterpart"):
        assignments([f"day:{text}"], "--template")
    assert assignments(["day:'2020-01-01'"], "--template") == {"day": "2020-01-01"}
