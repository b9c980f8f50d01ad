from __future__ import annotations

import json
import math

import pytest

from blockpilot_rl.cli.quickstart import main
from blockpilot_rl.experiments.quickstart import _ratio
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep


@pytest.mark.parametrize(("flag", "least"), [("prompts", 1), ("max-new-tokens", 2), ("seeds", 1)])
def test_numbers_must_be_positive(flag, least, tmp_path, capsys):
    assert main([f"--{flag}", str(least - 1), "--out", str(tmp_path / "out")]) == 2
    assert f"--{flag} must be at least {least}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_all_stages(tmp_path, capsys):
    out = tmp_path / "out"
    argv = ["--prompts", "2", "--max-new-tokens", "8", "--seeds", "1", "--out", str(out)]
    assert main(argv) == 0
    text = capsys.readouterr().out
    for stage in ("1/4 train", "2/4 export", "3/4 compare", "4/4 decode"):
        assert stage in text
    for way in ("plain", "default size (16)", "policy"):
        assert way in text
    policy = BlockSizePolicy.from_pretrained(out / "policy")
    assert policy.arms == Sweep.load().arms
    assert (out / "logs/ppo/BlockSize-v0_1/agent.json").is_file()
    assert (out / "report.html").stat().st_size > 10_000
    assert json.loads((out / "compare.json").read_text(encoding="utf-8"))["verdict"]["reason"]


@pytest.mark.parametrize(("value", "base"), [(0, 0), (0.0, 0.0), (3, 0)])
def test_texts_with_nothing_to_measure_give_no_number(value, base):
    assert math.isnan(_ratio(value, base))
    assert _ratio(value, 2) == value / 2
