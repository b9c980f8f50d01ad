"""A deployable policy that controls every round: a rule, the prior it starts from, and prices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from blockpilot_rl.decoding.control import Controller, OneRequest
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.round_costs import RoundCosts
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.files import atomic_directory, read_json, write_json
from blockpilot_rl.models.messages import describe_template
from blockpilot_rl.policies.rate_prior import RatePrior
from blockpilot_rl.policies.rules import (
    EntropyRule,
    FixedRule,
    PrefixRule,
    RateRule,
    Rule,
    Start,
)

RULES: dict[str, type[Any]] = {
    "fixed": FixedRule,
    "prefix": PrefixRule,
    "rate": RateRule,
    "entropy": EntropyRule,
}
"""Rules that can be saved, by name."""

VERSION = 1


class RulePolicy:
    """Starts a controller for each request of a pair."""

    def __init__(
        self,
        rule: Rule,
        prior: RatePrior,
        profile: LatencyProfile,
        arms: tuple[int, ...],
        state_groups: tuple[str, ...],
        fingerprint: str,
        template: Mapping[str, Any],
    ) -> None:
        """Put a policy together.

        Args:
            rule: Decides every round.
            prior: Expects an acceptance rate of each request.
            profile: Latency profile of the device.
            arms: Draft lengths to choose from, increasing from 1.
            state_groups: State groups that the prior reads, in order; empty for a constant prior.
            fingerprint: The pair that it was tuned on.
            template: Options of the chat template that it was tuned with.
        """
        self.rule, self.prior, self.profile, self.arms = rule, prior, profile, arms
        self.state_groups = state_groups
        self.fingerprint, self.template = fingerprint, dict(template)
        self._costs = RoundCosts.from_profile(profile)

    def for_device(self, profile: LatencyProfile) -> RulePolicy:
        """Return the same policy with the prices of another device."""
        return RulePolicy(
            self.rule,
            self.prior,
            profile,
            self.arms,
            self.state_groups,
            self.fingerprint,
            self.template,
        )

    def check_pair(self, fingerprint: str, template: Mapping[str, Any] | None = None) -> None:
        """Refuse a pair, or chat-template options, that the policy was not tuned on.

        Raises:
            BlockPilotError: If either differs.
        """
        if fingerprint != self.fingerprint:
            raise BlockPilotError(
                f"the policy was tuned on the pair with fingerprint {self.fingerprint}, this pair "
                f"has {fingerprint}; tune one on traces of this pair"
            )
        if template is not None and dict(template) != self.template:
            raise BlockPilotError(
                f"the policy was tuned with {describe_template(self.template)}, not "
                f"{describe_template(template)}"
            )

    def check_request(self, temperature: float, prompt_tokens: int) -> None:
        """Accept every request: the rounds of a request correct the prior."""

    def start(self, state: torch.Tensor, sampling: Sampling) -> Controller:
        """Start a request.

        Args:
            state: The groups `state_groups`, `[width]`.
            sampling: How its tokens are chosen.
        """
        rates = self.prior.rates(state.detach().float().cpu().numpy()[None])
        sampled = np.array([not sampling.is_greedy])
        return OneRequest(self.rule.begin(Start(rates, sampled, self.arms, self._costs)))

    def save_pretrained(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write `config.json` and `model.safetensors`, atomically.

        Raises:
            BlockPilotError: If the folder holds files and `overwrite` is not set, or it cannot be
                written.
        """
        name = next(name for name, kind in RULES.items() if isinstance(self.rule, kind))
        config = {
            "kind": "step",
            "version": VERSION,
            "rule": name,
            "settings": dataclasses.asdict(self.rule),  # type: ignore[call-overload]
            "arms": list(self.arms),
            "state_groups": list(self.state_groups),
            "fingerprint": self.fingerprint,
            "template": self.template,
            "log_odds": self.prior.log_odds,
            "latency": self.profile.to_dict(),
        }
        weights = {name: getattr(self.prior, name) for name in ("mean", "scale", "weights")}
        with atomic_directory(folder, overwrite=overwrite) as partial:
            write_json(partial / "config.json", config)
            save_file(weights, partial / "model.safetensors")

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> RulePolicy:
        """Load a policy that `save_pretrained` wrote.

        Raises:
            BlockPilotError: If it is missing or corrupt.
        """
        path = Path(folder)
        values = read_json(path / "config.json")
        try:
            if values["kind"] != "step" or values["version"] != VERSION:
                raise ValueError(f"kind {values['kind']!r}, version {values['version']!r}")
            rule = RULES[values["rule"]](**values["settings"])
            weights = load_file(path / "model.safetensors")
            prior = RatePrior(log_odds=float(values["log_odds"]), **weights)
            policy = cls(
                rule,
                prior,
                LatencyProfile.from_dict(values["latency"]),
                tuple(int(arm) for arm in values["arms"]),
                tuple(map(str, values["state_groups"])),
                str(values["fingerprint"]),
                values["template"],
            )
            policy._check()
        except (KeyError, TypeError, ValueError, OSError, SafetensorError) as error:
            raise BlockPilotError(
                f"{path} holds no policy that controls rounds, or is corrupt: "
                f"{type(error).__name__}: {one_line(error)}"
            ) from error
        return policy

    def _check(self) -> None:
        """Check that arms and weights are usable.

        Raises:
            ValueError: If they are not.
        """
        prior, arms = self.prior, self.arms
        if not arms or arms[0] != 1 or sorted(set(arms)) != list(arms):
            raise ValueError(f"arms {list(arms)} must increase from 1")
        if arms[-1] > self._costs.longest:
            raise ValueError(f"arm {arms[-1]} has no price in the latency profile")
        shapes = {values.shape for values in (prior.mean, prior.scale, prior.weights)}
        if len(shapes) != 1 or len(prior.mean.shape) != 1:
            raise ValueError("the weights of the prior differ in shape")
        numbers = np.concatenate([prior.mean, prior.scale, prior.weights, [prior.log_odds]])
        if not np.isfinite(numbers).all() or not (prior.scale > 0).all():
            raise ValueError("a weight of the prior is not finite, or a scale is not positive")
