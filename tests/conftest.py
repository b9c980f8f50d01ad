"""Settings that every test shares."""

from __future__ import annotations

import os

# Parallel test processes share the cores; one thread each keeps them out of each other's way. It
# must be set before PyTorch is first imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"
