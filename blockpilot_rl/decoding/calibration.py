"""A saved calibration: the latency profile of a pair on a device, and how true it is."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import bootstrap

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.generation import Generation
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.measuring import time_steps
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.files import check_types, read_json, write_json
from blockpilot_rl.provenance import provenance


@dataclass(frozen=True)
class Calibration:
    """What a pair's passes cost on a device.

    Attributes:
        target: Name of the target.
        drafter: Name of the drafter.
        fingerprint: Digest of the pair's configs and weights.
        dtype: Dtype of both models.
        device: The device in words.
        latency: The profile.
        check: Predicted and measured times of real decodes (`Check.to_dict`); None if there were
            none.
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
    def of(cls, decoder: Decoder, latency: LatencyProfile, check: Check | None) -> Calibration:
        """Describe what was measured with a decoder."""
        pair = decoder.pair
        return cls(
            target=pair.target_name,
            drafter=str(pair.drafter_name),
            fingerprint=pair.fingerprint,
            dtype=str(pair.dtype).removeprefix("torch."),
            device=describe_device(pair.device),
            latency=latency,
            check=None if check is None else check.to_dict(),
        )

    @property
    def origin(self) -> dict[str, Any]:
        """What a sweep that is priced by it says of it: the check and the provenance."""
        return {"check": self.check, **self.provenance}

    def save(self, path: str | Path) -> None:
        """Write it as JSON, atomically, or to standard output if the path is "-".

        Raises:
            BlockPilotError: If the file cannot be written.
        """
        write_json(path, self)

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read what `save` wrote.

        Raises:
            BlockPilotError: If the file is missing or is no calibration.
        """
        try:
            values = read_json(path)
        except FileNotFoundError:
            raise BlockPilotError(
                f"no calibration at {path}; make one with scripts/calibrate.py --out {path}"
            ) from None
        names = {item.name for item in fields(cls)}
        if not isinstance(values, dict) or values.keys() != names:
            raise BlockPilotError(
                f"{path} is no calibration: it must have the keys {', '.join(sorted(names))}"
            )
        try:
            latency = LatencyProfile.from_dict(values["latency"])
            check_types(values, cls)
            if latency.medians:  # a profile that was not measured has none
                _check_medians(latency)
            check = None if values["check"] is None else _read_check(values["check"])
        except BlockPilotError as error:
            raise BlockPilotError(
                f"{path}: {error}; make a new one with scripts/calibrate.py --out FILE"
            ) from error
        return cls(**{**values, "latency": latency, "check": check})


@dataclass(frozen=True)
class Decoded:
    """One real decode and what the profile says of it.

    Attributes:
        block_size: Block size of every pass.
        prompt_tokens: Length of the prompt.
        tokens: Tokens emitted behind prefill.
        predicted: Seconds by the profile.
        slowness: How slow the machine was at that moment (`StepTimes.slowness`).
        measured: Seconds by the clock.
    """

    block_size: int
    prompt_tokens: int
    tokens: int
    predicted: float
    slowness: float
    measured: float


@dataclass(frozen=True)
class Check:
    """Real decodes against their predicted times.

    Attributes:
        decodes: A text and a block size each.
        untimed: Further pairs whose text ended with its first token, so that there was no decode.
        temperature: Of all decodes.
    """

    decodes: tuple[Decoded, ...]
    untimed: int = 0
    temperature: float = 0.0

    @property
    def ratios(self) -> np.ndarray:
        """Predicted / measured seconds of each decode, at the machine's speed of that moment.

        A shared machine becomes faster and slower by tens of percent within minutes, which no
        profile can know. What it knows is what a decode costs beside the steps that it sums up.
        """
        return np.array([item.predicted * item.slowness / item.measured for item in self.decodes])

    @property
    def median_error(self) -> float:
        """Median of |predicted / measured - 1|, at the machine's speed of the moment."""
        return float(np.median(np.abs(self.ratios - 1)))

    @property
    def unadjusted_error(self) -> float:
        """The same with the machine taken to be as fast all the time as in the median."""
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
        """Render as JSON-ready values.

        `bias` is the median of predicted / measured - 1, which all block sizes share;
        `by_block_size` tells what they do not share.
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
            "decodes": self.decodes,
        }


def measure_and_check(
    decoder: Decoder,
    block_sizes: Sequence[int],
    prompts: Sequence[torch.Tensor],
    pairs: int,
    *,
    contexts: Sequence[int] | None = None,
    repeats: int = 30,
    max_new_tokens: int = 128,
    temperature: float = 0.0,
    noise_seeds: Sequence[int] = (0,),
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[LatencyProfile, Check]:
    """Measure a profile, decode prompts for real, and compare with what the profile predicts.

    The decodes come between the timed steps, so that each can be compared with what steps cost at
    that moment: a shared machine becomes faster and slower meanwhile. Texts (a prompt with a seed
    of the noise) and block sizes take turns, so that each is used about equally often, and the
    pairs are decoded in random order.

    Args:
        decoder: The decoder.
        block_sizes: Sizes to measure and to decode with, increasing from 1.
        prompts: Token ids of each prompt, `[1, n]`.
        pairs: Number of different pairs of text and block size to decode.
        contexts: Context lengths to measure, as `time_steps` takes them.
        repeats: Rounds of the measurement.
        max_new_tokens: Budget of each decode.
        temperature: To decode at; 0 is greedy.
        noise_seeds: Every prompt is sampled with each of these.
        seed: Of the choice of the pairs and of every order.
        progress: Called with the finished decodes and their total.

    Raises:
        BlockPilotError: If there are fewer pairs than that, every text ends with its first token,
            or `time_steps` refuses the grid.
    """
    texts = list(product(prompts, noise_seeds))
    validate_pairs(pairs, len(texts), len(block_sizes))
    chosen = _pairs(len(texts), len(block_sizes), pairs, np.random.default_rng(seed))
    decoder.warm_up(block_sizes, sampling=Sampling(temperature))
    decoded: list[Generation] = []
    moments: list[int] = []

    def decode_some(step: int, total: int) -> None:
        for text, column in chosen[len(decoded) : pairs * step // total]:
            prompt, noise_seed = texts[text]
            sampling = Sampling(temperature, seed=noise_seed)
            prefill = decoder.prefill(prompt, max_new_tokens, max(block_sizes), sampling)
            decoded.append(decoder.decode(prefill, block_sizes[column]))
            moments.append(step)
            progress(len(decoded), pairs)

    times = time_steps(decoder, block_sizes, contexts, repeats, seed, decode_some)
    profile, decodes = times.profile(), []
    for (text, column), generation, moment in zip(chosen, decoded, moments, strict=True):
        size, length = block_sizes[column], texts[text][0].shape[1]
        emitted = generation.accepted[1:]
        if emitted:
            predicted = profile.decode_seconds(size, length, emitted, temperature > 0)
            slow, measured = times.slowness(moment), generation.decode_seconds
            decodes.append(Decoded(size, length, sum(emitted), predicted, slow, measured))
    if not decodes:
        raise BlockPilotError("every text of the check ended with its first token; nothing to time")
    return profile, Check(tuple(decodes), pairs - len(decodes), temperature)


def validate_pairs(pairs: int, texts: int, sizes: int) -> None:
    """Check that so many different pairs of text and block size can be made.

    Raises:
        BlockPilotError: If not.
    """
    if not 1 <= pairs <= texts * sizes:
        raise BlockPilotError(
            f"{pairs} pairs asked for; {texts} texts and {sizes} block sizes make 1 to "
            f"{texts * sizes}"
        )


def describe_device(device: torch.device) -> str:
    """The device in words: the accelerator's name, or the processor with its threads."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    cpu = provenance()["cpu"] or platform.machine()
    return f"{cpu}, {torch.get_num_threads()} threads"


def _check_medians(profile: LatencyProfile) -> None:
    """Check that the medians are a number for each context length and block size.

    Raises:
        BlockPilotError: If they are not.
    """
    medians = profile.medians
    contexts, sizes = _shape(medians.get("contexts")), len(profile.block_sizes)
    if len(contexts) != 1 or contexts[0] == 0:
        raise BlockPilotError("latency.medians needs contexts, the lengths that were measured")
    shape: tuple[int, ...] = (*contexts, sizes)
    expected: dict[str, tuple[int, ...]] = {"draft": shape, "verify": shape}
    for name in ("draft_intervals", "verify_intervals"):
        if name in medians:
            expected[name] = (*shape, 2)
    for name, needed in expected.items():
        if _shape(medians.get(name)) != needed:
            raise BlockPilotError(
                f"latency.medians.{name} needs numbers in the shape {list(needed)}, by context "
                "length and block size"
            )


def _shape(values: Any) -> tuple[int, ...]:
    """Shape of nested lists of numbers; empty if they are something else."""
    try:
        array = np.array(values)
    except ValueError:
        return ()
    return array.shape if np.issubdtype(array.dtype, np.number) else ()


def _read_check(values: Any) -> dict[str, Any]:
    """Read what `Check.to_dict` gave from JSON, where the interval of a single decode is null.

    Raises:
        BlockPilotError: If it is something else.
    """
    try:
        low, high = (float("nan") if end is None else float(end) for end in values["interval"])
        read = {**values, "interval": [low, high]}
        read |= {name: float(values[name]) for name in ("median_error", "bias", "temperature")}
        if "unadjusted_error" in values:  # checks of former versions allowed for no drift
            read["unadjusted_error"] = float(values["unadjusted_error"])
        read |= {name: int(values[name]) for name in ("pairs", "untimed")}
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise BlockPilotError(
            f"check is not that of a profile: {type(error).__name__}: {one_line(error)}"
        ) from error
    return read


def _pairs(texts: int, sizes: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw `count` different (text, size) pairs in random order, `[count, 2]`.

    Round r gives the k-th text of a random order the size `k + r`, so a text and a size are met
    about equally often and no pair comes twice.
    """
    order, names = rng.permutation(texts), rng.permutation(sizes)
    turn, place = np.divmod(np.arange(count), texts)
    drawn = np.stack([order[place], names[(place + turn) % sizes]], axis=1)
    return np.asarray(rng.permutation(drawn))
