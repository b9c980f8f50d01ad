from __future__ import annotations

import json

from blockpilot_rl.cli.console import run
from tests import benchmark_scripts

SCRIPT = benchmark_scripts.load("simulator")


def test_every_rule_is_timed(tmp_path, capsys):
    words = ["--json", str(tmp_path / "out.json"), "--batch", "8", "--seconds", "0.01"]
    assert run(SCRIPT.main, SCRIPT.SimulatorBenchmark, words) == 0
    record = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert set(record["rounds_per_second"]) == set(SCRIPT.rules(16))
    assert all(rate > 0 for rate in record["rounds_per_second"].values())
    assert "acceptance rate and confidence" in capsys.readouterr().out
