"""Judge an existing policy on any sweep of its pair, without training."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.choices import Choices, decision_seconds
from blockpilot_rl.evaluation.comparison import compare_choices, describe_splits
from blockpilot_rl.evaluation.judge import Judge
from blockpilot_rl.evaluation.oracle import best_fixed_by_mean, best_fixed_by_total
from blockpilot_rl.evaluation.pooling import FAMILY_RISK, FamilyRule
from blockpilot_rl.evaluation.results import Comparison
from blockpilot_rl.options import check_options, option
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.provenance import provenance
from blockpilot_rl.sweeps.selection import (
    check_temperature,
    select_temperature,
    temperature_option,
)
from blockpilot_rl.sweeps.table import Sweep


def _fixed(word: str) -> int | str:
    """Read a block size, or `policy`."""
    try:
        return int(word)
    except ValueError:
        return word


@dataclass(frozen=True)
class EvaluateConfig:
    """How a policy is judged."""

    split: Literal["train", "validation", "test", "all"] = option(
        "test",
        choices=("train", "validation", "test", "all"),
        help="rows to judge on; the policy must not have been trained on them",
    )
    fixed: int | str | None = option(
        None,
        metavar="B",
        parse=_fixed,
        help="fixed block size to compare with, or `policy` for the one that the policy falls back "
        "to (default: the best on the sweep's training rows, or that of the policy if there are "
        "none or they are judged)",
    )
    temperature: float | Literal["all"] | None = temperature_option()
    confidence: float = option(0.95, above=0, below=1, help="level of the intervals")
    family_margin: float = option(
        0.01,
        minimum=0,
        below=1,
        help="loss in a single family, as a fraction, beyond which the policy is not shipped",
    )
    family_risk: float = option(
        FAMILY_RISK,
        above=0,
        below=1,
        help="probability of such a loss, all families estimated together, above which it is not "
        "shipped",
    )
    seed: int = option(0, minimum=0, help="seed of the bootstrap")

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If one is out of range.
        """
        check_options(self)
        check_temperature(self.temperature)
        if isinstance(self.fixed, bool) or (isinstance(self.fixed, str) and self.fixed != "policy"):
            raise BlockPilotError(f"fixed must be a block size or policy, got {self.fixed!r}")


def evaluate(
    policy: BlockSizePolicy | str | Path,
    sweep: Sweep | str | Path | None = None,
    config: EvaluateConfig | None = None,
) -> Comparison:
    """Judge a policy on a sweep, against a fixed size, random sizes and the oracle.

    Nothing is trained. The sweep may hold your own traffic, or the prices of another device: an
    acceptance policy chooses by the sweep's latency profile.

    Args:
        policy: The policy, its folder, its hub id, or `"bundled"`.
        sweep: A sweep of the policy's pair, or its folder; None for the bundled one.
        config: How to judge; None for the defaults.

    Returns:
        A comparison with the policy as its only agent, named after its algorithm.

    Raises:
        BlockPilotError: If the policy or the sweep cannot be read, they belong to different pairs,
            the sweep lacks a block size, a state group or the rows, or a single prompt is left.

    Example:
        >>> from blockpilot_rl import evaluate
        >>> found = evaluate("my-policy", "my-traffic")
        >>> found.verdict.ship, found.verdict.gain
    """
    config = config or EvaluateConfig()
    loaded = policy
    if not isinstance(loaded, BlockSizePolicy):
        loaded = BlockSizePolicy.from_pretrained(loaded)
    table = sweep if isinstance(sweep, Sweep) else Sweep.load(sweep)
    table = _checked(loaded, table)
    rows, note = select_temperature(table, config.temperature)
    judged = rows if config.split == "all" else rows.split(config.split)
    if judged.rows["id"].nunique() < 2:
        raise BlockPilotError(
            f"split {config.split} has a single prompt and an interval needs two or more; judge "
            "another split, or record more prompts with `blockpilot collect-sweep`"
        )
    train = _part(rows, "train") if config.split in ("validation", "test") else None
    fixed, total, chosen_on = _fixed_arms(loaded, table, train, config)
    priced, device_note = _priced(loaded, judged)
    choices = _choose(priced, judged)
    found = compare_choices(
        Judge(judged, fixed, total, config.confidence, config.seed),
        {loaded.config.algorithm: choices},
        describe_splits(train, _part(rows, "validation") if train else None, judged),
        FamilyRule(config.family_margin, config.family_risk),
    )
    notes = [note, chosen_on, device_note, *_differences(loaded, judged), _trained_note(config)]
    return dataclasses.replace(
        found,
        notes=[each for each in notes if each is not None],
        settings={
            "policy": None if isinstance(policy, BlockSizePolicy) else str(policy),
            "sweep": None if sweep is None or isinstance(sweep, Sweep) else str(sweep),
            **{
                each.name: getattr(config, each.name) for each in dataclasses.fields(EvaluateConfig)
            },
        },
        provenance=provenance(),
    )


def _checked(policy: BlockSizePolicy, table: Sweep) -> Sweep:
    """Check that the sweep is of the policy's pair, and add a state group that follows from it."""
    policy.check_pair(table.metadata.fingerprint, table.metadata.template)
    missing = [arm for arm in policy.arms if arm not in table.arms]
    if missing:
        raise BlockPilotError(
            f"the policy chooses block size {missing[0]}, which the sweep lacks; it has "
            f"{', '.join(map(str, table.arms))}; record it with `blockpilot collect-sweep --arms`"
        )
    return table.with_groups(policy.state_groups)


def _part(rows: Sweep, split: str) -> Sweep | None:
    return rows.split(split) if (rows.rows["split"] == split).any() else None


def _fixed_arms(
    policy: BlockSizePolicy, table: Sweep, train: Sweep | None, config: EvaluateConfig
) -> tuple[int, int, str | None]:
    """Arms of the sizes that are best in mean speedup and in total time, and a note on them."""
    if isinstance(config.fixed, int):
        arm = table.arm_index(config.fixed)
        return arm, arm, f"compared with block size {config.fixed}, as asked"
    if config.fixed is None and train is not None:
        return best_fixed_by_mean(train), best_fixed_by_total(train), None
    arm = table.arm_index(policy.config.fallback)
    return arm, arm, f"compared with block size {policy.config.fallback}, the policy's fallback"


def _priced(policy: BlockSizePolicy, judged: Sweep) -> tuple[BlockSizePolicy, str | None]:
    """Let an acceptance policy choose by the sweep's prices, and note prices that differ."""
    metadata, prices = judged.metadata, policy.config.prices
    if policy.config.head == "acceptance" and metadata.latency:
        return policy.for_device(LatencyProfile.from_dict(metadata.latency)), None
    if prices is None or (prices.device, prices.dtype) == (
        metadata.device,
        metadata.latency_dtype,
    ):
        return policy, None
    return policy, (
        f"the policy chooses for {prices.device} in {prices.dtype}; the sweep has the prices of "
        f"{metadata.device} in {metadata.latency_dtype}"
    )


def _choose(policy: BlockSizePolicy, judged: Sweep) -> Choices:
    """Choices on the rows, with the time of each decision."""
    columns = judged.metadata.state.columns(policy.state_groups)
    own = np.array([judged.arm_index(arm) for arm in policy.arms])
    arms = own[policy.predict(judged.states[:, columns])]
    return Choices(arms[None], decision_seconds(policy, judged, arms)[None])


def _differences(policy: BlockSizePolicy, judged: Sweep) -> list[str]:
    """Notes on rows that differ from those that the policy was trained on."""
    trained_on = policy.config.trained_on
    if trained_on is None:
        return []
    found: dict[str, list[str]] = {}
    for row in judged.rows[["temperature", "prompt_tokens", "language"]].itertuples(index=False):
        for kind, text in trained_on.differences(*row).items():
            found.setdefault(kind, []).append(text)
    return [
        f"{len(texts):,} of {len(judged):,} rows are unlike the policy's training; it was trained "
        f"{texts[0]}"
        for texts in found.values()
    ]


def _trained_note(config: EvaluateConfig) -> str | None:
    if config.split == "test":
        return None
    return f"judged on split {config.split}, which the policy may have been trained on"
