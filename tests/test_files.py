from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import (
    atomic_directory,
    atomic_write,
    check_output,
    remove_leftovers,
    write_json,
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
    # Whoever runs the tests may be allowed everything.
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


def test_directory_replaces_only_when_told(tmp_path):
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


def test_what_killed_writes_have_left_is_removed(tmp_path):
    """Of these files alone, and nothing that only looks like it."""
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


def test_json_refuses_what_it_cannot_say_and_writes_nothing(tmp_path):
    with pytest.raises(TypeError, match="object"):
        write_json(tmp_path / "out.json", {"a": object()})
    assert names(tmp_path) == set()
