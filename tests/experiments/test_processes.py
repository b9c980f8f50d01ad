from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing import active_children
from pathlib import Path

import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.experiments.processes import process_map


def test_several_jobs_use_other_processes():
    """Results are in the order of the seeds; a single job stays in this process."""
    which = "__import__('os').getpid()"
    with process_map(2) as map_seeds:
        assert list(map_seeds(math.factorial, range(5))) == [1, 1, 2, 6, 24]
        assert os.getpid() not in map_seeds(eval, [which] * 4)
    with process_map(1) as map_seeds:
        assert list(map_seeds(eval, [which])) == [os.getpid()]


def test_a_finished_map_removes_its_file(tmp_path, monkeypatch):
    """It holds a sweep; those of a whole comparison took gigabytes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def files() -> list[Path]:
        return [path for path in tmp_path.rglob("*") if path.is_file()]

    with process_map(2) as map_seeds:
        for _ in range(2):
            found = iter(map_seeds(math.factorial, range(3)))
            assert next(found) == 1
            assert len(files()) == 1
            assert list(found) == [1, 2]
            assert files() == []
        abandoned = iter(map_seeds(math.factorial, range(3)))
        next(abandoned)
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_dies_gives_a_clear_error():
    message = r"process died, .* set jobs to 1"
    with pytest.raises(BlockPilotError, match=message), process_map(2) as map_seeds:
        list(map_seeds(os._exit, [1]))


def test_an_interrupt_ends_the_processes():
    """Even if only this process is interrupted."""

    def interrupted() -> None:
        with process_map(2) as map_seeds:
            next(iter(map_seeds(time.sleep, [0, 900, 900, 900])))
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - began < 300
    assert active_children() == []


def test_processes_end_with_their_parent(tmp_path):
    """Even if it is killed."""
    program = (
        "import os, sys; from blockpilot_rl.experiments.processes import process_map\n"
        "if __name__ == '__main__':\n"
        "    with process_map(2) as map_seeds:\n"
        "        print(*map_seeds(eval, ['__import__(\"os\").getpid()'] * 2), flush=True)\n"
        "        os.kill(os.getpid(), 9)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(program, encoding="utf-8")
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ended.returncode == -9
    workers = {int(word) for word in ended.stdout.split()}
    deadline = time.monotonic() + 300
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
