"""Where the time of a target pass goes, and a lower bound for it.

`python benchmarks/profile_step.py --json OUT`. For a plain step and for the verification of a
block, the profiler measures matrix products, attention and the other operators; the rest is Python
and dispatch. The profiler slows passes down, so the matrix products of a pass are also timed alone,
without it, alternating with the whole pass. Every pass reads all weights once, so their bytes over
the memory's bandwidth (measured by a large copy) are a lower bound while the weights exceed the
processor's caches. `docs/performance.md` explains how to read the table.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.progress import track
from rich.table import Table
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile, record_function

from blockpilot_rl.cli.console import open_console, open_messages, run
from blockpilot_rl.cli.flags import (
    device_option,
    dtype_option,
    target_option,
    whole_numbers,
)
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.sampling import greedy
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import check_output, write_json
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.options import option
from blockpilot_rl.provenance import provenance

PARTS = {
    "matmul": "matrix products of the layers",
    "head": "matrix product of the head",
    "attention": "attention",
    "elementwise": "norms, elementwise, copies",
}
COPY_BYTES = 1 << 28

_PASS, _HEAD = "blockpilot::pass", "blockpilot::head"
_MATMUL = re.compile(r"::_?(mkl_|mkldnn_)?(b?mm|addb?mm|baddbmm|addmv|mv|linear|linear_pointwise)$")
# Operators that only make a view, allocate, or call others.
_DISPATCH = re.compile(
    r"::_?(matmul|view|reshape|reshape_alias|contiguous|to|to_copy|type_as|t|transpose|permute|"
    r"slice|narrow|select|as_strided|expand|expand_as|unsqueeze|squeeze|split|split_with_sizes|"
    r"chunk|unbind|detach|alias|empty|empty_like|empty_strided|resize|flatten|unflatten|"
    r"lift_fresh|result_type|resolve_conj|resolve_neg)_?$"
)


@dataclass(frozen=True)
class ProfileBenchmark:
    """Split the time of a target pass into its parts."""

    block_sizes: str = option("1,4,8,16", help="tokens per pass; 1 is a plain step")
    context: int = option(128, help="tokens before them")
    repeats: int = option(40, help="passes to time for each size")
    profiled: int = option(10, help="passes to profile for each size")
    dtype: str = dtype_option("bfloat16")
    device: str = device_option()
    target: str | None = target_option()
    seed: int = option(0, help="of the tokens and of the order of the passes")
    json: str | None = option(None, nargs="?", const="-", metavar="FILE", help="write a record")

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            BlockPilotError: If a number is out of range.
        """
        self.sizes()
        if min(self.context, self.repeats, self.profiled) < 1:
            raise BlockPilotError("--context, --repeats and --profiled must be at least 1")

    def sizes(self) -> tuple[int, ...]:
        """The block sizes."""
        return whole_numbers(self.block_sizes, "--block-sizes", least=1)


@torch.inference_mode()
def main(config: ProfileBenchmark) -> None:
    """Run the benchmark and print the table."""
    check_output(config.json)
    pair = load_pair(config.target, None, config.dtype, config.device, with_drafter=False)
    decoder = Decoder(pair)
    passes = make_passes(decoder, config)
    products = {size: products_of(step) for size, step in passes.items()}
    for step in (*passes.values(), *products.values()):
        step()
    bandwidth = [copy_bandwidth(pair.device)]
    seconds, matmul = time_passes((passes, products), config)
    parts = {size: profile_pass(step, config.profiled) for size, step in passes.items()}
    bandwidth.append(copy_bandwidth(pair.device))
    weights = weight_bytes(pair.target)
    floor = weights / max(bandwidth)
    report = {
        "passes": {
            str(size): describe(seconds[size], matmul[size], parts[size], floor)
            for size in config.sizes()
        },
        "weight_bytes": weights,
        "bandwidth_bytes_per_second": bandwidth,
        "config": config,
        "machine": provenance(),
    }
    open_console(config.json).print(table_of(report))
    if config.json is not None:
        write_json(config.json, report)


def make_passes(decoder: Decoder, config: ProfileBenchmark) -> dict[int, Callable[[], None]]:
    """Make a target pass over each number of tokens after one context, token choice included."""
    generator = torch.Generator().manual_seed(config.seed)
    vocabulary, device = decoder.target.vocab_size, decoder.pair.device

    def tokens(n: int) -> torch.Tensor:
        return torch.randint(vocabulary, (1, n), generator=generator).to(device)

    prefill = decoder.prefill(tokens(config.context), max(config.sizes()), max_block_size=1)

    def step_of(block: torch.Tensor) -> Callable[[], None]:
        def step() -> None:
            with record_function(_PASS):
                hidden = decoder.target(block, prefill.cache)
                with record_function(_HEAD):
                    logits = decoder.target.logits(hidden.last)
                greedy(logits).tolist()
            prefill.cache.crop(prefill.prompt_tokens)

        return step

    return {size: step_of(tokens(size)) for size in config.sizes()}


class _Products(TorchFunctionMode):
    """Records the matrix products with weights, and their operands."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func in (F.linear, torch.addmm, torch.ops.mkldnn._linear_pointwise.default):
            self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def products_of(step: Callable[[], None]) -> Callable[[], None]:
    """Make the matrix products of a pass alone, on the same tensors."""
    with _Products() as noted:
        step()

    def products() -> None:
        for func, args, kwargs in noted.calls:
            func(*args, **kwargs)
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return products


def time_passes(
    ways: Sequence[dict[int, Callable[[], None]]], config: ProfileBenchmark
) -> list[dict[int, float]]:
    """Median seconds of each pass without a profiler, in random order within each round.

    Args:
        ways: Passes by their number of tokens, of several kinds.
        config: The number of rounds and the seed.
    """
    rng = np.random.default_rng(config.seed)
    cells = [(index, size) for index, passes in enumerate(ways) for size in passes]
    seconds: dict[tuple[int, int], list[float]] = {cell: [] for cell in cells}
    for _ in track(range(config.repeats), "time", console=open_messages()):
        for index, size in rng.permutation(cells).tolist():
            began = time.perf_counter()
            ways[index][size]()
            seconds[index, size].append(time.perf_counter() - began)
    return [
        {size: float(np.median(seconds[index, size])) for size in passes}
        for index, passes in enumerate(ways)
    ]


def profile_pass(step: Callable[[], None], repeats: int) -> dict[str, float]:
    """Seconds of each of `PARTS` and of `whole`, a pass under the profiler.

    The mean over the middle half of the passes, since interrupted passes are outliers.
    """
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        for _ in range(repeats):
            step()
    passes = sorted(attribute(profiler.events() or []), key=lambda seconds: seconds["whole"])
    middle = passes[repeats // 4 : repeats - repeats // 4]
    return {name: float(np.mean([seconds[name] for seconds in middle])) for name in middle[0]}


def attribute(events: Iterable[Any]) -> list[dict[str, float]]:
    """Add up the seconds that operators spent in each of `PARTS`, pass by pass.

    Time of an operator that another one called is not counted twice. On an accelerator, the time
    is that of the kernels which an operator launched. The time of views,
    dispatch and Python belongs to no part.

    Args:
        events: Events of the profiler, `torch.autograd.profiler_util.FunctionEvent`.

    Returns:
        The seconds of each part and of the `whole` pass, for every pass.
    """
    events = list(events)
    on_device = any(event.self_device_time_total > 0 for event in events)
    passes = {
        id(event): {**dict.fromkeys(PARTS, 0.0), "whole": event.cpu_time_total * 1e-6}
        for event in events
        if event.name == _PASS and event.cpu_time_total > 0
    }
    for event in events:
        *callers, root = _with_callers(event)
        part = part_of([caller.name for caller in callers])
        if id(root) in passes and part is not None:
            own = event.self_device_time_total if on_device else event.self_cpu_time_total
            passes[id(root)][part] += own * 1e-6
    return list(passes.values())


def _with_callers(event: Any) -> list[Any]:
    """An event and its callers, up to the pass."""
    found = [event]
    while found[-1].cpu_parent is not None and found[-1].name != _PASS:
        found.append(found[-1].cpu_parent)
    return found


def part_of(names: Sequence[str]) -> str | None:
    """The part that an operator's own time belongs to, or None for overhead.

    Args:
        names: Its name and those of its callers within the pass, innermost first.
    """
    if not names or names[0] == _HEAD or _DISPATCH.search(names[0]):
        return None
    if any("scaled_dot_product" in name for name in names):
        return "attention"
    if any("rms_norm" in name or "layer_norm" in name for name in names):
        return "elementwise"
    if any(_MATMUL.search(name) for name in names):
        return "head" if _HEAD in names else "matmul"
    return "elementwise"


def copy_bandwidth(device: torch.device, repeats: int = 9) -> float:
    """Bytes per second that a large copy reads and writes, in the median."""
    source = torch.ones(COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(repeats + 1):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        target.copy_(source)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - began)
    # The first copy also maps the pages of the target.
    return 2 * COPY_BYTES / float(np.median(seconds[1:]))


def weight_bytes(target: Any) -> int:
    """Bytes of weights that a pass reads: all of them, but only a few rows of the embedding.

    An embedding that is also the head is read as the head.
    """
    tables = target.get_input_embeddings().weight, target.get_output_embeddings().weight
    spared = 0 if tables[0].data_ptr() == tables[1].data_ptr() else tables[0].nbytes
    return int(sum(parameter.nbytes for parameter in target.parameters()) - spared)


def describe(
    seconds: float, matmul: float, profiled: dict[str, float], floor: float
) -> dict[str, Any]:
    """The record of a pass.

    Args:
        seconds: Its time without the profiler.
        matmul: Time of its matrix products alone, without the profiler.
        profiled: The result of `profile_pass`.
        floor: Seconds to read the weights.
    """
    parts = {name: profiled[name] for name in PARTS}
    return {
        "seconds": seconds,
        "profiled_seconds": profiled["whole"],
        "parts": {**parts, "overhead": profiled["whole"] - sum(parts.values())},
        "matmul_seconds": matmul,
        "step_over_matmul": seconds / matmul,
        "floor_seconds": floor,
        "step_over_floor": seconds / floor,
    }


def table_of(report: dict[str, Any]) -> Table:
    """Render the passes, in milliseconds."""
    machine, config, passes = report["machine"], report["config"], report["passes"].values()
    weights, bandwidth = report["weight_bytes"], max(report["bandwidth_bytes_per_second"])
    table = Table(
        title=f"{machine['cpu']}, {machine['threads']} threads, {config.dtype}, context "
        f"{config.context}; milliseconds",
        caption=f"{weights / 1e6:.0f} MB of weights, copy at {bandwidth / 1e9:.1f} GB/s",
    )
    table.add_column("")
    for size in report["passes"]:
        table.add_column("plain step" if size == "1" else f"verify {size}", justify="right")

    def add(name: str, values: Iterable[float], scale: float = 1000.0) -> None:
        table.add_row(name, *(f"{scale * value:.2f}" for value in values))

    add("pass", (values["seconds"] for values in passes))
    add("its matrix products alone", (values["matmul_seconds"] for values in passes))
    add("pass under the profiler", (values["profiled_seconds"] for values in passes))
    for part, label in {**PARTS, "overhead": "Python, dispatch, views"}.items():
        add(f"  {label}", (values["parts"][part] for values in passes))
    add("weights / bandwidth", (values["floor_seconds"] for values in passes))
    table.add_section()
    add("pass / matrix products", (values["step_over_matmul"] for values in passes), 1.0)
    add("pass / (weights / bandwidth)", (values["step_over_floor"] for values in passes), 1.0)
    return table


if __name__ == "__main__":
    raise SystemExit(run(main, ProfileBenchmark))
