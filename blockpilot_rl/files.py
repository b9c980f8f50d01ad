"""Atomic writes: a reader sees the old file or the whole new one, never a part of it."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from blockpilot_rl.errors import BlockPilotError


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write one file atomically: fill the yielded path, and it takes the place of `path`.

    The temporary file lies in the same folder, so that the last step is one rename, and keeps the
    name's suffix, because writers such as `numpy.savez` and `Figure.savefig` choose the format by
    it. If the block raises, the temporary file is removed and whatever `path` held stays as it was.
    Missing parent folders are created. A link is followed, and a device or pipe such as
    `/dev/stdout`, which a rename would destroy, is written directly.

    Args:
        path: The file to create or replace.

    Yields:
        The path to write to.

    Raises:
        BlockPilotError: If `path` is a folder or its folder cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise BlockPilotError(f"cannot write {path}: it is a folder; name a file")
    if target.exists() and not target.is_file():
        yield target
        return
    temporary = _beside(target)
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Write a whole folder atomically: fill the yielded folder, and it takes the place of `path`.

    If the block raises, the temporary folder is removed and whatever `path` held stays as it was.
    Missing parent folders are created.

    Args:
        path: The folder to create. An empty folder may already be there.
        overwrite: Whether a folder that holds files may be replaced, losing all that it holds.

    Yields:
        An empty folder to write in.

    Raises:
        BlockPilotError: If `path` is a file, or a folder that holds files and may not be replaced,
            or its parent cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_dir():
        raise BlockPilotError(f"cannot write the folder {path}: a file has that name")
    if target.is_dir() and any(target.iterdir()) and not overwrite:
        raise BlockPilotError(f"the folder {path} is not empty; name a new one or remove it first")
    temporary = _beside(target)
    temporary.mkdir()
    try:
        yield temporary
        _swap_in(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_json(destination: str | os.PathLike[str], payload: Any) -> None:
    """Write `payload` as indented JSON to a file, atomically, or to standard output.

    NumPy scalars and arrays, paths, dataclasses and tuples become their plain JSON counterparts.
    A number that is not finite becomes null, since JSON has no word for it.

    Args:
        destination: The file, or "-" for standard output.
        payload: What to write.

    Raises:
        BlockPilotError: If the file cannot be written.
        TypeError: If `payload` holds an object that has no JSON counterpart.
    """
    text = json.dumps(_plain(payload), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if os.fspath(destination) == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    with atomic_write(destination) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _beside(target: Path) -> Path:
    """Name a hidden temporary sibling of `target`, making sure its folder can take it."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BlockPilotError(
            f"cannot create the folder {target.parent}: {error.strerror or error}"
        ) from error
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise BlockPilotError(f"cannot write in the folder {target.parent}: permission denied")
    return target.with_name(f".{secrets.token_hex(4)}-{target.name}")


def _swap_in(folder: Path, target: Path) -> None:
    """Rename `folder` to `target`; the old `target` is set aside first and put back on failure."""
    if not target.exists():
        folder.rename(target)
        return
    old = _beside(target)
    target.rename(old)
    try:
        folder.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old)


def _plain(value: Any) -> Any:
    """Turn a value into the types JSON knows; an unknown type is left for `json` to refuse."""
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value
