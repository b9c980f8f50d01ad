"""What learners share that see the reward of one arm per decision, and the log of decisions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from blockpilot_rl.agents.hyperparameters import require
from blockpilot_rl.agents.iterative import IterativeAgent
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.sweeps.table import Sweep

DECISIONS_FILE = "decisions.parquet"
LOGGED = ("prompt_id", "temperature", "seed", "block_size", "reward", "propensity")
BASELINES = ("best_fixed", "none")


@dataclass(frozen=True)
class ExploringHyperparams:
    """Hyperparameters of every learner that explores.

    Attributes:
        n_timesteps: Decisions to learn from.
        eval_freq: Decisions between two walks over the validation split.
        reward_baseline: `best_fixed` learns on the difference to the best fixed size of the
            training prompts, which takes the difficulty of the prompt out of the reward and costs
            a decode with that size; `none` on the plain speedup.
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


E = TypeVar("E", bound=ExploringHyperparams)


class DecisionLog:
    """Every decision that was learned from, in order, as off-policy evaluation needs it.

    What is logged is what a service would see: the speedup of the size that was chosen, whatever
    the learner subtracts from it.
    """

    _table: Sweep

    def __init__(self) -> None:
        self._parts: list[pd.DataFrame] = []
        self._fresh: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def __len__(self) -> int:
        """Number of decisions."""
        return sum(map(len, self._parts)) + sum(len(rows) for rows, *_ in self._fresh)

    def attach(self, table: Sweep) -> None:
        """Log decisions on this sweep from here on."""
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
            log._parts = [pd.read_parquet(path, columns=list(LOGGED))]
        except (OSError, pa.ArrowException) as error:
            raise BlockPilotError(
                f"{path} is missing or corrupt ({type(error).__name__}); train the agent again"
            ) from error
        return log


def _described(
    table: Sweep, rows: np.ndarray, arms: np.ndarray, propensities: np.ndarray
) -> pd.DataFrame:
    """Write decisions on the rows of a sweep out in the columns `LOGGED`."""
    columns = (
        table.rows["id"].to_numpy(dtype=str)[rows],
        table.temperatures[rows],
        table.rows["seed"].to_numpy(dtype=np.int64)[rows],
        np.asarray(table.arms)[arms],
        table.speedups[rows, arms],
        propensities.astype(np.float64),
    )
    return pd.DataFrame(dict(zip(LOGGED, columns, strict=True)))


class ExploringAgent(IterativeAgent[E]):
    """Learns from decisions: sees the reward of the arm it chose, as online learning would.

    A step is one decision. The prompts of the training split come in shuffled epochs, whose order
    depends on the seed alone.

    Attributes:
        decisions: Every decision that was learned from, with its propensity.
    """

    decisions: DecisionLog

    @property
    def planned_timesteps(self) -> int:
        """Decisions that `learn` takes by default."""
        return self.hyperparams.n_timesteps

    @property
    def eval_freq(self) -> int:
        """Decisions between two walks over the validation split."""
        return self.hyperparams.eval_freq

    @property
    def _baseline(self) -> int | None:
        """Block size whose reward is subtracted from every reward."""
        wanted = self.hyperparams.reward_baseline == "best_fixed"
        return self.problem.best_fixed if wanted else None

    def _begin(self, train: Sweep) -> None:
        self.decisions = DecisionLog()

    def _attach(self, train: Sweep, monitor: Monitor) -> None:
        self.decisions.attach(train)

    def _save_model(self, folder: Path) -> None:
        super()._save_model(folder)
        self.decisions.save(folder / DECISIONS_FILE)

    def _load_model(self, folder: Path) -> None:
        super()._load_model(folder)
        self.decisions = DecisionLog.load(folder / DECISIONS_FILE)
