"""Agents whose cross-validation replaces a validation split."""

from __future__ import annotations

from typing import ClassVar

from blockpilot_rl.agents.base import Agent, H
from blockpilot_rl.agents.monitor import Monitor
from blockpilot_rl.sweeps.table import Sweep


class CrossValidatedAgent(Agent[H]):
    """Learns from the training and the validation prompts together.

    Cross-validation chooses the penalty, and the score is that of the choices for prompts that were
    left out.
    """

    title: ClassVar[str]
    """What notes call the agent."""

    @property
    def learns_from_validation(self) -> bool:
        """Whether the agent is also fitted to the validation rows: it is."""
        return True

    def _divide(
        self, train: Sweep, validation: Sweep | None, monitor: Monitor
    ) -> tuple[Sweep, Sweep]:
        prompts = "training prompts" if validation is None else "training and validation prompts"
        monitor.note(
            f"the {self.title} learns from all {prompts}; its penalty and its score are "
            "cross-validated on them"
        )
        return train, train if validation is None else validation
