"""`calibrate`: measure what passes cost on this device, and re-price recorded sweeps by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from blockpilot_rl.cli.console import add_bar, open_console, render
from blockpilot_rl.cli.lists import whole_numbers
from blockpilot_rl.cli.pair_flags import device_arg, drafter_arg, target_arg
from blockpilot_rl.cli.parsing import arg, run
from blockpilot_rl.cli.prompt_flags import PromptFlags
from blockpilot_rl.decoding.calibration import Calibration, measure_and_check, validate_pairs
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.measuring import time_steps
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import check_output
from blockpilot_rl.models.pairs import load_pair, parse_dtype
from blockpilot_rl.reports.tables import TextTable
from blockpilot_rl.sweeps.continuations import validate_seeds
from blockpilot_rl.sweeps.reprice import reprice
from blockpilot_rl.sweeps.table import BUNDLED_SWEEP, DEFAULT_ARMS, Sweep, validate_arms
from blockpilot_rl.sweeps.traces import TRACE_FILE, load_traces, save_sweep

BUNDLED = "bundled"
CHECK_FLAGS = (*(field.name for field in fields(PromptFlags)), "temperature", "seeds")
"""Flags that say what the check decodes."""

LEAST_ROUNDS = 3
AIM = 0.07
WIDE = 0.3
"""Width of the measured intervals, as a share of the medians, above which the device was busy."""


@dataclass(frozen=True, kw_only=True)
class CalibrateConfig(PromptFlags):
    """Measure what drafting and verifying cost on this device: `calibrate.py --out FILE.json`.

    With --sweep, a recorded sweep is re-priced for this device, or by a saved profile, without
    decoding anything; --out is then a folder.
    """

    builtin_size: ClassVar[int] = 200

    out: str = arg(metavar="FILE|DIR", help="where the profile, or the re-priced sweep, goes")
    sweep: str | None = arg(
        None, metavar="DIR", help=f"re-price this sweep; `{BUNDLED}` is the bundled one"
    )
    profile: str | None = arg(
        None, metavar="FILE", help="re-price by this saved profile instead of measuring one"
    )
    check: int = arg(0, metavar="N", help="decode N pairs of text and block size for real")
    limit: int | None = arg(
        None,
        help="number of prompts of the built-in suite that the check may draw (default: 200), or "
        "only the first so many of --prompts",
    )
    temperature: float = arg(0.0, help="of the check; 0 is greedy")
    seeds: str = arg("0", metavar="0,1,…", help="sample the check's prompts with each of these")
    max_new_tokens: int = arg(128, help="budget of each text of the check")
    arms: str | None = arg(
        None, metavar="1,B,…", help="block sizes to measure (default: the sweep's, or 1 to 16)"
    )
    contexts: str | None = arg(
        None, metavar="N,M,…", help="context lengths to measure (default: four up to 1024)"
    )
    repeats: int = arg(30, help="rounds over all block sizes and contexts")
    target: str | None = target_arg()
    drafter: str | None = drafter_arg()
    dtype: str | None = arg(
        None, help="dtype of the timed passes (default: the sweep's, or bfloat16)"
    )
    device: str = device_arg()
    seed: int = arg(0, help="of the order in which everything is timed")

    def __post_init__(self) -> None:
        """Check what can be checked before any work.

        Raises:
            BlockPilotError: If a value is out of range, or flags do not go together.
        """
        super().__post_init__()
        validate_seeds(Sampling(self.temperature), self.noise_seeds())
        if self.dtype is not None:
            parse_dtype(self.dtype)
        if self.arms is not None:
            validate_arms(whole_numbers(self.arms, "--arms"))
        for flag, value, least in (
            ("--repeats", self.repeats, 1),
            ("--check", self.check, 0),
            ("--max-new-tokens", self.max_new_tokens, 2),
            ("--seed", self.seed, 0),
        ):
            if value < least:
                raise BlockPilotError(f"{flag} must be at least {least}, got {value}")
        if self.contexts is not None:
            lengths = whole_numbers(self.contexts, "--contexts", least=2)
            if len(set(lengths)) < 2:
                raise BlockPilotError(f"--contexts needs two lengths, got {self.contexts}")
        if self.check and self.repeats < LEAST_ROUNDS:
            raise BlockPilotError(
                f"--check needs --repeats of at least {LEAST_ROUNDS}, to know what steps usually "
                f"take; got {self.repeats}"
            )
        if self.profile is not None and self.sweep is None:
            raise BlockPilotError("--profile re-prices a sweep; name one with --sweep")
        if self.profile is not None and self.check:
            raise BlockPilotError("--check decodes with the pair that it measures; drop --profile")
        for field in fields(self):
            given = getattr(self, field.name) != field.default
            if field.name in CHECK_FLAGS and given and not self.check:
                flag = field.name.replace("_", "-")
                raise BlockPilotError(f"--{flag} says what the check decodes; add --check N")
        out = Path(self.out)
        if self.sweep is None and out.is_dir():
            raise BlockPilotError(f"--out {out} is a folder; name a file for the profile")
        if self.sweep is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise BlockPilotError(f"{out} exists; name a new folder or remove it first")

    def noise_seeds(self) -> tuple[int, ...]:
        """Seeds of the check."""
        return whole_numbers(self.seeds, "--seeds")


def main(argv: Sequence[str] | None = None, *, prog: str | None = None) -> int:
    """Run the command.

    Args:
        argv: Its arguments; None for those of the process.
        prog: Name shown in its help.

    Returns:
        The exit code.
    """
    return run(calibrate, CalibrateConfig, argv, prog=prog)


def calibrate(config: CalibrateConfig) -> None:
    """Measure or read a calibration, say what it is, and save it or re-price a sweep by it.

    Raises:
        BlockPilotError: If an argument, the pair, a prompt, the sweep or the output is not as
            needed.
    """
    check_output(config.out)
    table, traces = None, {}
    if config.sweep is not None:
        folder = BUNDLED_SWEEP if config.sweep == BUNDLED else Path(config.sweep)
        table = Sweep.load(folder)
        traces = load_traces(folder, table) if (folder / TRACE_FILE).exists() else {}
    if config.profile is not None:
        calibration = Calibration.load(config.profile)
        if not calibration.latency.medians:
            raise BlockPilotError(
                f"{config.profile}: latency.medians is empty, so there is no measurement to show; "
                "make a new one with scripts/calibrate.py --out FILE"
            )
    else:
        calibration = _measure(config, table)
    console = open_console(config.out)
    console.print(render(_profile_table(calibration)))
    lines = (
        _describe(calibration),
        _describe_sampling(calibration.latency),
        *_noise_lines(calibration),
        *_check_lines(calibration),
    )
    for line in lines:
        console.print(line, soft_wrap=True)
    if table is None:
        calibration.save(config.out)
    else:
        save_sweep(config.out, reprice(table, calibration), traces)
        console.print(f"{len(table)} rows of {config.sweep} re-priced in {config.out}")


def _measure(config: CalibrateConfig, table: Sweep | None) -> Calibration:
    """Measure this device and, if wished, check the profile on real decodes."""
    dtype = config.dtype or ("bfloat16" if table is None else table.metadata.latency_dtype)
    arms = DEFAULT_ARMS if table is None else table.arms
    if config.arms is not None:
        arms = whole_numbers(config.arms, "--arms")
        lacking = [str(arm) for arm in table.arms if arm not in arms] if table is not None else []
        if lacking:
            raise BlockPilotError(
                f"--arms lacks {', '.join(lacking)} of the sweep's block sizes; add them or leave "
                "--arms out"
            )
    contexts = None if config.contexts is None else whole_numbers(config.contexts, "--contexts")
    decoder = Decoder(load_pair(config.target, config.drafter, dtype, config.device))
    if table is not None and decoder.pair.fingerprint != table.metadata.fingerprint:
        raise BlockPilotError(
            f"the sweep is of {table.metadata.target} with {table.metadata.drafter} "
            f"({table.metadata.fingerprint}), not of {decoder.pair.target_name} with "
            f"{decoder.pair.drafter_name} ({decoder.pair.fingerprint}); name the sweep's pair with "
            "--target and --drafter"
        )
    console = Console(stderr=True)
    prompts = _check_prompts(config, decoder, arms, console) if config.check else []
    with Progress(console=console, disable=not console.is_terminal) as progress:
        if not config.check:
            bar = add_bar(progress, "steps")
            times = time_steps(decoder, arms, contexts, config.repeats, config.seed, bar)
            return Calibration.of(decoder, times.profile(), None)
        profile, check = measure_and_check(
            decoder,
            arms,
            prompts,
            config.check,
            contexts=contexts,
            repeats=config.repeats,
            max_new_tokens=config.max_new_tokens,
            temperature=config.temperature,
            noise_seeds=config.noise_seeds(),
            seed=config.seed,
            progress=add_bar(progress, "decodes"),
        )
    return Calibration.of(decoder, profile, check)


def _check_prompts(
    config: CalibrateConfig, decoder: Decoder, arms: Sequence[int], console: Console
) -> list[torch.Tensor]:
    """Token ids of the prompts that the check may draw, `[1, n]` each.

    Raises:
        BlockPilotError: If they cannot be read, are too long, or too few for the check.
    """
    # A real decode needs room for a block behind the text, too.
    pair, budget = decoder.pair, config.max_new_tokens + max(arms)
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    loaded = config.load_prompts(pair, budget, lambda line: say(f"skipped {line}"), say, say)
    prompts = [pair.encode(prompt.chat()) for prompt in loaded]
    validate_pairs(config.check, len(prompts) * len(config.noise_seeds()), len(arms))
    longest = max(ids.shape[1] for ids in prompts)
    decoder.check_length(longest, config.max_new_tokens, max(arms))
    return prompts


def _profile_table(calibration: Calibration) -> TextTable:
    """Seconds of each pass in the middle of the measured contexts, beside the medians there."""
    profile = calibration.latency
    medians, sizes = profile.medians, profile.block_sizes
    middle = len(medians["contexts"]) // 2
    context = medians["contexts"][middle]
    at = np.array([1.0, context])
    columns = ["block\nsize"]
    cells = [[str(size) for size in sizes]]
    for name, lines in (("draft", profile.draft), ("verify", profile.verify)):
        columns += [f"{name}\nms", "measured\n(95% interval)"]
        bounds = medians.get(f"{name}_intervals")
        cells.append([f"{1e3 * float(np.array(line) @ at):.2f}" for line in lines])
        cells.append(
            [
                _measured(median, None if bounds is None else bounds[middle][index])
                for index, median in enumerate(medians[name][middle])
            ]
        )
    title = f"Time of a pass behind {context} tokens of context, {calibration.dtype}"
    return TextTable(title, columns, [list(row) for row in zip(*cells, strict=True)])


def _measured(median: float, bounds: Sequence[float] | None) -> str:
    if bounds is None:
        return f"{1e3 * median:.2f}"
    return f"{1e3 * median:.2f} ({1e3 * bounds[0]:.2f}, {1e3 * bounds[1]:.2f})"


def _describe(calibration: Calibration) -> str:
    profile = calibration.latency
    cost = profile.token_cost(float(np.mean(profile.medians["contexts"])))
    return (
        f"{calibration.target} with {calibration.drafter} on {calibration.device}: a further token "
        f"of a block costs {cost:.1%} of a plain pass"
    )


def _describe_sampling(profile: LatencyProfile) -> str:
    sizes = (profile.block_sizes[0], profile.block_sizes[-1])
    added = np.sum(profile.sampling.lines(sizes), axis=0) * 1e3
    return (
        f"A temperature adds {added[0]:.2f} ms to a step of block size {sizes[0]}, {added[1]:.2f} "
        f"ms to one of {sizes[1]}, and {1e3 * profile.noise_seconds:.2f} ms for the noise of each "
        "position"
    )


def _noise_lines(calibration: Calibration) -> list[str]:
    medians = calibration.latency.medians
    widths: list[float] = []
    for name in ("draft", "verify"):
        bounds, values = (np.array(medians.get(key, [])) for key in (f"{name}_intervals", name))
        if len(bounds):
            timed = values > 0
            widths.extend(np.diff(bounds)[timed, 0] / values[timed])
    if not widths or np.median(widths) <= WIDE:
        return []
    return [
        f"The intervals are {np.median(widths):.0%} of the medians wide: the machine was busy, so "
        "calibrate again while it does nothing else"
    ]


def _check_lines(calibration: Calibration) -> list[str]:
    check = calibration.check
    if check is None:
        return []
    low, high = check["interval"]
    lines = [
        f"Predicted decode time is off by {check['median_error']:.1%} in the median of "
        f"{check['pairs']} real decodes at temperature {check['temperature']:g} (95% interval "
        f"{low:.1%} to {high:.1%}), bias {check['bias']:+.1%}"
    ]
    if "unadjusted_error" in check:
        lines[0] += (
            ", at the speed that steps beside each had; by "
            f"{check['unadjusted_error']:.1%} at the median speed"
        )
    if check["untimed"]:
        lines.append(f"{check['untimed']} further texts ended with their first token")
    if check["median_error"] > AIM:
        lines.append(
            f"That is more than {AIM:.0%}: calibrate again while the machine does nothing else"
        )
    return lines
