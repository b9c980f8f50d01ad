from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import torch

from blockpilot_rl import __version__, provenance
from blockpilot_rl.provenance import sha256_file


def test_provenance_is_plain_and_true():
    record = provenance.provenance()
    assert json.loads(json.dumps(record)) == record
    assert record["command"] == sys.argv
    assert record["versions"]["numpy"] == np.__version__
    assert record["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert record["versions"]["blockpilot-rl"] == __version__
    assert record["threads"] == torch.get_num_threads()
    assert record["cpus"] >= 1
    assert record["cpu"]
    assert record["date"].endswith("+00:00")


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *identity, "-C", str(folder), *arguments],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip


def test_git_sha_is_that_of_the_package_s_own_checkout(tmp_path, monkeypatch):
    module = tmp_path / "blockpilot_rl" / "provenance.py"
    module.parent.mkdir()
    module.touch()
    monkeypatch.setattr(provenance, "__file__", str(module))
    assert provenance.provenance()["git_sha"] is None

    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "first")
    git(tmp_path, "tag", "v1")
    sha = git(tmp_path, "rev-parse", "HEAD")
    assert re.fullmatch("[0-9a-f]{40}", sha)
    assert provenance.provenance()["git_sha"] == sha

    module.write_text("changed = True\n")
    assert provenance.provenance()["git_sha"] == f"{sha}-dirty"

    installed = tmp_path / "lib" / "site-packages" / "blockpilot_rl" / "provenance.py"
    monkeypatch.setattr(provenance, "__file__", str(installed))
    assert provenance.provenance()["git_sha"] is None


def test_sha256_of_a_file(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_file(tmp_path / "abc") == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )
    (tmp_path / "empty").touch()
    assert sha256_file(tmp_path / "empty").startswith("e3b0c44298fc1c149afbf4c8996fb924")
