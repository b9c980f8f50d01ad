"""`quickstart`: the whole road on the bundled sweep, in a few minutes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from blockpilot_rl.cli import compare, export_policy, train_agent
from blockpilot_rl.cli.parsing import arg, run
from blockpilot_rl.decoding.decoder import Decoder, Selector
from blockpilot_rl.decoding.generation import Generation
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import check_output
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.prompts import GROUPS, builtin_suite


@dataclass(frozen=True)
class QuickstartConfig:
    """Train PPO on the bundled sweep (greedy rows), compare it, export it and decode with it."""

    prompts: int = arg(8, help="test prompts to decode plain, with the default size, by policy")
    max_new_tokens: int = arg(64, help="budget of each text")
    seeds: int = arg(2, help="seeds of the comparison")
    out: str = arg("quickstart", metavar="DIR", help="folder of the report and the policy")

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            BlockPilotError: If a number is not positive.
        """
        for name in ("prompts", "max_new_tokens", "seeds"):
            if getattr(self, name) < 1:
                raise BlockPilotError(f"--{name.replace('_', '-')} must be positive")


def main(argv: Sequence[str] | None = None, *, prog: str | None = None) -> int:
    """Run the command.

    Args:
        argv: Its arguments; None for those of the process.
        prog: Name shown in its help.

    Returns:
        The exit code.
    """
    return run(quickstart, QuickstartConfig, argv, prog=prog)


def quickstart(config: QuickstartConfig) -> None:
    """Train, export, compare and decode; every stage is a command of its own.

    Raises:
        BlockPilotError: If a stage fails.
    """
    console = Console()
    out = Path(config.out)
    policy_folder = out / "policy"
    check_output(out / "report.html")
    console.rule("1/4 train: python scripts/train_agent.py --algo ppo")
    logs = out / "logs"
    _call(train_agent.main, ["--algo", "ppo", "-f", str(logs)])
    console.rule("2/4 export: python scripts/export_policy.py RUN --out DIR")
    run_folder = max((logs / "ppo").iterdir(), key=os.path.getmtime)
    _call(export_policy.main, [str(run_folder), "--out", str(policy_folder), "--overwrite"])
    console.rule("3/4 compare: python scripts/compare.py")
    _call(
        compare.main,
        ["--seeds", str(config.seeds), "--report", str(out), "--json", str(out / "compare.json")],
    )
    console.rule("4/4 decode: python scripts/generate.py --policy DIR")
    decode(config, BlockSizePolicy.from_pretrained(policy_folder), console)
    console.print(
        f"report in {out / 'report.html'}, policy in {policy_folder}, runs in {logs}",
        soft_wrap=True,
    )


def _call(command: Callable[[Sequence[str]], int], arguments: list[str]) -> None:
    code = command(arguments)
    if code:
        raise BlockPilotError(f"quickstart stopped: {' '.join(arguments)} failed")


def decode(config: QuickstartConfig, policy: BlockSizePolicy, console: Console) -> None:
    """Decode test prompts plain, with the default, the best fixed size and the policy.

    The ways are interleaved in random order within each prompt, after a warm-up.

    Args:
        config: Number of prompts and their budget.
        policy: The exported policy; its fallback is the best fixed size.
        console: Where the table goes.
    """
    pair = load_pair(dtype="bfloat16")
    policy.check_pair(pair.fingerprint, {})
    decoder = Decoder(pair)
    ways: dict[str, int | Selector] = {
        "plain": 1,
        f"default size ({pair.block_size})": pair.block_size,
        f"best fixed size ({policy.config.fallback})": policy.config.fallback,
        "policy": policy,
    }
    decoder.warm_up(policy.config.arms)
    rng = np.random.default_rng(0)
    results: dict[str, list[Generation]] = {name: [] for name in ways}
    prompts = builtin_suite(config.prompts, splits=["test"], groups=tuple(GROUPS))
    for number, prompt in enumerate(prompts, start=1):
        ids = pair.encode(prompt.chat())
        for index in rng.permutation(len(ways)):
            name = list(ways)[index]
            results[name].append(decoder.generate(ids, ways[name], config.max_new_tokens))
        chosen = results["policy"][-1].block_sizes[-1]
        console.print(f"{number} of {config.prompts}, {prompt.family}: the policy took {chosen}")
    plain = _tokens_per_second(results["plain"])
    table = Table(title=f"{config.prompts} test prompts, decoded for real in bfloat16")
    for column in ("way", "tokens/s", "τ", "speedup", "block sizes"):
        table.add_column(column)
    for name, items in results.items():
        speed = _tokens_per_second(items)
        emitted = sum(len(item.tokens) - 1 for item in items)
        passes = sum(len(item.passes) - 1 for item in items)
        sizes = sorted({item.block_sizes[-1] for item in items})
        table.add_row(
            name,
            f"{speed:.1f}",
            f"{emitted / passes:.2f}",
            f"{speed / plain:.2f}",
            ", ".join(map(str, sizes)),
        )
    console.print(table)
    console.print(
        "So few prompts show that it works, not what it gains, and other programs on this machine "
        "slow some ways more than others; ship what the verdict above names.",
        soft_wrap=True,
    )


def _tokens_per_second(items: Sequence[Generation]) -> float:
    """Pooled speed behind prefill; in bfloat16 the ways may differ in text and so in length."""
    emitted = sum(len(item.tokens) - 1 for item in items)
    return emitted / sum(item.decode_seconds for item in items)
