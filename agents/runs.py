"""Run folders: where training leaves what it made, laid out as in rl-baselines3-zoo."""

from __future__ import annotations

import re
from pathlib import Path

from blockpilot_rl.errors import BlockPilotError

ENVIRONMENT = "BlockSize-v0"


def create_run_folder(log_folder: str | Path, algorithm: str, name: str = ENVIRONMENT) -> Path:
    """Create `LOG_FOLDER/ALGORITHM/NAME_N` with the next free number N, counted from 1.

    Args:
        log_folder: Where all runs go.
        algorithm: What was trained.
        name: The environment, or what else was done.

    Raises:
        BlockPilotError: If it cannot be created.
    """
    parent = Path(log_folder) / algorithm
    try:
        parent.mkdir(parents=True, exist_ok=True)
        number = 1 + max(_numbers(parent, name), default=0)
        while True:
            folder = parent / f"{name}_{number}"
            try:
                folder.mkdir()
            except FileExistsError:
                # Another training that started at the same moment has taken the number.
                number += 1
            else:
                return folder
    except OSError as error:
        raise BlockPilotError(
            f"cannot create a run folder in {parent}: {error.strerror or error}"
        ) from error


def _numbers(parent: Path, name: str) -> list[int]:
    matches = (re.fullmatch(rf"{re.escape(name)}_(\d+)", path.name) for path in parent.iterdir())
    return [int(match[1]) for match in matches if match]
