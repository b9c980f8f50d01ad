"""Learned block sizes for diffusion speculative decoding.

The names below are the public API. They are imported when they are first used, so that
`import blockpilot_rl` loads neither torch nor an RL library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blockpilot_rl.agents import load_agent, make_agent
    from blockpilot_rl.decoding.calibration import Calibration
    from blockpilot_rl.decoding.decoder import Decoder
    from blockpilot_rl.decoding.generation import Generation
    from blockpilot_rl.decoding.sampling import Sampling
    from blockpilot_rl.errors import BlockPilotError
    from blockpilot_rl.headroom.measure import measure_headroom
    from blockpilot_rl.integrations.transformers import block_pilot
    from blockpilot_rl.models.pairs import Pair, load_pair
    from blockpilot_rl.policies.policy import BlockSizePolicy
    from blockpilot_rl.prompts import Prompt, builtin_suite, load_prompts
    from blockpilot_rl.reports.report import write_report
    from blockpilot_rl.sweeps.table import Sweep
    from blockpilot_rl.training.train import DrafterTrainingConfig, train_drafter

__version__ = "0.1.0"

_HOMES = {
    "BlockPilotError": "errors",
    "BlockSizePolicy": "policies.policy",
    "Calibration": "decoding.calibration",
    "Decoder": "decoding.decoder",
    "Generation": "decoding.generation",
    "Pair": "models.pairs",
    "Prompt": "prompts",
    "Sampling": "decoding.sampling",
    "Sweep": "sweeps.table",
    "block_pilot": "integrations.transformers",
    "builtin_suite": "prompts",
    "load_agent": "agents",
    "load_pair": "models.pairs",
    "load_prompts": "prompts",
    "make_agent": "agents",
    "measure_headroom": "headroom.measure",
    "DrafterTrainingConfig": "training.train",
    "train_drafter": "training.train",
    "write_report": "reports.report",
}

__all__ = [  # noqa: RUF022
    # Pairs and decoding
    "load_pair",
    "Pair",
    "Decoder",
    "Sampling",
    "Generation",
    "BlockSizePolicy",
    "block_pilot",
    # Prompts and sweeps
    "Prompt",
    "load_prompts",
    "builtin_suite",
    "Sweep",
    "Calibration",
    # Judging and training
    "measure_headroom",
    "make_agent",
    "load_agent",
    "train_drafter",
    "DrafterTrainingConfig",
    "write_report",
    "BlockPilotError",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
