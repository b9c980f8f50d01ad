"""The comparison of choices, from tables of each split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.results import Comparison
from blockpilot_rl.experiments.judging import judge_agents
from blockpilot_rl.experiments.seeds import Splits
from blockpilot_rl.sweeps.table import Sweep


def judged(
    train: Sweep,
    validation: Sweep | None,
    test: Sweep,
    choices: Mapping[str, Choices],
    **options: Any,
) -> Comparison:
    """Judge choices that were made on the test rows."""
    return judge_agents(Splits(train, validation, test), choices, **options)
