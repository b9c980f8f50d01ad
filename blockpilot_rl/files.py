"""Output files: atomic writes, one-line errors, and locks against a second writer."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import glob
import json
import logging
import math
import os
import re
import secrets
import shutil
import stat
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import numpy as np

from blockpilot_rl.errors import BlockPilotError, is_out_of_memory, one_line

_JSON_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "text"),
    dict: ((dict,), "an object"),
}
_LONGEST_NAME = 255
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Errors of safetensors, tokenizers and torch, which have classes of their own or none.
_WRITE_ERRORS = re.compile(r"\(os error (\d+)\)|PytorchStreamWriter|inline_container", re.I)

logger = logging.getLogger(__name__)


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of writing a file or folder into one line that names it.

    Covers `OSError`, a lack of memory, and what safetensors, tokenizers, torch and pyarrow raise
    instead. All other errors pass unchanged, and so do errors about files elsewhere.

    Args:
        path: What the block writes.

    Raises:
        BlockPilotError: If it cannot be written: the disk is full, the folder is read-only, the
            name is too long, memory runs out, and so on.
    """
    try:
        yield
    except (BlockPilotError, BrokenPipeError):
        raise
    except Exception as error:
        reason = _write_error(error, path)
        if reason is None:
            raise
        raise BlockPilotError(f"cannot write {_short(path)}: {reason}") from error


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write one file atomically: fill the yielded path, and it replaces `path`.

    The temporary file is in the same folder, so that the last step is one rename, and keeps the
    name's suffix, because writers such as `numpy.savez` and `Figure.savefig` choose the format by
    it. If the block raises, the temporary file is removed and `path` stays as it was. Missing
    parent folders are created. The file gets the permissions of new files. Links are followed. A
    device or pipe such as `/dev/stdout` is written directly.

    Args:
        path: The file to create or replace.

    Yields:
        The path to write to.

    Raises:
        BlockPilotError: If the file cannot be written.
    """
    with writing(path):
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
    """Write a whole folder atomically: fill the yielded folder, and it replaces `path`.

    If the block raises, the temporary folder is removed and `path` stays as it was. Of two
    processes that write the same new folder, one succeeds. Missing parent folders are created. All
    files get the permissions of new files.

    Args:
        path: The folder to create. It may exist if it is empty.
        overwrite: Replace a folder that holds files. A folder that holds anything which the new
            folder does not have is never replaced.

    Yields:
        An empty folder to write in.

    Raises:
        BlockPilotError: If the folder cannot be written, or holds files and must not be replaced.
    """
    with writing(path):
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_dir():
            raise BlockPilotError(f"cannot write the folder {path}: a file has that name")
        if _names(target):
            if not overwrite:
                raise _not_empty(path)
            _check_writable(target)
        temporary = _beside(target)
        mode = _mode_of_new_files(temporary)
        temporary.mkdir()
        try:
            yield temporary
            for file in filter(Path.is_file, temporary.rglob("*")):
                file.chmod(mode)
            _put_in_place(temporary, target, overwrite=overwrite)
        except BlockPilotError as error:
            message = str(error).replace(str(temporary), os.fspath(path))
            raise BlockPilotError(message) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def locked(path: str | os.PathLike[str], *, wait: bool = False) -> Iterator[None]:
    """Lock an output, so that no second process works on it at the same time.

    The lock is a file `.NAME.lock` next to the output, held by the operating system: it is
    released when the process ends for any reason. A killed process leaves its lock file, which then
    locks nothing.

    Args:
        path: The file or folder that the block writes. It need not exist.
        wait: Wait for another process to finish, instead of raising.

    Raises:
        BlockPilotError: If another process holds the lock, or its file cannot be written.
    """
    target = Path(os.path.realpath(path))
    lock = target.with_name(_fitting("", f".{target.name}.lock"))
    with writing(path):
        lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _acquire(lock, wait)
    if descriptor is None:
        raise BlockPilotError(
            f"another process is writing {path}; wait until it is done, or name another place"
        )
    try:
        yield
    finally:
        with suppress(OSError):
            lock.unlink()
        os.close(descriptor)


def remove_leftovers(paths: Iterable[Path]) -> None:
    """Remove the temporary files and folders that killed atomic writes have left.

    Args:
        paths: The files and folders. No other process may be writing them now.
    """
    for path in paths:
        for leftover in path.parent.glob(_fitting(f".{'[0-9a-f]' * 8}-", path.name, glob.escape)):
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink(missing_ok=True)


def write_json(destination: str | os.PathLike[str], payload: Any) -> None:
    """Write `payload` as indented JSON to a file, atomically, or to standard output.

    NumPy scalars and arrays, paths, dataclasses and tuples become their plain JSON counterparts. A
    number that is not finite becomes null.

    Args:
        destination: The file, or "-" for standard output.
        payload: What to write.

    Raises:
        BlockPilotError: If the file cannot be written.
        TypeError: If `payload` holds an object that has no JSON counterpart.
    """
    printed = os.fspath(destination) == "-"
    if printed and sys.stdout is None:
        raise BlockPilotError("cannot write standard output: it is closed; name a file")
    # A standard output that cannot encode everything gets escapes, which lose nothing.
    ascii_only = printed and "utf" not in (sys.stdout.encoding or "utf-8").lower()
    text = json.dumps(_plain(payload), indent=2, ensure_ascii=ascii_only, allow_nan=False) + "\n"
    if printed:
        with writing("standard output"):
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
        BlockPilotError: If no file can be created there.
    """
    if path is None or os.fspath(path) == "-":
        return
    with writing(path):
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file() and not target.is_dir():
            return
        probe = _beside(target / "probe" if target.is_dir() else target)
        try:
            probe.touch()
        finally:
            probe.unlink(missing_ok=True)


def _names(folder: Path) -> list[str]:
    """Entries of a folder; none if it does not exist."""
    return os.listdir(folder) if folder.is_dir() else []


def _files_below(folder: Path) -> set[str]:
    """Paths of the files and empty folders in a folder, relative to it."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir() or not any(path.iterdir())
    }


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file.

    Raises:
        FileNotFoundError: If there is none; the caller knows how to create one.
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
        schema: The dataclass. Fields of types other than `int`, `float`, `str` and `dict` are
            left to their reader.

    Raises:
        BlockPilotError: If a value is of a wrong type; the message names the field.
    """
    for name, hint in get_type_hints(schema).items():
        kind = get_origin(hint) or hint
        if name in values and kind in _JSON_KINDS:
            types, words = _JSON_KINDS[kind]
            value = values[name]
            in_range = not isinstance(value, int | float) or abs(value) < 2**63
            if not isinstance(value, types) or isinstance(value, bool) or not in_range:
                raise BlockPilotError(f"{name} must be {words}, not {_in_words(value)}")


def whole_number(value: Any) -> int:
    """Return a JSON value that is a whole number.

    Raises:
        TypeError: If it is anything else, such as a text, a boolean, a fraction or a
            number of more than 64 bits.
    """
    if type(value) is not int or abs(value) >= 2**63:
        raise TypeError(f"{_in_words(value)} is not a whole number")
    return value


def number(value: Any, *, finite: bool = True) -> float:
    """Return a JSON value that is a number.

    Args:
        value: The value.
        finite: Whether to refuse NaN and infinity too.

    Raises:
        TypeError: If it is anything else, such as a text or a boolean.
        OverflowError: If it is a whole number that no float can hold.
    """
    if type(value) not in (int, float):
        raise TypeError(f"{_in_words(value)} is not a number")
    if finite and not abs(value) <= sys.float_info.max:
        raise TypeError(f"{_in_words(value)} is not a finite number")
    return float(value)


def _in_words(value: Any) -> str:
    """Name a JSON value of a wrong type."""
    if isinstance(value, str):
        return f"the text {textwrap.shorten(value, 40, placeholder=' …')!r}"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return json.dumps(value)


def _write_error(error: Exception, path: str | os.PathLike[str]) -> str | None:
    """Describe an error of writing `path` and its remedy; None if the error is something else."""
    message = str(error)
    if is_out_of_memory(error):
        return f"out of memory ({one_line(error)}); free memory or use smaller batches"
    found = _WRITE_ERRORS.search(message)
    if isinstance(error, OSError):
        if not _is_about(error, path):
            return None
        number = error.errno
    elif found:
        number = int(found[1] or 0)
    else:
        return None
    # Messages of torch do not state the cause.
    unknown = one_line(error) if isinstance(error, OSError) else "the disk may be full"
    reason = os.strerror(number) if number else unknown
    if number in _NO_SPACE:
        return f"{reason}; free some space or name another place"
    if number == errno.ENAMETOOLONG:
        return f"{reason}; name a shorter one"
    return f"{reason}; name another place"


def _is_about(error: OSError, path: str | os.PathLike[str]) -> bool:
    """Whether an error comes from writing `path`: failed writes name no file, others may."""
    if error.filename is None:
        return True
    target = os.path.realpath(path)
    folder, base = os.path.split(target)
    name = os.path.realpath(os.fsdecode(error.filename))
    if target.startswith(name):
        return True
    # The names of temporary files and locks contain the name of the target.
    return base[-100:] in os.path.relpath(name, folder).split(os.sep)[0]


def _short(path: str | os.PathLike[str]) -> str:
    """Shorten a path that is too long for a message."""
    name = os.fspath(path)
    return name if len(name) <= 200 else f"{name[:100]}…{name[-60:]}"


def _not_empty(path: str | os.PathLike[str]) -> BlockPilotError:
    return BlockPilotError(f"the folder {path} is not empty; name a new one or remove it first")


def _beside(target: Path) -> Path:
    """Name a hidden temporary sibling of `target`; its folder is created."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BlockPilotError(
            f"cannot create the folder {_short(target.parent)}: {error.strerror or error}"
        ) from error
    return target.with_name(_fitting(f".{secrets.token_hex(4)}-", target.name))


def _fitting(prefix: str, name: str, escape: Callable[[str], str] = str) -> str:
    """Put a prefix of ten characters before a name; a long name loses its beginning."""
    while len(os.fsencode(name)) > _LONGEST_NAME - 10:
        name = name[1:]
    return prefix + escape(name)


def _check_writable(folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BlockPilotError(f"cannot write in the folder {folder}: permission denied")


def _mode_of_new_files(path: Path) -> int:
    """Permissions of new files; safetensors creates its own for their owner alone.

    Args:
        path: Where a file can be created for a moment.
    """
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    path.unlink()
    return mode


def _put_in_place(folder: Path, target: Path, *, overwrite: bool) -> None:
    """Rename `folder` to `target`, which may have appeared or changed since it was checked."""
    lost = sorted(_files_below(target) - _files_below(folder)) if overwrite else []
    if lost:
        raise BlockPilotError(
            f"the folder {target} holds {lost[0]}, which replacing it would lose; name a new "
            "folder, or move the file away"
        )
    if not (overwrite and target.exists()):
        try:
            folder.rename(target)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise _not_empty(target) from error
            raise
    elif not _exchange(folder, target):
        _swap(folder, target)


def _exchange(folder: Path, target: Path) -> bool:
    """Exchange two folders in one step, where the system can; False if it cannot."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(renameat2(here, os.fsencode(folder), here, os.fsencode(target), exchange) == 0)


def _swap(folder: Path, target: Path) -> None:
    """Rename `folder` to `target`; the old `target` is put back on failure."""
    old = _beside(target)
    target.rename(old)
    try:
        folder.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old)


def _acquire(lock: Path, wait: bool) -> int | None:
    """Open and lock a lock file; None if another process holds it."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        if not _lock(descriptor, wait):
            os.close(descriptor)
            return None
        # The process that held the lock may have removed the file before this one locked it.
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int, wait: bool) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _lock(descriptor: int, wait: bool) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        except OSError as error:
            # Some network file systems have no locks.
            logger.warning("cannot lock: %s; do not write it twice", error.strerror)
        return True


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
