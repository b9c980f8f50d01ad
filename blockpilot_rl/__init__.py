"""Learned block sizes for diffusion speculative decoding.

The names below are the public API. They are imported when they are first used, so that
`import blockpilot_rl` loads neither torch nor an RL library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blockpilot_rl.agents import load_agent, make_agent
    from blockpilot_rl.control.requests import load_step_splits
    from blockpilot_rl.decoding.calibration import Calibration, CalibrationConfig, calibrate
    from blockpilot_rl.decoding.decoder import Decoder
    from blockpilot_rl.decoding.generation import Generation
    from blockpilot_rl.decoding.sampling import Sampling
    from blockpilot_rl.errors import BlockPilotError
    from blockpilot_rl.evaluation.evaluate import EvaluateConfig, evaluate
    from blockpilot_rl.evaluation.results import Comparison
    from blockpilot_rl.evaluation.steps import compare_rules
    from blockpilot_rl.experiments.compare import CompareConfig, compare
    from blockpilot_rl.experiments.export import export_policy
    from blockpilot_rl.experiments.portability import PortabilityConfig, evaluate_portability
    from blockpilot_rl.experiments.training import TrainAgentConfig, train_agent
    from blockpilot_rl.headroom.measure import measure_headroom
    from blockpilot_rl.integrations.transformers import block_pilot
    from blockpilot_rl.models.pairs import Pair, load_pair
    from blockpilot_rl.policies.policy import BlockSizePolicy
    from blockpilot_rl.policies.step_policy import RulePolicy
    from blockpilot_rl.prompts import Prompt, builtin_suite, load_prompts
    from blockpilot_rl.reports.report import write_report
    from blockpilot_rl.sweeps.merge import merge_sweeps
    from blockpilot_rl.sweeps.recording import RecordingConfig, record_sweep
    from blockpilot_rl.sweeps.reprice import reprice
    from blockpilot_rl.sweeps.table import Sweep
    from blockpilot_rl.training.train import DrafterTrainingConfig, train_drafter

__version__ = "0.1.0"

_HOMES = {
    "BlockPilotError": "errors",
    "BlockSizePolicy": "policies.policy",
    "Calibration": "decoding.calibration",
    "CalibrationConfig": "decoding.calibration",
    "CompareConfig": "experiments.compare",
    "Comparison": "evaluation.results",
    "Decoder": "decoding.decoder",
    "EvaluateConfig": "evaluation.evaluate",
    "Generation": "decoding.generation",
    "Pair": "models.pairs",
    "PortabilityConfig": "experiments.portability",
    "Prompt": "prompts",
    "RecordingConfig": "sweeps.recording",
    "RulePolicy": "policies.step_policy",
    "Sampling": "decoding.sampling",
    "Sweep": "sweeps.table",
    "TrainAgentConfig": "experiments.training",
    "block_pilot": "integrations.transformers",
    "builtin_suite": "prompts",
    "calibrate": "decoding.calibration",
    "compare": "experiments.compare",
    "evaluate": "evaluation.evaluate",
    "compare_rules": "evaluation.steps",
    "evaluate_portability": "experiments.portability",
    "export_policy": "experiments.export",
    "load_agent": "agents",
    "load_pair": "models.pairs",
    "load_prompts": "prompts",
    "load_step_splits": "control.requests",
    "make_agent": "agents",
    "measure_headroom": "headroom.measure",
    "merge_sweeps": "sweeps.merge",
    "record_sweep": "sweeps.recording",
    "reprice": "sweeps.reprice",
    "DrafterTrainingConfig": "training.train",
    "train_agent": "experiments.training",
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
    "RulePolicy",
    "block_pilot",
    # Prompts and sweeps
    "Prompt",
    "load_prompts",
    "builtin_suite",
    "calibrate",
    "Calibration",
    "CalibrationConfig",
    "record_sweep",
    "RecordingConfig",
    "merge_sweeps",
    "reprice",
    "Sweep",
    # Judging and training
    "measure_headroom",
    "load_step_splits",
    "compare_rules",
    "compare",
    "CompareConfig",
    "Comparison",
    "evaluate",
    "EvaluateConfig",
    "evaluate_portability",
    "PortabilityConfig",
    "train_agent",
    "TrainAgentConfig",
    "export_policy",
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
