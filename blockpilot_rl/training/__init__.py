"""Train a drafter for a target."""

from blockpilot_rl.training.train import (
    DrafterTrainingConfig,
    DrafterTrainingResult,
    train_drafter,
)

__all__ = ["DrafterTrainingConfig", "DrafterTrainingResult", "train_drafter"]
