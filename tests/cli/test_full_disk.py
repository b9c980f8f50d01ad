"""Every command that writes ends with one line on a full disk, and leaves nothing half-written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from blockpilot_rl.cli import (
    calibrate,
    collect_sweep,
    compare,
    export_policy,
    headroom,
    train_agent,
    train_drafter,
)
from tests.synthetic import synthetic_table
from tests.tiny_pair import MASK


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "sweep"
    synthetic_table(500).save(folder)
    return folder


@pytest.fixture(scope="module")
def run(sweep, tmp_path_factory):
    logs = tmp_path_factory.mktemp("logs")
    assert (
        train_agent.main(["--sweep", str(sweep), "-f", str(logs), "--algo", "reward-regression"])
        == 0
    )
    return logs / "reward-regression" / "BlockSize-v0_1"


def fill(disk: Path, left: int) -> None:
    """Fill a disk, except for some bytes."""
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize
    (disk / "filler").write_bytes(b"a" * max(0, free - left))


def arguments(command, disk, sweep, run, pair):
    target, drafter = map(str, pair)
    train = ["--sweep", sweep, "-f", disk / "logs", "--algo"]
    record = ["--target", target, "--drafter", drafter, "--dtype", "float32", "--arms", "1,2"]
    record += ["--prompts", run.parent / "prompts.txt", "--max-new-tokens", "8"]
    fit = ["--target-layer-ids", "0,2", "--layers", "1", "--block-sizes", "4,2", "--steps", "5"]
    fit += [
        "--groups",
        "short",
        "--queries",
        "16",
        "--sequences",
        "2",
        "--suite-size",
        "8",
        "--max-new-tokens",
        "4",
    ]
    fit += ["--report-prompts", "4", "--mask-token-id", MASK, "--draft-vocab-size", "40"]
    return {
        "train-agent": (train_agent, [*train, "reward-regression"]),
        "train-agent ppo": (train_agent, [*train, "ppo", "-n", "4096"]),
        "export-policy": (export_policy, [run, "--out", disk / "policy"]),
        "compare": (
            compare,
            [
                *["--sweep", sweep, "--algos", "reward-regression", "--seeds", "2", "--jobs", "1"],
                *["--report", disk / "report", "--json", disk / "a.json"],
            ],
        ),
        "headroom": (headroom, ["--sweep", sweep, "--json", disk / "a.json"]),
        "calibrate": (calibrate, [*record[:4], "--repeats", "1", "--out", disk / "a.json"]),
        "collect-sweep": (collect_sweep, [*record, "--repeats", "1", "--out", disk / "sweep"]),
        "train-drafter": (train_drafter, ["--target", target, "--out", disk / "drafter", *fit]),
    }[command]


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 4096, 16384])
@pytest.mark.parametrize(
    "command",
    [
        "train-agent",
        "train-agent ppo",
        "export-policy",
        "compare",
        "headroom",
        "calibrate",
        "collect-sweep",
        "train-drafter",
    ],
)
def test_commands_on_a_full_disk(full_disk, sweep, run, tiny, capsys, command, left):
    (run.parent / "prompts.txt").write_text("one\ntwo\n")
    fill(full_disk, left)
    module, words = arguments(command, full_disk, sweep, run, tiny)
    code = module.main([str(word) for word in words])
    lines = [line for line in capsys.readouterr().err.splitlines() if "warning: " not in line]
    if code == 0:
        assert left
        return
    assert code == 2
    assert lines[-1].startswith(f"error: cannot write {full_disk}") or "cannot create" in lines[-1]
    assert "space" in lines[-1] or "full" in lines[-1]
    assert not list(full_disk.rglob(".????????-*")), "temporary files are left"
