"""Headroom of published BlockPilot results, which contain acceptance lengths but no times.

A folder of such results has one JSON file per block size, such as `16.json`, which maps each prompt
to its acceptance length. `1.json`, if present, maps each prompt to the block size that was selected
for it. Nothing is held out: all choices are made and judged on the same numbers, and longer blocks
cost nothing.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.evaluation.measure import Measured, Requests
from blockpilot_rl.files import read_json
from blockpilot_rl.headroom.results import HeadroomVerdict

SELECTION = 1
PUBLISHED_DEFAULT = 16
PUBLISHED_WINDOW = 2


@dataclass(frozen=True, eq=False)
class PublishedResults:
    """Contents of a folder of published results, aligned by prompt.

    Attributes:
        name: Name of the folder.
        prompts: Keys of the prompts.
        block_sizes: Block sizes, increasing.
        acceptance: Acceptance length of each prompt under each size, `[n, sizes]`.
        selection: Block size selected for each prompt, `[n]`; None if it was not published.
    """

    name: str
    prompts: tuple[str, ...]
    block_sizes: tuple[int, ...]
    acceptance: np.ndarray
    selection: np.ndarray | None

    @staticmethod
    def is_folder_of(folder: Path) -> bool:
        """Whether a folder contains such files and is not a sweep."""
        return not (folder / "metadata.json").exists() and bool(_files(folder))

    @classmethod
    def load(cls, folder: str | Path) -> PublishedResults:
        """Read and check a folder.

        Raises:
            BlockPilotError: If it has no acceptance lengths, a file is corrupt, or the files have
                different prompts.
        """
        path = Path(folder)
        files = {size: _read(file) for size, file in _files(path).items()}
        selection = files.pop(SELECTION, None)
        if not files:
            raise BlockPilotError(f"{path} has no acceptance lengths, such as 16.json")
        prompts = tuple(next(iter(files.values())))
        if not prompts:
            raise BlockPilotError(f"{path} has no prompts")
        tables = {**files, **({} if selection is None else {SELECTION: selection})}
        for size, values in tables.items():
            if values.keys() != set(prompts):
                odd = min(values.keys() ^ set(prompts))
                raise BlockPilotError(
                    f"{path / f'{size}.json'} has other prompts than the other files: {odd!r} is "
                    "in only one of them"
                )
        acceptance = np.array([[values[key] for values in files.values()] for key in prompts])
        for row, column in np.argwhere(~(np.isfinite(acceptance) & (acceptance > 0)))[:1]:
            raise BlockPilotError(
                f"{path / f'{list(files)[column]}.json'}: prompt {prompts[row]!r} has the "
                f"acceptance length {acceptance[row, column]}, which is not a positive number"
            )
        chosen = None
        if selection is not None:
            chosen = np.array([selection[key] for key in prompts])
            for row in np.flatnonzero(~np.isin(chosen, list(files)))[:1]:
                raise BlockPilotError(
                    f"{path / f'{SELECTION}.json'}: prompt {prompts[row]!r} has the selected size "
                    f"{chosen[row]:g}, which has no file"
                )
        return cls(path.name, prompts, tuple(files), acceptance, chosen)


@dataclass(frozen=True)
class Selection:
    """The published selection.

    Attributes:
        achieved: What it achieves.
        matches: Number of prompts where it is as good as the oracle of the window.
        prompts: Number of prompts.
        equals_oracle: Whether it is as good on all prompts, which makes it the oracle.
    """

    achieved: Measured
    matches: int
    prompts: int
    equals_oracle: bool


@dataclass(frozen=True)
class AcceptanceHeadroom:
    """Headroom of published results, in acceptance lengths (the mean speedups in passes).

    Attributes:
        name: Name of the folder.
        prompts: Number of prompts.
        sizes: Mean acceptance length of every size.
        window_sizes: Sizes that the oracle of the window chooses from.
        default: The drafter's own size.
        best_fixed: The best size, chosen and judged on the same prompts.
        oracle: The best size of each prompt within the window around the default.
        oracle_all: The best size of each prompt among all sizes.
        selection: The published selection, if it was published.
        verdict: Whether adapting is worth it.
        settings: How it was measured.
        provenance: Command, versions, git SHA, date.
    """

    name: str
    prompts: int
    sizes: dict[int, float]
    window_sizes: tuple[int, ...]
    default: Measured
    best_fixed: Measured
    oracle: Measured
    oracle_all: Measured
    selection: Selection | None
    verdict: HeadroomVerdict
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON, with the keys of a sweep's headroom.

        Keys that need times are null or empty.
        """
        values = dataclasses.asdict(self)
        return {
            **values,
            "default": _acceptance_values(self.default),
            "best_fixed": {**_acceptance_values(self.best_fixed), "in_sample": True},
            "oracle": _acceptance_values(self.oracle, self.window_sizes),
            "oracle_all": _acceptance_values(self.oracle_all, tuple(self.sizes)),
            "selection": self.selection
            and {**values["selection"], "achieved": _acceptance_values(self.selection.achieved)},
            "measure": "acceptance_length",
            "per_family": None,
            "oracle_crossfit": None,
            "step_oracle": None,
            "families": {},
        }


def acceptance_headroom(
    results: PublishedResults,
    default: int = PUBLISHED_DEFAULT,
    window: int = PUBLISHED_WINDOW,
    *,
    min_gain: float = 0.02,
    confidence: float = 0.95,
    seed: int = 0,
) -> AcceptanceHeadroom:
    """Measure how much adapting the block size could gain in acceptance length.

    Args:
        results: The published results.
        default: The drafter's own block size.
        window: Largest distance from it of the sizes that the oracle can choose, as in BlockPilot
            (arXiv 2606.31315).
        min_gain: Smallest gain that makes adapting worth it, as a fraction.
        confidence: Level of the intervals.
        seed: Seed of the bootstrap.

    Raises:
        BlockPilotError: If the default size has no file.
    """
    sizes, acceptance = results.block_sizes, results.acceptance
    if default not in sizes:
        raise BlockPilotError(f"{results.name} has no {default}.json; its sizes are {sizes}")
    # Plain decoding takes one pass per token, so in passes a speedup is an acceptance length.
    passes = 1 / acceptance
    usual = passes[:, sizes.index(default)]
    inside = [index for index, size in enumerate(sizes) if abs(size - default) <= window]
    requests = Requests(
        plain=np.ones(len(passes)),
        fixed=usual,
        fixed_total=usual,
        oracle=passes[:, inside].min(axis=1),
        ids=np.array(results.prompts),
        confidence=confidence,
        seed=seed,
    )
    means = acceptance.mean(axis=0)
    best = int(means.argmax())
    oracle = requests.measure(requests.oracle)
    window_sizes = tuple(sizes[index] for index in inside)
    return AcceptanceHeadroom(
        name=results.name,
        prompts=len(passes),
        sizes=dict(zip(sizes, means.tolist(), strict=True)),
        window_sizes=window_sizes,
        default=requests.measure(usual, block_size=default),
        best_fixed=requests.measure(passes[:, best], block_size=sizes[best]),
        oracle=oracle,
        oracle_all=requests.measure(passes.min(axis=1)),
        selection=_selection(results, passes, requests),
        verdict=HeadroomVerdict(
            worth="no" if oracle.gain.high < min_gain else "maybe",
            min_gain=min_gain,
            block_size=default,
            oracle_gain=oracle.gain,
            largest_gain=oracle.gain.high,
        ),
        settings={
            "default": default,
            "window": window,
            "min_gain": min_gain,
            "confidence": confidence,
            "seed": seed,
        },
    )


def _selection(
    results: PublishedResults, passes: np.ndarray, requests: Requests
) -> Selection | None:
    """Measure the published selection by the passes per token of every size, `[n, sizes]`."""
    if results.selection is None:
        return None
    count, columns = len(passes), np.searchsorted(results.block_sizes, results.selection)
    chosen = passes[np.arange(count), columns]
    matches = int((chosen == requests.oracle).sum())
    return Selection(requests.measure(chosen), matches, count, matches == count)


def _acceptance_values(measured: Measured, sizes: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return a measurement in acceptance lengths as values for JSON."""
    return {
        "acceptance_length": measured.mean_speedup,
        "gain": measured.gain,
        "block_size": measured.block_size,
        "block_sizes": sizes,
    }


def _files(folder: Path) -> dict[int, Path]:
    """Find the files, by increasing block size."""
    found = {int(path.stem): path for path in folder.glob("*.json") if path.stem.isdecimal()}
    return dict(sorted(found.items()))


def _read(path: Path) -> dict[str, float]:
    values = read_json(path)
    if not isinstance(values, dict):
        raise BlockPilotError(f"{path} must map each prompt to a number")
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BlockPilotError(f"{path}: prompt {key!r} must have a number, not {value!r}")
        if isinstance(value, int) and abs(value) > sys.float_info.max:
            raise BlockPilotError(f"{path}: prompt {key!r} has a number that is too large")
    return values
