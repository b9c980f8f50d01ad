"""The value of each state group: agents that see one group alone, or all but one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.judge import Judge
from blockpilot_rl.evaluation.results import ALL_GROUPS, Ablation, AblationRow
from blockpilot_rl.experiments.seeds import Splits, TrainedSeeds, Trainer


def ablate(
    trainer: Trainer,
    judge: Judge,
    algorithm: str,
    splits: Splits,
    trained: Mapping[str, TrainedSeeds],
) -> Ablation:
    """Train an algorithm on each recorded state group alone, on all but each, and on all.

    Args:
        trainer: Trains the agents.
        judge: Judges against the best fixed size of the training prompts.
        algorithm: The algorithm.
        splits: The rows.
        trained: The agents that saw the trainer's state groups, by algorithm.
    """
    sets = group_sets(splits.test.metadata.state)
    choices = {}
    for name, groups in sets.items():
        known = trained.get(algorithm) if groups == trainer.state_groups else None
        run = known or trainer.train(algorithm, splits, state_groups=groups, label=f"sees {name}")
        choices[name] = run.choices
    return Ablation(algorithm, ablation_rows(judge, sets, choices))


def group_sets(layout: StateLayout) -> dict[str, tuple[str, ...]]:
    """Sets of state groups to learn from, by name: each alone, all but each, and all.

    Args:
        layout: The recorded groups. If there are two, all but one is the same as the other alone.
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
    """Measure the agents that saw each set of groups.

    Args:
        judge: Judges against the best fixed size of the training prompts.
        sets: The groups by the name of the set; `ALL_GROUPS` is among them.
        choices: Choices on the judge's test rows by the name of the set.
    """
    layout, requests = judge.test.metadata.state, judge.requests
    seconds_with_all = judge.seconds(choices[ALL_GROUPS])
    rows = {}
    for name, groups in sets.items():
        seconds = judge.seconds(choices[name])
        means = requests.mean_speedups(seconds)
        rows[name] = AblationRow(
            groups=list(groups),
            width=layout.select(groups).width,
            mean_speedup=means.choice,
            gain=requests.gain(seconds),
            gap_closed=means.gap_closed,
            change=requests.change(seconds, seconds_with_all),
        )
    return rows
