"""`collect-sweep`: record the outcome of every block size on many prompts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.progress import Progress

from blockpilot_rl.cli.lists import assignments, part_of, whole_numbers, words
from blockpilot_rl.cli.parsing import arg, run
from blockpilot_rl.decoding.calibration import Calibration
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.latency import LatencyProfile, measure_latency
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import write_json
from blockpilot_rl.models.pairs import Pair, load_pair, parse_dtype
from blockpilot_rl.sweeps.assemble import assemble, check_calibration, measure_rows
from blockpilot_rl.sweeps.collect import Collection, SweepConfig
from blockpilot_rl.sweeps.continuations import ContinuationStore, validate_seeds
from blockpilot_rl.sweeps.merge import merge_folders
from blockpilot_rl.sweeps.metadata import DEFAULT_ARMS
from blockpilot_rl.sweeps.prompts import Prompt, builtin_suite, load_prompts
from blockpilot_rl.sweeps.table import SweepTable
from blockpilot_rl.sweeps.traces import save_sweep


@dataclass(frozen=True)
class CollectSweepConfig:
    """Record a sweep: prefill states and the outcome of every block size, for many prompts.

    Unfinished work lies in OUT.partial; the same command goes on where it was stopped. Sweeps with
    other temperatures, seeds or prompts are recorded apart and put together with --merge.
    """

    out: str = arg(help="folder of the finished sweep", metavar="DIR")
    prompts: str | None = arg(
        None, metavar="FILE", help="JSONL or text file of prompts (default: the built-in suite)"
    )
    limit: int = arg(2000, help="number of prompts of the built-in suite, drafter split left out")
    families: str | None = arg(None, metavar="A,B", help="families of the built-in suite")
    arms: str = arg(",".join(map(str, DEFAULT_ARMS)), metavar="1,B,…", help="block sizes")
    max_new_tokens: int = arg(128, help="budget of each text")
    temperature: float = arg(0.0, help="0 is greedy")
    top_k: int = arg(0, help="sample among this many most probable tokens; 0 is all")
    top_p: float = arg(1.0, help="sample among the tokens that hold this much probability")
    seeds: str = arg("0", metavar="0,1,…", help="sample every prompt once with each of these seeds")
    trace: str = arg(
        "0",
        nargs="?",
        const="all",
        metavar="N",
        help="also record what every position would accept, for the first N prompts of each split; "
        "without a number, for all",
    )
    template: list[str] = arg(
        default_factory=list,
        metavar="KEY:VALUE",
        help="options of the chat template, such as enable_thinking:false",
    )
    target: str | None = arg(None, help="hub id, folder or GGUF file (default: SmolLM2-135M)")
    drafter: str | None = arg(None, help="hub id or folder (default: the bundled drafter)")
    dtype: str = arg("float32", help="dtype of the texts: float32, bfloat16 or float16")
    latency_dtype: str = arg("bfloat16", help="dtype of the timed passes")
    device: str = arg("cpu", help="where both models run")
    continuations: str | None = arg(
        None, metavar="DIR", help="folder of the target's answers, to keep them for other drafters"
    )
    part: str = arg(
        "1/1", metavar="I/N", help="only let the target answer part I of N, then stop (N > 1)"
    )
    measure: int = arg(0, help="prompts to decode for real under every arm, to check the times")
    profile: str | None = arg(
        None,
        metavar="FILE",
        help="take this latency profile, saved by calibrate, instead of measuring one",
    )
    repeats: int = arg(30, help="rounds of the latency profile")
    seed: int = arg(0, help="of the order in which arms are timed")
    merge: list[str] = arg(
        default_factory=list,
        metavar="DIR",
        help="record nothing; put these sweeps, of one pair and latency profile, together in OUT",
    )

    def __post_init__(self) -> None:
        """Check what can be checked before any work.

        Raises:
            BlockPilotError: If a value is out of range.
        """
        self.sweep_config()
        validate_seeds(self.sampling(), self.noise_seeds())
        self.template_options()
        part_of(self.part)
        parse_dtype(self.dtype)
        parse_dtype(self.latency_dtype)
        for name in ("limit", "repeats"):
            if getattr(self, name) < 1:
                raise BlockPilotError(f"--{name} must be positive, got {getattr(self, name)}")
        if self.measure < 0:
            raise BlockPilotError(f"--measure must not be negative, got {self.measure}")
        if self.prompts is not None and self.families is not None:
            raise BlockPilotError("--families chooses from the built-in suite; drop --prompts")

    def sweep_config(self) -> SweepConfig:
        """What the flags ask to record.

        Raises:
            BlockPilotError: If a value is out of range.
        """
        trace: int | Literal["all"] = "all"
        if self.trace != "all":
            if not self.trace.isdecimal():
                raise BlockPilotError(f"--trace takes a number of prompts, not {self.trace!r}")
            trace = int(self.trace)
        return SweepConfig(whole_numbers(self.arms, "--arms"), self.max_new_tokens, trace=trace)

    def sampling(self) -> Sampling:
        """How tokens are chosen, but for the seed."""
        return Sampling(self.temperature, self.top_k, self.top_p)

    def noise_seeds(self) -> tuple[int, ...]:
        """The seeds to sample with."""
        return whole_numbers(self.seeds, "--seeds")

    def template_options(self) -> dict[str, Any]:
        """Options of the chat template."""
        return assignments(self.template, "--template")

    def load_pair(self, dtype: str) -> Pair:
        """The pair."""
        return load_pair(
            self.target, self.drafter, dtype, self.device, template=self.template_options()
        )

    def load_prompts(self) -> list[Prompt]:
        """The prompts to decode."""
        if self.prompts is not None:
            return load_prompts(Path(self.prompts))
        families = None if self.families is None else words(self.families)
        return builtin_suite(self.limit, families=families, splits=["train", "validation", "test"])


def main(argv: Sequence[str] | None = None, *, prog: str | None = None) -> int:
    """Run the command.

    Args:
        argv: Its arguments; None for those of the process.
        prog: Name shown in its help.

    Returns:
        The exit code.
    """
    return run(collect_sweep, CollectSweepConfig, argv, prog=prog)


def collect_sweep(config: CollectSweepConfig) -> None:
    """Record a sweep, or merge recorded ones.

    Raises:
        BlockPilotError: If an argument, the pair, a prompt, a sweep or the output is not as needed.
    """
    console = Console(stderr=True)
    out = Path(config.out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BlockPilotError(f"{out} exists; name a new folder or remove it first")
    if config.merge:
        console.print(f"{len(merge_folders(config.merge, out))} rows merged in {out}")
    else:
        record(config, out, console)


def record(config: CollectSweepConfig, out: Path, console: Console) -> None:
    """Record shards, price them by a latency profile, and put the sweep together.

    Raises:
        BlockPilotError: If an argument, the pair, a prompt or the output is not as needed.
    """
    calibration = None if config.profile is None else Calibration.load(config.profile)
    prompts, sweep = config.load_prompts(), config.sweep_config()
    pair = config.load_pair(config.dtype)
    if calibration is not None:
        check_calibration(calibration, pair, sweep.arms)
    decoder = Decoder(pair)
    unfinished = out.parent / f"{out.name}.partial"
    store = ContinuationStore(
        Path(config.continuations or unfinished / "continuations"),
        prompts,
        config.max_new_tokens,
        config.sampling(),
        config.noise_seeds(),
    )
    collection = Collection(decoder, store, sweep, unfinished)
    part = part_of(config.part)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = _bar(progress, "answer", store.size)
        store.record(pair, decoder.target, decoder.layer_ids, part, bar)
        if part[1] > 1:
            console.print(f"part {config.part} is answered; run without --part to finish")
            return
        collection.replay_shards(_bar(progress, "replay", store.size))
        timed, dtype = decoder, config.latency_dtype if calibration is None else calibration.dtype
        if parse_dtype(dtype) != pair.dtype and (calibration is None or config.measure):
            timed = Decoder(config.load_pair(dtype))
        if calibration is None:
            calibration = _calibrate(config, timed, unfinished, progress)
        table = assemble(collection, calibration)
        if config.measure:
            table = _measure(config, timed, table, prompts, progress)
    save_sweep(out, table, collection.traces(table))
    shutil.rmtree(unfinished)
    for line in _report(table.metadata.provenance["ended_with_first_token"], len(table), out):
        console.print(line)


def _bar(progress: Progress, name: str, total: int) -> Callable[[int, int], None]:
    task = progress.add_task(name, total=total)
    return lambda done, total: progress.update(task, completed=done, total=total)


def _calibrate(
    config: CollectSweepConfig, timed: Decoder, unfinished: Path, progress: Progress
) -> Calibration:
    """Measure the latency profile, or read the one that an interrupted run has measured."""
    dtype = str(timed.pair.dtype).removeprefix("torch.")
    path = unfinished / f"latency-{dtype}.json"
    if path.exists():
        profile = LatencyProfile.from_dict(json.loads(path.read_text(encoding="utf-8")))
    else:
        arms, bar = config.sweep_config().arms, _bar(progress, "latency", config.repeats)
        profile = measure_latency(
            timed, arms, repeats=config.repeats, seed=config.seed, progress=bar
        )
        write_json(path, profile.to_dict())
    return Calibration.of(timed, profile, None)


def _measure(
    config: CollectSweepConfig,
    timed: Decoder,
    table: SweepTable,
    prompts: Sequence[Prompt],
    progress: Progress,
) -> SweepTable:
    """Decode some rows for real."""
    rng = np.random.default_rng(config.seed)
    rows = rng.choice(len(table), size=min(config.measure, len(table)), replace=False)
    bar = _bar(progress, "measure", len(rows))
    return measure_rows(timed, table, prompts, rows.tolist(), config.seed, bar)


def _report(left_out: list[str], rows: int, out: Path) -> list[str]:
    lines = [f"{rows} rows recorded in {out}"]
    if left_out:
        lines.append(
            f"{len(left_out)} texts ended with their first token and have nothing to time; "
            "the ids of their prompts are in metadata.json"
        )
    return lines
