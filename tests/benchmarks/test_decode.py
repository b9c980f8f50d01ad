from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch

from blockpilot_rl.cli.console import run
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.models.pairs import load_pair
from tests import benchmark_scripts
from tests.tiny_pair import save_roomy_pair

SCRIPT = benchmark_scripts.load("decode")
WAYS = {"plain", "block 4", "block 6", "block 8", "transformers", "transformers DFlash"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A pair with room for the prompts of the built-in suite, and no stop tokens."""
    return save_roomy_pair(tmp_path_factory.mktemp("pair"), stops=False)


def benchmark(files, *argv: str) -> int:
    pair = ["--target", str(files / "target"), "--drafter", str(files / "drafter")]
    return run(SCRIPT.main, SCRIPT.DecodeBenchmark, [*pair, *argv])


def test_every_way_is_warm_before_it_is_timed(files, tmp_path, monkeypatch):
    """And is timed once for each prompt (z-lab/dflash#135: 43 against 69 tok/s)."""
    called: list[tuple[str, int]] = []
    make_ways = SCRIPT.make_ways

    def noted(name, way):
        return lambda ids: called.append((name, ids.shape[1])) or way(ids)

    def make_noted(*arguments):
        return {name: noted(name, way) for name, way in make_ways(*arguments).items()}

    monkeypatch.setattr(SCRIPT, "make_ways", make_noted)
    out = tmp_path / "out.json"
    options = ["--prompts", "3", "--max-new-tokens", "5", "--dtype", "float32", "--json", str(out)]
    assert benchmark(files, *options) == 0
    warming, timed = called[: len(WAYS)], called[len(WAYS) :]
    assert {name for name, _ in warming} == WAYS
    rounds = [timed[i : i + len(WAYS)] for i in range(0, len(timed), len(WAYS))]
    assert len(rounds) == 3
    for turn in rounds:
        assert Counter(name for name, _ in turn) == dict.fromkeys(WAYS, 1)
        assert len({length for _, length in turn}) == 1
    assert {length for _, length in warming} == {rounds[0][0][1]}
    assert len({tuple(name for name, _ in turn) for turn in rounds}) > 1
    report = json.loads(out.read_text(encoding="utf-8"))
    assert set(report["ways"]) == WAYS
    assert report["best"] in {"block 4", "block 6", "block 8"}
    assert report["ways"]["plain"]["tokens_per_pass"] == 1
    assert report["ways"]["plain"]["pass_seconds"] > 0
    assert set(report["memory"]) == {"loaded", "decoder"}
    assert all(low <= value <= high for value, low, high in report["ratios"].values())


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="not on Linux")
def test_memory_of_ones_own_and_of_files():
    before = SCRIPT.resident_memory()
    ballast = torch.ones(1 << 26, dtype=torch.uint8)
    after = SCRIPT.resident_memory()
    assert after["own"] - before["own"] > 0.9 * ballast.nbytes
    assert 0 < after["mapped"] - before["mapped"] + (1 << 24) < 1 << 26


def test_every_way_emits_the_same_tokens_in_its_number_of_passes(files):
    config = SCRIPT.DecodeBenchmark(max_new_tokens=9)
    pair = load_pair(files / "target", files / "drafter")
    ways, decoder = SCRIPT.make_ways(pair, config), Decoder(pair)
    ids = torch.arange(3, 12)[None]
    outcomes = {name: way(ids) for name, way in ways.items()}
    assert {name: outcome.tokens for name, outcome in outcomes.items()} == dict.fromkeys(WAYS, 9)
    assert outcomes["plain"].passes == outcomes["transformers"].passes == 9
    drafted = len(decoder.generate(ids, 8, 9).passes)
    assert outcomes["block 8"].passes == drafted
    # transformers' generation drafts with the drafter's own size, which is 8.
    assert outcomes["transformers DFlash"].passes == drafted


def test_bad_arguments(files, capsys):
    for words, message in (
        (("--block-sizes", "4,1"), "--block-sizes must be at least 2 each"),
        (("--block-sizes", "x"), "--block-sizes"),
        (("--prompts", "1"), "--prompts and --max-new-tokens must be at least 2"),
    ):
        assert benchmark(files, *words) == 2
        assert message in capsys.readouterr().err
