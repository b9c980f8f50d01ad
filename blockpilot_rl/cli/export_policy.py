"""The command `export-policy`."""

from __future__ import annotations

from dataclasses import dataclass

from blockpilot_rl.cli.console import command, open_console
from blockpilot_rl.experiments.export import ExportedPolicy, export_policy
from blockpilot_rl.options import option


@dataclass(frozen=True)
class ExportPolicyFlags:
    """Export the agent of a run folder as a policy: `blockpilot export-policy RUN --out DIR`.

    The policy is checked on the validation prompts of the sweep.
    """

    run: str = option(
        metavar="RUN", first=True, help="run folder of the agent; its flag may be left out"
    )
    out: str = option(metavar="DIR", help="folder to write config.json and model.safetensors to")
    sweep: str | None = option(
        None, metavar="DIR", help="sweep to check the policy on (default: the run's)"
    )
    overwrite: bool = option(False, help="replace the policy that the folder holds")


def _main(flags: ExportPolicyFlags) -> None:
    print_exported(export_policy(flags.run, flags.out, flags.sweep, overwrite=flags.overwrite))


def print_exported(exported: ExportedPolicy) -> None:
    """Print where a policy was written."""
    console = open_console()
    checked = f"checked on {exported.prompts} prompts"
    console.print(f"exported: {exported.folder} ({exported.algorithm}, {checked})", soft_wrap=True)
    console.print(
        f'next:     blockpilot generate --prompt "…" --policy {exported.folder}', soft_wrap=True
    )


main = command(_main, ExportPolicyFlags)
