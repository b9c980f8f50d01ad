from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib.figure
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import (
    atomic_directory,
    atomic_write,
    check_output,
    locked,
    remove_leftovers,
    write_json,
    writing,
)


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def test_file_appears_whole_and_alone(tmp_path):
    target = tmp_path / "new" / "folders" / "table.tar.gz"
    with atomic_write(target) as temporary:
        assert temporary.name.endswith(".tar.gz")
        temporary.write_text("whole")
        assert not target.exists()
    assert target.read_text() == "whole"
    assert names(target.parent) == {"table.tar.gz"}


def test_failed_write_leaves_the_old_file(tmp_path):
    target = tmp_path / "table.json"
    target.write_text("old")

    def write_half() -> None:
        with atomic_write(target) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert target.read_text() == "old"
    assert names(tmp_path) == {"table.json"}


def test_write_follows_links_and_relative_paths(tmp_path, monkeypatch):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    monkeypatch.chdir(tmp_path)
    with atomic_write("link.txt") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_write_keeps_devices():
    with atomic_write(os.devnull) as path:
        path.write_text("gone")
    assert Path(os.devnull).is_char_device()


def test_write_refuses_folders_and_parents_that_are_files(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BlockPilotError, match="it is a folder"), atomic_write(tmp_path):
        pass
    with pytest.raises(BlockPilotError, match="file"), atomic_write(tmp_path / "file" / "x"):
        pass
    assert names(tmp_path) == {"file"}


def test_directory_appears_whole_and_alone(tmp_path):
    target = tmp_path / "runs" / "policy"
    with atomic_directory(target) as temporary:
        (temporary / "config.json").write_text("{}")
        assert not target.exists()
    assert names(target) == {"config.json"}
    assert names(target.parent) == {"policy"}


def test_files_of_a_directory_are_for_all_who_can_read_new_ones(tmp_path):
    (tmp_path / "new").touch()
    with atomic_directory(tmp_path / "out") as folder:
        (folder / "deep").mkdir()
        for path in (folder / "weights", folder / "deep/weights"):
            path.touch(mode=0o600)
    modes = {path.stat().st_mode for path in (tmp_path / "out").rglob("weights")}
    assert modes == {(tmp_path / "new").stat().st_mode}


def test_a_folder_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    target = tmp_path / "policy"
    target.mkdir()
    (target / "weights").touch()
    # The user who runs the tests may be root.
    monkeypatch.setattr(os, "access", lambda path, mode: path != target)
    with (
        pytest.raises(BlockPilotError, match="policy: permission denied"),
        atomic_directory(target, overwrite=True) as folder,
    ):
        (folder / "weights").touch()
    assert names(tmp_path) == {"policy"}


def test_a_written_file_is_for_all_who_can_read_new_ones(tmp_path):
    (tmp_path / "new").touch()
    with atomic_write(tmp_path / "out") as partial:
        partial.touch(mode=0o600)
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "new").stat().st_mode


def test_failed_directory_leaves_nothing(tmp_path):
    def write_half(overwrite: bool) -> None:
        with atomic_directory(tmp_path / "policy", overwrite=overwrite) as temporary:
            (temporary / "config.json").write_text("half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_half(overwrite=False)
    assert names(tmp_path) == set()
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "config.json").write_text("old")
    with pytest.raises(RuntimeError, match="stop"):
        write_half(overwrite=True)
    assert (tmp_path / "policy" / "config.json").read_text() == "old"
    assert names(tmp_path) == {"policy"}


def test_directory_is_replaced_only_with_overwrite(tmp_path):
    target = tmp_path / "policy"
    target.mkdir()
    with atomic_directory(target) as temporary:  # an empty folder may be there
        (temporary / "first").touch()
    with pytest.raises(BlockPilotError, match="is not empty"), atomic_directory(target):
        pass
    assert names(target) == {"first"}
    with atomic_directory(target, overwrite=True) as temporary:
        (temporary / "first").touch()
        (temporary / "second").touch()
    assert names(target) == {"first", "second"}
    assert names(tmp_path) == {"policy"}
    with (
        pytest.raises(BlockPilotError, match="a file has that name"),
        atomic_directory(target / "second"),
    ):
        pass


@dataclass
class Arm:
    size: int
    seconds: float


def test_a_folder_that_holds_something_else_is_not_replaced(tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    (target / "notes.txt").write_text("mine", encoding="utf-8")
    with (
        pytest.raises(BlockPilotError, match=r"holds notes\.txt, which replacing it would lose"),
        atomic_directory(target, overwrite=True) as partial,
    ):
        (partial / "new").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "notes.txt"]


def test_outputs_are_checked_before_the_work(tmp_path):
    check_output("-")
    check_output("/dev/null")
    check_output(tmp_path)
    check_output(tmp_path / "new.json")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "x.json", "/proc/x.json"):
        with pytest.raises(BlockPilotError, match="cannot"):
            check_output(place)


def test_json_holds_plain_values(tmp_path):
    payload = {
        4: Arm(8, float("inf")),
        "array": np.array([[1.5, np.nan]], dtype=np.float32),
        "scalar": np.int64(3),
        "flag": np.bool_(True),
        "path": Path("runs/a"),
        "tuple": (1, None, "é"),
    }
    write_json(tmp_path / "out.json", payload)
    text = (tmp_path / "out.json").read_text(encoding="utf-8")
    assert "é" in text
    assert json.loads(text) == {
        "4": {"size": 8, "seconds": None},
        "array": [[1.5, None]],
        "scalar": 3,
        "flag": True,
        "path": "runs/a",
        "tuple": [1, None, "é"],
    }


def test_leftovers_of_killed_writes_are_removed(tmp_path):
    """Only those of the named files, and nothing that merely looks like one."""
    shard, folder = tmp_path / "shard[0].bin", tmp_path / "sweep"
    for _ in range(2):
        with atomic_write(shard) as temporary:
            temporary.write_text("whole")
        temporary.write_text("half")
    with atomic_directory(folder) as left:
        (left / "table").write_text("whole")
    left.mkdir()
    (left / "table").write_text("half")
    kept = {".0123abcd-shard0.bin", ".mine-sweep", "0123abcd-sweep", ".0123abcd-shard[0].bin.gz"}
    for name in kept:
        (tmp_path / name).write_text("precious")
    assert len(names(tmp_path)) == 9
    remove_leftovers([shard, folder, tmp_path / "none" / "file"])
    assert names(tmp_path) == kept | {"shard[0].bin", "sweep"}
    assert (shard.read_text(), (folder / "table").read_text()) == ("whole", "whole")


def test_json_goes_to_standard_output(capsys):
    write_json("-", {"a": 1})
    assert json.loads(capsys.readouterr().out) == {"a": 1}


def test_json_refuses_unknown_objects_and_writes_nothing(tmp_path):
    with pytest.raises(TypeError, match="object"):
        write_json(tmp_path / "out.json", {"a": object()})
    assert names(tmp_path) == set()


TENSORS = {"weights": torch.arange(200_000, dtype=torch.float32)}
TABLE = pd.DataFrame({"weights": np.random.default_rng(0).random(200_000)})
FIGURE = matplotlib.figure.Figure()
FIGURE.figimage(np.random.default_rng(0).random((400, 400)))
WRITERS = {
    "text": lambda path: path.write_text("a" * 500_000),
    "safetensors": lambda path: safetensors.torch.save_file(TENSORS, path),
    "torch": lambda path: torch.save(TENSORS, path),
    "Parquet": lambda path: pq.write_table(pa.Table.from_pandas(TABLE), path),
    "pandas": lambda path: TABLE.to_parquet(path),
    "CSV": lambda path: TABLE.to_csv(path),
    "Matplotlib": lambda path: FIGURE.savefig(path, format="png"),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_is_one_line_that_names_the_file(full_disk, write):
    (full_disk / "old.bin").write_text("old")
    for name in ("new.bin", "old.bin"):
        with (
            pytest.raises(BlockPilotError, match=rf"cannot write .*/{name}: .*(space|full)") as no,
            atomic_write(full_disk / name) as temporary,
        ):
            write(temporary)
        assert "\n" not in str(no.value)
    assert names(full_disk) == {"old.bin"}
    assert (full_disk / "old.bin").read_text() == "old"


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_leaves_no_part_of_a_folder(full_disk, write):
    with (
        pytest.raises(BlockPilotError, match=r"cannot write .*/policy(/a)?: .*(space|full)"),
        atomic_directory(full_disk / "policy") as folder,
    ):
        write(folder / "a")
    assert names(full_disk) == set()


def test_full_devices_are_named():
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    with pytest.raises(BlockPilotError, match="cannot write /dev/full: No space left on device"):
        write_json("/dev/full", {"a": 1})


def test_read_only_folders_are_named(read_only_disk):
    for write in (
        lambda: write_json(read_only_disk / "a.json", 1),
        lambda: write_json(read_only_disk / "new" / "a.json", 1),
        lambda: atomic_directory(read_only_disk / "policy").__enter__(),
        lambda: check_output(read_only_disk / "a.json"),
        lambda: check_output(read_only_disk),
        lambda: locked(read_only_disk / "a.json").__enter__(),
    ):
        with pytest.raises(BlockPilotError, match=r"cannot .*: Read-only file system"):
            write()


@pytest.mark.parametrize("length", [256, 5000])
def test_too_long_names_are_refused(tmp_path, length):
    path = tmp_path / ("a" * length)
    for write in (
        lambda: write_json(path, 1),
        lambda: atomic_directory(path).__enter__(),
        lambda: check_output(path),
        lambda: write_json(path / "a.json", 1),
    ):
        with pytest.raises(BlockPilotError, match=r"cannot .*: File name too long") as no:
            write()
        assert len(str(no.value)) < 500
    assert names(tmp_path) == set()


@pytest.mark.parametrize("name", ["a" * 250 + ".json", "é" * 125 + ".json", "a.json"])
def test_long_names_that_fit_are_written(tmp_path, name):
    for _ in range(2):
        with locked(tmp_path / name):
            write_json(tmp_path / name, 1)
    assert names(tmp_path) == {name}
    with atomic_write(tmp_path / name) as temporary:
        temporary.touch()
    temporary.touch()
    remove_leftovers([tmp_path / name])
    assert names(tmp_path) == {name}


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_a_lack_of_memory_is_one_line_that_names_the_file(tmp_path, error):
    def write_half() -> None:
        with atomic_write(tmp_path / "a.bin") as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(
        BlockPilotError, match=r"cannot write .*/a.bin: out of memory .*free memory"
    ):
        write_half()
    assert names(tmp_path) == set()


@pytest.mark.parametrize(
    "error", [KeyError("a"), RuntimeError("shapes differ"), FileNotFoundError(2, "gone", "/other")]
)
def test_other_errors_pass_unchanged(tmp_path, error):
    with pytest.raises(type(error)) as raised, writing(tmp_path / "a.bin"):
        raise error
    assert raised.value is error


def test_of_two_writers_of_a_new_folder_one_succeeds(tmp_path):
    target = tmp_path / "policy"

    def write_twice() -> None:
        with atomic_directory(target) as slow:
            (slow / "slow").touch()
            with atomic_directory(target) as fast:
                (fast / "fast").touch()

    for exists in (False, True):
        if exists:
            target.mkdir()
        with pytest.raises(BlockPilotError, match="policy is not empty"):
            write_twice()
        assert names(target) == {"fast"}
        assert names(tmp_path) == {"policy"}
        (target / "fast").unlink()
        target.rmdir()


@pytest.mark.parametrize("exchange", [True, False])
def test_two_writers_that_overwrite_a_folder_both_succeed(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr("blockpilot_rl.files._exchange", lambda folder, target: False)
    target = tmp_path / "policy"
    target.mkdir()
    (target / "a").write_text("old")
    with atomic_directory(target, overwrite=True) as slow:
        (slow / "a").write_text("slow")
        with atomic_directory(target, overwrite=True) as fast:
            (fast / "a").write_text("fast")
        assert (target / "a").read_text() == "fast"
    assert (target / "a").read_text() == "slow"
    assert names(tmp_path) == {"policy"}


HOLD = """
import sys, time
from blockpilot_rl.files import locked
with locked(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("name", ["sweep", "new/folder/report.json", "é.partial"])
def test_a_lock_excludes_other_processes_until_its_process_ends(tmp_path, name):
    """Even if that process is killed and its lock file stays."""
    output = tmp_path / name
    for kill in (signal.SIGKILL, signal.SIGINT):
        command = [sys.executable, "-c", HOLD, output]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "locked\n"
            with pytest.raises(BlockPilotError, match=f"another process is writing .*{name}"):
                locked(output).__enter__()
            holder.send_signal(kill)
        with locked(output), locked(tmp_path / "other"):
            with pytest.raises(BlockPilotError, match="another process"):
                locked(output).__enter__()
            output.mkdir(exist_ok=True)
        assert names(output.parent) <= {output.name, "sweep", "new"}


WAIT = """
import sys
from pathlib import Path
from blockpilot_rl.files import locked
count = Path(sys.argv[1])
for _ in range(200):
    with locked(count, wait=True):
        count.write_text(str(int(count.read_text()) + 1))
"""


def test_waiting_processes_take_turns(tmp_path):
    count = tmp_path / "count"
    count.write_text("0")
    processes = [subprocess.Popen([sys.executable, "-c", WAIT, count]) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert count.read_text() == "800"
    assert names(tmp_path) == {"count"}


@pytest.mark.parametrize("foreign", ["model/mine.txt", "mine/notes/a.txt", "model/mine/", "mine"])
def test_files_of_others_anywhere_in_a_folder_are_never_replaced(foreign, tmp_path):
    folder = tmp_path / "out"
    (folder / "model").mkdir(parents=True)
    (folder / "model/weights").write_text("old", encoding="utf-8")
    path = folder / foreign
    if foreign.endswith("/"):
        path.mkdir()
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine", encoding="utf-8")

    def write():
        with atomic_directory(folder, overwrite=True) as partial:
            (partial / "model").mkdir()
            (partial / "model/weights").write_text("new", encoding="utf-8")

    with pytest.raises(BlockPilotError, match=r"mine.*would lose"):
        write()
    assert path.exists()
    assert (folder / "model/weights").read_text(encoding="utf-8") == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_json_to_a_standard_output_that_is_closed_is_one_line(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(BlockPilotError, match="standard output: it is closed"):
        write_json("-", {})
