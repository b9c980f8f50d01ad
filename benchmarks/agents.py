"""Memory and latency of every agent at a state as wide as that of a large target.

`python benchmarks/agents.py --json OUT`. Each agent learns in its own process, so that peak
memory is measured separately. Then the exported policies decide one state at a time, interleaved in
random order after a warm-up. Ratios compare the time of a decision with that of a fixed-size
policy, which only reads the state. The states are random; only their width and number matter here.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track
from rich.table import Table
from scipy.stats import bootstrap

from blockpilot_rl.agents import AGENTS, Agent, load_agent, make_agent
from blockpilot_rl.cli.console import open_console, open_messages, run
from blockpilot_rl.cli.flags import words
from blockpilot_rl.decoding.state import DEFAULT_GROUPS, StateLayout
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import check_output, write_json
from blockpilot_rl.options import option
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.provenance import provenance
from blockpilot_rl.sweeps.table import Sweep

REFERENCE = "fixed"
MEBIBYTE = 2**20


@dataclass(frozen=True)
class AgentsBenchmark:
    """Measure memory and latency of agents on wide states."""

    width: int = option(4096, help="width of the hidden state")
    steps: int | None = option(
        None, help="decisions or epochs to learn (default: the algorithm's own)"
    )
    decisions: int = option(500, help="decisions to time for every policy")
    algos: str = option(
        ",".join(AGENTS),
        metavar="A,B",
        help="agents, separated by commas",
    )
    sweep: str | None = option(None, metavar="DIR", help="sweep whose outcomes are used")
    seed: int = option(0, help="of the states, the agents and the order of the decisions")
    json: str | None = option(None, nargs="?", const="-", metavar="FILE", help="write a record")

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            BlockPilotError: If a number is out of range, or an agent cannot be deployed.
        """
        if self.width < 1 or self.decisions < 2:
            raise BlockPilotError("--width must be positive and --decisions at least 2")
        for name in words(self.algos):
            if name not in AGENTS:
                raise BlockPilotError(f"--algos: {name!r} is not an agent that can be deployed")

    def names(self) -> list[str]:
        """Agents to measure, the reference first."""
        return [REFERENCE, *(name for name in words(self.algos) if name != REFERENCE)]


def main(config: AgentsBenchmark) -> None:
    """Run the benchmark and print a line per agent."""
    check_output(config.json)
    found: dict[str, dict[str, Any]] = {}
    policies: dict[str, BlockSizePolicy] = {}
    console = open_messages()
    with tempfile.TemporaryDirectory() as folder:
        for name in track(config.names(), "learn", console=console):
            path = Path(folder) / name
            found[name] = _in_own_process(config, name, path)
            agent = load_agent(path)
            assert isinstance(agent, Agent)
            policies[name] = agent.to_policy()
    seconds = time_policies(policies, config)
    for name, policy in policies.items():
        found[name] |= {
            "policy_bytes": sum(t.numel() * t.element_size() for t in policy.state_dict().values()),
            "decision_microseconds": float(np.median(seconds[name]) * 1e6),
        }
    ratios = {
        f"{name} / {REFERENCE}": ratio(seconds[name], seconds[REFERENCE])
        for name in found
        if name != REFERENCE
    }
    report(config, found, ratios)


def learn(config: AgentsBenchmark, name: str, folder: Path) -> dict[str, Any]:
    """Let an agent learn and save it; measure the memory that it takes while learning.

    Returns:
        `learning_bytes`, by which learning raises this process's peak memory above that of the
        imports and the sweep; `saved_bytes` of the folder; and the `steps` learned.
    """
    table = wide_table(config)
    train, validation = table.split("train"), table.split("validation")
    agent = make_agent(name, seed=config.seed)
    # Modules that torch imports with the first optimizer do not count as memory of the learning.
    torch.optim.AdamW([torch.zeros(1)])
    before = peak_bytes()
    agent.learn(train, validation, total_timesteps=config.steps)
    learning_bytes = peak_bytes() - before
    agent.save(folder)
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {
        "learning_bytes": learning_bytes,
        "saved_bytes": sum(file.stat().st_size for file in files),
        "steps": agent.num_timesteps,
    }


def peak_bytes() -> int:
    """The most memory that this process has held so far."""
    status = Path("/proc/self/status")
    if status.exists():
        # `getrusage` would count the process that started this one.
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def wide_table(config: AgentsBenchmark) -> Sweep:
    """Recorded outcomes with random states of the given width."""
    table = Sweep.load(config.sweep).default_rows()
    widths = {"last_hidden": config.width, "next_token": 3, "prompt": 1}
    layout = StateLayout(tuple((group, widths[group]) for group in DEFAULT_GROUPS))
    rng = np.random.default_rng(config.seed)
    states = rng.standard_normal((len(table), layout.width), dtype=np.float32)
    metadata = dataclasses.replace(table.metadata, state=layout)
    return dataclasses.replace(table, metadata=metadata, states=states)


def time_policies(
    policies: dict[str, BlockSizePolicy], config: AgentsBenchmark
) -> dict[str, np.ndarray]:
    """Seconds of every decision of every policy, interleaved in random order."""
    rng = np.random.default_rng(config.seed)
    width = next(iter(policies.values())).config.state.width
    states = torch.from_numpy(rng.standard_normal((config.decisions, width), dtype=np.float32))
    seconds = {name: np.zeros(config.decisions) for name in policies}
    for policy in policies.values():
        for state in states[:50]:
            policy.select(state)
    for index, state in enumerate(states):
        for name in rng.permutation(list(policies)):
            began = time.perf_counter()
            policies[name].select(state)
            seconds[name][index] = time.perf_counter() - began
    return seconds


def ratio(above: np.ndarray, below: np.ndarray) -> tuple[float, float, float]:
    """Median of the paired ratios with its 95% bootstrap interval."""
    values = above / below
    interval = bootstrap(
        (values,), np.median, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    return float(np.median(values)), float(interval.low), float(interval.high)


def report(
    config: AgentsBenchmark,
    found: dict[str, dict[str, Any]],
    ratios: dict[str, tuple[float, float, float]],
) -> None:
    """Print the table and write the record."""
    table = Table(title=f"agents on states of {config.width} hidden numbers")
    for column in ("agent", "learning MiB", "run MiB", "policy MiB", "decision µs"):
        table.add_column(column, justify="right" if column != "agent" else "left")
    for name, values in found.items():
        sizes = (values[key] / MEBIBYTE for key in ("learning_bytes", "saved_bytes"))
        table.add_row(
            name,
            *(f"{size:.1f}" for size in sizes),
            f"{values['policy_bytes'] / MEBIBYTE:.2f}",
            f"{values['decision_microseconds']:.0f}",
        )
    open_console(config.json).print(table)
    if config.json is not None:
        record = {
            "ratios": ratios,
            "agents": found,
            "settings": dataclasses.asdict(config),
            "machine": provenance(),
        }
        write_json(config.json, record)


def _in_own_process(config: AgentsBenchmark, name: str, folder: Path) -> dict[str, Any]:
    """Call `learn` in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(learn, (config, name, folder))


if __name__ == "__main__":
    raise SystemExit(run(main, AgentsBenchmark))
