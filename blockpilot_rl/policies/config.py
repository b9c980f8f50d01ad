"""Everything about a policy but its weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.errors import BlockPilotError, closest
from blockpilot_rl.files import read_json

POLICY_VERSION = 1
MAX_WIDTH = 65_536
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


@dataclass(frozen=True)
class PolicyConfig:
    """Everything about a policy but its weights.

    Attributes:
        arms: Block sizes to choose from, increasing.
        state: Names and widths of the state groups it reads, in order.
        hidden: Widths of the hidden layers; empty for a linear policy.
        activation: `tanh` or `relu`.
        fallback: Fixed block size to use when the policy cannot.
        fingerprint: Digest of the pair it was trained on.
        target: Name of that target.
        drafter: Name of that drafter.
        template: Chat-template options of the states it was trained on.
        algorithm: Learner that made it.
        provenance: Command, versions, git SHA, date of the training.
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
    policy_version: int = POLICY_VERSION

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If one is out of range or of another version.
        """
        if self.policy_version != POLICY_VERSION:
            raise BlockPilotError(
                f"policy has version {self.policy_version}, this release reads {POLICY_VERSION}; "
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
                f"policy fallback {self.fallback} is none of its arms {list(self.arms)}"
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

    def to_dict(self) -> dict[str, Any]:
        """Render as JSON-ready values."""
        return {**dataclasses.asdict(self), "state": [list(group) for group in self.state.groups]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PolicyConfig:
        """Read what `to_dict` gave.

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
            converted = {
                "arms": tuple(int(arm) for arm in values["arms"]),
                "state": StateLayout(tuple((str(n), int(w)) for n, w in values["state"])),
                "hidden": tuple(int(width) for width in values["hidden"]),
                "activation": str(values["activation"]),
                "fallback": int(values["fallback"]),
            }
            for kind, keys in _KINDS.items():
                for key in values.keys() & keys:
                    if not isinstance(values[key], kind):
                        raise TypeError(f"{key} is {values[key]!r}")
        except (TypeError, ValueError, OverflowError) as error:
            raise BlockPilotError(f"policy config has a value of a wrong type: {error}") from error
        return cls(**{**values, **converted})

    @classmethod
    def load(cls, path: Path) -> PolicyConfig:
        """Read a policy's `config.json`.

        Raises:
            BlockPilotError: If it is missing, corrupt, or has a key or value that is not as needed.
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
    str: ("fingerprint", "target", "drafter", "algorithm"),
    dict: ("template", "provenance"),
}
