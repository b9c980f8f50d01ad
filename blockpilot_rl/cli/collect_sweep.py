"""`collect-sweep`: record the outcome of every block size on many prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from blockpilot_rl.cli.console import add_bar
from blockpilot_rl.cli.lists import assignments, part_of, whole_numbers
from blockpilot_rl.cli.pair_flags import device_arg, drafter_arg, target_arg
from blockpilot_rl.cli.parsing import arg, run
from blockpilot_rl.cli.prompt_flags import LabelledPromptFlags
from blockpilot_rl.cli.sweep_report import describe
from blockpilot_rl.decoding.calibration import Calibration, describe_device
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.measuring import time_steps
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import remove_leftovers
from blockpilot_rl.models.pairs import Pair, check_device, load_pair, parse_dtype
from blockpilot_rl.prompts import BadLine, Prompt, UnusedTurns
from blockpilot_rl.sweeps.assemble import assemble, check_calibration, measure_rows
from blockpilot_rl.sweeps.collect import Collection, SweepConfig
from blockpilot_rl.sweeps.continuations import ContinuationStore, validate_seeds
from blockpilot_rl.sweeps.merge import merge_folders
from blockpilot_rl.sweeps.metadata import DEFAULT_ARMS
from blockpilot_rl.sweeps.ray_engine import RayConfig, record_on_ray
from blockpilot_rl.sweeps.table import Sweep
from blockpilot_rl.sweeps.traces import save_sweep
from blockpilot_rl.sweeps.unfinished import (
    ANSWERS,
    holds_something,
    load_finished,
    refuse_foreign,
    refuse_taken,
    remove_unfinished,
    unfinished_folder,
)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class CollectSweepConfig(LabelledPromptFlags):
    """Record a sweep: prefill states and the outcome of every block size, for many prompts.

    Unfinished work lies in OUT.partial; the same command goes on where it was stopped. Sweeps with
    other temperatures, seeds or prompts are recorded apart and put together with --merge.
    """

    out: str = arg(help="folder of the finished sweep", metavar="DIR")
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
    target: str | None = target_arg()
    drafter: str | None = drafter_arg()
    dtype: str = arg("float32", help="dtype of the texts: float32, bfloat16 or float16")
    latency_dtype: str = arg("bfloat16", help="dtype of the timed passes")
    device: str = device_arg()
    continuations: str | None = arg(
        None, metavar="DIR", help="folder of the target's answers, to keep them for other drafters"
    )
    engine: Literal["local", "ray"] = arg(
        "local", help="record in this process, or on a Ray cluster"
    )
    workers: int | None = arg(
        None, help="Ray workers, each with a copy of the pair (default: one per CPU or GPU)"
    )
    ray_address: str | None = arg(
        None,
        help="Ray cluster, as ray.init takes it (default: one that Ray finds, else this machine)",
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
        super().__post_init__()
        self.sweep_config()
        self.ray_config()
        validate_seeds(self.sampling(), self.noise_seeds())
        self.template_options()
        part_of(self.part)
        parse_dtype(self.dtype)
        parse_dtype(self.latency_dtype)
        if self.repeats < 1:
            raise BlockPilotError(f"--repeats must be positive, got {self.repeats}")
        if not 0 <= self.seed < 2**32:
            raise BlockPilotError(f"--seed must be 0 or more and below 2**32, got {self.seed}")
        if self.measure < 0:
            raise BlockPilotError(f"--measure must not be negative, got {self.measure}")

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

    def ray_config(self) -> RayConfig | None:
        """How to spread the work over a Ray cluster; None for the local engine.

        Raises:
            BlockPilotError: If a value is out of range or does not go with the engine.
        """
        if self.engine == "local":
            for flag, value in (("workers", self.workers), ("ray-address", self.ray_address)):
                if value is not None:
                    raise BlockPilotError(f"--{flag} needs --engine ray")
            return None
        if self.part_only:
            raise BlockPilotError("--engine ray shares the work out by itself; drop --part")
        if self.device not in ("cpu", "cuda"):
            raise BlockPilotError(
                f"--engine ray gives each worker a slot of its own, so that --device is cpu or "
                f"cuda, not {self.device}"
            )
        unit: Literal["CPU", "GPU"] = "GPU" if self.device == "cuda" else "CPU"
        return RayConfig(self.ray_address, self.workers, unit)

    @property
    def part_only(self) -> bool:
        """Whether to answer a part of the prompts and stop."""
        return part_of(self.part)[1] > 1

    def pair_loader(self, dtype: str, device: str) -> Callable[[], Pair]:
        """What loads the pair, from any working folder."""
        target, drafter = (_from_anywhere(name) for name in (self.target, self.drafter))
        return partial(load_pair, target, drafter, dtype, device, template=self.template_options())


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
    refuse_taken(out, may_be_finished=not config.merge and not config.part_only)
    if config.merge:
        console.print(f"{len(merge_folders(config.merge, out))} rows merged in {out}")
    else:
        record(config, out, console)


def record(config: CollectSweepConfig, out: Path, console: Console) -> None:
    """Record shards, price them by a latency profile, and put the sweep together.

    Raises:
        BlockPilotError: If an argument, the pair, a prompt or the output is not as needed.
    """
    unfinished = unfinished_folder(out)
    refuse_foreign(unfinished)
    calibration = None if config.profile is None else Calibration.load(config.profile)
    timing = calibration is None or config.measure > 0
    if timing:
        check_device(config.device)
    sweep = config.sweep_config()
    # On a cluster the workers' copies of the pair are at work, and this one only compares.
    pair = config.pair_loader(config.dtype, config.device if config.engine == "local" else "cpu")()
    if calibration is not None:
        check_calibration(calibration, pair, sweep.arms)
    skipped: list[BadLine] = []
    unused: list[UnusedTurns] = []
    prompts = config.load_prompts(
        pair,
        config.max_new_tokens,
        _reporter(console, "skipped ", skipped),
        _reporter(console, "", unused),
        partial(_say, console),
    )
    decoder = Decoder(pair)
    store = ContinuationStore(
        Path(config.continuations or unfinished / ANSWERS),
        prompts,
        config.max_new_tokens,
        config.sampling(),
        config.noise_seeds(),
    )
    collection = Collection(decoder, store, sweep, unfinished)
    if holds_something(out):
        _finish(collection, load_finished(out, collection, calibration), out, console)
        return
    with Progress(console=console, disable=not console.is_terminal) as progress:
        _record_shards(config, collection, progress)
        if config.part_only:
            console.print(f"part {config.part} is answered; run without --part to finish")
            return
        if timing:
            dtype = config.latency_dtype if calibration is None else calibration.dtype
            decoder = _timed(config, decoder, dtype)
        if calibration is None:
            calibration = _calibrate(config, decoder, unfinished, progress)
        origin = {
            "skipped_prompts": [asdict(line) for line in skipped],
            "unused_turns": asdict(unused[0]) if unused else None,
        }
        table = assemble(collection, calibration, origin)
        if config.measure:
            table = _measure(config, decoder, table, prompts, progress)
    remove_leftovers([out])
    save_sweep(out, table, collection.traces(table))
    _finish(collection, table, out, console)


def _finish(collection: Collection, table: Sweep, out: Path, console: Console) -> None:
    """Remove what is no longer needed behind a finished sweep, and report."""
    remove_unfinished(collection)
    for line in describe(table, out):
        _say(console, line)


def _record_shards(config: CollectSweepConfig, collection: Collection, progress: Progress) -> None:
    """Answer and replay the prompts with the engine, or only answer a part of them."""
    store, decoder, cluster = collection.store, collection.decoder, config.ray_config()
    if cluster is not None:
        load = config.pair_loader(config.dtype, config.device)
        record_on_ray(load, collection, cluster, add_bar(progress, "record", len(store.shards)))
        return
    part, bar = part_of(config.part), add_bar(progress, "answer", store.size)
    store.record(decoder.pair, decoder.target, decoder.layer_ids, part, bar)
    if not config.part_only:
        collection.replay_shards(add_bar(progress, "replay", store.size))


def _from_anywhere(name: str | None) -> str | None:
    """A path that holds in every working folder; a hub id stays as it is."""
    return str(Path(name).resolve()) if name is not None and Path(name).exists() else name


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _reporter(console: Console, verb: str, kept: list[T]) -> Callable[[T], None]:
    """What reports something about the prompts and keeps it."""

    def report(item: T) -> None:
        _say(console, f"{verb}{item}")
        kept.append(item)

    return report


def _timed(config: CollectSweepConfig, decoder: Decoder, dtype: str) -> Decoder:
    """A decoder of this dtype on the device to time, which may be the given one."""
    pair = decoder.pair
    if parse_dtype(dtype) == pair.dtype and torch.device(config.device).type == pair.device.type:
        return decoder
    return Decoder(config.pair_loader(dtype, config.device)())


def _calibrate(
    config: CollectSweepConfig, timed: Decoder, unfinished: Path, progress: Progress
) -> Calibration:
    """Measure the latency profile, or read what an interrupted run has measured in the same way."""
    dtype = str(timed.pair.dtype).removeprefix("torch.")
    path = unfinished / f"latency-{dtype}.json"
    if path.exists():
        try:
            saved = Calibration.load(path)
        except BlockPilotError as error:
            raise BlockPilotError(
                f"{path} is corrupt; remove the file and run the same command again"
            ) from error
        repeats, device = saved.latency.medians.get("repeats"), describe_device(timed.pair.device)
        if (saved.device, saved.dtype, repeats) == (device, dtype, config.repeats):
            return saved
        _say(
            progress.console,
            f"{path} was measured in {repeats} rounds on {saved.device} in {saved.dtype}, not in "
            f"{config.repeats} on {device} in {dtype}; measuring anew",
        )
    arms, bar = config.sweep_config().arms, add_bar(progress, "latency")
    times = time_steps(timed, arms, None, config.repeats, config.seed, bar)
    calibration = Calibration.of(timed, times.profile(), None)
    calibration.save(path)
    return calibration


def _measure(
    config: CollectSweepConfig,
    timed: Decoder,
    table: Sweep,
    prompts: Sequence[Prompt],
    progress: Progress,
) -> Sweep:
    """Decode some rows for real."""
    rng = np.random.default_rng(config.seed)
    rows = rng.choice(len(table), size=min(config.measure, len(table)), replace=False)
    bar = add_bar(progress, "measure", len(rows))
    return measure_rows(timed, table, prompts, rows.tolist(), config.seed, bar)
