"""Time of the sampling noise, against PyTorch's own exponential noise.

`python benchmarks/noise.py --json OUT`. Sampling adds noise to every logit of every position of a
block. The command times the noise of whole blocks and `torch.empty(vocabulary).exponential_()`,
interleaved, and shows the time of one position.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from rich.table import Table

from blockpilot_rl.cli.console import open_console, run
from blockpilot_rl.cli.flags import device_option, whole_numbers
from blockpilot_rl.decoding.sampling import Sampler, Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import check_output, write_json
from blockpilot_rl.models.devices import check_device
from blockpilot_rl.options import option
from blockpilot_rl.provenance import provenance


@dataclass(frozen=True)
class NoiseBenchmark:
    """Time the sampling noise."""

    vocabulary: int = option(49152, help="tokens of the vocabulary")
    block_sizes: str = option("1,4,16", help="positions whose noise is computed at once")
    repeats: int = option(100, help="times to compute each")
    threads: int = option(1, help="threads of PyTorch")
    device: str = device_option()
    json: str | None = option(None, nargs="?", const="-", metavar="FILE", help="write a record")

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            BlockPilotError: If a number is out of range.
        """
        self.sizes()
        if min(self.vocabulary, self.repeats, self.threads) < 1:
            raise BlockPilotError("--vocabulary, --repeats and --threads must be at least 1")

    def sizes(self) -> tuple[int, ...]:
        """The block sizes."""
        return whole_numbers(self.block_sizes, "--block-sizes", least=1)


def main(config: NoiseBenchmark) -> None:
    """Run the benchmark and print the times."""
    check_output(config.json)
    check_device(config.device)
    torch.set_num_threads(config.threads)
    exponential, *blocks = _time(
        [_exponential(config), *map(_ours(config), config.sizes())], config
    )
    sizes = {
        str(size): {"seconds": seconds / size, "ratio": seconds / size / exponential}
        for size, seconds in zip(config.sizes(), blocks, strict=True)
    }
    console = open_console(config.json)
    console.print(_table(config, exponential, sizes))
    if config.json is not None:
        record = {"exponential_seconds": exponential, "block_sizes": sizes, "config": config}
        write_json(config.json, {**record, "machine": provenance()})


def _exponential(config: NoiseBenchmark) -> Callable[[], object]:
    """Make PyTorch's noise of one position."""
    return lambda: torch.empty(config.vocabulary, device=config.device).exponential_()


def _ours(config: NoiseBenchmark) -> Callable[[int], Callable[[], object]]:
    """Make the sampler's noise of a block of a given size."""
    sampler, device = Sampler(Sampling(1.0), config.vocabulary), torch.device(config.device)

    def noise_of(size: int) -> Callable[[], object]:
        def noise() -> torch.Tensor:
            sampler.forget()
            return sampler.noise(100, size, device)

        return noise

    return noise_of


def _time(ways: list[Callable[[], object]], config: NoiseBenchmark) -> list[float]:
    """Median seconds of each way, in turn."""
    seconds = np.zeros((config.repeats + 1, len(ways)))
    for turn in seconds:
        for index, way in enumerate(ways):
            began = time.perf_counter()
            way()
            if torch.device(config.device).type == "cuda":
                torch.cuda.synchronize()
            turn[index] = time.perf_counter() - began
    # The first turn warms up.
    return [float(value) for value in np.median(seconds[1:], axis=0)]


def _table(config: NoiseBenchmark, exponential: float, sizes: dict[str, dict[str, float]]) -> Table:
    """Render the times of one position, in milliseconds."""
    title = f"noise of one position, {config.vocabulary} tokens, {config.threads} threads"
    table = Table("", "ms", "ratio", title=title)
    table.add_row("torch's exponential", f"{1e3 * exponential:.2f}", "1.00")
    for size, values in sizes.items():
        table.add_row(f"block {size}", f"{1e3 * values['seconds']:.2f}", f"{values['ratio']:.2f}")
    return table


if __name__ == "__main__":
    raise SystemExit(run(main, NoiseBenchmark))
