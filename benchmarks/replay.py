"""Compare the cost of replay with that of decoding every block size, per prompt.

`python benchmarks/replay.py --json OUT`. Prompts are processed in batches, as in a sweep. For each
batch, the target answers once (plain decoding of the batch). Then, in random order, every prompt is
decoded with every block size after one prefill, and the batch is replayed, once for trajectories
alone and once for the full trace. Each prompt gets an equal share of the time of its batch. The
replay is compared with the real decodes; in float32 both must be the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

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
from blockpilot_rl.decoding.batched import continue_batch
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.generation import Generation
from blockpilot_rl.decoding.latency import DEFAULT_ARMS, validate_arms
from blockpilot_rl.decoding.replay import replay, trace
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import check_output, write_json
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.options import option
from blockpilot_rl.prompts import builtin_suite
from blockpilot_rl.provenance import provenance

DECODED = "every arm"
WAYS = (DECODED, "trajectories", "trace")


@dataclass(frozen=True)
class ReplayBenchmark:
    """Compare replay with decoding every block size, on test prompts of the built-in suite."""

    prompts: int = option(16, help="test prompts")
    batch: int = option(8, help="prompts that are answered and replayed together")
    max_new_tokens: int = option(64, help="budget of each text")
    arms: str = option(",".join(map(str, DEFAULT_ARMS)), metavar="1,B,…", help="block sizes")
    temperature: float = option(0.0, help="0 is greedy")
    dtype: str = dtype_option("float32")
    device: str = device_option()
    target: str | None = target_option()
    completion: bool = completion_option()
    drafter: str | None = drafter_option()
    seed: int = option(0, help="random seed of the order within a batch, and of sampling")
    json: str | None = option(None, nargs="?", const="-", metavar="FILE", help="write a record")

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            BlockPilotError: If a number is out of range.
        """
        validate_arms(whole_numbers(self.arms, "--arms"))
        self.sampling()
        if self.prompts < 2 or self.batch < 1 or self.max_new_tokens < 2:
            raise BlockPilotError("--prompts and --max-new-tokens must be at least 2, --batch 1")

    def sampling(self) -> Sampling:
        """How tokens are chosen."""
        return Sampling(self.temperature, seed=self.seed)


@dataclass(frozen=True)
class Timing:
    """Seconds of one prompt, or its share of a batch, and whether the replay was right.

    Attributes:
        answer: Seconds of plain decoding of the batch.
        seconds: Seconds of each of `WAYS`.
        tokens: Emitted tokens.
        equal: Number of block sizes whose replay equals the real decode, pass by pass.
    """

    answer: float
    seconds: dict[str, float]
    tokens: int
    equal: int


@dataclass(frozen=True)
class Decoded:
    """One prompt decoded with every block size.

    Attributes:
        seconds: Prefill and all decodes.
        tokens: Text of each block size.
        accepted: Tokens emitted by each decode pass after prefill, for each block size.
    """

    seconds: float
    tokens: list[list[int]]
    accepted: list[list[int]]


def main(config: ReplayBenchmark) -> None:
    """Run the benchmark and print its ratios."""
    check_output(config.json)
    arms, rng = whole_numbers(config.arms, "--arms"), np.random.default_rng(config.seed)
    pair = load_pair(
        config.target,
        config.drafter,
        config.dtype,
        config.device,
        completion=config.completion,
    )
    decoder = Decoder(pair)
    if decoder.drafter is None:
        raise BlockPilotError("replay needs a drafter; this pair has none")
    prompts = [pair.encode(p.chat()) for p in builtin_suite(config.prompts, splits=["test"])]
    decoder.warm_up(arms, sampling=config.sampling())
    time_batch(decoder, prompts[:1], arms, 8, config.sampling(), rng)
    timings: list[Timing] = []
    for first in track(range(0, len(prompts), config.batch), "batches", console=open_messages()):
        batch = prompts[first : first + config.batch]
        timings += time_batch(decoder, batch, arms, config.max_new_tokens, config.sampling(), rng)
    report(config, timings, len(arms))


def time_batch(
    decoder: Decoder,
    prompts: Sequence[torch.Tensor],
    arms: tuple[int, ...],
    max_new_tokens: int,
    sampling: Sampling,
    rng: np.random.Generator,
) -> list[Timing]:
    """Time one batch.

    Args:
        decoder: The decoder.
        prompts: Token ids of each prompt, `[1, n]`.
        arms: Block sizes.
        max_new_tokens: Budget of each text.
        sampling: How tokens are chosen.
        rng: Random order of the ways and of the block sizes.

    Returns:
        A timing for each prompt.
    """
    drafter = decoder.drafter
    assert drafter is not None
    began = time.perf_counter()
    answers = continue_batch(
        decoder.target,
        [ids[0] for ids in prompts],
        max_new_tokens,
        decoder.pair.stop_token_ids,
        sampling,
    )
    answered = (time.perf_counter() - began) / len(prompts)
    decoded: list[Decoded] = []
    replayed: list[list[list[int]]] = []
    shares: dict[str, float] = {}
    for name in rng.permutation(WAYS):
        began = time.perf_counter()
        if name == DECODED:
            decoded = [
                decode_every_arm(decoder, ids, arms, max_new_tokens, sampling, rng)
                for ids in prompts
            ]
        elif name == "trajectories":
            replayed = replay(drafter, answers, arms)
        else:
            trace(drafter, answers, arms)
        shares[str(name)] = (time.perf_counter() - began) / len(prompts)
    timings = []
    for answer, real, by_arm in zip(answers, decoded, replayed, strict=True):
        text = answer.output_ids.tolist()
        equal = sum(
            tokens == text and accepted == lengths
            for tokens, accepted, lengths in zip(real.tokens, real.accepted, by_arm, strict=True)
        )
        timings.append(Timing(answered, {**shares, DECODED: real.seconds}, len(text), equal))
    return timings


def decode_every_arm(
    decoder: Decoder,
    ids: torch.Tensor,
    arms: tuple[int, ...],
    max_new_tokens: int,
    sampling: Sampling,
    rng: np.random.Generator,
) -> Decoded:
    """Decode one prompt with every block size, in random order, after one prefill.

    Returns:
        The texts and their seconds.
    """
    results: dict[int, Generation] = {}
    began = time.perf_counter()
    prefill = decoder.prefill(ids, max_new_tokens, max(arms), sampling)
    for arm in rng.permutation(arms).tolist():
        results[arm] = decoder.decode(prefill, arm)
    seconds = time.perf_counter() - began
    ordered = [results[arm] for arm in arms]
    return Decoded(
        seconds, [item.tokens for item in ordered], [item.accepted[1:] for item in ordered]
    )


def report(config: ReplayBenchmark, timings: Sequence[Timing], arms: int) -> None:
    """Print the table and write the record."""
    decoded = np.array([item.seconds[DECODED] for item in timings])
    answers = np.array([item.answer for item in timings])
    ratios = {}
    for name in WAYS[1:]:
        share = np.array([item.seconds[name] for item in timings])
        ratios[f"{DECODED} / {name}"] = ratio_interval(decoded, share)
        ratios[f"{DECODED} / answer and {name}"] = ratio_interval(decoded, answers + share)
    machine = provenance()
    table = Table(title=f"{machine['cpu']}, {machine['threads']} threads, {config.dtype}")
    table.add_column("ratio of seconds")
    table.add_column("all prompts [95%]")
    for label, (value, low, high) in ratios.items():
        table.add_row(label, f"{value:.1f} [{low:.1f}, {high:.1f}]")
    equal, total = sum(item.equal for item in timings), arms * len(timings)
    console = open_console(config.json)
    console.print(table)
    console.print(f"replay equals real decoding in {equal} of {total} prompts × block sizes")
    if config.json is not None:
        write_json(
            config.json,
            {
                "ratios": ratios,
                "seconds_per_prompt": {
                    "answer": float(answers.mean()),
                    **{
                        name: float(np.mean([item.seconds[name] for item in timings]))
                        for name in WAYS
                    },
                },
                "equal": [equal, total],
                "tokens": sum(item.tokens for item in timings),
                "config": config,
                "machine": machine,
            },
        )


def ratio_interval(above: np.ndarray, below: np.ndarray) -> tuple[float, float, float]:
    """Ratio of the sums, with its 95% bootstrap interval over the prompts.

    Only the total time of a batch is known, so the variation within a batch is not included.
    """

    def ratio(above: np.ndarray, below: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(above.sum(axis=axis) / below.sum(axis=axis))

    interval = bootstrap(
        (above, below), ratio, paired=True, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    return float(ratio(above, below)), float(interval.low), float(interval.high)


if __name__ == "__main__":
    raise SystemExit(run(main, ReplayBenchmark))
