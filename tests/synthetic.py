"""Synthetic sweeps with a known structure, for tests that need no model."""

from __future__ import annotations

import numpy as np
import pandas as pd

from blockpilot_rl.decoding.state import StateLayout
from blockpilot_rl.prompts import Prompt
from blockpilot_rl.sweeps.table import Sweep, SweepMetadata

ARMS = (1, 2, 4, 8, 16)
HIDDEN = 12


def synthetic_table(n: int = 300, seed: int = 0, signal: bool = True) -> Sweep:
    """A sweep whose prompts have an acceptance rate that the state shows (or does not).

    Every draft token is accepted with the prompt's own probability, so short blocks suit some
    prompts and long ones others; a pass costs 1 + 0.06 * block size.
    """
    rng = np.random.default_rng(seed)
    rate = rng.uniform(0.2, 0.95, size=n)
    prompts = [Prompt.from_text(f"prompt {seed} {i}") for i in range(n)]
    hidden = rng.normal(size=(n, HIDDEN))
    if signal:
        hidden[:, 0] = 4 * rate + 0.1 * rng.normal(size=n)
    states = np.concatenate(
        [hidden, rng.uniform(size=(n, 3)), np.log(rng.integers(10, 200, size=(n, 1)))], axis=1
    ).astype(np.float32)
    emitted = rng.integers(30, 90, size=n)
    accepted = [[_passes(rng, rate[i], arm, emitted[i]) for arm in ARMS] for i in range(n)]
    cost = np.array([1.0] + [1.1 + 0.06 * arm for arm in ARMS[1:]])
    passes = np.array([[len(arm) for arm in row] for row in accepted])
    metadata = SweepMetadata(
        arms=ARMS,
        default_block_size=16,
        target="synthetic-target",
        drafter="synthetic-drafter",
        fingerprint="0123456789abcdef",
        dtype="float32",
        latency_dtype="bfloat16",
        device="none",
        max_new_tokens=96,
        template={},
        state=StateLayout((("last_hidden", HIDDEN), ("next_token", 3), ("prompt", 1))),
        latency={},
    )
    rows = pd.DataFrame(
        {
            "id": [p.id for p in prompts],
            "temperature": 0.0,
            "seed": 0,
            "suite": "synthetic",
            "family": rng.choice(["easy", "hard"], size=n),
            "language": "en",
            "split": [p.split for p in prompts],
            "prompt_tokens": 20,
            "finish_reason": "stop",
            "repetitive": False,
        }
    )
    rows.loc[rows["split"] == "drafter", "split"] = "train"
    return Sweep(
        metadata=metadata,
        rows=rows,
        states=states,
        output_tokens=[np.arange(m + 1) for m in emitted],
        accepted=accepted,
        seconds=0.03 * passes * cost,
        measured_seconds=np.full(passes.shape, np.nan),
    )


def _passes(rng: np.random.Generator, rate: float, arm: int, emitted: int) -> np.ndarray:
    lengths = []
    while sum(lengths) < emitted:
        run = int((np.cumprod(rng.uniform(size=arm - 1) < rate)).sum()) + 1
        lengths.append(min(run, emitted - sum(lengths)))
    return np.array(lengths)
