from __future__ import annotations

import json

import pytest

from blockpilot_rl.cli.console import run
from tests import benchmark_scripts

SCRIPT = benchmark_scripts.load("acceptance")


def benchmark(*argv: str) -> int:
    return run(SCRIPT.main, SCRIPT.AcceptanceBenchmark, argv)


def test_files_of_prompts(tiny, tmp_path, capsys):
    rows = [{"turns": ["abc", "more"], "category": "chat"}, {"prompt": "one two"}]
    rows += [{"messages": [{"role": "user", "content": "hello"}], "language": "de"}]
    file, out = tmp_path / "mine.jsonl", tmp_path / "out.json"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    argv = ["--target", str(tiny[0]), "--drafter", str(tiny[1]), "--prompts", str(file)]
    argv += ["--dtype", "float32", "--max-new-tokens", "12", "--json", str(out)]
    assert benchmark(*argv, "--temperature", "0.7", "--draft", "argmax", "--block-size", "4") == 0
    report = json.loads(out.read_text(encoding="utf-8"))
    assert (report["block_size"], report["sampling"]["draft"]) == (4, "argmax")
    assert set(report["acceptance_length"]) == {"chat", "other", "all"}
    assert set(report["by_language"]) == {"en", "de"}
    shown = capsys.readouterr().err
    assert all(f"warning: {warning}\n" in shown for warning in report["warnings"])
    assert any("near 1" in warning for warning in report["warnings"])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--prompts", "0"], "--prompts must be at least 1"),
        (["--prompts", "nowhere.txt"], "cannot read prompts from nowhere.txt"),
        (["--limit", "3"], "--limit must be at least 1 and needs a file of prompts"),
        (["--groups", "long,shrt"], "unknown group 'shrt'. Did you mean 'short'?"),
        (["--temperature", "-1"], "temperature must be 0 or more"),
        (["--draft", "best"], "'best' is not one of shared, argmax"),
        (["--block-size", "0"], "--block-size must be at least 1"),
    ],
)
def test_bad_arguments(argv, message, capsys):
    assert benchmark(*argv) == 2
    assert message in capsys.readouterr().err
