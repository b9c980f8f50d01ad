"""Rules by name, with the settings that are tried on training prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np

from blockpilot_rl.control.requests import TracedRequests
from blockpilot_rl.policies.rules import (
    EntropyRule,
    FixedRule,
    PrefixRule,
    RateRule,
    Rule,
)

Criterion = Literal["mean", "total"]
"""What is tuned: mean speedup over requests, or speedup in total time."""


def tune(
    rules: Iterable[Rule], requests: TracedRequests, criterion: Criterion = "mean"
) -> tuple[Rule, float]:
    """Find the fastest rule on training requests.

    Args:
        rules: Rules with different settings.
        requests: The training requests.
        criterion: What is compared.

    Returns:
        The rule and its speedup over plain decoding.
    """
    plain = plain_seconds(requests)
    found = [(speedup(plain, requests.seconds(rule), criterion), rule) for rule in rules]
    best, rule = max(found, key=lambda item: item[0])
    return rule, best


def plain_seconds(requests: TracedRequests) -> np.ndarray:
    """Seconds of plain decoding of every request, `[rows]`."""
    return requests.seconds(FixedRule(1))


def speedup(plain: np.ndarray, seconds: np.ndarray, criterion: Criterion) -> float:
    """Speedup over plain decoding on several requests."""
    if criterion == "mean":
        return float((plain / seconds).mean())
    return float(plain.sum() / seconds.sum())


THRESHOLDS = (0.01, 0.02, 0.04, 0.06, 0.08, 0.12, 0.2, 0.3)


@dataclass(frozen=True)
class Baseline:
    """A rule that is written by hand, and the settings to try.

    Attributes:
        make: The class of the rule.
        grid: Values to try for its settings, by name.
        reads_prior: Whether it starts at the rate that a prior reads from the prefill state;
            otherwise at the average rate.
    """

    make: type[Any]
    grid: Mapping[str, Sequence[Any]]
    reads_prior: bool = False

    def rules(self) -> list[Rule]:
        """Return a rule for each combination of the settings."""
        names = list(self.grid)
        return [
            self.make(**dict(zip(names, values, strict=True)))
            for values in product(*self.grid.values())
        ]


def baselines(lengths: Sequence[int]) -> dict[str, Baseline]:
    """List the rules that are written by hand.

    Args:
        lengths: Draft lengths, increasing from 1.
    """
    drafts = [length for length in lengths if length > 1]
    written = {"memory": (0.9,), "prior_weight": (4.0,), "threshold": (0.04,)}
    follow = {
        "memory": (0.8, 0.9, 0.95, 1.0),
        "prior_weight": (2.0, 4.0, 8.0, 16.0),
        "plain_memory": (0.9,),
    }
    verify = {"threshold": THRESHOLDS}
    return {
        "fixed": Baseline(FixedRule, {"length": lengths}),
        "confident prefix": Baseline(PrefixRule, {"length": drafts, **verify}),
        "confident prefix, drafts of the longest": Baseline(
            PrefixRule, {"length": drafts[-1:], **verify}
        ),
        "entropy bound": Baseline(
            EntropyRule,
            {"length": drafts, "scale": (0.1, 0.2, 0.4), "threshold": (0.2, 0.4, 0.6)},
        ),
        "hand-made rule without prior": Baseline(RateRule, written),
        "hand-made rule": Baseline(RateRule, written, reads_prior=True),
        "recent acceptance": Baseline(RateRule, {**follow, "threshold": (0.0,)}),
        "recent acceptance and confidence": Baseline(RateRule, {**follow, **verify}),
        "prior and confidence": Baseline(
            RateRule, {"prior_weight": (float("inf"),), **verify}, reads_prior=True
        ),
        "prior, recent acceptance and confidence": Baseline(
            RateRule, {**follow, **verify}, reads_prior=True
        ),
    }
