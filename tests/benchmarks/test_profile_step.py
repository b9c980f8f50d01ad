from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, record_function

from blockpilot_rl.cli.console import run
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.models.pairs import load_pair
from tests import benchmark_scripts
from tests.tiny_pair import tiny_target

SCRIPT = benchmark_scripts.load("profile_step")


def benchmark(*argv: str) -> int:
    return run(SCRIPT.main, SCRIPT.ProfileBenchmark, argv)


def parts_of(action) -> set[str]:
    """The parts in which a call spends time."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler, record_function(SCRIPT._PASS):
        action()
    [parts] = SCRIPT.attribute(profiler.events())
    assert sum(parts.values()) < 2 * parts["whole"]
    return {name for name in SCRIPT.PARTS if parts[name] > 0}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 8])
def test_operators_are_classified(dtype, rows):
    """By their callers, for every kernel that PyTorch chooses."""
    x, weight, bias = (torch.ones(*shape, dtype=dtype) for shape in ((rows, 64), (32, 64), (32,)))
    heads = torch.ones(1, 2, rows, 16, dtype=dtype)
    mask = torch.ones(1, 1, rows, rows, dtype=torch.bool)
    with torch.inference_mode():
        assert parts_of(lambda: F.linear(x, weight)) == {"matmul"}
        assert parts_of(lambda: F.linear(x, weight, bias)) == {"matmul"}
        attend = F.scaled_dot_product_attention
        assert parts_of(lambda: attend(heads, heads, heads, attn_mask=mask)) == {"attention"}
        assert parts_of(lambda: F.rms_norm(x, (64,), weight[0])) == {"elementwise"}
        assert parts_of(lambda: F.silu(x) * x) == {"elementwise"}
        assert parts_of(lambda: torch.cat([x, x])) == {"elementwise"}
        assert parts_of(lambda: x.view(-1).unsqueeze(0)[:, :3].transpose(0, 1)) == set()


def test_time_outside_a_pass_is_left_out():
    x = torch.ones(4, 4)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        torch.mm(x, x)
        for _ in range(2):
            with record_function(SCRIPT._PASS):
                torch.relu(x)
    passes = SCRIPT.attribute(profiler.events())
    assert [parts["matmul"] for parts in passes] == [0.0, 0.0]
    assert all(parts["whole"] > parts["elementwise"] > 0 for parts in passes)


def test_the_parts_and_the_overhead_are_the_whole(tiny, tmp_path, capsys):
    out = tmp_path / "out.json"
    argv = ["--target", str(tiny[0]), "--context", "20", "--repeats", "3", "--profiled", "2"]
    assert benchmark(*argv, "--block-sizes", "1,4", "--dtype", "float32", "--json", str(out)) == 0
    report = json.loads(out.read_text(encoding="utf-8"))
    assert set(report["passes"]) == {"1", "4"}
    for values in report["passes"].values():
        parts = values["parts"]
        assert set(parts) == {*SCRIPT.PARTS, "overhead"}
        assert all(seconds > 0 for seconds in parts.values())
        assert sum(parts.values()) == pytest.approx(values["profiled_seconds"])
        assert 0 < values["matmul_seconds"] < values["seconds"]
        ratio = values["seconds"] / values["matmul_seconds"]
        assert values["step_over_matmul"] == pytest.approx(ratio)
        floor = report["weight_bytes"] / max(report["bandwidth_bytes_per_second"])
        assert values["floor_seconds"] == pytest.approx(floor)
    shown = capsys.readouterr().out
    assert all(f"{label} " in shown for label in (*SCRIPT.PARTS.values(), "plain step", "verify 4"))


def test_the_products_of_a_pass_run_alone(tiny):
    """Four of each layer, and the head, which read every weight once."""
    pair = load_pair(tiny[0], with_drafter=False)
    config = SCRIPT.ProfileBenchmark(block_sizes="1,4", context=20)
    read = []

    class Weights(SCRIPT.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            read.append((args[0].shape[-2], args[1].numel()))
            return func(*args, **(kwargs or {}))

    with torch.inference_mode():
        steps = SCRIPT.make_passes(Decoder(pair), config)
        for size, step in steps.items():
            products = SCRIPT.products_of(step)
            read.clear()
            with Weights():
                products()
            assert len(read) == 4 * pair.target.config.num_hidden_layers + 1
            assert {rows for rows, _ in read} == {size}
            norms = sum(p.numel() for p in pair.target.parameters() if p.ndim == 1)
            weights = SCRIPT.weight_bytes(pair.target) // 4 - norms
            assert sum(count for _, count in read) == weights


def test_weights_that_a_pass_reads(tiny):
    tied = tiny_target(tie_word_embeddings=True)
    whole = sum(p.nbytes for p in tied.parameters())
    assert SCRIPT.weight_bytes(tied) == whole
    own = load_pair(tiny[0], with_drafter=False, dtype="bfloat16").target
    assert own.get_input_embeddings().weight is not own.get_output_embeddings().weight
    assert SCRIPT.weight_bytes(own) == whole // 2


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--block-sizes", "0,4"], "--block-sizes must be at least 1 each"),
        (["--block-sizes", ","], "--block-sizes must be whole numbers"),
        (["--repeats", "0"], "must be at least 1"),
    ],
)
def test_bad_arguments(argv, message, capsys):
    assert benchmark(*argv) == 2
    assert message in capsys.readouterr().err
