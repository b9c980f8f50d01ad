"""What each group of the state is worth: agents that see one group alone, or all but one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.judge import Judge
from blockpilot_rl.evaluation.results import AblationRow

ALL_GROUPS = "all groups"


def group_sets(layout: StateLayout) -> dict[str, tuple[str, ...]]:
    """Sets of state groups to learn from, by the name to show: each alone, all but each, all.

    Args:
        layout: The groups that were recorded. Of two, all but one is the other one alone.
    """
    names = layout.names
    sets: dict[str, tuple[str, ...]] = {}
    if len(names) > 1:
        sets |= {f"{name} alone": (name,) for name in names}
    if len(names) > 2:
        for name in names:
            sets[f"all but {name}"] = tuple(other for other in names if other != name)
    return {**sets, ALL_GROUPS: names}


def ablation_rows(
    judge: Judge, sets: Mapping[str, Sequence[str]], choices: Mapping[str, Choices]
) -> dict[str, AblationRow]:
    """Measure what agents achieve that saw each set of groups.

    Args:
        judge: Judges against the best fixed size of the training prompts.
        sets: The groups, by the name to show; `ALL_GROUPS` is among them.
        choices: What the agents that saw them chose on the judge's test rows, by the same names.
    """
    layout, requests = judge.test.metadata.state, judge.requests
    every = judge.seconds(choices[ALL_GROUPS])
    rows = {}
    for name, groups in sets.items():
        seconds = judge.seconds(choices[name])
        found = requests.mean_speedups(seconds)
        rows[name] = AblationRow(
            groups=list(groups),
            width=layout.select(groups).width,
            mean_speedup=found.choice,
            gain=requests.gain(seconds),
            gap_closed=found.gap_closed,
            change=requests.change(seconds, every),
        )
    return rows
