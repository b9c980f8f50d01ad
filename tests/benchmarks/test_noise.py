from __future__ import annotations

import json

import pytest
import torch

from blockpilot_rl.cli.console import run
from tests import benchmark_scripts

SCRIPT = benchmark_scripts.load("noise")


@pytest.fixture(autouse=True)
def threads():
    """The benchmark sets the number of threads of its process."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def benchmark(*argv: str) -> int:
    return run(SCRIPT.main, SCRIPT.NoiseBenchmark, argv)


def test_times_of_one_position(tmp_path, capsys):
    out = tmp_path / "out.json"
    argv = ["--vocabulary", "512", "--block-sizes", "1,8", "--repeats", "5", "--json", str(out)]
    assert benchmark(*argv) == 0
    report = json.loads(out.read_text(encoding="utf-8"))
    assert set(report["block_sizes"]) == {"1", "8"}
    for values in report["block_sizes"].values():
        ratio = values["seconds"] / report["exponential_seconds"]
        assert values["ratio"] == pytest.approx(ratio)
        assert ratio > 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("torch's exponential", "block 1", "block 8"))


def test_every_turn_computes_the_noise_again():
    config = SCRIPT.NoiseBenchmark(vocabulary=64)
    noise = SCRIPT._ours(config)(4)
    first, then = noise(), noise()
    assert first.data_ptr() != then.data_ptr()
    assert torch.equal(first, then)
    assert first.shape == (4, 64)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--block-sizes", "0"], "--block-sizes must be at least 1 each"),
        (["--repeats", "0"], "must be at least 1"),
        (["--vocabulary", "0"], "must be at least 1"),
        (["--threads", "0"], "must be at least 1"),
    ],
)
def test_bad_arguments(argv, message, capsys):
    assert benchmark(*argv) == 2
    assert message in capsys.readouterr().err
