"""Recording a sweep: answer, replay, price and save, resuming unfinished work.

Unfinished work is in `OUT.partial`. It is removed when the sweep is written, its claim last, so
that a recording that is killed at that moment can be resumed too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from blockpilot_rl.decoding.calibration import Calibration, describe_device
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.latency import LatencyProfile
from blockpilot_rl.decoding.measuring import time_steps
from blockpilot_rl.decoding.sampling import Sampling, validate_seeds
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import locked, remove_leftovers
from blockpilot_rl.models.pairs import Pair, check_device, load_pair, parse_dtype
from blockpilot_rl.options import option
from blockpilot_rl.progress import ProgressCallback, no_progress
from blockpilot_rl.prompts import Prompt, builtin_suite
from blockpilot_rl.sweeps.assemble import assemble, check_calibration, measure_rows
from blockpilot_rl.sweeps.continuations import ContinuationStore
from blockpilot_rl.sweeps.ray_engine import RayConfig, record_on_ray
from blockpilot_rl.sweeps.shards import CLAIM_FILE, Recording, SweepConfig
from blockpilot_rl.sweeps.table import Sweep
from blockpilot_rl.sweeps.traces import save_sweep

PairLoader = Callable[..., Pair]
"""Loads a pair with the keyword arguments `dtype` and `device`, such as `load_pair`."""

PromptLoader = Callable[[Pair], Sequence[Prompt]]
"""Reads prompts for a loaded pair, so that they can be checked against its length."""

ANSWERS = "continuations"
"""Folder of the target's answers in OUT.partial."""

DEFAULT_PROMPTS = 2000
"""Prompts of the built-in suite that are recorded by default."""

_DTYPE, _LATENCY_DTYPE, _DEVICE, _REPEATS = "float32", "bfloat16", "cpu", 30
_OWN_FILES = re.compile(
    r"(\.[0-9a-f]{8}-)?((shard|trace)-\d{5}\.(parquet|safetensors)|latency-\w+\.json"
    rf"|continuations\.json|{re.escape(CLAIM_FILE)})"
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RecordingConfig(SweepConfig):
    """What `record_sweep` records, and how it predicts the seconds.

    Attributes:
        temperature: Sampling temperature; 0 is greedy.
        top_k: Sample among this many most probable tokens; 0 is all.
        top_p: Sample among the tokens that hold this much probability.
        seeds: Every prompt is sampled once with each seed.
        dtype: Dtype of the answers; None for float32, or the dtype of a pair that is loaded.
        latency_dtype: Dtype of the timed passes; None for bfloat16, or the dtype of a pair that is
            loaded.
        device: Device of the answers and timed passes; None for the CPU, or the device of a pair
            that is loaded.
        profile: File of a saved calibration that predicts the seconds; None measures one.
        repeats: Rounds of the measured latency profile; None for 30.
        measure: Number of rows to decode with every block size, to check the predicted seconds.
        seed: Random seed of the order in which passes are timed; None for 0.
        continuations: Folder that keeps the target's answers for other drafters.
        engine: Record in this process (`"local"`) or on a Ray cluster (`"ray"`).
        workers: Number of Ray workers; None for one per CPU or GPU.
        ray_address: Address of the Ray cluster; None for the one that Ray finds or starts.
    """

    temperature: float = option(0.0, minimum=0, help="sampling temperature; 0 is greedy")
    top_k: int = option(0, minimum=0, help="sample among this many most probable tokens; 0 is all")
    top_p: float = option(1.0, help="sample among the tokens that hold this much probability")
    seeds: tuple[int, ...] = option(
        (0,), metavar="0,1,…", help="sample every prompt once with each of these seeds"
    )
    dtype: str | None = option(
        None, help="dtype of the answers: float32, bfloat16 or float16 (default: float32)"
    )
    latency_dtype: str | None = option(None, help="dtype of the timed passes (default: bfloat16)")
    device: str | None = option(None, help="where both models run (default: cpu)")
    profile: str | None = option(
        None,
        metavar="FILE",
        help="take this latency profile, saved by calibrate, instead of measuring one",
    )
    repeats: int | None = option(
        None, minimum=1, help="rounds of the measured latency profile (default: 30)"
    )
    measure: int = option(
        0, minimum=0, help="rows to decode with every block size, to check the predicted times"
    )
    seed: int | None = option(
        None,
        minimum=0,
        below=2**32,
        help="random seed of the order in which passes are timed (default: 0)",
    )
    continuations: str | None = option(
        None, metavar="DIR", help="folder that keeps the target's answers for other drafters"
    )
    engine: Literal["local", "ray"] = option(
        "local", choices=("local", "ray"), help="record in this process, or on a Ray cluster"
    )
    workers: int | None = option(
        None,
        minimum=1,
        help="Ray workers, each with a copy of the pair (default: one per CPU or GPU)",
    )
    ray_address: str | None = option(
        None,
        help="Ray cluster, as ray.init takes it (default: one that Ray finds, else this machine)",
    )

    def __post_init__(self) -> None:
        """Check the values, and that each of them has an effect.

        Raises:
            BlockPilotError: If a value is out of range, or has no effect together with the others.
        """
        super().__post_init__()
        validate_seeds(self.sampling, self.seeds)
        for dtype in (self.dtype, self.latency_dtype):
            if dtype is not None:
                parse_dtype(dtype)
        if self.temperature == 0 and (self.top_k, self.top_p) != (0, 1.0):
            raise BlockPilotError("top_k and top_p have no effect on greedy answers; drop them")
        self._check_timing()
        self._check_engine()

    @property
    def sampling(self) -> Sampling:
        """How tokens are chosen, without the seed."""
        return Sampling(self.temperature, self.top_k, self.top_p)

    def _check_timing(self) -> None:
        if self.profile is None:
            return
        for name, value in (("repeats", self.repeats), ("latency_dtype", self.latency_dtype)):
            if value is not None:
                raise BlockPilotError(
                    f"{name} is for measuring a latency profile; drop it, or drop profile"
                )
        if self.seed is not None and not self.measure:
            raise BlockPilotError(
                "seed orders timed passes, and with profile none are timed; drop seed, or add "
                "measure"
            )

    def _check_engine(self) -> None:
        if self.engine == "local":
            for name, value in (("workers", self.workers), ("ray_address", self.ray_address)):
                if value is not None:
                    raise BlockPilotError(f"{name} needs engine ray")
        elif self.device not in (None, "cpu", "cuda"):
            raise BlockPilotError(
                f"engine ray gives each worker its own slot, so device is cpu or cuda, not "
                f"{self.device}"
            )


def record_sweep(
    out: str | Path,
    config: RecordingConfig | None = None,
    *,
    prompts: Sequence[Prompt | str] | PromptLoader | None = None,
    pair: Pair | PairLoader | None = None,
    origin: Mapping[str, Any] | None = None,
    progress: ProgressCallback | None = None,
) -> Sweep:
    """Record the outcome of every block size on many prompts.

    The target answers each prompt once, all block sizes are replayed from its answer, and a latency
    profile predicts their seconds. If the recording is interrupted, the same call resumes it.

    Args:
        out: Folder of the sweep. Unfinished work is in `OUT.partial`.
        config: What to record; None for the defaults.
        prompts: The prompts, as texts or `Prompt`s, or a function that reads them for the loaded
            pair. None takes 2000 prompts of the built-in suite (without its drafter split).
        pair: A loaded pair, whose dtype and device are then used for answers and timed passes, or a
            function that loads it with `dtype` and `device`. None loads the default pair.
        origin: Further provenance, as plain JSON values. It is read when the sweep is written.
        progress: Called with the task, the steps done and their total.

    Returns:
        The sweep, which is also written to `out` with its traces.

    Raises:
        BlockPilotError: If an option, the pair, a prompt or the output is not usable, unfinished
            work has other options, or another process is recording to `out`.

    Example:
        >>> pair = load_pair()
        >>> sweep = record_sweep("my-sweep", prompts=["Write a haiku."] , pair=pair)
        >>> sweep.speedups.mean(axis=0)
    """
    config, report = config or RecordingConfig(), progress or no_progress
    folder = Path(out)
    check_vacant(folder, resumable=True)
    with locked(folder):
        check_vacant(folder, resumable=True)
        recording, calibration = _open(folder, config, prompts, pair, report)
        if _holds_something(folder):
            sweep = _load_finished(folder, recording, calibration, config)
        else:
            sweep = _record(recording, calibration, config, pair, origin or {}, report)
            remove_leftovers([folder])
            save_sweep(folder, sweep, recording.traces(sweep))
        remove_unfinished(recording.folder)
    return sweep


def answer_prompts(
    out: str | Path,
    part: tuple[int, int],
    config: RecordingConfig | None = None,
    *,
    prompts: Sequence[Prompt | str] | PromptLoader | None = None,
    pair: Pair | PairLoader | None = None,
    progress: ProgressCallback | None = None,
) -> None:
    """Answer a part of the prompts of a recording, so that several processes share the work.

    `record_sweep` with the same arguments finishes the recording.

    Args:
        out: Folder of the sweep.
        part: Index, from 0, and number of parts.
        config: What to record; None for the defaults.
        prompts: The prompts; see `record_sweep`.
        pair: The pair; see `record_sweep`.
        progress: Called with the task, the steps done and their total.

    Raises:
        BlockPilotError: If an option, the pair, a prompt or the output is not usable, unfinished
            work has other options, or another process answers the same part.
    """
    config, report = config or RecordingConfig(), progress or no_progress
    if config.engine == "ray":
        raise BlockPilotError("engine ray distributes the work itself; drop part")
    folder = Path(out)
    check_vacant(folder, resumable=False)
    with locked(folder.with_name(f"{folder.name}.part-{part[0] + 1}-of-{part[1]}")):
        recording, _ = _open(folder, config, prompts, pair, report)
        recording.claim()
        _answer(recording, part, report)


def check_vacant(out: Path, *, resumable: bool) -> None:
    """Check, before any work, that a sweep can be written to a folder.

    Args:
        out: The folder.
        resumable: Whether a finished sweep may be there whose unfinished work has not been removed.

    Raises:
        BlockPilotError: If the folder holds something else, or `OUT.partial` is something else.
    """
    unfinished = unfinished_folder(out)
    claimed = (unfinished / CLAIM_FILE).exists()
    if _holds_something(out) and not (resumable and claimed):
        raise _taken(out)
    marks = (CLAIM_FILE, ANSWERS)
    if _holds_something(unfinished) and not any((unfinished / mark).exists() for mark in marks):
        raise BlockPilotError(
            f"{unfinished} is needed for unfinished work but holds something else; move it away or "
            "name another folder for the sweep"
        )


def unfinished_folder(out: Path) -> Path:
    """Folder of the unfinished work of a sweep."""
    return out.parent / f"{out.name}.partial"


def remove_unfinished(folder: Path) -> None:
    """Remove the files of a recording, its claim last. Other files stay, with their folders."""
    for path in (folder / ANSWERS, folder):
        if not path.is_dir():
            continue
        own = [item for item in path.iterdir() if _OWN_FILES.fullmatch(item.name)]
        for item in sorted(own, key=lambda item: item.name == CLAIM_FILE):
            item.unlink(missing_ok=True)
        if not any(path.iterdir()):
            path.rmdir()


def _open(
    out: Path,
    config: RecordingConfig,
    prompts: Sequence[Prompt | str] | PromptLoader | None,
    pair: Pair | PairLoader | None,
    progress: ProgressCallback,
) -> tuple[Recording, Calibration | None]:
    """Load calibration, pair and prompts of a recording."""
    calibration = None if config.profile is None else Calibration.load(config.profile)
    if isinstance(pair, Pair):
        _check_loaded_pair(pair, config, calibration)
    elif calibration is None or config.measure:
        check_device(config.device or _DEVICE)
    progress("load the pair", 0, None)
    # On a cluster the workers compute, and this copy of the pair is only compared with theirs.
    device = config.device if config.engine == "local" else None
    loaded = _load(pair, config.dtype or _DTYPE, device or _DEVICE)
    if calibration is not None:
        check_calibration(calibration, loaded, config.arms)
    progress("read the prompts", 0, None)
    store = ContinuationStore(
        Path(config.continuations or unfinished_folder(out) / ANSWERS),
        _read_prompts(prompts, loaded, progress),
        config.max_new_tokens,
        config.sampling,
        config.seeds,
    )
    return Recording(Decoder(loaded), store, config, unfinished_folder(out)), calibration


def _check_loaded_pair(
    pair: Pair, config: RecordingConfig, calibration: Calibration | None
) -> None:
    """Check that a loaded pair supports every option."""
    if config.engine == "ray":
        raise BlockPilotError(
            "engine ray loads the pair in each worker; pass a function that loads it, such as "
            "functools.partial(load_pair, target, drafter)"
        )
    dtype, device = str(pair.dtype).removeprefix("torch."), pair.device
    asked = [("dtype", config.dtype), ("latency_dtype", config.latency_dtype)]
    if calibration is not None and config.measure:
        asked.append(("the dtype of the profile", calibration.dtype))
    for name, value in asked:
        if value is not None and parse_dtype(value) != pair.dtype:
            raise BlockPilotError(
                f"{name} is {value}, but the pair is loaded in {dtype}; pass a function that loads "
                "it, such as functools.partial(load_pair, target, drafter)"
            )
    if config.device is not None and torch.device(config.device).type != device.type:
        raise BlockPilotError(f"device is {config.device}, but the pair is loaded on {device}")


def _load(pair: Pair | PairLoader | None, dtype: str, device: str) -> Pair:
    if isinstance(pair, Pair):
        return pair
    return (pair or load_pair)(dtype=dtype, device=device)


def _read_prompts(
    prompts: Sequence[Prompt | str] | PromptLoader | None, pair: Pair, progress: ProgressCallback
) -> list[Prompt]:
    """Read prompts and check that they differ."""
    if prompts is None:
        splits = ["train", "validation", "test"]
        return builtin_suite(DEFAULT_PROMPTS, splits=splits, progress=progress)
    found = prompts(pair) if callable(prompts) else prompts
    read = [Prompt.from_text(item) if isinstance(item, str) else item for item in found]
    if not read:
        raise BlockPilotError("there are no prompts to record")
    first: dict[str, int] = {}
    for number, prompt in enumerate(read):
        if first.setdefault(prompt.id, number) != number:
            raise BlockPilotError(
                f"prompt {number} repeats prompt {first[prompt.id]} (counted from 0); give each "
                "prompt once"
            )
    return read


def _record(
    recording: Recording,
    calibration: Calibration | None,
    config: RecordingConfig,
    pair: Pair | PairLoader | None,
    origin: Mapping[str, Any],
    progress: ProgressCallback,
) -> Sweep:
    """Record the shards that are missing and assemble the sweep."""
    if config.engine == "ray":
        device = config.device or _DEVICE
        load = partial(_load, pair, config.dtype or _DTYPE, device)
        unit: Literal["CPU", "GPU"] = "GPU" if device == "cuda" else "CPU"
        cluster = RayConfig(config.ray_address, config.workers, unit)
        record_on_ray(load, recording, cluster, partial(progress, "record"))
    else:
        recording.claim()
        _answer(recording, (0, 1), progress)
        recording.replay_shards(partial(progress, "replay"))
    timed = recording.decoder
    if calibration is None or config.measure:
        dtype = (
            (config.latency_dtype or _LATENCY_DTYPE) if calibration is None else calibration.dtype
        )
        timed = _timed_decoder(recording.decoder, pair, dtype, config.device or _DEVICE)
    if calibration is None:
        calibration = _measure_latency(recording.folder, timed, config, progress)
    origin = {"skipped_prompts": [], "unused_turns": None, **origin}
    sweep = assemble(recording, calibration, origin)
    if config.measure:
        seed = config.seed or 0
        count = min(config.measure, len(sweep))
        rows = np.random.default_rng(seed).choice(len(sweep), size=count, replace=False)
        prompts = recording.store.prompts
        sweep = measure_rows(
            timed, sweep, prompts, rows.tolist(), seed, partial(progress, "measure")
        )
    return sweep


def _answer(recording: Recording, part: tuple[int, int], progress: ProgressCallback) -> None:
    decoder = recording.decoder
    recording.store.record(
        decoder.pair, decoder.target, decoder.layer_ids, part, partial(progress, "answer")
    )


def _timed_decoder(
    decoder: Decoder, pair: Pair | PairLoader | None, dtype: str, device: str
) -> Decoder:
    """A decoder of this dtype on the device to time, which may be the given one."""
    loaded = decoder.pair
    same = parse_dtype(dtype) == loaded.dtype and torch.device(device).type == loaded.device.type
    return decoder if isinstance(pair, Pair) or same else Decoder(_load(pair, dtype, device))


def _measure_latency(
    folder: Path, timed: Decoder, config: RecordingConfig, progress: ProgressCallback
) -> Calibration:
    """Measure the latency profile, or read the one of an interrupted run with the same options."""
    dtype, repeats = str(timed.pair.dtype).removeprefix("torch."), config.repeats or _REPEATS
    path = folder / f"latency-{dtype}.json"
    if path.exists():
        try:
            saved = Calibration.load(path)
        except BlockPilotError as error:
            raise BlockPilotError(
                f"{path} is corrupt; remove the file and run the same command again"
            ) from error
        rounds, device = saved.latency.medians.get("repeats"), describe_device(timed.pair.device)
        if (saved.device, saved.dtype, rounds) == (device, dtype, repeats):
            return saved
        logger.warning(
            "%s was measured in %s rounds on %s in %s, not in %s on %s in %s; measuring again",
            *(path, rounds, saved.device, saved.dtype, repeats, device, dtype),
        )
    report = partial(progress, "latency")
    report(0, None)
    times = time_steps(timed, config.arms, None, repeats, config.seed or 0, report)
    calibration = Calibration.from_decoder(timed, times.profile())
    calibration.save(path)
    return calibration


def _load_finished(
    out: Path, recording: Recording, calibration: Calibration | None, config: RecordingConfig
) -> Sweep:
    """Load a sweep that was written before its unfinished work could be removed.

    Raises:
        BlockPilotError: If the folder holds another sweep, or one with other options.
    """
    try:
        recording.claim()
        sweep = Sweep.load(out)
        latency = LatencyProfile.from_dict(sweep.metadata.latency)
    except BlockPilotError as error:
        raise _taken(out) from error
    metadata = sweep.metadata
    if calibration is not None:
        priced = latency == calibration.latency
    else:
        dtype = None if config.latency_dtype is None else parse_dtype(config.latency_dtype)
        priced = latency.medians.get("repeats") == (config.repeats or _REPEATS) and (
            dtype in (None, parse_dtype(metadata.latency_dtype))
        )
    decodes = metadata.provenance.get("measured", {}).get("decodes", 0)
    measured = decodes == min(config.measure, len(sweep)) * len(sweep.arms)
    if not (priced and measured) or metadata.provenance.get("claim") != recording.digest:
        raise _taken(out)
    return sweep


def _holds_something(path: Path) -> bool:
    """Whether there is a file of this name, or a folder that is not empty."""
    return path.exists() and not (path.is_dir() and not any(path.iterdir()))


def _taken(out: Path) -> BlockPilotError:
    return BlockPilotError(f"{out} exists; name a new folder or remove it first")
