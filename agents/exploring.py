"""What agents share that see the reward of one arm per decision."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.sweeps.table import Sweep

DECISIONS_FILE = "decisions.parquet"
LOGGED = ("prompt_id", "temperature", "seed", "block_size", "reward", "propensity")
BASELINES = ("best_fixed", "none")


@dataclass(frozen=True)
class ExploringHyperparams:
    """Hyperparameters of every agent that explores.

    Attributes:
        n_timesteps: Decisions to learn from.
        eval_freq: Decisions between two evaluations on the validation split.
        reward_baseline: With `best_fixed` the reward is the speedup less that of the best fixed
            size of the training prompts. This removes the difficulty of the prompt from the reward
            and costs one more decode. With `none` the reward is the speedup.
    """

    n_timesteps: int
    eval_freq: int
    reward_baseline: str

    def __post_init__(self) -> None:
        """Check the values."""
        require(self.n_timesteps >= 1, "n_timesteps must be at least 1")
        require(self.eval_freq >= 1, "eval_freq must be at least 1")
        require(
            self.reward_baseline in BASELINES,
            f"reward_baseline must be {' or '.join(BASELINES)}, not {self.reward_baseline!r}",
        )

    @property
    def decodes_per_decision(self) -> int:
        """Decodes that one decision costs: with the chosen size, and with the baseline's."""
        return 1 if self.reward_baseline == "none" else 2


E = TypeVar("E", bound=ExploringHyperparams)


class Exploring(Generic[E]):
    """The steps of an agent that explores: each is one decision."""

    hyperparams: E

    @property
    def planned_timesteps(self) -> int:
        """Decisions that `learn` takes by default."""
        return self.hyperparams.n_timesteps

    @property
    def eval_freq(self) -> int:
        """Decisions between two evaluations on the validation split."""
        return self.hyperparams.eval_freq

    @property
    def default_save_freq(self) -> int:
        """Decisions between two checkpoints by default."""
        return 10 * self.eval_freq

    @property
    def decodes_per_decision(self) -> int:
        """Decodes that one decision costs."""
        return self.hyperparams.decodes_per_decision


class DecisionLog:
    """Every decision that an agent learned from, in order, as off-policy evaluation needs it.

    The logged reward is the speedup of the chosen size, as a service would see it, without the
    baseline that the agent subtracts.
    """

    _table: Sweep

    def __init__(self) -> None:
        self._parts: list[pd.DataFrame] = []
        self._fresh: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def __len__(self) -> int:
        """Number of decisions."""
        return sum(map(len, self._parts)) + sum(len(rows) for rows, *_ in self._fresh)

    def attach(self, table: Sweep) -> None:
        """Log the following decisions on this sweep."""
        if self._fresh:
            self.frame()
        self._table = table

    def append(self, rows: np.ndarray, arms: np.ndarray, propensities: np.ndarray) -> None:
        """Add decisions.

        Args:
            rows: Rows of the sweep that were decided on, `[n]`.
            arms: Indices of the sizes that were chosen, `[n]`.
            propensities: Probability with which each was chosen, in (0, 1], `[n]`.
        """
        self._fresh.append((rows, arms, propensities))

    def frame(self) -> pd.DataFrame:
        """All decisions, with the columns `LOGGED`."""
        if self._fresh:
            columns = zip(*self._fresh, strict=True)
            self._parts.append(_described(self._table, *map(np.concatenate, columns)))
            self._fresh = []
        self._parts = [pd.concat(self._parts, ignore_index=True)]
        return self._parts[0]

    def save(self, path: Path) -> None:
        """Write the decisions as Parquet."""
        self.frame().to_parquet(path)

    @classmethod
    def load(cls, path: Path) -> DecisionLog:
        """Read what `save` wrote.

        Raises:
            BlockPilotError: If it is missing, corrupt or lacks a column.
        """
        log = cls()
        try:
            # An index that pandas has stored in the file would take the place of the row numbers.
            table = pq.read_table(path, columns=list(LOGGED))
            log._parts = [table.to_pandas(ignore_metadata=True)]
        except (OSError, pa.ArrowException) as error:
            raise BlockPilotError(
                f"{path} is missing or corrupt ({type(error).__name__}); train the agent again"
            ) from error
        return log


def _described(
    table: Sweep, rows: np.ndarray, arms: np.ndarray, propensities: np.ndarray
) -> pd.DataFrame:
    """Describe decisions on the rows of a sweep by the columns `LOGGED`."""
    columns = (
        table.rows["id"].to_numpy(dtype=str)[rows],
        table.temperatures[rows],
        table.rows["seed"].to_numpy(dtype=np.int64)[rows],
        np.asarray(table.arms)[arms],
        table.speedups[rows, arms],
        propensities.astype(np.float64),
    )
    return pd.DataFrame(dict(zip(LOGGED, columns, strict=True)))
