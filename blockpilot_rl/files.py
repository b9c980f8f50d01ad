"""Atomic writes: a reader sees the old file or the whole new one, never a part of it."""

from __future__ import annotations

import dataclasses
import glob
import json
import math
import os
import secrets
import shutil
import stat
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import numpy as np

from blockpilot_rl.errors import BlockPilotError, one_line

_JSON_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "text"),
    dict: ((dict,), "an object"),
}


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write one file atomically: fill the yielded path, and it takes the place of `path`.

    The temporary file lies in the same folder, so that the last step is one rename, and keeps the
    name's suffix, because writers such as `numpy.savez` and `Figure.savefig` choose the format by
    it. If the block raises, the temporary file is removed and whatever `path` held stays as it was.
    Missing parent folders are created, and the file can be read by those who can read other new
    ones. A link is followed, and a device or pipe such as `/dev/stdout`, which a rename would
    destroy, is written directly.

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
    mode = _mode_of_new_files(temporary)
    try:
        yield temporary
        temporary.chmod(mode)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Write a whole folder atomically: fill the yielded folder, and it takes the place of `path`.

    If the block raises, the temporary folder is removed and whatever `path` held stays as it was.
    Missing parent folders are created. All files can be read by those who can read other new ones.

    Args:
        path: The folder to create. An empty folder may already be there.
        overwrite: Whether a folder that holds files may be replaced; one that holds anything that
            the new folder does not have may not.

    Yields:
        An empty folder to write in.

    Raises:
        BlockPilotError: If `path` is a file, or a folder that holds files and may not be replaced,
            or its parent cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_dir():
        raise BlockPilotError(f"cannot write the folder {path}: a file has that name")
    if _names(target) and not overwrite:
        raise BlockPilotError(f"the folder {path} is not empty; name a new one or remove it first")
    if _names(target):
        _check_writable(target)
    temporary = _beside(target)
    mode = _mode_of_new_files(temporary)
    temporary.mkdir()
    try:
        yield temporary
        for file in filter(Path.is_file, temporary.rglob("*")):
            file.chmod(mode)
        lost = sorted(set(_names(target)) - set(_names(temporary)))
        if lost:
            raise BlockPilotError(
                f"the folder {path} holds {lost[0]}, which replacing it would lose; name a new "
                "folder, or move the file away"
            )
        _swap_in(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(paths: Iterable[Path]) -> None:
    """Remove the temporary files and folders that killed atomic writes have left behind.

    Args:
        paths: What was being written. No other process may be writing it now.
    """
    for path in paths:
        for leftover in path.parent.glob(f".{'[0-9a-f]' * 8}-{glob.escape(path.name)}"):
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink(missing_ok=True)


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


def check_output(path: str | os.PathLike[str] | None) -> None:
    """Check, before long work, that its result can be written.

    Args:
        path: The file, or the folder, to write later. "-" is standard output; None is nothing.

    Raises:
        BlockPilotError: If no file can be made where it shall be.
    """
    if path is None or os.fspath(path) == "-":
        return
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file() and not target.is_dir():
        return
    probe = _beside(target / "probe" if target.is_dir() else target)
    try:
        probe.touch()
    except OSError as error:
        raise BlockPilotError(
            f"cannot write {path}: {error.strerror or error}; name another place"
        ) from error
    finally:
        probe.unlink(missing_ok=True)


def _names(folder: Path) -> list[str]:
    """What a folder holds; nothing if it is not there."""
    return os.listdir(folder) if folder.is_dir() else []


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file.

    Raises:
        FileNotFoundError: If there is none; the caller knows how to make one.
        BlockPilotError: If it cannot be read.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise BlockPilotError(f"{path} cannot be read as JSON: {one_line(error)}") from error


def check_types(values: Mapping[str, Any], schema: type) -> None:
    """Check JSON values by the annotations of a dataclass.

    Args:
        values: Some or all of its fields.
        schema: The dataclass. Fields that are no plain `int`, `float`, `str` or `dict` are left to
            their reader.

    Raises:
        BlockPilotError: If a value is of a wrong type; the message names the field.
    """
    for name, hint in get_type_hints(schema).items():
        kind = get_origin(hint) or hint
        if name in values and kind in _JSON_KINDS:
            types, words = _JSON_KINDS[kind]
            value = values[name]
            if not isinstance(value, types) or isinstance(value, bool):
                raise BlockPilotError(f"{name} must be {words}, not {_in_words(value)}")


def _in_words(value: Any) -> str:
    """Name a JSON value of a wrong type."""
    if isinstance(value, str):
        return f"the text {textwrap.shorten(value, 40, placeholder=' …')!r}"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return json.dumps(value)


def _beside(target: Path) -> Path:
    """Name a hidden temporary sibling of `target`, making sure its folder can take it."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BlockPilotError(
            f"cannot create the folder {target.parent}: {error.strerror or error}"
        ) from error
    _check_writable(target.parent)
    return target.with_name(f".{secrets.token_hex(4)}-{target.name}")


def _check_writable(folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BlockPilotError(f"cannot write in the folder {folder}: permission denied")


def _mode_of_new_files(path: Path) -> int:
    """Permissions of new files; safetensors makes its own for their owner alone.

    Args:
        path: Where one can be made for a moment.
    """
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    path.unlink()
    return mode


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
