"""The metadata of a sweep: what all rows share."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blockpilot_rl.decoding.latency import validate_arms
from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.files import check_types, read_json, whole_number

SCHEMA_VERSION = 2

_ADDED = {"shortens_blocks", "unseen_families"}
"""Keys that sweeps of release 0.1 lack."""


@dataclass(frozen=True)
class SweepMetadata:
    """What all rows of a sweep share.

    Attributes:
        arms: Block sizes, increasing; the first is 1 (plain decoding).
        default_block_size: Block size that the drafter was trained for.
        target: Name of the target.
        drafter: Name of the drafter.
        fingerprint: Digest of the pair's configs and weights.
        dtype: Dtype of the answers.
        latency_dtype: Dtype of the passes that the seconds are predicted for.
        device: Name of the device that the seconds are predicted for.
        max_new_tokens: Budget of each answer.
        template: Options of the chat template.
        state: Names and widths of the state groups.
        latency: The latency profile (`LatencyProfile.to_dict`).
        shortens_blocks: Whether blocks were shorter near the end of the budget, as the decoder has
            them. Recordings of 0.1 verified whole blocks to the end.
        top_k: Rows with a temperature were sampled from this many most probable tokens; 0 is all.
        top_p: Rows with a temperature were sampled from the tokens that hold this probability.
        unseen_families: Families that nothing is trained on; all their rows are test rows.
        provenance: Command, versions, git SHA, date.
        schema_version: Version of this format.
    """

    arms: tuple[int, ...]
    default_block_size: int
    target: str
    drafter: str
    fingerprint: str
    dtype: str
    latency_dtype: str
    device: str
    max_new_tokens: int
    template: dict[str, Any]
    state: StateLayout
    latency: dict[str, Any]
    shortens_blocks: bool = False
    top_k: int = 0
    top_p: float = 1.0
    unseen_families: tuple[str, ...] = ()
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If the arms are not increasing from 1, or a number is out of range.
        """
        validate_arms(self.arms)
        for name, value, least in (
            ("default_block_size", self.default_block_size, 1),
            ("max_new_tokens", self.max_new_tokens, 2),
            ("top_k", self.top_k, 0),
        ):
            if value < least:
                raise BlockPilotError(
                    f"sweep metadata: {name} must be {least} or more, got {value}"
                )
        if not 0 < self.top_p <= 1:
            raise BlockPilotError(f"sweep metadata: top_p must be in (0, 1], got {self.top_p}")

    @property
    def budget(self) -> int | None:
        """Budget near whose end blocks were shorter; None if every block was whole."""
        return self.max_new_tokens if self.shortens_blocks else None

    def to_dict(self) -> dict[str, Any]:
        """Return the metadata as plain JSON values."""
        return {**dataclasses.asdict(self), "state": [list(group) for group in self.state.groups]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SweepMetadata:
        """Read the values of `to_dict`.

        Raises:
            BlockPilotError: If the schema version differs, or a key is missing, unknown, of the
                wrong type or out of range.
        """
        version = values.get("schema_version")
        if version is not None:
            check_types({"schema_version": version}, cls)
        if version != SCHEMA_VERSION:
            raise BlockPilotError(
                f"sweep has schema version {version}, this release reads {SCHEMA_VERSION}; "
                "record it again with `blockpilot collect-sweep`"
            )
        names = {field.name for field in dataclasses.fields(cls)}
        unknown, missing = values.keys() - names, names - values.keys() - _ADDED
        if unknown or missing:
            raise BlockPilotError(
                f"sweep metadata has unknown keys {sorted(unknown)}, lacks {sorted(missing)}"
            )
        check_types(values, cls)
        try:
            state = StateLayout.from_lists(values["state"])
            arms = tuple(map(whole_number, values["arms"]))
            unseen = _names(values.get("unseen_families", ()))
        except (TypeError, ValueError, OverflowError) as error:
            raise BlockPilotError(
                f"sweep metadata has a value of a wrong type: {one_line(error)}"
            ) from error
        return cls(**{**values, "arms": arms, "state": state, "unseen_families": unseen})


def _names(values: Any) -> tuple[str, ...]:
    """Read a JSON list of names."""
    if isinstance(values, str) or not all(isinstance(name, str) for name in values):
        raise TypeError(f"{values!r} is not a list of names")
    return tuple(values)


def read_metadata(folder: Path) -> dict[str, Any]:
    """Read a sweep's `metadata.json` without checking its keys.

    Raises:
        BlockPilotError: If the folder holds no sweep, or the file is not a JSON object.
    """
    path = folder / "metadata.json"
    try:
        values = read_json(path)
    except FileNotFoundError:
        raise BlockPilotError(
            f"no sweep at {folder} (metadata.json is missing); record one with "
            "`blockpilot collect-sweep`"
        ) from None
    if not isinstance(values, dict):
        raise BlockPilotError(f"{path} holds no JSON object")
    return values
