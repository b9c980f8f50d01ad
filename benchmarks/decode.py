"""Tokens per second of plain and speculative decoding, ours and transformers', interleaved.

`python benchmarks/decode.py --json OUT`. After a warm-up, every way decodes every prompt once, in
random order within each prompt. A ratio compares the tokens per second on the same prompt, prefill
included, since transformers' `generate` cannot be timed without it. The table also shows tokens per
pass: DFlash generation in transformers has no correction head (docs/transformers.md), so with a
drafter that has one the ratio covers both speed and acceptance.

The best block size is the one with the largest median ratio to plain decoding.

On Linux the memory in use is shown too, after the pair is loaded and after the decoder has packed
its weights. Weights that are mapped from a checkpoint's file need no memory of their own: the
system can drop their pages.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.progress import track
from rich.table import Table
from scipy.stats import bootstrap

from blockpilot_rl.cli.console import open_console, open_messages, run
from blockpilot_rl.cli.flags import (
    completion_option,
    device_option,
    drafter_option,
    dtype_option,
    target_option,
    whole_numbers,
)
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import check_output, write_json
from blockpilot_rl.models.pairs import Pair, load_pair
from blockpilot_rl.options import option
from blockpilot_rl.prompts import builtin_suite
from blockpilot_rl.provenance import provenance

PLAIN, THEIRS, THEIR_DFLASH = "plain", "transformers", "transformers DFlash"


class Outcome(NamedTuple):
    """The result of decoding one prompt in one way.

    Attributes:
        tokens: Emitted tokens.
        passes: Target passes, prefill included.
        seconds: Median seconds of a pass after prefill, if the way records them.
    """

    tokens: int
    passes: int
    seconds: float | None = None


Way = Callable[[torch.Tensor], Outcome]


@dataclass(frozen=True)
class DecodeBenchmark:
    """Compare ways of decoding on test prompts of the built-in suite."""

    prompts: int = option(40, help="test prompts to decode")
    max_new_tokens: int = option(96, help="budget of each text")
    block_sizes: str = option(
        "4,6,8", help="block sizes of our decoding, besides the drafter's own"
    )
    dtype: str = dtype_option("bfloat16")
    device: str = device_option()
    target: str | None = target_option()
    completion: bool = completion_option()
    drafter: str | None = drafter_option()
    seed: int = option(0, help="of the order within a prompt")
    json: str | None = option(None, nargs="?", const="-", metavar="FILE", help="write a record")

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            BlockPilotError: If a number is out of range.
        """
        if self.prompts < 2 or self.max_new_tokens < 2:
            raise BlockPilotError("--prompts and --max-new-tokens must be at least 2")
        self.sizes()

    def sizes(self) -> tuple[int, ...]:
        """The block sizes."""
        return whole_numbers(self.block_sizes, "--block-sizes", least=2)


def main(config: DecodeBenchmark) -> None:
    """Run the benchmark and print its ratios."""
    check_output(config.json)
    pair = load_pair(
        config.target,
        config.drafter,
        config.dtype,
        config.device,
        completion=config.completion,
    )
    memory = {"loaded": resident_memory()}
    ways = make_ways(pair, config)
    memory["decoder"] = resident_memory()
    rng = np.random.default_rng(config.seed)
    prompts = [pair.encode(p.chat()) for p in builtin_suite(config.prompts, splits=["test"])]
    for way in ways.values():
        way(prompts[0])
    speed = {name: np.zeros(len(prompts)) for name in ways}
    outcomes: dict[str, list[Outcome]] = {name: [] for name in ways}
    for index, ids in enumerate(track(prompts, "decode", console=open_messages())):
        for name in rng.permutation(list(ways)):
            began = time.perf_counter()
            outcome = ways[name](ids)
            speed[name][index] = outcome.tokens / (time.perf_counter() - began)
            outcomes[name].append(outcome)
    report(config, pair, speed, outcomes, memory)


def resident_memory() -> dict[str, int] | None:
    """Bytes of memory that this process uses: its own, and mapped from files; None elsewhere."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    values = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
    names = {"own": "RssAnon", "mapped": "RssFile"}
    return {name: 1024 * int(values[field].split()[0]) for name, field in names.items()}


def block(size: int) -> str:
    """Name of our decoding with a block size."""
    return f"block {size}"


def make_ways(pair: Pair, config: DecodeBenchmark) -> dict[str, Way]:
    """Ways to decode a prompt."""
    decoder = Decoder(pair)

    def ours(block_size: int) -> Way:
        def way(ids: torch.Tensor) -> Outcome:
            done = decoder.generate(ids, block_size, config.max_new_tokens)
            passes = done.passes[1:]
            seconds = float(np.median([item.seconds for item in passes])) if passes else None
            return Outcome(len(done.tokens), len(done.passes), seconds)

        return way

    def theirs(**options: Any) -> Way:
        def way(ids: torch.Tensor) -> Outcome:
            model: Any = pair.target
            passes: list[None] = []
            hook = model.register_forward_hook(lambda *_: passes.append(None))
            output = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=config.max_new_tokens,
                do_sample=False,
                eos_token_id=list(pair.stop_token_ids) or None,
                pad_token_id=0,
                **options,
            )
            hook.remove()
            return Outcome(int(output.shape[1] - ids.shape[1]), len(passes))

        return way

    return {
        PLAIN: ours(1),
        **{block(size): ours(size) for size in (*config.sizes(), pair.block_size)},
        THEIRS: theirs(),
        THEIR_DFLASH: theirs(assistant_model=pair.drafter, speculation_type="dflash"),
    }


def ratio(above: np.ndarray, below: np.ndarray) -> tuple[float, float, float]:
    """Median of the per-prompt ratios with its 95% bootstrap interval."""
    values = above / below
    interval = bootstrap(
        (values,), np.median, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    return float(np.median(values)), float(interval.low), float(interval.high)


def acceptance_length(outcomes: list[Outcome]) -> float | None:
    """Tokens per target pass after prefill, pooled; None if there was no such pass."""
    passes = sum(outcome.passes - 1 for outcome in outcomes)
    return sum(outcome.tokens - 1 for outcome in outcomes) / passes if passes else None


def report(
    config: DecodeBenchmark,
    pair: Pair,
    speed: dict[str, np.ndarray],
    outcomes: dict[str, list[Outcome]],
    memory: dict[str, dict[str, int] | None],
) -> None:
    """Print the tables and write the record."""
    blocks = [name for name in speed if name.startswith("block")]
    pairs = [(PLAIN, THEIRS), *((name, PLAIN) for name in blocks)]
    pairs.append((block(pair.block_size), THEIR_DFLASH))
    ratios = {f"{above} / {below}": ratio(speed[above], speed[below]) for above, below in pairs}
    best = max(blocks, key=lambda name: ratios[f"{name} / {PLAIN}"][0])
    ways = {
        name: {
            "tokens_per_second": float(np.median(speed[name])),
            "tokens_per_pass": acceptance_length(done),
            "pass_seconds": _median([x.seconds for x in done if x.seconds is not None]),
        }
        for name, done in outcomes.items()
    }
    machine = provenance()
    console = open_console(config.json)
    title = f"{machine['cpu']}, {machine['threads']} threads, {config.dtype}"
    console.print(_ways_table(title, ways))
    table = Table("ratio of tokens per second", "median [95%]")
    for name, (value, low, high) in ratios.items():
        table.add_row(name, f"{value:.2f} [{low:.2f}, {high:.2f}]")
    console.print(table)
    console.print(f"best block size: {best}")
    for name, used in memory.items():
        if used is not None:
            own, mapped = (round(used[kind] / 1e6) for kind in ("own", "mapped"))
            console.print(f"memory, {name}: {own} MB, and {mapped} MB mapped from files")
    if config.json is not None:
        record = {"ratios": ratios, "best": best, "ways": ways, "memory": memory, "config": config}
        write_json(
            config.json, {**record, "default_block_size": pair.block_size, "machine": machine}
        )


def _median(values: list[float]) -> float | None:
    return float(np.median(values)) if values else None


def _ways_table(title: str, ways: dict[str, dict[str, Any]]) -> Table:
    table = Table("way", "tokens/s", "tokens per pass", "ms per pass", title=title)
    for name, way in ways.items():
        length, seconds = way["tokens_per_pass"], way["pass_seconds"]
        table.add_row(
            name,
            f"{way['tokens_per_second']:.1f}",
            "-" if length is None else f"{length:.2f}",
            "-" if seconds is None else f"{1e3 * seconds:.1f}",
        )
    return table


if __name__ == "__main__":
    raise SystemExit(run(main, DecodeBenchmark))
