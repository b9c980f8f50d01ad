"""`collect-sweep`: record the outcome of every block size on many prompts."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from blockpilot_rl.cli.lists import part_of, whole_numbers, words
from blockpilot_rl.cli.parsing import arg, run
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.latency import LatencyProfile, measure_latency
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import write_json
from blockpilot_rl.models.pairs import load_pair, parse_dtype
from blockpilot_rl.provenance import provenance
from blockpilot_rl.sweeps.collect import Collection, SweepConfig, assemble, measure_rows
from blockpilot_rl.sweeps.continuations import ContinuationStore
from blockpilot_rl.sweeps.prompts import Prompt, builtin_suite, load_prompts
from blockpilot_rl.sweeps.table import DEFAULT_ARMS


@dataclass(frozen=True)
class CollectSweepConfig:
    """Record a sweep: prefill states and the outcome of every block size, for many prompts.

    Unfinished work lies in OUT.partial; the same command goes on where it was stopped.
    """

    out: str = arg(help="folder of the finished sweep", metavar="DIR")
    prompts: str | None = arg(
        None, metavar="FILE", help="JSONL or text file of prompts (default: the built-in suite)"
    )
    limit: int = arg(2000, help="number of prompts of the built-in suite, drafter split left out")
    families: str | None = arg(None, metavar="A,B", help="families of the built-in suite")
    arms: str = arg(",".join(map(str, DEFAULT_ARMS)), metavar="1,B,…", help="block sizes")
    max_new_tokens: int = arg(128, help="budget of each text")
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
    repeats: int = arg(30, help="rounds of the latency profile")
    seed: int = arg(0, help="of the order in which arms are timed")

    def __post_init__(self) -> None:
        """Check what can be checked before any work.

        Raises:
            BlockPilotError: If a value is out of range.
        """
        self.sweep_config()
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
        """What the flags ask to record."""
        return SweepConfig(
            arms=whole_numbers(self.arms, "--arms"), max_new_tokens=self.max_new_tokens
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
    """Record shards, measure the latency profile, and put the sweep together.

    Raises:
        BlockPilotError: If an argument, the pair, a prompt or the output is not as needed.
    """
    console = Console(stderr=True)
    out = Path(config.out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BlockPilotError(f"{out} exists; name a new folder or remove it first")
    prompts, sweep = config.load_prompts(), config.sweep_config()
    pair = load_pair(config.target, config.drafter, config.dtype, config.device)
    decoder = Decoder(pair)
    unfinished = out.parent / f"{out.name}.partial"
    answers = Path(config.continuations or unfinished / "continuations")
    store = ContinuationStore(answers, prompts, config.max_new_tokens)
    collection = Collection(decoder, store, sweep, unfinished)
    part = part_of(config.part)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = _bar(progress, "answer", len(prompts))
        store.record(pair, decoder.target, decoder.layer_ids, part, bar)
        if part[1] > 1:
            console.print(f"part {config.part} is answered; run without --part to finish")
            return
        collection.replay_shards(_bar(progress, "replay", len(prompts)))
        timed = decoder
        if parse_dtype(config.latency_dtype) != pair.dtype:
            timed = Decoder(
                load_pair(config.target, config.drafter, config.latency_dtype, config.device)
            )
        dtype = str(timed.pair.dtype).removeprefix("torch.")
        profile = _profile(config, timed, unfinished / f"latency-{dtype}.json", progress)
        table = assemble(collection, profile, dtype, _device(timed))
        if config.measure:
            rng = np.random.default_rng(config.seed)
            rows = rng.choice(len(table), size=min(config.measure, len(table)), replace=False)
            bar = _bar(progress, "measure", len(rows))
            table = measure_rows(timed, table, prompts, rows.tolist(), config.seed, bar)
    table.save(out)
    shutil.rmtree(unfinished)
    for line in _report(table.metadata.provenance["ended_with_first_token"], len(table), out):
        console.print(line)


def _bar(progress: Progress, name: str, total: int) -> Callable[[int, int], None]:
    task = progress.add_task(name, total=total)
    return lambda done, total: progress.update(task, completed=done, total=total)


def _profile(
    config: CollectSweepConfig, timed: Decoder, path: Path, progress: Progress
) -> LatencyProfile:
    """Measure the latency profile, or read the one that an interrupted run has measured."""
    if path.exists():
        return LatencyProfile.from_dict(json.loads(path.read_text(encoding="utf-8")))
    bar = _bar(progress, "latency", 1)
    arms = config.sweep_config().arms
    profile = measure_latency(timed, arms, repeats=config.repeats, seed=config.seed, progress=bar)
    write_json(path, profile.to_dict())
    return profile


def _device(decoder: Decoder) -> str:
    """The device in words."""
    device = decoder.pair.device
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpu = provenance()["cpu"] or platform.machine()
    return f"{cpu}, {torch.get_num_threads()} threads"


def _report(left_out: list[str], rows: int, out: Path) -> list[str]:
    lines = [f"{rows} prompts recorded in {out}"]
    if left_out:
        lines.append(
            f"{len(left_out)} prompts ended with their first token and have nothing to time; "
            "their ids are in metadata.json"
        )
    return lines
