"""Scores of an agent on the whole validation split during training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from torch.utils.tensorboard.summary import hparams
from torch.utils.tensorboard.writer import SummaryWriter

from blockpilot_rl.agents.hyperparameters import to_dict
from blockpilot_rl.evaluation.measure import MeanSpeedups, Requests
from blockpilot_rl.files import number
from blockpilot_rl.sweeps.table import Sweep

if TYPE_CHECKING:
    from blockpilot_rl.agents.problem import Problem

logger = logging.getLogger(__name__)

_CURVES = ("reward", "regret", "gap_closed")


@dataclass(frozen=True)
class Score(MeanSpeedups):
    """Scores of choices on a sweep.

    Attributes:
        arm_frequencies: Share of prompts given to each block size.
    """

    arm_frequencies: dict[int, float]

    @classmethod
    def of(cls, table: Sweep, choices: np.ndarray, best_fixed: int) -> Score:
        """Score choices.

        Args:
            table: The prompts.
            choices: Arm indices, `[n]`.
            best_fixed: Block size to compare with.
        """
        fixed = table.arm_index(best_fixed)
        found = Requests.from_sweep(table, fixed, fixed).mean_speedups(
            table.seconds[np.arange(len(table)), choices]
        )
        counts = np.bincount(choices, minlength=len(table.arms))
        shares = dict(zip(table.arms, (counts / len(table)).tolist(), strict=True))
        return cls(**asdict(found), arm_frequencies=shares)

    @property
    def reward(self) -> float:
        """Mean speedup over plain decoding."""
        return self.choice

    @property
    def best_fixed(self) -> float:
        """Mean speedup of the best fixed size of the training prompts."""
        return self.fixed

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Score:
        """Read the result of `to_dict`."""
        return cls(
            choice=number(values["reward"]),
            fixed=number(values["best_fixed"]),
            oracle=number(values["oracle"]),
            arm_frequencies={
                int(arm): number(share) for arm, share in values["arm_frequencies"].items()
            },
        )

    def to_dict(self) -> dict[str, Any]:
        """Render as JSON-ready values."""
        return {
            "reward": self.reward,
            "best_fixed": self.best_fixed,
            "oracle": self.oracle,
            "arm_frequencies": self.arm_frequencies,
            "regret": self.regret,
            "gap_closed": self.gap_closed,
        }


class Scored(Protocol):
    """The part of an agent or a yardstick that the monitor reads."""

    @property
    def algorithm(self) -> str:
        """Name of the algorithm."""

    @property
    def seed(self) -> int:
        """Random seed."""

    @property
    def state_groups(self) -> tuple[str, ...]:
        """State groups that it reads."""

    @property
    def hyperparams(self) -> Any:
        """Its hyperparameters."""

    @property
    def problem(self) -> Problem:
        """Its decision problem."""

    def choose(self, table: Sweep) -> np.ndarray:
        """Choose an arm for each prompt of a sweep."""


class Monitor:
    """Scores an agent on the validation split during training and keeps the record.

    Args:
        log_folder: Where to write TensorBoard events; None writes none.
        on_progress: Called with the steps done and the steps planned at each evaluation.
        on_score: Called with the steps done and the score at each evaluation; may raise to end
            the training.
        on_checkpoint: Called with the agent and the steps planned at each checkpoint.
        save_freq: Steps between two checkpoints; None takes none.

    Attributes:
        log_folder: The same.
        history: Step and score of every evaluation.
        result: Score of the final agent; None before training ends.
        notes: Remarks that a reader of the results must know.
    """

    def __init__(
        self,
        log_folder: Path | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        on_score: Callable[[int, Score], None] | None = None,
        on_checkpoint: Callable[[Any, int], None] | None = None,
        save_freq: int | None = None,
    ) -> None:
        self.log_folder = log_folder
        self.history: list[tuple[int, Score]] = []
        self.result: Score | None = None
        self.notes: list[str] = []
        self._on_progress = on_progress
        self.save_freq = save_freq
        self._on_score = on_score
        self._on_checkpoint = on_checkpoint
        self._writer = None if log_folder is None else SummaryWriter(str(log_folder))

    def evaluate(self, agent: Scored, validation: Sweep, step: int, total: int) -> float:
        """Score the current policy of the agent.

        Args:
            agent: The agent.
            validation: The prompts, which are all scored.
            step: Steps done, as the algorithm counts them.
            total: Steps planned.

        Returns:
            Mean speedup over plain decoding.
        """
        score = Score.of(validation, agent.choose(validation), agent.problem.best_fixed)
        self._record(step, score)
        if self._on_progress is not None:
            self._on_progress(min(step, total), total)
        if self._on_score is not None:
            self._on_score(step, score)
        return score.reward

    def conclude(self, agent: Scored, validation: Sweep, choices: np.ndarray) -> None:
        """Score the final agent; for a closed form this is the only score.

        TensorBoard shows the hyperparameters with this score.

        Args:
            agent: The agent.
            validation: The rows to score it on.
            choices: Its choices for rows that it was not fitted to, as arm indices, `[n]`.
        """
        self.result = Score.of(validation, choices, agent.problem.best_fixed)
        if not self.history:
            self._record(0, self.result)
        if self._writer is not None:
            settings = {
                "algorithm": agent.algorithm,
                "seed": agent.seed,
                "state_groups": ",".join(agent.state_groups),
                **to_dict(agent.hyperparams),
            }
            plain = {
                name: value if isinstance(value, bool | int | float | str) else str(value)
                for name, value in settings.items()
            }
            metrics = {f"validation/{name}": getattr(self.result, name) for name in _CURVES}
            for summary in hparams(plain, metrics):
                self._writer._get_file_writer().add_summary(summary)

    def checkpoint(self, agent: Scored, total: int) -> None:
        """Report that the agent can be saved.

        Args:
            agent: The agent.
            total: Steps planned.
        """
        if self._on_checkpoint is not None:
            self._on_checkpoint(agent, total)

    def scalar(self, name: str, value: float, step: int) -> None:
        """Write another number to TensorBoard."""
        if self._writer is not None:
            self._writer.add_scalar(name, value, step)

    def note(self, text: str) -> None:
        """Log and keep a remark that a reader of the results must know."""
        if text not in self.notes:
            logger.warning(text)
            self.notes.append(text)

    def close(self) -> None:
        """Close the TensorBoard events."""
        if self._writer is not None:
            self._writer.close()

    def _record(self, step: int, score: Score) -> None:
        self.history.append((step, score))
        logger.info(
            "step %d: mean speedup %.4f, gap closed %.1f%%",
            step,
            score.reward,
            100 * score.gap_closed,
        )
        for name in _CURVES:
            self.scalar(f"validation/{name}", getattr(score, name), step)
        for arm, frequency in score.arm_frequencies.items():
            self.scalar(f"arm_frequency/{arm}", frequency, step)
