"""`collect-sweep`: record the outcome of every block size on many prompts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from blockpilot_rl.cli.console import command, open_messages, show_progress
from blockpilot_rl.cli.flags import drafter_option, part_of, target_option
from blockpilot_rl.cli.prompt_flags import LabelledPromptFlags
from blockpilot_rl.decoding.acceptance import acceptance_warnings
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import Pair, load_pair
from blockpilot_rl.options import changed_options, option
from blockpilot_rl.progress import ProgressCallback
from blockpilot_rl.prompts import BadLine, Prompt, UnusedTurns
from blockpilot_rl.sweeps.merge import merge_sweeps
from blockpilot_rl.sweeps.recording import (
    RecordingConfig,
    answer_prompts,
    check_vacant,
    record_sweep,
    unfinished_folder,
)
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True, kw_only=True)
class CollectSweepConfig(LabelledPromptFlags, RecordingConfig):
    """Record a sweep: prefill states and the outcome of every block size, for many prompts.

    Unfinished work is in OUT.partial; the same command resumes it. Record other temperatures, seeds
    or prompts separately and combine the sweeps with --merge.
    """

    out: str = option(help="folder of the finished sweep", metavar="DIR")
    template: dict[str, Any] = option(
        default_factory=dict, help="options of the chat template, such as enable_thinking:false"
    )
    target: str | None = target_option()
    drafter: str | None = drafter_option()
    part: tuple[int, int] = option(
        (0, 1),
        metavar="I/N",
        parse=part_of,
        help="only let the target answer part I of N, then stop; give all other flags as for the "
        "whole recording (default: 1/1)",
    )
    merge: list[str] = option(
        default_factory=list,
        metavar="DIR",
        help="record nothing; combine these sweeps, of one pair and latency profile, in OUT",
    )

    def __post_init__(self) -> None:
        """Check the values, and that each of them has an effect.

        Raises:
            BlockPilotError: If a value is out of range, or has no effect together with the others.
        """
        LabelledPromptFlags.__post_init__(self)
        RecordingConfig.__post_init__(self)
        if self.part[1] > 1 and self.engine == "ray":
            raise BlockPilotError("engine ray distributes the work itself; drop --part")
        if self.merge:
            for name in changed_options(self):
                if name not in ("out", "merge"):
                    raise BlockPilotError(
                        f"{name} has no effect with --merge, which records nothing; drop it"
                    )


def collect_sweep(config: CollectSweepConfig) -> None:
    """Record a sweep, or merge recorded ones.

    Raises:
        BlockPilotError: If an argument, the pair, a prompt, a sweep or the output is not usable.
    """
    console = open_messages()
    out = Path(config.out)
    if config.merge:
        check_vacant(out, resumable=False)
        console.print(f"{len(merge_sweeps(config.merge, out))} rows merged in {out}")
        return
    origin: dict[str, Any] = {"skipped_prompts": [], "unused_turns": None}
    target, drafter = (_from_anywhere(name) for name in (config.target, config.drafter))
    pair = partial(
        load_pair, target, drafter, template=config.template, completion=config.completion
    )
    with show_progress(console) as progress:
        prompts = partial(_load_prompts, config, console, progress, origin)
        if config.part[1] > 1:
            answer_prompts(out, config.part, config, prompts=prompts, pair=pair, progress=progress)
            name = f"{config.part[0] + 1}/{config.part[1]}"
            console.print(f"part {name} is answered; run without --part to finish")
            return
        sweep = record_sweep(
            out, config, prompts=prompts, pair=pair, origin=origin, progress=progress
        )
    for line in describe(sweep, out):
        console.print(line)


main = command(collect_sweep, CollectSweepConfig)


def describe(sweep: Sweep, out: Path) -> list[str]:
    """Report what was recorded, what was left out, and what looks wrong, in lines.

    Args:
        sweep: The sweep.
        out: Its folder.
    """
    lines = [f"{len(sweep)} rows recorded in {out}"]
    provenance = sweep.metadata.provenance
    if left_out := provenance["ended_with_first_token"]:
        lines.append(
            f"{len(left_out)} texts ended with their first token and have nothing to time; "
            "the ids of their prompts are in metadata.json"
        )
    if skipped := provenance["skipped_prompts"]:
        lines.append(f"{len(skipped)} bad prompts were skipped; they are in metadata.json too")
    measured = provenance.get("measured", {"other_texts": 0})
    if measured["other_texts"]:
        lines.append(
            f"{measured['other_texts']} of {measured['decodes']} real decodes gave a different "
            "text than the recorded one, because numbers round differently; they have no measured "
            "seconds"
        )
    if unfinished_folder(out).exists():
        lines.append(
            f"{unfinished_folder(out)} holds files that are not part of this recording, so it was "
            "not removed"
        )
    return lines + [f"warning: {line}" for line in _warnings(sweep)]


def _warnings(sweep: Sweep) -> list[str]:
    """Warnings about all rows, at the drafter's own block size if it is recorded."""
    size = sweep.metadata.default_block_size
    arm = sweep.arms.index(size) if size in sweep.arms else len(sweep.arms) - 1
    looping = sweep.rows["repetitive"].to_numpy()
    return acceptance_warnings(
        sweep.emitted,
        sweep.passes[:, arm],
        looping,
        sweep.arms[arm],
        sweep.rows["prompt_tokens"].to_numpy(),
        sweep.metadata.provenance.get("trained_length"),
    )


def _load_prompts(
    config: CollectSweepConfig,
    console: Console,
    progress: ProgressCallback,
    origin: dict[str, Any],
    pair: Pair,
) -> list[Prompt]:
    """Read the prompts, print what is left out, and keep it for the provenance."""

    def skip(line: BadLine) -> None:
        console.print(f"skipped {line}")
        origin["skipped_prompts"].append(dataclasses.asdict(line))

    def leave_turns(turns: UnusedTurns) -> None:
        console.print(str(turns))
        origin["unused_turns"] = dataclasses.asdict(turns)

    return config.load_prompts(
        pair, config.max_new_tokens, skip, leave_turns, console.print, progress
    )


def _from_anywhere(name: str | None) -> str | None:
    """A path that is valid in every working folder; a hub id stays as it is."""
    return str(Path(name).resolve()) if name is not None and Path(name).exists() else name
