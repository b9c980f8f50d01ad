from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.options import changed_options, check_options, option


@dataclass(frozen=True)
class Settings:
    count: Any = option(1, help="a count", minimum=1)
    share: Any = option(0.5, help="a share", above=0, below=1)
    seed: Any = option(0, help="a seed", minimum=0, maximum=2**32 - 1)
    engine: Any = option("local", help="an engine", choices=("local", "ray"))
    arms: Any = option((1, 2), help="sizes", minimum=1)
    groups: Any = option(("english",), help="groups", choices=("english", "chat"))
    trace: Any = option(0, help="a number or all", choices=("all",), minimum=0)
    free: Any = option(None, help="anything")

    def __post_init__(self) -> None:
        check_options(self)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"count": np.int64(3), "share": np.float32(0.25)},
        {"count": None, "share": None, "engine": None},
        {"seed": 2**32 - 1},
        {"arms": (1, 16), "groups": ["chat", "english"]},
        {"arms": (), "groups": ()},
        {"trace": "all"},
        {"trace": 5},
        {"free": object()},
    ],
)
def test_allowed_values(values):
    Settings(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "count must be at least 1, got 0"),
        ({"count": float("nan")}, "count must be at least 1, got nan"),
        ({"count": "3"}, "count must be a number, got '3'"),
        ({"count": True}, "count must be a number, got True"),
        ({"count": [1, 0]}, "count must be at least 1, got 0"),
        ({"share": 1}, "share must be above 0 and below 1, got 1"),
        ({"share": float("inf")}, "share must be above 0 and below 1, got inf"),
        ({"seed": 2**32}, "seed must be at least 0 and at most 4294967295, got 4294967296"),
        (
            {"engine": "locale"},
            "engine must be one of local, ray, got 'locale'. Did you mean 'local'?",
        ),
        ({"arms": (1, 0)}, "arms must be at least 1, got 0"),
        (
            {"groups": ("english", "chats")},
            "groups must be one of english, chat, got 'chats'. Did you mean 'chat'?",
        ),
        ({"trace": -1}, "trace must be at least 0, got -1"),
        ({"trace": "some"}, "trace must be a number, got 'some'"),
    ],
)
def test_values_out_of_bounds_are_refused_in_one_line(values, message):
    with pytest.raises(BlockPilotError) as error:
        Settings(**values)
    assert str(error.value) == message


@pytest.mark.parametrize("digits", [400, 1000, 4000])
def test_numbers_too_large_for_a_float_are_checked(digits):
    @dataclass
    class Sizes:
        limited: int = option(1, minimum=1, maximum=9, help="")
        free: int = option(1, minimum=1, help="")

    check_options(Sizes(free=10**digits))
    for values in ({"limited": 10**digits}, {"free": -(10**digits)}):
        with pytest.raises(BlockPilotError, match="must be at least 1"):
            check_options(Sizes(**values))


@dataclass(frozen=True)
class Changing:
    out: str = option(help="required")
    size: int = option(8, help="size")
    names: list[str] = option(default_factory=list, help="names")
    level: float | None = option(None, help="level")


@pytest.mark.parametrize(
    ("values", "changed"),
    [
        ({}, ("out",)),
        ({"size": 8, "names": [], "level": None}, ("out",)),
        ({"level": 0.0, "size": 4}, ("out", "size", "level")),
        ({"names": ["a"]}, ("out", "names")),
    ],
)
def test_changed_options_are_named_in_order(values, changed):
    assert changed_options(Changing("x", **values)) == changed
