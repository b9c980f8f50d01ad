"""`export-policy`: turn a trained agent into a policy that needs no RL library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from blockpilot_rl.agents import Agent, Yardstick, load_agent
from blockpilot_rl.agents.hyperparameters import read_yaml
from blockpilot_rl.cli.parsing import arg, name_first, run
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import read_json
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.sweeps.table import Sweep


@dataclass(frozen=True)
class ExportPolicyConfig:
    """Export the agent of a run folder as a policy: `export_policy.py RUN --out DIR`.

    The policy must choose as the agent does on the validation prompts of the sweep.
    """

    run: str = arg(metavar="RUN", help="run folder of the agent; may stand first without its flag")
    out: str = arg(metavar="DIR", help="folder to write config.json and model.safetensors to")
    sweep: str | None = arg(
        None, metavar="DIR", help="sweep to check the policy with (default: the run's)"
    )
    overwrite: bool = arg(False, help="replace the policy that the folder holds")


def main(argv: Sequence[str] | None = None, *, prog: str | None = None) -> int:
    """Run the command.

    Args:
        argv: Its arguments; None for those of the process.
        prog: Name shown in its help.

    Returns:
        The exit code.
    """
    return run(export_policy, ExportPolicyConfig, name_first(argv, "--run"), prog=prog)


def export_policy(config: ExportPolicyConfig) -> None:
    """Export, after checking that nothing is lost.

    Raises:
        BlockPilotError: If the run is incomplete or cannot be deployed, its sweep is missing, the
            policy differs from the agent, or the folder is in use.
    """
    folder = Path(config.run)
    agent = load_agent(folder)
    if isinstance(agent, Yardstick):
        raise BlockPilotError(
            f"{agent.algorithm} cannot be exported: {agent.not_deployable}; export 'fixed' or a "
            "learned agent"
        )
    policy = agent.to_policy(_provenance(folder))
    checked = _check_parity(agent, policy, _check_table(config, agent))
    policy.save_pretrained(config.out, overwrite=config.overwrite)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"exported: {config.out} ({agent.algorithm}, equal to its agent on {checked})")
    console.print(f'next:     python scripts/generate.py --prompt "…" --policy {config.out}')


def _provenance(folder: Path) -> dict[str, Any]:
    """What the training recorded of itself; an agent saved by its own API recorded nothing."""
    path = folder / "provenance.json"
    if not path.exists():
        return {}
    values: dict[str, Any] = read_json(path)
    return values


def _check_table(config: ExportPolicyConfig, agent: Agent[Any]) -> Sweep:
    """Validation prompts of the sweep, or all where it has none."""
    sweep, saved = config.sweep, Path(config.run) / "args.yml"
    if sweep is None and saved.exists():
        sweep = read_yaml(saved).get("sweep")
    table = Sweep.load(sweep).select_arms(agent.problem.arms)
    has_validation = (table.rows["split"] == "validation").any()
    return table.split("validation") if has_validation else table


def _check_parity(agent: Agent[Any], policy: BlockSizePolicy, table: Sweep) -> str:
    states = table.states[:, table.metadata.state.columns(policy.state_groups)]
    different = int((policy.predict(states) != agent.choose(table)).sum())
    if different:
        raise BlockPilotError(
            f"the policy chooses differently from its agent on {different} of {len(table)} "
            "prompts; nothing was written. Please report this with the run folder"
        )
    return f"{len(table)} prompts"
