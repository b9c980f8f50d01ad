"""The quickstart: train, export, compare and decode on the bundled sweep."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blockpilot_rl.decoding.decoder import Decoder, Selector
from blockpilot_rl.decoding.generation import Generation
from blockpilot_rl.evaluation.results import Comparison
from blockpilot_rl.experiments.compare import CompareConfig, compare
from blockpilot_rl.experiments.export import ExportedPolicy, export_policy
from blockpilot_rl.experiments.training import TrainAgentConfig, TrainedRun, train_agent
from blockpilot_rl.files import check_output, locked, write_json
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.options import check_options, option
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.progress import ProgressCallback, no_progress
from blockpilot_rl.prompts import GROUPS, builtin_suite
from blockpilot_rl.reports.report import write_report
from blockpilot_rl.reports.sentences import comparison_values

StageCallback = Callable[[str, Any], None]
"""Called with the name of a stage and None when it starts, and with its result when it ends."""


@dataclass(frozen=True)
class QuickstartConfig:
    """Train PPO on the bundled sweep (greedy rows), compare it, export it and decode with it."""

    prompts: int = option(
        8, minimum=1, help="test prompts to decode plainly, with fixed sizes and with the policy"
    )
    max_new_tokens: int = option(64, minimum=2, help="largest number of new tokens of each text")
    seeds: int = option(2, minimum=1, help="number of seeds of the comparison")
    out: str = option("quickstart", metavar="DIR", help="folder of the report and the policy")

    def __post_init__(self) -> None:
        """Check the values."""
        check_options(self)


@dataclass(frozen=True)
class DecodedPrompts:
    """Test prompts, decoded in one way.

    Attributes:
        way: Name of the way: plain, a fixed size or the policy.
        families: Family of each prompt.
        block_sizes: Block size of each prompt.
        tokens_per_second: Tokens of all prompts / seconds of all prompts, after prefill.
        acceptance_length: Tokens of all prompts / decode passes of all prompts.
        speedup: Tokens per second over those of plain decoding.
    """

    way: str
    families: list[str]
    block_sizes: list[int]
    tokens_per_second: float
    acceptance_length: float
    speedup: float


@dataclass(frozen=True)
class QuickstartResult:
    """The results of all stages.

    Attributes:
        trained: The training run.
        exported: The policy.
        comparison: The comparison with fixed sizes and other agents.
        decoded: Test prompts, decoded end to end in several ways.
        report: The HTML report of the comparison.
    """

    trained: TrainedRun
    exported: ExportedPolicy
    comparison: Comparison
    decoded: list[DecodedPrompts]
    report: Path


def run_quickstart(
    config: QuickstartConfig | None = None,
    *,
    progress: ProgressCallback | None = None,
    on_stage: StageCallback = lambda stage, result: None,
) -> QuickstartResult:
    """Train PPO on the bundled sweep, export it, compare it, and decode test prompts with it.

    The comparison trains in several processes, so a script must call this under
    `if __name__ == "__main__":`.

    Args:
        config: Sizes and the folder; None for the defaults.
        progress: Called with the progress of each stage.
        on_stage: Called when a stage (`train`, `export`, `compare`, `decode`) starts and ends.

    Raises:
        BlockPilotError: If the folder cannot be written, or the bundled pair cannot be loaded.
    """
    config, progress = config or QuickstartConfig(), progress or no_progress
    out = Path(config.out)
    check_output(out / "report.html")

    on_stage("train", None)
    training = TrainAgentConfig(algo="ppo", log_folder=str(out / "logs"))
    trained = train_agent(None, training, progress=progress)
    on_stage("train", trained)

    on_stage("export", None)
    exported = export_policy(trained.folder, out / "policy", overwrite=True)
    on_stage("export", exported)

    on_stage("compare", None)
    with locked(out / "report.html"):
        comparison = compare(None, CompareConfig(seeds=config.seeds), progress=progress)
        write_json(out / "compare.json", comparison_values(comparison))
        report = write_report(comparison, out)
    on_stage("compare", comparison)

    on_stage("decode", None)
    policy = BlockSizePolicy.from_pretrained(exported.folder)
    decoded = decode_prompts(policy, config.prompts, config.max_new_tokens, progress=progress)
    on_stage("decode", decoded)
    return QuickstartResult(trained, exported, comparison, decoded, report)


def decode_prompts(
    policy: BlockSizePolicy,
    prompts: int,
    max_new_tokens: int,
    *,
    progress: ProgressCallback = no_progress,
) -> list[DecodedPrompts]:
    """Decode test prompts plainly, with the drafter's size, the best fixed size and a policy.

    For each prompt the ways run in random order, after a warm-up.

    Args:
        policy: The policy; its fallback is the best fixed size.
        prompts: Number of prompts.
        max_new_tokens: Largest number of new tokens of each text.
        progress: Called with the number of decoded prompts.

    Returns:
        The results of each way, plain decoding first.
    """
    pair = load_pair(dtype="bfloat16")
    policy.check_pair(pair.fingerprint, {})
    decoder = Decoder(pair)
    fallback = policy.config.fallback
    ways: dict[str, int | Selector] = {
        "plain": 1,
        f"default size ({pair.block_size})": pair.block_size,
        f"best fixed size ({fallback})": fallback,
        "policy": policy,
    }
    decoder.warm_up(policy.config.arms)
    rng = np.random.default_rng(0)
    results: dict[str, list[Generation]] = {name: [] for name in ways}
    suite = builtin_suite(prompts, splits=["test"], groups=tuple(GROUPS))
    for number, prompt in enumerate(suite, start=1):
        ids = pair.encode(prompt.chat())
        for index in rng.permutation(len(ways)):
            name = list(ways)[index]
            results[name].append(decoder.generate(ids, ways[name], max_new_tokens))
        progress("decoding", number, len(suite))
    plain = _tokens_per_second(results["plain"])
    families = [prompt.family for prompt in suite]
    return [_summarise(name, families, items, plain) for name, items in results.items()]


def _summarise(
    way: str, families: list[str], items: Sequence[Generation], plain: float
) -> DecodedPrompts:
    speed = _tokens_per_second(items)
    emitted = sum(len(item.tokens) - 1 for item in items)
    passes = sum(len(item.passes) - 1 for item in items)
    return DecodedPrompts(
        way=way,
        families=families,
        block_sizes=[item.block_sizes[-1] for item in items],
        tokens_per_second=speed,
        acceptance_length=_ratio(emitted, passes),
        speedup=_ratio(speed, plain),
    )


def _tokens_per_second(items: Sequence[Generation]) -> float:
    """Pooled speed after prefill. In bfloat16 the ways may differ in text and so in length."""
    emitted = sum(len(item.tokens) - 1 for item in items)
    return _ratio(emitted, sum(item.decode_seconds for item in items))


def _ratio(value: float, base: float) -> float:
    """Divide; NaN if every text ended with its first token, which leaves nothing to measure."""
    return value / base if base else math.nan
