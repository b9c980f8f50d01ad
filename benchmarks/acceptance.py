"""Acceptance length of a pair in real decoding, by prompt family.

`python benchmarks/acceptance.py --json OUT`. Prompts are of the built-in suite's validation split,
which no bundled drafter was trained on.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from blockpilot_rl.cli.parsing import arg, run
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import write_json
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.training.acceptance import acceptance_report


@dataclass(frozen=True)
class AcceptanceBenchmark:
    """Decode held-out prompts with one block size and count tokens per target pass."""

    prompts: int = arg(40, help="validation prompts to decode")
    max_new_tokens: int = arg(128, help="budget of each text")
    block_size: int | None = arg(None, help="block size (default: the drafter's own)")
    dtype: str = arg("bfloat16", help="float32, bfloat16 or float16")
    device: str = arg("cpu", help="where both models run")
    target: str | None = arg(None, help="hub id, folder or GGUF file (default: SmolLM2-135M)")
    drafter: str | None = arg(None, help="hub id or folder (default: the bundled drafter)")
    json: str | None = arg(None, nargs="?", const="-", metavar="FILE", help="write a record")

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            BlockPilotError: If a number is out of range.
        """
        if self.prompts < 1 or self.max_new_tokens < 2:
            raise BlockPilotError("--prompts must be at least 1 and --max-new-tokens at least 2")


def main(config: AcceptanceBenchmark) -> None:
    """Run the benchmark and print acceptance by family."""
    pair = load_pair(config.target, config.drafter, config.dtype, config.device)
    block_size = config.block_size or pair.block_size
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("decode", total=config.prompts)
        report = acceptance_report(
            Decoder(pair),
            config.prompts,
            block_size,
            config.max_new_tokens,
            lambda done, total: progress.update(task, completed=done, total=total),
        )
    table = Table(title=f"acceptance length, block size {block_size}, {config.dtype}")
    for column in ("family", "prompts", "pooled", "per prompt"):
        table.add_column(column)
    for name, values in report["acceptance_length"].items():
        row = (f"{values['prompts']:.0f}", f"{values['pooled']:.2f}", f"{values['per_prompt']:.2f}")
        table.add_row(name, *row)
    Console(stderr=config.json == "-").print(table)
    if config.json is not None:
        write_json(config.json, report)


if __name__ == "__main__":
    raise SystemExit(run(main, AcceptanceBenchmark))
