"""Calibration: measure what a pair's passes cost on a device, and check it on real decodes."""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import bootstrap

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.generation import Generation
from blockpilot_rl.decoding.latency import (
    DEFAULT_ARMS,
    LatencyProfile,
    possible_seconds,
    validate_arms,
)
from blockpilot_rl.decoding.measuring import time_steps
from blockpilot_rl.decoding.sampling import Sampling, validate_seeds
from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.files import check_types, number, read_json, whole_number, write_json
from blockpilot_rl.models.default_target import cache_folder
from blockpilot_rl.models.pairs import Pair
from blockpilot_rl.options import check_options, option
from blockpilot_rl.progress import ProgressCallback, no_progress
from blockpilot_rl.provenance import provenance

CALIBRATIONS_VARIABLE = "BLOCKPILOT_CALIBRATIONS"
"""Environment variable that names another folder for kept calibrations."""

LEAST_ROUNDS_OF_A_CHECK = 3
"""Rounds needed to know the usual time of a step, which real decodes are compared with."""


@dataclass(frozen=True, kw_only=True)
class CalibrationConfig:
    """What `calibrate` measures.

    Attributes:
        arms: Block sizes to measure, increasing from 1.
        contexts: Context lengths to measure, in tokens; None for four up to 1024.
        repeats: Rounds over all block sizes and context lengths.
        check: Real decodes to compare with the profile; 0 for none.
        max_new_tokens: Budget of each real decode.
        temperature: Temperature of the real decodes; 0 is greedy.
        seeds: Each prompt of the real decodes is sampled with each of these seeds.
        seed: Random seed of the order of all measurements, and of the choice of real decodes.
    """

    arms: tuple[int, ...] = option(DEFAULT_ARMS, help="block sizes to measure")
    contexts: tuple[int, ...] | None = option(
        None, help="context lengths to measure (default: four up to 1024)"
    )
    repeats: int = option(30, minimum=1, help="rounds over all block sizes and contexts")
    check: int = option(0, minimum=0, help="real decodes to compare with the profile")
    max_new_tokens: int = option(128, minimum=2, help="budget of each real decode")
    temperature: float = option(0.0, minimum=0, help="temperature of the real decodes")
    seeds: tuple[int, ...] = option((0,), help="sample each prompt with each of these seeds")
    seed: int = option(0, minimum=0, below=2**32, help="random seed of the order of measurements")

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If a value is out of range.
        """
        check_options(self)
        validate_arms(self.arms)
        validate_seeds(Sampling(self.temperature), self.seeds)
        if self.contexts is not None:
            listed = ", ".join(map(str, self.contexts))
            if any(length < 2 for length in self.contexts):
                raise BlockPilotError(f"contexts must be at least 2 each, not {listed}")
            if len(set(self.contexts)) < 2:
                raise BlockPilotError(f"contexts needs two lengths, got {listed}")
        if self.check and self.repeats < LEAST_ROUNDS_OF_A_CHECK:
            raise BlockPilotError(
                f"check needs repeats of at least {LEAST_ROUNDS_OF_A_CHECK}, to know what steps "
                f"usually take; got {self.repeats}"
            )


def calibrate(
    model: Pair | Decoder,
    config: CalibrationConfig | None = None,
    *,
    prompts: Sequence[torch.Tensor] = (),
    progress: ProgressCallback | None = None,
) -> Calibration:
    """Measure a pair's latency profile on its device.

    Args:
        model: The pair, or a decoder of it. Its dtype and device are the ones that are measured.
        config: What to measure; None for the defaults.
        prompts: Token ids of prompts, `[1, n]` each, for `config.check` real decodes.
        progress: Called with the task (`"steps"` or `"decodes"`), the steps done and their total.

    Returns:
        The calibration, which prices sweeps (`record_sweep`, `reprice`) and can be saved.

    Raises:
        BlockPilotError: If there are too few prompts for the check, all texts end with their first
            token, or a context length does not fit the models.
    """
    config = config or CalibrationConfig()
    report = progress or no_progress
    decoder = model if isinstance(model, Decoder) else Decoder(model)
    if config.check:
        profile, check = measure_and_check(decoder, prompts, config, report)
        return Calibration.from_decoder(decoder, profile, check)
    steps = partial(report, "steps")
    steps(0, None)
    times = time_steps(
        decoder, config.arms, config.contexts, config.repeats, config.seed, after_step=steps
    )
    return Calibration.from_decoder(decoder, times.profile())


@dataclass(frozen=True)
class Calibration:
    """The measured cost of a pair's passes on a device.

    Attributes:
        target: Name of the target.
        drafter: Name of the drafter.
        fingerprint: Digest of the pair's configs and weights.
        dtype: Dtype of both models.
        device: Name of the device.
        latency: The latency profile.
        check: Predicted and measured times of real decodes (`Check.to_dict`), or None.
        provenance: Command, versions, git SHA, machine, date.
    """

    target: str
    drafter: str
    fingerprint: str
    dtype: str
    device: str
    latency: LatencyProfile
    check: dict[str, Any] | None = None
    provenance: dict[str, Any] = field(default_factory=provenance)

    @classmethod
    def from_decoder(
        cls, decoder: Decoder, latency: LatencyProfile, check: Check | None = None
    ) -> Calibration:
        """Make the calibration of a decoder's pair from its measurements."""
        pair = decoder.pair
        return cls(
            target=pair.target_name,
            drafter=str(pair.drafter_name),
            fingerprint=pair.fingerprint,
            dtype=name_dtype(pair.dtype),
            device=describe_device(pair.device),
            latency=latency,
            check=None if check is None else check.to_dict(),
        )

    def keep(self) -> Path:
        """Keep the calibration in the cache, where policies find it; see `find_calibration`.

        Returns:
            Its file.

        Raises:
            BlockPilotError: If the file cannot be written.
        """
        path = _kept_path(self.fingerprint, self.device, self.dtype)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BlockPilotError(
                f"cannot create the folder {path.parent} for calibrations ({error.strerror}); name "
                f"another one with {CALIBRATIONS_VARIABLE}"
            ) from error
        self.save(path)
        return path

    @property
    def origin(self) -> dict[str, Any]:
        """The check and the provenance, which a sweep priced by this calibration records."""
        return {"check": self.check, **self.provenance}

    def check_pair(self, fingerprint: str, target: str, drafter: str) -> None:
        """Check that the calibration belongs to a pair.

        Args:
            fingerprint: The pair's fingerprint.
            target: Name of its target.
            drafter: Name of its drafter.

        Raises:
            BlockPilotError: If the calibration belongs to another pair.
        """
        if self.fingerprint != fingerprint:
            raise BlockPilotError(
                f"the latency profile is of {self.target} with {self.drafter} "
                f"({self.fingerprint}), not of {target} with {drafter} ({fingerprint}); run "
                "`blockpilot calibrate` with the same target and drafter"
            )

    def save(self, path: str | Path) -> None:
        """Write the calibration as JSON, atomically, or to standard output if the path is "-".

        Raises:
            BlockPilotError: If the file cannot be written.
        """
        write_json(path, self)

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read a calibration that `save` wrote.

        Raises:
            BlockPilotError: If the file is missing, not a calibration, or holds impossible values.
        """
        try:
            values = read_json(path)
        except FileNotFoundError:
            raise BlockPilotError(
                f"no calibration at {path}; make one with `blockpilot calibrate --out {path}`"
            ) from None
        names = {item.name for item in fields(cls)}
        if not isinstance(values, dict) or values.keys() != names:
            raise BlockPilotError(
                f"{path} is not a calibration: it must have the keys {', '.join(sorted(names))}"
            )
        try:
            latency = LatencyProfile.from_dict(values["latency"])
            latency.check_medians()
            check_types(values, cls)
            check = None if values["check"] is None else _read_check(values["check"])
        except BlockPilotError as error:
            raise BlockPilotError(
                f"{path}: {error}; make a new one with `blockpilot calibrate --out FILE`"
            ) from error
        return cls(**{**values, "latency": latency, "check": check})


@dataclass(frozen=True)
class Decoded:
    """One real decode and the profile's prediction.

    Attributes:
        block_size: Block size of every pass.
        prompt_tokens: Length of the prompt.
        tokens: Tokens emitted after prefill.
        predicted: Predicted seconds.
        slowness: How slow the machine was at that moment (`StepTimes.slowness`).
        measured: Measured seconds.
    """

    block_size: int
    prompt_tokens: int
    tokens: int
    predicted: float
    slowness: float
    measured: float


@dataclass(frozen=True)
class Check:
    """Real decodes compared with their predicted times.

    Attributes:
        decodes: The decodes, each of one text with one block size.
        untimed: Decodes without a time, because the text ended with its first token.
        temperature: Temperature of all decodes.
    """

    decodes: tuple[Decoded, ...]
    untimed: int = 0
    temperature: float = 0.0

    @property
    def ratios(self) -> np.ndarray:
        """Predicted / measured seconds of each decode, adjusted for the machine's speed.

        The speed of a shared machine changes by tens of percent within minutes, which no profile
        can predict. The adjustment leaves what a profile can predict: the time of a decode relative
        to the steps that were timed at the same moment.
        """
        return np.array([item.predicted * item.slowness / item.measured for item in self.decodes])

    @property
    def median_error(self) -> float:
        """Median of |predicted / measured - 1|, adjusted for the machine's speed."""
        return float(np.median(np.abs(self.ratios - 1)))

    @property
    def unadjusted_error(self) -> float:
        """The same without the adjustment."""
        ratios = np.array([item.predicted / item.measured for item in self.decodes])
        return float(np.median(np.abs(ratios - 1)))

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Bootstrap interval of the median error; NaN for a single decode."""
        if len(self.decodes) < 2:
            return float("nan"), float("nan")
        found = bootstrap(
            (np.abs(self.ratios - 1),),
            np.median,
            confidence_level=confidence,
            method="percentile",
            rng=np.random.default_rng(0),
        ).confidence_interval
        return float(found.low), float(found.high)

    def to_dict(self) -> dict[str, Any]:
        """Return the check as plain JSON values.

        `bias` is the median of predicted / measured - 1 over all block sizes, `by_block_size` the
        same for each of them.
        """
        sizes = np.array([item.block_size for item in self.decodes])
        return {
            "pairs": len(self.decodes),
            "untimed": self.untimed,
            "temperature": self.temperature,
            "median_error": self.median_error,
            "interval": list(self.interval()),
            "unadjusted_error": self.unadjusted_error,
            "bias": float(np.median(self.ratios) - 1),
            "by_block_size": {
                int(size): float(np.median(self.ratios[sizes == size]) - 1)
                for size in np.unique(sizes)
            },
            "decodes": [asdict(item) for item in self.decodes],
        }


def measure_and_check(
    decoder: Decoder,
    prompts: Sequence[torch.Tensor],
    config: CalibrationConfig,
    progress: ProgressCallback = no_progress,
) -> tuple[LatencyProfile, Check]:
    """Measure a profile and compare its predictions with real decodes.

    The decodes are spread between the timed steps, so that each is compared with the speed that the
    machine had at that moment. Each (text, block size) is decoded at most once, in random order;
    texts and block sizes are used about equally often. A text is a prompt with a seed.

    Args:
        decoder: The decoder.
        prompts: Token ids of each prompt, `[1, n]`.
        config: What to measure; `check` is the number of decodes.
        progress: Called with `"decodes"`, the finished decodes and their total.

    Raises:
        BlockPilotError: If there are too few texts, all texts end with their first token, or a
            context length does not fit the models.
    """
    texts = list(product(prompts, config.seeds))
    arms, count, temperature = config.arms, config.check, config.temperature
    validate_decodes(count, len(texts), len(arms))
    chosen = _choose_decodes(len(texts), len(arms), count, np.random.default_rng(config.seed))
    progress("decodes", 0, count)
    decoder.warm_up(arms, sampling=Sampling(temperature))
    decoded: list[Generation] = []
    moments: list[int] = []

    def decode_some(step: int, total: int) -> None:
        for text, column in chosen[len(decoded) : count * step // total]:
            prompt, seed = texts[text]
            sampling = Sampling(temperature, seed=seed)
            prefill = decoder.prefill(prompt, config.max_new_tokens, max(arms), sampling)
            decoded.append(decoder.decode(prefill, arms[column]))
            moments.append(step)
            progress("decodes", len(decoded), count)

    times = time_steps(
        decoder, arms, config.contexts, config.repeats, config.seed, after_step=decode_some
    )
    profile, decodes = times.profile(), []
    for (text, column), generation, moment in zip(chosen, decoded, moments, strict=True):
        size, length = arms[column], texts[text][0].shape[1]
        emitted = generation.accepted[1:]
        if emitted:
            predicted = profile.decode_seconds(
                size, length, emitted, temperature > 0, config.max_new_tokens
            )
            slow, measured = times.slowness(moment), generation.decode_seconds
            decodes.append(Decoded(size, length, sum(emitted), predicted, slow, measured))
    if not decodes:
        raise BlockPilotError("every text of the check ended with its first token; nothing to time")
    return profile, Check(tuple(decodes), count - len(decodes), temperature)


def calibrations_folder() -> Path:
    """Folder of kept calibrations: `$BLOCKPILOT_CALIBRATIONS`, or one in the cache folder."""
    configured = os.environ.get(CALIBRATIONS_VARIABLE)
    return Path(configured) if configured else cache_folder() / "calibrations"


def find_calibration(pair: Pair) -> tuple[Path, Calibration] | None:
    """Find the kept calibration of a pair on its device, in its dtype and with as many threads.

    Returns:
        Its file and the calibration; None if there is none.

    Raises:
        BlockPilotError: If the file is damaged.
    """
    path = _kept_path(pair.fingerprint, describe_device(pair.device), name_dtype(pair.dtype))
    if not path.exists():
        return None
    calibration = Calibration.load(path)
    calibration.check_pair(pair.fingerprint, pair.target_name, str(pair.drafter_name))
    return path, calibration


def _kept_path(fingerprint: str, device: str, dtype: str) -> Path:
    """File of a kept calibration. The name of a CPU includes the number of threads."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{fingerprint} {device} {dtype}".lower()).strip("-")
    return calibrations_folder() / f"{name}.json"


def name_dtype(dtype: torch.dtype) -> str:
    """Name a dtype as in a calibration, such as `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def validate_decodes(count: int, texts: int, sizes: int) -> None:
    """Check that there are enough texts for a number of different decodes.

    Raises:
        BlockPilotError: If there are too few.
    """
    if not 1 <= count <= texts * sizes:
        raise BlockPilotError(
            f"{count} pairs asked for; {texts} texts and {sizes} block sizes make 1 to "
            f"{texts * sizes}"
        )


def describe_device(device: torch.device) -> str:
    """Name a device: the accelerator, or the processor with its number of threads."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    cpu = provenance()["cpu"] or platform.machine()
    return f"{cpu}, {torch.get_num_threads()} threads"


def _field(values: Any, name: str, convert: Callable[[Any], float]) -> float:
    """Convert one value of a JSON object; an error names the value."""
    try:
        return convert(values[name])
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error


def _read_check(values: Any) -> dict[str, Any]:
    """Read the values of `Check.to_dict` from JSON, where the interval of one decode is null.

    Raises:
        BlockPilotError: If a value is missing, has the wrong type or is impossible.
    """
    try:
        low, high = (math.nan if end is None else number(end) for end in values["interval"])
        read = {**values, "interval": [low, high]}
        numbers = ["median_error", "bias", "temperature"]
        if "unadjusted_error" in values:  # absent in calibrations of early versions
            numbers.append("unadjusted_error")
        read |= {name: _field(values, name, number) for name in numbers}
        read |= {name: _field(values, name, whole_number) for name in ("pairs", "untimed")}
        for index, item in enumerate(values.get("decodes", [])):
            times = [number(item[name]) for name in ("predicted", "measured")]
            if whole_number(item["tokens"]) < 1 or not possible_seconds(times).all():
                raise ValueError(f"decode {index} has no tokens or an impossible time")
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise BlockPilotError(
            f"check is not the check of a profile: {type(error).__name__}: {one_line(error)}"
        ) from error
    return read


def _choose_decodes(texts: int, sizes: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw `count` different (text, block size) combinations in random order, `[count, 2]`.

    In round r, the k-th text of a random order gets the block size `k + r`. So texts and block
    sizes are used about equally often, and no combination comes twice.
    """
    order, names = rng.permutation(texts), rng.permutation(sizes)
    turn, place = np.divmod(np.arange(count), texts)
    drawn = np.stack([order[place], names[(place + turn) % sizes]], axis=1)
    return np.asarray(rng.permutation(drawn))
