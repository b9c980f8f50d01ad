"""Export of the policy of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from blockpilot_rl.agents.base import AGENT_FILE, read_agent_file
from blockpilot_rl.agents.problem import Problem
from blockpilot_rl.agents.registry import YARDSTICKS
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.experiments.run_folder import read_arguments, read_provenance
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True)
class ExportedPolicy:
    """An exported policy.

    Attributes:
        folder: Where it was written.
        algorithm: The algorithm that learned it.
        prompts: Number of prompts that it was checked on.
    """

    folder: Path
    algorithm: str
    prompts: int


def export_policy(
    run: str | Path,
    out: str | Path,
    sweep: Sweep | str | Path | None = None,
    *,
    overwrite: bool = False,
) -> ExportedPolicy:
    """Export the policy of a run, which then needs no RL library.

    Only `agent.json` and the safetensors in `model/` are read, so that a run folder from others
    cannot run code. The policy must give finite scores on the validation prompts of the sweep.

    Args:
        run: The run folder.
        out: Folder to write.
        sweep: Sweep to check the policy on; None for the one of the run.
        overwrite: Replace the policy that the folder holds.

    Returns:
        The folder, which `BlockSizePolicy.from_pretrained` takes, and how it was checked.

    Raises:
        BlockPilotError: If the run is incomplete or is of a yardstick, its sweep is missing or of
            another pair, a score is not finite, or the folder cannot be written.
    """
    folder = Path(run)
    saved = read_agent_file(folder)
    algorithm = saved["algorithm"]
    if algorithm in YARDSTICKS:
        raise BlockPilotError(
            f"{algorithm} cannot be exported: {YARDSTICKS[algorithm].not_deployable}; export "
            "'fixed' or a learned agent"
        )
    try:
        problem = Problem.from_dict(saved["problem"])
    except BlockPilotError as error:
        raise BlockPilotError(f"{folder / AGENT_FILE}: {error}") from error
    policy = BlockSizePolicy.from_pretrained((folder / "model").resolve())
    table = _check_table(folder, sweep, problem)
    unusable = int((~policy.usable(problem.states(table))).sum())
    if unusable:
        raise BlockPilotError(
            f"the policy gives no finite scores on {unusable} of {len(table)} prompts; nothing was "
            "written; train the agent again with a lower learning rate"
        )
    policy.with_provenance(read_provenance(folder)).save_pretrained(out, overwrite=overwrite)
    return ExportedPolicy(Path(out), algorithm, len(table))


def _check_table(folder: Path, sweep: Sweep | str | Path | None, problem: Problem) -> Sweep:
    """Validation prompts of the sweep, or all prompts if it has none."""
    if not isinstance(sweep, Sweep):
        sweep = Sweep.load(read_arguments(folder).get("sweep") if sweep is None else sweep)
    table = sweep.select_arms(problem.arms).with_groups(problem.state.names)
    has_validation = (table.rows["split"] == "validation").any()
    return table.split("validation") if has_validation else table
