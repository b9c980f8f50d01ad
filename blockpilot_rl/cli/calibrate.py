"""`calibrate`: measure the cost of passes on this device, and re-price recorded sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

import torch
from rich.console import Console

from blockpilot_rl.cli.console import command, open_console, open_messages, render, show_progress
from blockpilot_rl.cli.flags import device_option, drafter_option, target_option
from blockpilot_rl.cli.prompt_flags import PromptFlags
from blockpilot_rl.decoding.calibration import (
    Calibration,
    CalibrationConfig,
    calibrate,
    validate_decodes,
)
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.latency import DEFAULT_ARMS
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import check_output
from blockpilot_rl.models.pairs import load_pair, parse_dtype
from blockpilot_rl.options import changed_options, option
from blockpilot_rl.progress import ProgressCallback
from blockpilot_rl.reports.calibration_tables import calibration_table, describe_calibration
from blockpilot_rl.sweeps.reprice import reprice_folder
from blockpilot_rl.sweeps.table import BUNDLED_SWEEP, Sweep

BUNDLED = "bundled"
CHECK_FLAGS = (
    *(field.name for field in fields(PromptFlags)),
    "temperature",
    "seeds",
    "max_new_tokens",
)
"""Flags that only affect the real decodes of --check."""

MEASURING_FLAGS = ("arms", "contexts", "repeats", "seed", "target", "drafter", "dtype", "device")
"""Flags that only affect a measurement."""


@dataclass(frozen=True, kw_only=True)
class CalibrateConfig(PromptFlags, CalibrationConfig):
    """Measure the cost of drafting and verifying on this device.

    The result is kept in the cache, where `generate` and `block_pilot` find it for acceptance
    policies. --out writes it to a file too.

    With --sweep, a recorded sweep is re-priced for this device, or by a saved profile, without
    decoding anything; --out is then a folder.
    """

    builtin_size: ClassVar[int] = 200

    out: str | None = option(
        None,
        metavar="FILE|DIR",
        help="file of the profile, or folder of the new sweep (default: the cache alone)",
    )
    sweep: str | None = option(
        None, metavar="DIR", help=f"re-price this sweep; `{BUNDLED}` is the bundled one"
    )
    profile: str | None = option(
        None, metavar="FILE", help="re-price by this saved profile instead of measuring one"
    )
    limit: int | None = option(
        None,
        help="number of prompts that the check may draw: of the built-in suite (default: 200), or "
        "from the start of --prompts",
    )
    arms: tuple[int, ...] | None = option(  # type: ignore[assignment]
        None, metavar="1,B,…", help="block sizes to measure (default: the sweep's, or 1 to 16)"
    )
    target: str | None = target_option()
    drafter: str | None = drafter_option()
    dtype: str | None = option(
        None, help="dtype of the timed passes (default: the sweep's, or bfloat16)"
    )
    device: str = device_option()

    def __post_init__(self) -> None:
        """Check the values, and that each of them has an effect.

        Raises:
            BlockPilotError: If a value is out of range, or has no effect together with the others.
        """
        PromptFlags.__post_init__(self)
        self.calibration(self.arms or DEFAULT_ARMS)
        if self.dtype is not None:
            parse_dtype(self.dtype)
        if self.profile is not None and self.sweep is None:
            raise BlockPilotError("--profile re-prices a sweep; name one with --sweep")
        if self.profile is not None and self.check:
            raise BlockPilotError("--check decodes with the pair that it measures; drop --profile")
        for name in changed_options(self):
            if name in CHECK_FLAGS and not self.check:
                raise BlockPilotError(f"{name} only affects the check; add --check N")
            if name in MEASURING_FLAGS and self.profile is not None:
                raise BlockPilotError(
                    f"{name} only affects a measurement; drop it, or drop --profile"
                )
        if self.out is None:
            if self.sweep is not None:
                raise BlockPilotError("--sweep writes a new sweep; name its folder with --out")
            return
        out = Path(self.out)
        if self.sweep is None and out.is_dir():
            raise BlockPilotError(f"--out {out} is a folder; name a file for the profile")
        if self.sweep is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise BlockPilotError(f"{out} exists; name a new folder or remove it first")

    def calibration(self, arms: Sequence[int]) -> CalibrationConfig:
        """The library's config, for these block sizes.

        Raises:
            BlockPilotError: If a value is out of range.
        """
        names = [field.name for field in fields(CalibrationConfig) if field.name != "arms"]
        values = {name: getattr(self, name) for name in names}
        return CalibrationConfig(arms=tuple(arms), **values)

    @property
    def sweep_folder(self) -> Path | None:
        """Folder of the sweep to re-price."""
        if self.sweep is None:
            return None
        return BUNDLED_SWEEP if self.sweep == BUNDLED else Path(self.sweep)


def run_calibrate(config: CalibrateConfig) -> None:
    """Measure or read a calibration, save it or re-price a sweep by it, and print it.

    Raises:
        BlockPilotError: If an argument, the pair, a prompt, the sweep or the output is not usable.
    """
    check_output(config.out)
    folder = config.sweep_folder
    sweep = None if folder is None else Sweep.load(folder)
    if config.profile is None:
        calibration = _measure(config, sweep)
    else:
        calibration = Calibration.load(config.profile)
        if not calibration.latency.medians:
            raise BlockPilotError(
                f"{config.profile}: latency.medians is empty, so there is no measurement to show; "
                "make a new one with `blockpilot calibrate --out FILE`"
            )
    if config.out is not None:
        if folder is None:
            calibration.save(config.out)
        else:
            sweep = reprice_folder(folder, config.out, calibration)
    kept = calibration.keep() if config.profile is None else None
    console = open_console(config.out)
    console.print(render(calibration_table(calibration)))
    for line in describe_calibration(calibration):
        console.print(line, soft_wrap=True)
    if kept is not None:
        console.print(f"kept for policies in {kept}", soft_wrap=True)
    if sweep is not None:
        console.print(f"{len(sweep)} rows of {config.sweep} re-priced in {config.out}")


main = command(run_calibrate, CalibrateConfig)


def _measure(config: CalibrateConfig, sweep: Sweep | None) -> Calibration:
    """Measure this device and, with --check, compare the profile with real decodes."""
    dtype = config.dtype or ("bfloat16" if sweep is None else sweep.metadata.latency_dtype)
    arms = config.arms or (DEFAULT_ARMS if sweep is None else sweep.arms)
    lacking = [str(arm) for arm in sweep.arms if arm not in arms] if sweep is not None else []
    if lacking:
        raise BlockPilotError(
            f"--arms lacks {', '.join(lacking)} of the sweep's block sizes; add them or leave "
            "--arms out"
        )
    pair = load_pair(
        config.target, config.drafter, dtype, config.device, completion=config.completion
    )
    decoder = Decoder(pair)
    if sweep is not None and pair.fingerprint != sweep.metadata.fingerprint:
        raise BlockPilotError(
            f"the sweep is of {sweep.metadata.target} with {sweep.metadata.drafter} "
            f"({sweep.metadata.fingerprint}), not of {pair.target_name} with {pair.drafter_name} "
            f"({pair.fingerprint}); name the sweep's pair with --target and --drafter"
        )
    console = open_messages()
    with show_progress(console) as progress:
        prompts: list[torch.Tensor] = []
        if config.check:
            prompts = _check_prompts(config, decoder, arms, console, progress)
        return calibrate(decoder, config.calibration(arms), prompts=prompts, progress=progress)


def _check_prompts(
    config: CalibrateConfig,
    decoder: Decoder,
    arms: Sequence[int],
    console: Console,
    progress: ProgressCallback,
) -> list[torch.Tensor]:
    """Token ids of the prompts that the check may draw, `[1, n]` each.

    Raises:
        BlockPilotError: If the prompts cannot be read, are too long, or too few for the check.
    """
    # A real decode also needs room for a block after the text.
    pair, budget = decoder.pair, config.max_new_tokens + max(arms)
    loaded = config.load_prompts(
        pair,
        budget,
        lambda line: console.print(f"skipped {line}"),
        lambda turns: console.print(str(turns)),
        console.print,
        progress,
    )
    prompts = [pair.encode(prompt.chat()) for prompt in loaded]
    validate_decodes(config.check, len(prompts) * len(config.seeds), len(arms))
    longest = max(ids.shape[1] for ids in prompts)
    decoder.check_length(longest, config.max_new_tokens, max(arms))
    return prompts
