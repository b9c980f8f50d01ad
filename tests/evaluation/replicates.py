"""Sweeps with several answers per prompt."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd

from blockpilot_rl.sweeps.table import Sweep


def replicated(table: Sweep, copies: int, noise: float = 0.0, temperature: float = 1.0) -> Sweep:
    """Each row `copies` times, with other seeds and independent noise on the seconds."""
    rng = np.random.default_rng(0)
    rows = [table.rows.assign(temperature=temperature, seed=seed) for seed in range(copies)]
    seconds = np.tile(table.seconds, (copies, 1))
    return dataclasses.replace(
        table,
        rows=pd.concat(rows, ignore_index=True),
        states=np.tile(table.states, (copies, 1)),
        output_tokens=table.output_tokens * copies,
        accepted=table.accepted * copies,
        seconds=seconds * np.exp(noise * rng.normal(size=seconds.shape)),
        measured_seconds=np.tile(table.measured_seconds, (copies, 1)),
    )


def joined(first: Sweep, second: Sweep) -> Sweep:
    """The rows of two sweeps of the same arms."""
    return dataclasses.replace(
        first,
        rows=pd.concat([first.rows, second.rows], ignore_index=True),
        states=np.concatenate([first.states, second.states]),
        output_tokens=first.output_tokens + second.output_tokens,
        accepted=first.accepted + second.accepted,
        seconds=np.concatenate([first.seconds, second.seconds]),
        measured_seconds=np.concatenate([first.measured_seconds, second.measured_seconds]),
    )


def mixed(table: Sweep, prompts: int, noise: float = 0.0) -> Sweep:
    """Greedy rows of all prompts, and two rows at temperature 1 of the first so many."""
    return joined(table, replicated(table.select_rows(np.arange(prompts)), 2, noise))
