"""The config of a policy: everything but its weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.errors import BlockPilotError, closest
from blockpilot_rl.files import number, read_json, whole_number

POLICY_VERSION = 2
READABLE_VERSIONS = (1, 2)
HEADS = ("reward", "acceptance")
MAX_WIDTH = 65_536
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


@dataclass(frozen=True)
class TrainedOn:
    """The requests that a policy was trained on.

    Attributes:
        temperatures: Their sampling temperatures, increasing.
        languages: Their languages, sorted.
        prompt_tokens: Lengths of the shortest and the longest prompt.
    """

    temperatures: tuple[float, ...]
    languages: tuple[str, ...]
    prompt_tokens: tuple[int, int]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainedOn:
        """Read the result of `dataclasses.asdict`.

        Raises:
            KeyError: If a key is missing.
            TypeError: If a value is of a wrong type.
            ValueError: If a value is not possible.
        """
        shortest, longest = map(whole_number, values["prompt_tokens"])
        temperatures = tuple(map(number, values["temperatures"]))
        if not all(value >= 0 for value in temperatures) or not 0 <= shortest <= longest:
            raise ValueError(f"trained_on {dict(values)} is not possible")
        return cls(temperatures, tuple(map(str, values["languages"])), (shortest, longest))

    def differences(
        self, temperature: float, prompt_tokens: int, language: str | None = None
    ) -> dict[str, str]:
        """Describe how a request differs from those of the training, by `temperature` and so on."""
        found = {}
        if self.temperatures and not (
            min(self.temperatures) <= temperature <= max(self.temperatures)
        ):
            trained = ", ".join(f"{value:g}" for value in self.temperatures)
            found["temperature"] = f"at temperature {trained}, not {temperature:g}"
        shortest, longest = self.prompt_tokens
        if not shortest <= prompt_tokens <= longest:
            found["prompt_tokens"] = (
                f"on prompts of {shortest} to {longest} tokens, not {prompt_tokens}"
            )
        if language is not None and self.languages and language not in self.languages:
            found["language"] = f"on the languages {', '.join(self.languages)}, not {language}"
        return found


@dataclass(frozen=True)
class Prices:
    """What passes cost on the device that a policy chooses for.

    Attributes:
        device: Name of the device.
        dtype: Dtype of both models.
        latency: The latency profile, without the measured medians.
    """

    device: str
    dtype: str
    latency: LatencyProfile

    @classmethod
    def from_latency(cls, latency: LatencyProfile, device: str, dtype: str) -> Prices:
        """Take a profile without its medians."""
        return cls(device, dtype, dataclasses.replace(latency, medians={}))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Prices:
        """Read the result of `dataclasses.asdict`.

        Raises:
            KeyError or TypeError: If a key is missing or of a wrong type.
            BlockPilotError: If the latency profile is not valid.
        """
        return cls(
            str(values["device"]), str(values["dtype"]), LatencyProfile.from_dict(values["latency"])
        )


@dataclass(frozen=True)
class PolicyConfig:
    """Everything about a policy but its weights.

    Attributes:
        arms: Block sizes to choose from, increasing.
        state: Names and widths of the state groups it reads, in order.
        hidden: Widths of the hidden layers; empty for a linear policy. For an acceptance head, the
            number of components that the state is reduced to.
        activation: `tanh` or `relu`.
        fallback: Fixed block size to use when the policy cannot.
        fingerprint: Digest of the pair it was trained on.
        target: Name of that target.
        drafter: Name of that drafter.
        template: Chat-template options of the states it was trained on.
        algorithm: The algorithm that trained it.
        provenance: Command, versions, git SHA and date of the training.
        trained_on: The requests that it was trained on; None for policies of release 0.1, which
            did not record them.
        head: `reward` scores every arm, for the device that it was trained for. `acceptance`
            predicts how far drafts survive, which the prices of any device turn into a choice.
        prices: What passes cost on the device that it chooses for; None if that is not known, as
            for policies of release 0.1.
        policy_version: Version of this format.
    """

    arms: tuple[int, ...]
    state: StateLayout
    hidden: tuple[int, ...]
    activation: str
    fallback: int
    fingerprint: str
    target: str
    drafter: str
    template: dict[str, Any] = field(default_factory=dict)
    algorithm: str = "unknown"
    provenance: dict[str, Any] = field(default_factory=dict)
    trained_on: TrainedOn | None = None
    head: str = "reward"
    prices: Prices | None = None
    policy_version: int = POLICY_VERSION

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If one is out of range or of another version.
        """
        if self.policy_version not in READABLE_VERSIONS:
            raise BlockPilotError(
                f"policy has version {self.policy_version}, this release reads "
                f"{' and '.join(map(str, READABLE_VERSIONS))}; "
                "export it again with `blockpilot export-policy`"
            )
        if not self.arms or any(arm < 1 for arm in self.arms):
            raise BlockPilotError(f"policy arms {list(self.arms)} must be positive block sizes")
        if self.arms != tuple(sorted(set(self.arms))):
            raise BlockPilotError(
                f"policy arms {list(self.arms)} must increase, each block size once"
            )
        if self.fallback not in self.arms:
            raise BlockPilotError(
                f"policy fallback {self.fallback} is not one of its arms {list(self.arms)}"
            )
        if any(width < 1 for width in self.hidden):
            raise BlockPilotError(f"policy hidden widths {list(self.hidden)} must be positive")
        if max(self.state.width, *self.hidden, len(self.arms)) > MAX_WIDTH:
            raise BlockPilotError(
                f"policy has a layer wider than {MAX_WIDTH}: state {self.state.width}, hidden "
                f"{list(self.hidden)}"
            )
        if self.activation not in ACTIVATIONS:
            raise BlockPilotError(
                f"unknown activation {self.activation!r}.{closest(self.activation, ACTIVATIONS)}"
            )
        self._check_head()

    def _check_head(self) -> None:
        """Check the values of the head.

        Raises:
            BlockPilotError: If they do not describe one.
        """
        if self.head not in HEADS:
            raise BlockPilotError(f"unknown head {self.head!r}.{closest(self.head, HEADS)}")
        if self.head == "reward":
            return
        if len(self.hidden) != 1 or self.arms[-1] < 2 or self.arms[0] != 1:
            raise BlockPilotError(
                "an acceptance policy needs its number of components in `hidden`, and arms that "
                f"begin with 1; got {list(self.hidden)} and {list(self.arms)}"
            )
        if self.arms[-1] > MAX_WIDTH:
            raise BlockPilotError(f"policy arm {self.arms[-1]} is larger than {MAX_WIDTH}")
        if self.prices is None or self.trained_on is None:
            raise BlockPilotError("an acceptance policy needs `prices` and `trained_on`")
        self.prices.latency.step_lines(self.arms)

    def to_dict(self) -> dict[str, Any]:
        """Render as JSON-ready values."""
        values = {**dataclasses.asdict(self), "state": [list(group) for group in self.state.groups]}
        for name in ("trained_on", "prices"):
            if values[name] is None:
                del values[name]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PolicyConfig:
        """Read the result of `to_dict`.

        Raises:
            BlockPilotError: If a key is missing, unknown or of a wrong type.
        """
        names = {f.name for f in dataclasses.fields(cls)}
        required = {
            f.name
            for f in dataclasses.fields(cls)
            if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        }
        unknown, missing = values.keys() - names, required - values.keys()
        if unknown or missing:
            raise BlockPilotError(
                f"policy config has unknown keys {sorted(unknown)}, lacks {sorted(missing)}"
            )
        try:
            converted: dict[str, Any] = {
                "arms": tuple(map(whole_number, values["arms"])),
                "state": StateLayout.from_lists(values["state"]),
                "hidden": tuple(map(whole_number, values["hidden"])),
                "activation": str(values["activation"]),
                "policy_version": whole_number(values.get("policy_version", POLICY_VERSION)),
                "fallback": whole_number(values["fallback"]),
            }
            if values.get("trained_on") is not None:
                converted["trained_on"] = TrainedOn.from_dict(values["trained_on"])
            if values.get("prices") is not None:
                converted["prices"] = Prices.from_dict(values["prices"])
            for kind, keys in _KINDS.items():
                for key in values.keys() & keys:
                    if not isinstance(values[key], kind):
                        raise TypeError(f"{key} is {values[key]!r}")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BlockPilotError(f"policy config has a value of a wrong type: {error}") from error
        return cls(**{**values, **converted})

    @classmethod
    def load(cls, path: Path) -> PolicyConfig:
        """Read a policy's `config.json`.

        Raises:
            BlockPilotError: If it is missing, corrupt, or has a key or value that is not valid.
        """
        try:
            values = read_json(path)
        except FileNotFoundError:
            raise BlockPilotError(
                f"{path.parent} holds no policy (config.json is missing)"
            ) from None
        except BlockPilotError as error:
            raise BlockPilotError(f"policy config {error}") from error
        if not isinstance(values, dict):
            raise BlockPilotError(f"policy config {path} holds no JSON object")
        try:
            return cls.from_dict(values)
        except BlockPilotError as error:
            raise BlockPilotError(f"{path}: {error}") from error


_KINDS: dict[type, tuple[str, ...]] = {
    str: ("fingerprint", "target", "drafter", "algorithm", "head"),
    dict: ("template", "provenance"),
}
