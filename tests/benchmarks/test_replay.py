from __future__ import annotations

import json

import numpy as np
import pytest

from blockpilot_rl.cli.console import run
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.sampling import GREEDY, Sampling
from tests import benchmark_scripts
from tests.tiny_pair import PROMPTS, encode, save_roomy_pair

SCRIPT = benchmark_scripts.load("replay")
ARMS = (1, 2, 8)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(1.0, seed=3)])
def test_every_prompt_is_timed_and_replayed_exactly(trained, sampling):
    prompts = [encode(trained, text) for text in PROMPTS]
    rng = np.random.default_rng(0)
    timings = SCRIPT.time_batch(Decoder(trained), prompts, ARMS, 16, sampling, rng)
    assert [item.equal for item in timings] == [3] * 4
    assert [item.tokens for item in timings] == [16] * 4
    assert all(set(item.seconds) == set(SCRIPT.WAYS) for item in timings)
    assert all(seconds > 0 for item in timings for seconds in (*item.seconds.values(), item.answer))
    # Real decodes are timed prompt by prompt, the rest by equal shares.
    assert len({item.seconds["trace"] for item in timings}) == 1
    assert len({item.seconds[SCRIPT.DECODED] for item in timings}) == 4


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A pair with room for the prompts of the built-in suite."""
    return save_roomy_pair(tmp_path_factory.mktemp("pair"), stops=True)


def benchmark(files, *words) -> int:
    words = ("--target", files / "target", "--drafter", files / "drafter", *words)
    return run(SCRIPT.main, SCRIPT.ReplayBenchmark, [str(word) for word in words])


@pytest.mark.parametrize("temperature", [0, 1])
def test_every_size_is_warmed_up(files, warmed, temperature):
    words = ["--prompts", 2, "--max-new-tokens", 4, "--arms", "1,2,4"]
    assert benchmark(files, *words, "--temperature", temperature) == 0
    # One of the two prompts is decoded in advance, to warm up the answers and the replay too.
    assert warmed == [True] * 3 * 3


def test_the_record(files, tmp_path, capsys):
    words = ["--json", tmp_path / "out.json", "--prompts", 3, "--batch", 2, "--max-new-tokens", 4]
    assert benchmark(files, *words) == 0
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    for name in ("trajectories", "trace", "answer and trajectories", "answer and trace"):
        median, low, high = report["ratios"][f"every arm / {name}"]
        assert 0 < low <= median <= high
    assert report["equal"] == [30, 30]
    assert report["machine"]["threads"] >= 1
    assert "replay equals real decoding in 30 of 30" in capsys.readouterr().out


def test_the_ratio_is_that_of_all_seconds():
    """Not of prompts, whose share of a batch is an equal one."""
    above, below = np.array([1.0, 9.0, 20.0]), np.full(3, 2.0)
    ratio, low, high = SCRIPT.ratio_interval(above, below)
    assert ratio == 5
    # All draws of three prompts lie between the shortest and the longest three times.
    assert 0.5 <= low < 5 < high <= 10
    assert SCRIPT.ratio_interval(above, above) == (1, 1, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prompts", "1"], "must be at least 2"),
        (["--arms", "2,4"], "begin with 1"),
        (["--temperature", "-1"], "temperature must be 0 or more"),
    ],
)
def test_bad_flags(capsys, words, message):
    assert run(SCRIPT.main, SCRIPT.ReplayBenchmark, words) == 2
    assert message in capsys.readouterr().err
