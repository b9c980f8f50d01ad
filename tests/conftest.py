"""Settings that every test shares."""

from __future__ import annotations

import os

import pytest

# Tiny models are fastest on one thread, and parallel test processes share the cores. It must be set
# before PyTorch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")


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
