"""What the rows of a sweep have in common: pair, arms, latency profile, provenance."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.files import check_types, read_json

DEFAULT_ARMS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
SCHEMA_VERSION = 2


@dataclass(frozen=True)
class SweepMetadata:
    """What a sweep's rows have in common.

    Attributes:
        arms: Block sizes, increasing; the first is 1 (plain decoding).
        default_block_size: Block size the drafter was trained for.
        target: Name of the target.
        drafter: Name of the drafter.
        fingerprint: Digest of the pair's configs and weights.
        dtype: Dtype of the reference continuations.
        latency_dtype: Dtype that the seconds belong to.
        device: Device that the seconds belong to, in words.
        max_new_tokens: Budget of each continuation.
        template: Options that the chat template was rendered with.
        state: Names and widths of the state groups.
        latency: The latency profile, as `LatencyProfile.to_dict` gives it.
        top_k: Most probable tokens that rows with a temperature were sampled from; 0 is all.
        top_p: Probability that the tokens hold that such rows were sampled from.
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
    top_k: int = 0
    top_p: float = 1.0
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        """Check the arms.

        Raises:
            BlockPilotError: If they are not increasing from 1.
        """
        validate_arms(self.arms)

    def to_dict(self) -> dict[str, Any]:
        """Render as JSON-ready values."""
        return {**dataclasses.asdict(self), "state": [list(group) for group in self.state.groups]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SweepMetadata:
        """Read what `to_dict` gave.

        Raises:
            BlockPilotError: If the schema version is another, or a key is missing, unknown or of a
                wrong type.
        """
        version = values.get("schema_version")
        if version is not None:
            check_types({"schema_version": version}, cls)
        if version != SCHEMA_VERSION:
            raise BlockPilotError(
                f"sweep has schema version {version}, this release reads {SCHEMA_VERSION}; "
                "record it again with scripts/collect_sweep.py"
            )
        names = {field.name for field in dataclasses.fields(cls)}
        unknown, missing = values.keys() - names, names - values.keys()
        if unknown or missing:
            raise BlockPilotError(
                f"sweep metadata has unknown keys {sorted(unknown)}, lacks {sorted(missing)}"
            )
        check_types(values, cls)
        try:
            groups = tuple((str(name), int(width)) for name, width in values["state"])
            arms = tuple(int(arm) for arm in values["arms"])
        except (TypeError, ValueError, OverflowError) as error:
            raise BlockPilotError(
                f"sweep metadata has a value of a wrong type: {one_line(error)}"
            ) from error
        return cls(**{**values, "arms": arms, "state": StateLayout(groups)})


def validate_arms(arms: tuple[int, ...]) -> None:
    """Check a list of block sizes.

    Raises:
        BlockPilotError: If they are not two or more increasing whole numbers that begin with 1.
    """
    increasing = all(a < b for a, b in itertools.pairwise(arms))
    if not arms or arms[0] != 1 or not increasing or len(arms) < 2:
        raise BlockPilotError(
            f"arms {list(arms)} must be two or more increasing block sizes that begin with 1 "
            "(plain decoding)"
        )


def read_metadata(folder: Path) -> dict[str, Any]:
    """Read a sweep's `metadata.json` as it is.

    Raises:
        BlockPilotError: If the folder holds no sweep, or the file no JSON object.
    """
    path = folder / "metadata.json"
    try:
        values = read_json(path)
    except FileNotFoundError:
        raise BlockPilotError(
            f"no sweep at {folder} (metadata.json is missing); record one with "
            "scripts/collect_sweep.py"
        ) from None
    if not isinstance(values, dict):
        raise BlockPilotError(f"{path} holds no JSON object")
    return values
