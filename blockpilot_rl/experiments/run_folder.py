"""Run folders: the files that training writes, laid out as in rl-baselines3-zoo."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from blockpilot_rl.agents.base import AGENT_FILE
from blockpilot_rl.agents.hyperparameters import read_yaml
from blockpilot_rl.agents.monitor import Monitor, Score
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import (
    atomic_directory,
    atomic_write,
    read_json,
    whole_number,
    write_json,
)
from blockpilot_rl.provenance import provenance, sha256_file
from blockpilot_rl.sweeps.table import BUNDLED_SWEEP, Sweep

ENVIRONMENT = "BlockSize-v0"
ARGUMENTS_FILE = "args.yml"
CHECKPOINT_FOLDER = "checkpoint"
CONFIG_FILE = "config.yml"
PROGRESS_FILE = "progress.json"
PROVENANCE_FILE = "provenance.json"


def create_run_folder(log_folder: str | Path, algorithm: str, name: str = ENVIRONMENT) -> Path:
    """Create `LOG_FOLDER/ALGORITHM/NAME_N` with the next free number N, counted from 1.

    Args:
        log_folder: Parent of all runs.
        algorithm: Name of the algorithm.
        name: Name of the environment, or of the task if it is not training.

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
                # Another process has taken the number at the same moment.
                number += 1
            else:
                return folder
    except OSError as error:
        raise BlockPilotError(
            f"cannot create a run folder in {parent}: {error.strerror or error}"
        ) from error


def write_arguments(folder: Path, arguments: Mapping[str, Any]) -> None:
    """Write `args.yml`, which `--config` reads, and `command.txt`."""
    write_yaml(folder / ARGUMENTS_FILE, arguments)
    with atomic_write(folder / "command.txt") as partial:
        partial.write_text(shlex.join(sys.argv) + "\n", encoding="utf-8")


def read_arguments(folder: Path) -> dict[str, Any]:
    """Read `args.yml`; empty if there is none, as for an agent saved by `Agent.save`."""
    path = folder / ARGUMENTS_FILE
    return read_yaml(path) if path.exists() else {}


def write_yaml(path: Path, values: Mapping[str, Any]) -> None:
    """Write a YAML file."""
    text = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)
    with atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_provenance(
    folder: Path, sweep: str | Path | None, train: Sweep, validation: Sweep | None
) -> None:
    """Write `provenance.json`: the process and the sweep.

    Args:
        folder: The run folder.
        sweep: Folder of the sweep; None if it is in memory only.
        train: Training rows.
        validation: Validation rows, if there are any.
    """
    write_json(
        folder / PROVENANCE_FILE,
        {
            **provenance(),
            "sweep": {
                "name": None if sweep is None else Path(sweep).name,
                "sha256": None if sweep is None else sha256_file(Path(sweep) / "sweep.parquet"),
                "temperatures": sorted(set(train.temperatures.tolist())),
                "train_prompts": _prompts(train),
                "validation_prompts": 0 if validation is None else _prompts(validation),
            },
        },
    )


def read_provenance(folder: Path) -> dict[str, Any]:
    """Read `provenance.json`; empty if there is none, as for an agent saved by `Agent.save`.

    Raises:
        BlockPilotError: If it is corrupt.
    """
    path = folder / PROVENANCE_FILE
    if not path.exists():
        return {}
    values = read_json(path)
    if not isinstance(values, dict):
        raise BlockPilotError(f"{path} holds no JSON object")
    return values


def write_evaluations(folder: Path, monitor: Monitor) -> None:
    """Write `evaluations.json`: the score of every evaluation, the result and the notes."""
    write_json(folder / "evaluations.json", _evaluations(monitor))


def save_checkpoint(folder: Path, agent: Any, monitor: Monitor, until: int) -> None:
    """Replace the checkpoint of a run.

    Args:
        folder: The run folder.
        agent: The agent.
        monitor: Its monitor.
        until: Steps after which training ends.
    """
    path = folder / CHECKPOINT_FOLDER
    with atomic_directory(path, overwrite=True) as partial:
        agent.save(partial)
        write_json(partial / PROGRESS_FILE, {"until": until, **_evaluations(monitor)})


def remove_checkpoint(folder: Path) -> None:
    """Remove the checkpoint of a finished run. Files of others stay, with their folders.

    Args:
        folder: The run folder, which holds the files of the finished agent.
    """
    checkpoint = folder / CHECKPOINT_FOLDER
    for path in sorted(checkpoint.rglob("*"), reverse=True):
        name = path.relative_to(checkpoint)
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif name == Path(PROGRESS_FILE) or (folder / name).is_file():
            path.unlink()
    if checkpoint.is_dir() and not any(checkpoint.iterdir()):
        checkpoint.rmdir()


def read_progress(folder: Path, monitor: Monitor) -> int:
    """Read the evaluations of a run's checkpoint into a monitor.

    Returns:
        Steps after which training ends.

    Raises:
        BlockPilotError: If the file is missing or corrupt.
    """
    path = folder / CHECKPOINT_FOLDER / PROGRESS_FILE
    try:
        saved = read_json(path)
        monitor.history = [
            (whole_number(entry["step"]), Score.from_dict(entry)) for entry in saved["history"]
        ]
        monitor.notes = [str(note) for note in saved["notes"]]
        return whole_number(saved["until"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise BlockPilotError(
            f"{path} is missing or corrupt ({type(error).__name__}); train the agent again"
        ) from error


def is_unfinished(folder: Path) -> bool:
    """Whether a folder holds a run whose training was stopped before its end."""
    begun = all((folder / name).is_file() for name in (ARGUMENTS_FILE, CONFIG_FILE))
    return begun and not (folder / AGENT_FILE).exists()


def bundled_or(sweep: str | Path | None) -> Path:
    """Folder of a sweep; None is the bundled one."""
    return BUNDLED_SWEEP if sweep is None else Path(sweep)


def _evaluations(monitor: Monitor) -> dict[str, Any]:
    return {
        "result": monitor.result and monitor.result.to_dict(),
        "history": [{"step": step, **score.to_dict()} for step, score in monitor.history],
        "notes": monitor.notes,
    }


def _prompts(table: Sweep) -> int:
    return int(table.rows["id"].nunique())


def _numbers(parent: Path, name: str) -> list[int]:
    matches = (re.fullmatch(rf"{re.escape(name)}_(\d+)", path.name) for path in parent.iterdir())
    return [int(match[1]) for match in matches if match]
