"""A policy and fixed block sizes in real decoding, on prompts that the policy was not trained on.

`python benchmarks/policy.py --prompts 60 --json OUT`; `--policy DIR` measures another policy. Every
prompt (of the built-in suite's test split) is prefilled once. Then plain decoding, each fixed size
and the policy decode it in random order; the decision is part of the policy's time. The result is
the policy's gain in mean speedup over a fixed size, paired by prompt, as `blockpilot compare`
computes it from a sweep.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from rich.progress import track

from blockpilot_rl.cli.console import open_console, open_messages, render, run
from blockpilot_rl.cli.flags import (
    completion_option,
    device_option,
    drafter_option,
    dtype_option,
    target_option,
    whole_numbers,
    words,
)
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.generation import Generation
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.statistics import relative_gain
from blockpilot_rl.files import check_output, write_json
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.options import option
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.prompts import GROUPS, Prompt, builtin_suite
from blockpilot_rl.provenance import provenance
from blockpilot_rl.reports.tables import TextTable, gain_text

PLAIN, BEST, POLICY = "plain", "best fixed", "policy"


@dataclass(frozen=True)
class PolicyBenchmark:
    """Decode test prompts with a policy and with fixed block sizes, interleaved."""

    policy: str = option("bundled", metavar="DIR", help="exported policy, or the bundled one")
    prompts: int = option(60, help="test prompts to decode")
    groups: str = option(",".join(GROUPS), metavar="A,B", help="groups of built-in prompts to mix")
    block_sizes: str | None = option(
        None,
        help="further fixed sizes, besides plain decoding, the drafter's own and the best on the "
        "policy's training prompts, its fallback",
    )
    max_new_tokens: int = option(128, help="budget of each text")
    temperature: float = option(0.0, help="0 is greedy")
    dtype: str = dtype_option("bfloat16")
    device: str = device_option()
    target: str | None = target_option()
    completion: bool = completion_option()
    drafter: str | None = drafter_option()
    seed: int = option(0, help="of the order within a prompt and, with its id, of its noise")
    json: str | None = option(None, nargs="?", const="-", metavar="FILE", help="write a record")

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            BlockPilotError: If a number is out of range.
        """
        if self.prompts < 2 or self.max_new_tokens < 2:
            raise BlockPilotError("--prompts and --max-new-tokens must be at least 2")
        self.sizes()
        self.sampling(0)

    def sizes(self) -> tuple[int, ...]:
        """The fixed sizes that were named."""
        if self.block_sizes is None:
            return ()
        return whole_numbers(self.block_sizes, "--block-sizes", least=2)

    def sampling(self, seed: int) -> Sampling:
        """How tokens are chosen."""
        return Sampling(self.temperature, seed=seed)


def main(config: PolicyBenchmark) -> None:
    """Run the benchmark and print the gains."""
    check_output(config.json)
    policy = BlockSizePolicy.from_pretrained(config.policy)
    pair = load_pair(
        config.target,
        config.drafter,
        config.dtype,
        config.device,
        completion=config.completion,
    )
    decoder = Decoder(pair)
    policy.check_pair(decoder.pair.fingerprint, decoder.pair.template)
    fixed = sorted({*config.sizes(), decoder.pair.block_size} - {policy.config.fallback})
    ways: dict[str, int | BlockSizePolicy] = {
        PLAIN: 1,
        **{f"block {size}": size for size in fixed},
        BEST: policy.config.fallback,
        POLICY: policy,
    }
    prompts = builtin_suite(config.prompts, splits=["test"], groups=words(config.groups))
    sizes = sorted({*fixed, *policy.arms, policy.config.fallback})
    decoder.warm_up(sizes, sampling=config.sampling(config.seed))
    rng = np.random.default_rng(config.seed)
    done: dict[str, list[Generation]] = {name: [] for name in ways}
    for prompt in track(prompts, "decode", console=open_messages()):
        texts = decode(decoder, prompt, ways, config, rng)
        # A text that ended with its first token, which is prefill's, has nothing to time.
        if min(len(text.tokens) for text in texts.values()) > 1:
            for name, text in texts.items():
                done[name].append(text)
    if len(done[PLAIN]) < 2:
        raise BlockPilotError("fewer than two texts have more than one token; decode more prompts")
    report(config, done)


def decode(
    decoder: Decoder,
    prompt: Prompt,
    ways: dict[str, int | BlockSizePolicy],
    config: PolicyBenchmark,
    rng: np.random.Generator,
) -> dict[str, Generation]:
    """Decode one prompt in every way, in random order, after one prefill."""
    ids = decoder.pair.encode(prompt.chat())
    sampling = config.sampling(config.seed + int(prompt.id[:8], 16))
    largest = max(size for way in ways.values() for size in _sizes(way))
    prefill = decoder.prefill(ids, config.max_new_tokens, largest, sampling)
    done = {}
    for name in rng.permutation(list(ways)):
        size, seconds, _ = decoder.choose(prefill, ways[name])
        done[name] = decoder.collect(decoder.stream(prefill, size), seconds)
    return done


def _sizes(way: int | BlockSizePolicy) -> tuple[int, ...]:
    return (way,) if isinstance(way, int) else way.arms


def report(config: PolicyBenchmark, done: dict[str, list[Generation]]) -> None:
    """Print the table and write the record."""
    # In float32 all texts of a prompt are equal; in other dtypes rounding may change them, so time
    # is counted per token.
    speed = {
        name: np.array([(len(text.tokens) - 1) / text.decode_seconds for text in texts])
        for name, texts in done.items()
    }
    prompts = len(speed[PLAIN])
    speedups = {name: values / speed[PLAIN] for name, values in speed.items()}
    gains = {
        name: relative_gain(speedups[POLICY], values, np.arange(prompts), seed=config.seed)
        for name, values in speedups.items()
        if name != POLICY
    }
    lengths = {name: acceptance_length(texts) for name, texts in done.items()}
    chosen = [text.block_sizes[1] for text in done[POLICY]]
    machine = provenance()
    title = (
        f"{prompts} test prompts at temperature {config.temperature:g}, {machine['cpu']}, "
        f"{machine['threads']} threads, {config.dtype}"
    )
    fallback = done[BEST][0].block_sizes[1]
    columns = ["way", "mean speedup", "τ pooled", "policy's gain over it (95%)"]
    rows = [
        [
            f"{name}, {fallback}" if name == BEST else name,
            f"{values.mean():.3f}",
            f"{lengths[name]:.2f}",
            gain_text(gains[name]) if name in gains else "–",
        ]
        for name, values in speedups.items()
    ]
    console = open_console(config.json)
    console.print(render(TextTable(title, columns, rows)))
    counts = ", ".join(f"{size}: {count}" for size, count in sorted(Counter(chosen).items()))
    console.print(f"sizes that the policy chose: {counts}", soft_wrap=True)
    if config.json is not None:
        record = {
            "prompts": prompts,
            "mean_speedup": {name: float(values.mean()) for name, values in speedups.items()},
            "gains": gains,
            "acceptance_length": lengths,
            "best_fixed": fallback,
            "chosen": chosen,
            "policy_seconds": float(np.median([text.policy_seconds for text in done[POLICY]])),
            "config": config,
            "machine": machine,
        }
        write_json(config.json, record)


def acceptance_length(texts: list[Generation]) -> float:
    """Tokens per target pass after prefill, pooled."""
    return sum(len(text.tokens) - 1 for text in texts) / sum(len(text.passes) - 1 for text in texts)


if __name__ == "__main__":
    raise SystemExit(run(main, PolicyBenchmark))
