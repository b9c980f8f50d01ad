"""Acceptance length of a pair in real decoding, by family, source, prompt length and language.

`python benchmarks/acceptance.py --json OUT`. The default prompts are from the validation split of
the built-in suite, which no bundled drafter was trained on.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

from blockpilot_rl.cli.console import open_console, open_messages, run, show_progress
from blockpilot_rl.cli.flags import (
    completion_option,
    device_option,
    drafter_option,
    dtype_option,
    target_option,
    words,
)
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import check_output, write_json
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.options import option
from blockpilot_rl.prompts import GROUPS, Prompt, builtin_suite, load_prompts
from blockpilot_rl.training.acceptance import acceptance_report, acceptance_table


@dataclass(frozen=True)
class AcceptanceBenchmark:
    """Decode held-out prompts with one block size and count tokens per target pass."""

    prompts: str = option(
        "40",
        metavar="N|FILE",
        help="number of prompts from the built-in validation split, or a file of prompts: JSON "
        "Lines that hold a prompt, messages or turns each, or plain text",
    )
    groups: str = option(
        "english", help=f"groups of built-in prompts to mix; there are {','.join(GROUPS)}"
    )
    limit: int | None = option(
        None, help="decode only this many prompts of the file, evenly spaced"
    )
    unseen: tuple[str, ...] = option(
        (),
        metavar="FAMILY,...",
        help="families that the drafter was not trained on, to report separately",
    )
    max_new_tokens: int = option(128, help="budget of each text")
    block_size: int | None = option(None, help="block size (default: the drafter's own)")
    temperature: float = option(0.0, help="0 is greedy")
    draft: Literal["shared", "argmax"] = option(
        "shared",
        help="drafts at a temperature: with the target's noise, or the most probable",
    )
    seed: int = option(0, help="random seed of the first prompt; each following prompt adds 1")
    dtype: str = dtype_option("bfloat16")
    device: str = device_option()
    target: str | None = target_option()
    completion: bool = completion_option()
    drafter: str | None = drafter_option()
    json: str | None = option(None, nargs="?", const="-", metavar="FILE", help="write a record")

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            BlockPilotError: If a number is out of range.
        """
        self.sampling()
        if self.prompts == "0" or self.max_new_tokens < 2:
            raise BlockPilotError("--prompts must be at least 1 and --max-new-tokens at least 2")
        if self.block_size is not None and self.block_size < 1:
            raise BlockPilotError(f"--block-size must be at least 1, not {self.block_size}")
        if self.limit is not None and (self.limit < 1 or self.prompts.isdecimal()):
            raise BlockPilotError("--limit must be at least 1 and needs a file of prompts")

    def sampling(self) -> Sampling:
        """How tokens are chosen."""
        return Sampling(self.temperature, seed=self.seed, draft=self.draft)

    def read_prompts(self) -> list[Prompt]:
        """The prompts to decode."""
        if self.prompts.isdecimal():
            groups = words(self.groups)
            return builtin_suite(int(self.prompts), splits=["validation"], groups=groups)
        prompts = load_prompts(self.prompts)
        count = min(len(prompts), self.limit or len(prompts))
        return [prompts[index * len(prompts) // count] for index in range(count)]


def main(config: AcceptanceBenchmark) -> None:
    """Run the benchmark and print acceptance by group."""
    check_output(config.json)
    prompts = config.read_prompts()
    pair = load_pair(
        config.target,
        config.drafter,
        config.dtype,
        config.device,
        completion=config.completion,
    )
    with show_progress(open_messages()) as progress:
        report = acceptance_report(
            Decoder(pair),
            prompts,
            config.block_size or pair.block_size,
            config.max_new_tokens,
            progress,
            config.sampling(),
            unseen=config.unseen,
        )
    if config.json is not None:
        write_json(config.json, report)
    open_console(config.json).print(acceptance_table(report))
    for warning in report["warnings"]:
        print("warning:", warning, file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(run(main, AcceptanceBenchmark))
