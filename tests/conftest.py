"""Settings that every test shares."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from contextlib import contextmanager

import pytest

# Tiny models are fastest on one thread, and parallel test processes share the cores. It must be set
# before PyTorch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def calibrations(tmp_path_factory):
    """Keep calibrations in a folder of the tests, not in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BLOCKPILOT_CALIBRATIONS", str(tmp_path_factory.mktemp("calibrations")))
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A tiny pair that accepts blocks whole, in part and not at all; see `trained_pair`."""
    from tests.tiny_pair import trained_pair

    return trained_pair(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="session")
def corrected(tmp_path_factory):
    """The same with a drafter that corrects each draft by the one before it, of some tokens."""
    from tests.tiny_pair import trained_pair

    return trained_pair(
        tmp_path_factory.mktemp("corrected"), correction_rank=8, draft_vocab_size=40
    )


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Folders of a random target and a random drafter that fit each other."""
    from tests.tiny_pair import save_tiny_pair

    return save_tiny_pair(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def warmed(monkeypatch):
    """For every later real decode, whether its block size and its sampling were warmed up."""
    from blockpilot_rl.decoding.decoder import Decoder
    from blockpilot_rl.decoding.sampling import GREEDY

    warm, decodes = set(), []
    warm_up, passes = Decoder.warm_up, Decoder._passes

    def way(decoder, size, sampling):
        return decoder, size, dataclasses.replace(sampling, seed=0)

    def warming(self, block_sizes=(), new_tokens=8, sampling=GREEDY):
        before = len(decodes)
        warm_up(self, block_sizes, new_tokens, sampling)
        del decodes[before:]
        warm.update(way(self, size, sampling) for size in (1, self.pair.block_size, *block_sizes))

    def decoding(self, prefill, controller, *budget):
        # A controller of one length is a block size.
        size = getattr(controller, "length", controller)
        decodes.append(way(self, size, prefill.sampler.sampling) in warm)
        return passes(self, prefill, controller, *budget)

    monkeypatch.setattr(Decoder, "warm_up", warming)
    monkeypatch.setattr(Decoder, "_passes", decoding)
    return decodes


@contextmanager
def _small_disk(folder, options):
    """Mount a small disk in memory, or skip the test where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def full_disk(tmp_path):
    """An empty folder with room for 200 kB."""
    with _small_disk(tmp_path / "disk", "size=200k") as folder:
        yield folder


@pytest.fixture
def read_only_disk(tmp_path):
    """An empty folder that cannot be written, even by root."""
    with _small_disk(tmp_path / "disk", "ro") as folder:
        yield folder
