"""Steps per second of the native batched environments, and the training time of PPO.

`python benchmarks/training.py --json OUT` steps the native environments and the generic ones, which
loop over single environments, with the same actions on the same sweep, alternating after a warm-up.
Ratios compare steps per second within one round.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rich.progress import track
from rich.table import Table
from stable_baselines3.common.vec_env import DummyVecEnv

import blockpilot_rl.envs  # noqa: F401
from blockpilot_rl.agents import make_agent
from blockpilot_rl.cli.console import open_console, open_messages, run
from blockpilot_rl.envs.block_size import BlockSizeEnv
from blockpilot_rl.envs.vector import BlockSizeVecEnv
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.statistics import Interval, median_ratio
from blockpilot_rl.files import check_output, write_json
from blockpilot_rl.options import option
from blockpilot_rl.provenance import provenance
from blockpilot_rl.sweeps.table import Sweep

Stepper = Callable[[np.ndarray], object]

RATIOS = {
    "native / DummyVecEnv": ("native", "DummyVecEnv"),
    "make_vec / SyncVectorEnv": ("make_vec", "SyncVectorEnv"),
}


@dataclass(frozen=True)
class TrainingBenchmark:
    """Compare the native batched environments with loops over single ones, and time PPO."""

    sweep: str | None = option(
        None, metavar="DIR", help="a recorded sweep (default: the bundled one)"
    )
    envs: int = option(256, help="environments that step together")
    steps: int = option(50, help="steps of all environments in a round")
    rounds: int = option(9, help="rounds; each round times every environment once")
    ppo_decisions: int = option(200_000, help="decisions that PPO learns from; 0 skips PPO")
    seed: int = option(0, help="random seed of the actions, the order and PPO")
    json: str | None = option(None, nargs="?", const="-", metavar="FILE", help="write a record")

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If a number is out of range.
        """
        if self.envs < 1 or self.steps < 1 or self.rounds < 2 or self.ppo_decisions < 0:
            raise BlockPilotError(
                "--envs and --steps must be at least 1, --rounds 2, --ppo-decisions 0"
            )


def main(config: TrainingBenchmark) -> None:
    """Run the benchmark and print the ratios."""
    check_output(config.json)
    sweep = Sweep.load(config.sweep).default_rows()
    ways = make_ways(sweep, config.envs)
    rng = np.random.default_rng(config.seed)
    console = open_messages()
    speed = {name: np.zeros(config.rounds) for name in ways}
    for step in ways.values():
        take(step, rng.integers(len(sweep.arms), size=(2, config.envs)))
    for index in track(range(config.rounds), "step", console=console):
        actions = rng.integers(len(sweep.arms), size=(config.steps, config.envs))
        for name in rng.permutation(list(ways)):
            speed[name][index] = actions.size / take(ways[name], actions)
    ratios = {
        name: median_ratio(speed[above], speed[below]) for name, (above, below) in RATIOS.items()
    }
    ppo = time_ppo(sweep, config) if config.ppo_decisions else None
    report(config, {name: float(np.median(values)) for name, values in speed.items()}, ratios, ppo)


def make_ways(sweep: Sweep, envs: int) -> dict[str, Stepper]:
    """Native and generic environments of both interfaces, reset and ready to step."""
    native = BlockSizeVecEnv(envs, sweep, seed=0)
    dummy = DummyVecEnv([lambda: BlockSizeEnv(sweep)] * envs)
    vector = gymnasium.make_vec("blockpilot_rl/BlockSize-v0", num_envs=envs, sweep=sweep)
    sync = SyncVectorEnv(
        [lambda: BlockSizeEnv(sweep)] * envs, autoreset_mode=AutoresetMode.SAME_STEP
    )
    for made in (native, dummy):
        made.reset()
    for batched in (vector, sync):
        batched.reset(seed=0)
    return {
        "native": native.step,
        "DummyVecEnv": dummy.step,
        "make_vec": vector.step,
        "SyncVectorEnv": sync.step,
    }


def take(step: Stepper, actions: np.ndarray) -> float:
    """Take actions `[steps, envs]` and return the seconds."""
    began = time.perf_counter()
    for batch in actions:
        step(batch)
    return time.perf_counter() - began


def time_ppo(sweep: Sweep, config: TrainingBenchmark) -> dict[str, float]:
    """Train PPO as `blockpilot train-agent` does, with selection on the validation split."""
    agent = make_agent("ppo", seed=config.seed)
    train, validation = sweep.split("train"), sweep.split("validation")
    began = time.perf_counter()
    agent.learn(train, validation, total_timesteps=config.ppo_decisions)
    seconds = time.perf_counter() - began
    return {
        "decisions": agent.num_timesteps,
        "seconds": seconds,
        "decisions_per_second": agent.num_timesteps / seconds,
    }


def report(
    config: TrainingBenchmark,
    speed: dict[str, float],
    ratios: dict[str, Interval],
    ppo: dict[str, float] | None,
) -> None:
    """Write the record and print the tables."""
    machine = provenance()
    if config.json is not None:
        write_json(
            config.json,
            {
                "ratios": ratios,
                "steps_per_second": speed,
                "ppo": ppo,
                "config": config,
                "machine": machine,
            },
        )
    console = open_console(config.json)
    table = Table(title=f"{machine['cpu']}, {machine['threads']} threads, {config.envs} at a time")
    for column in ("environment", "steps/s", "ratio [95%]"):
        table.add_column(column, justify="left" if column == "environment" else "right")
    texts = {above: ratios[name] for name, (above, _) in RATIOS.items()}
    for name, value in speed.items():
        ratio = texts.get(name)
        text = "" if ratio is None else f"{ratio.value:.1f} [{ratio.low:.1f}, {ratio.high:.1f}]"
        table.add_row(name, f"{value:,.0f}", text)
    console.print(table)
    if ppo is not None:
        loop = ppo["decisions"] / speed["DummyVecEnv"]
        console.print(
            f"PPO: {ppo['decisions']:,.0f} decisions in {ppo['seconds']:.1f} s, of which the "
            f"native environment takes {ppo['decisions'] / speed['native']:.1f} s; DummyVecEnv "
            f"would take {loop:.1f} s"
        )


if __name__ == "__main__":
    raise SystemExit(run(main, TrainingBenchmark))
