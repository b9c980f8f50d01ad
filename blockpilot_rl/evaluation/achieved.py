"""What a way of choosing the block size achieves, measured against the best fixed size."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blockpilot_rl.evaluation.statistics import Interval, relative_gain
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True)
class Achieved:
    """What one way of choosing the block size achieves on the judged rows.

    Attributes:
        mean_speedup: Mean over rows of plain seconds / seconds.
        total_speedup: Plain seconds of all rows / seconds of all rows.
        gain: Gain in mean speedup over the best fixed size, as a fraction.
        total_gain: Gain in total time over the fixed size that is best in total time.
        block_size: The size, if it is the same for all rows.
        block_sizes: The size of each group, if it is the same within groups.
        settings: What was tuned, if anything.
    """

    mean_speedup: float
    total_speedup: float
    gain: Interval
    total_gain: Interval
    block_size: int | None = None
    block_sizes: dict[str, int] = field(default_factory=dict)
    settings: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Scale:
    """Test rows with the sizes that everything is measured against.

    Attributes:
        plain: Seconds of plain decoding, `[n]`.
        fixed: Seconds of the fixed size that is best in mean speedup, `[n]`.
        fixed_total: Seconds of the fixed size that is best in total time, `[n]`.
        ids: Prompt of each row, `[n]`.
        confidence: Level of the intervals.
        seed: Seed of the bootstrap.
    """

    plain: np.ndarray
    fixed: np.ndarray
    fixed_total: np.ndarray
    ids: np.ndarray
    confidence: float
    seed: int

    @classmethod
    def of(cls, test: Sweep, fixed: int, fixed_total: int, confidence: float, seed: int) -> Scale:
        """Take the rows of a table and the indices of the two fixed arms."""
        seconds = test.seconds
        ids = test.rows["id"].to_numpy()
        return cls(seconds[:, 0], seconds[:, fixed], seconds[:, fixed_total], ids, confidence, seed)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.plain)

    @property
    def prompts(self) -> int:
        """Number of different prompts."""
        return len(np.unique(self.ids))

    def select(self, rows: np.ndarray) -> Scale:
        """Keep some rows, by number or by a boolean mask."""
        return dataclasses.replace(
            self,
            plain=self.plain[rows],
            fixed=self.fixed[rows],
            fixed_total=self.fixed_total[rows],
            ids=self.ids[rows],
        )

    def measure(self, seconds: np.ndarray, **chosen: Any) -> Achieved:
        """Measure what takes these seconds, `[n]`.

        Args:
            seconds: Decode time of every row.
            **chosen: What else to note: `block_size`, `block_sizes`, `settings`.
        """
        return Achieved(
            mean_speedup=float((self.plain / seconds).mean()),
            total_speedup=float(self.plain.sum() / seconds.sum()),
            gain=self.gain(seconds),
            total_gain=relative_gain(
                self.fixed_total, seconds, self.ids, confidence=self.confidence, seed=self.seed
            ),
            **chosen,
        )

    def gain(self, seconds: np.ndarray, confidence: float | None = None) -> Interval:
        """Gain in mean speedup over the best fixed size, if wished at a level of its own."""
        return relative_gain(
            self.plain / seconds,
            self.plain / self.fixed,
            self.ids,
            confidence=confidence or self.confidence,
            seed=self.seed,
        )
