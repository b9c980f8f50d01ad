"""Tokens per second of plain and speculative decoding, ours and transformers', interleaved.

`python benchmarks/decode.py --json OUT`. Every way decodes every prompt once, in random order
within the prompt, after a warm-up; ratios are of tokens per second on the same prompt, prefill
included, since transformers' `generate` cannot be timed without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import bootstrap

from blockpilot_rl.cli.parsing import arg, run
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import write_json
from blockpilot_rl.models.pairs import Pair, load_pair
from blockpilot_rl.provenance import provenance
from blockpilot_rl.sweeps.prompts import builtin_suite

Way = Callable[[torch.Tensor], int]


@dataclass(frozen=True)
class DecodeBenchmark:
    """Compare ways of decoding on test prompts of the built-in suite."""

    prompts: int = arg(40, help="test prompts to decode")
    max_new_tokens: int = arg(96, help="budget of each text")
    block_size: int = arg(8, help="block size of our speculative decoding")
    dtype: str = arg("bfloat16", help="float32, bfloat16 or float16")
    device: str = arg("cpu", help="where both models run")
    target: str | None = arg(None, help="hub id, folder or GGUF file (default: SmolLM2-135M)")
    drafter: str | None = arg(None, help="hub id or folder (default: the bundled drafter)")
    seed: int = arg(0, help="of the order within a prompt")
    json: str | None = arg(None, nargs="?", const="-", metavar="FILE", help="write a record")

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            BlockPilotError: If a number is out of range.
        """
        if self.prompts < 2 or self.max_new_tokens < 2 or self.block_size < 2:
            raise BlockPilotError("--prompts, --max-new-tokens, --block-size must be at least 2")


def main(config: DecodeBenchmark) -> None:
    """Run the benchmark and print its ratios."""
    pair = load_pair(config.target, config.drafter, config.dtype, config.device)
    ways = make_ways(pair, config)
    rng = np.random.default_rng(config.seed)
    prompts = [pair.encode(p.chat()) for p in builtin_suite(config.prompts, splits=["test"])]
    for way in ways.values():
        way(prompts[0])
    speed = {name: np.zeros(len(prompts)) for name in ways}
    console = Console(stderr=True)
    for index, ids in enumerate(track(prompts, "decode", console=console)):
        for name in rng.permutation(list(ways)):
            began = time.perf_counter()
            tokens = ways[name](ids)
            speed[name][index] = tokens / (time.perf_counter() - began)
    ratios = {
        f"{above} / {below}": ratio(speed[above], speed[below])
        for above, below in (
            ("plain", "transformers plain"),
            ("block", "plain"),
            ("default", "transformers dflash"),
            ("default", "plain"),
        )
    }
    report(config, pair, speed, ratios)


def make_ways(pair: Pair, config: DecodeBenchmark) -> dict[str, Way]:
    """Ways to decode a prompt; each returns the number of emitted tokens."""
    decoder = Decoder(pair)

    def ours(block_size: int) -> Way:
        return lambda ids: len(decoder.generate(ids, block_size, config.max_new_tokens).tokens)

    def theirs(**options: Any) -> Way:
        def way(ids: torch.Tensor) -> int:
            model: Any = pair.target
            output = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=config.max_new_tokens,
                do_sample=False,
                eos_token_id=list(pair.stop_token_ids) or None,
                pad_token_id=0,
                **options,
            )
            return int(output.shape[1] - ids.shape[1])

        return way

    return {
        "plain": ours(1),
        "block": ours(config.block_size),
        "default": ours(pair.block_size),
        "transformers plain": theirs(),
        "transformers dflash": theirs(assistant_model=pair.drafter, speculation_type="dflash"),
    }


def ratio(above: np.ndarray, below: np.ndarray) -> tuple[float, float, float]:
    """Median of the per-prompt ratios with its 95% bootstrap interval."""
    values = above / below
    interval = bootstrap(
        (values,), np.median, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    return float(np.median(values)), float(interval.low), float(interval.high)


def report(
    config: DecodeBenchmark,
    pair: Pair,
    speed: dict[str, np.ndarray],
    ratios: dict[str, tuple[float, float, float]],
) -> None:
    """Print the table and write the record."""
    machine = provenance()
    table = Table(title=f"{machine['cpu']}, {machine['threads']} threads, {config.dtype}")
    table.add_column("ratio of tokens per second")
    table.add_column("median [95%]")
    for name, (value, low, high) in ratios.items():
        label = name.replace("block", f"block {config.block_size}")
        table.add_row(
            label.replace("default", f"block {pair.block_size}"),
            f"{value:.2f} [{low:.2f}, {high:.2f}]",
        )
    medians = {name: float(np.median(values)) for name, values in speed.items()}
    Console(stderr=config.json == "-").print(table)
    if config.json is not None:
        write_json(
            config.json,
            {
                "ratios": ratios,
                "tokens_per_second": medians,
                "config": config,
                "default_block_size": pair.block_size,
                "machine": machine,
            },
        )


if __name__ == "__main__":
    raise SystemExit(run(main, DecodeBenchmark))
