"""The latency profile: how long drafting, verifying and sampling take on a device.

`blockpilot_rl.decoding.measuring` measures one. The predicted time of a decode is the sum over its
passes.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from blockpilot_rl.errors import BlockPilotError, one_line
from blockpilot_rl.files import number, whole_number

DEFAULT_ARMS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
"""Block sizes that are measured and recorded by default."""

SHORTEST_SECONDS = 1e-9
"""The shortest time that a pass or a decode can take; anything below is a damaged value."""

LONGEST_SECONDS = 1e9
"""The longest time that a pass or a decode can take."""


def possible_seconds(values: Any) -> np.ndarray:
    """Check which numbers are possible times of a pass or a decode.

    NaN, infinity, zero, negative and absurdly small or large numbers are not.

    Args:
        values: Seconds, any shape.

    Returns:
        Booleans of the same shape.
    """
    seconds = np.asarray(values, dtype=np.float64)
    return np.asarray((seconds >= SHORTEST_SECONDS) & (seconds <= LONGEST_SECONDS))


def validate_arms(arms: Sequence[int]) -> None:
    """Check the block sizes to choose from.

    Raises:
        BlockPilotError: If they are not two or more increasing numbers that begin with 1.
    """
    increasing = all(a < b for a, b in itertools.pairwise(arms))
    if not arms or arms[0] != 1 or not increasing or len(arms) < 2:
        raise BlockPilotError(
            f"arms {list(arms)} must be two or more increasing block sizes that begin with 1 "
            "(plain decoding)"
        )


@dataclass(frozen=True)
class SamplingCost:
    """Seconds that a temperature adds to a decode. Top-k and top-p would add more.

    Attributes:
        draft: Seconds that the first drafted token of a block adds, and each further one.
        verify: Seconds that the first token of a target pass adds, and each further one.
        noise: Seconds to compute the noise of one position. The decoder does so once per position.
    """

    draft: tuple[float, float]
    verify: tuple[float, float]
    noise: float

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SamplingCost:
        """Read the values of `dataclasses.asdict`.

        Raises:
            KeyError, TypeError or ValueError: If a value is missing or has the wrong type.
        """
        (draft, more_drafts), (verify, more_tokens) = values["draft"], values["verify"]
        return cls(
            (_seconds(draft), _seconds(more_drafts)),
            (_seconds(verify), _seconds(more_tokens)),
            _seconds(values["noise"]),
        )

    def lines(self, block_sizes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Seconds added to the drafter's and to the target's pass of each block size, `[n]` each.

        For a block of `b`, the drafter proposes `b - 1` tokens and the target chooses `b`.
        """
        sizes = np.asarray(block_sizes)
        draft = np.where(sizes > 1, self.draft[0] + self.draft[1] * (sizes - 2), 0.0)
        return draft, self.verify[0] + self.verify[1] * (sizes - 1)

    def scaled(self, factor: float) -> SamplingCost:
        """Return the cost if each further token of a block takes `factor` times as long."""
        draft, verify = ((first, factor * more) for first, more in (self.draft, self.verify))
        return SamplingCost(draft, verify, self.noise)


@dataclass(frozen=True)
class LatencyProfile:
    """Seconds of each part of a decode step, linear in the context length.

    A line is `(seconds at context 0, seconds per context token)`.

    Attributes:
        block_sizes: Measured block sizes, increasing.
        draft: One line per block size for a drafter pass; zero for plain decoding.
        verify: One line per block size for a target pass.
        read_prompt: Line for the drafter's pass over the features of a prompt.
        medians: The measurement: `contexts`, `repeats`, and the median seconds of `draft` and
            `verify` for each context length and block size, with their 95% intervals
            (`draft_intervals`, `verify_intervals`; absent after a single round). `sampling` holds
            the median seconds that a temperature adds to `draft` and `verify` of each block size.
        sampling: Seconds that a temperature adds; nothing by default.
    """

    block_sizes: tuple[int, ...]
    draft: tuple[tuple[float, float], ...]
    verify: tuple[tuple[float, float], ...]
    read_prompt: tuple[float, float]
    medians: dict[str, Any]
    sampling: SamplingCost = SamplingCost((0.0, 0.0), (0.0, 0.0), 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LatencyProfile:
        """Read the values of `to_dict`.

        Raises:
            BlockPilotError: If a value is missing, has the wrong type or is not a possible time.
        """
        try:
            lines = {
                name: tuple((_seconds(a), _seconds(b)) for a, b in values[name])
                for name in ("draft", "verify")
            }
            first, slope = values["read_prompt"]
            profile = cls(
                block_sizes=tuple(map(whole_number, values["block_sizes"])),
                draft=lines["draft"],
                verify=lines["verify"],
                read_prompt=(_seconds(first), _seconds(slope)),
                medians=values["medians"],
                sampling=SamplingCost.from_dict(values["sampling"]),
            )
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise BlockPilotError(
                f"not a latency profile: {type(error).__name__}: {one_line(error)}"
            ) from error
        profile._check()
        return profile

    def _check(self) -> None:
        """Check that the profile can price decodes.

        Raises:
            BlockPilotError: If it cannot.
        """
        if not len(self.block_sizes) == len(self.draft) == len(self.verify) > 0:
            raise BlockPilotError("not a latency profile: it needs a line for every block size")
        if sorted({0, *self.block_sizes}) != [0, *self.block_sizes]:
            raise BlockPilotError(
                f"not a latency profile: block sizes {list(self.block_sizes)} must increase "
                "from 1 or more"
            )
        cost = self.sampling
        for name, times in (
            ("draft", self.draft),
            ("verify", self.verify),
            ("read_prompt", self.read_prompt),
            ("sampling", (*cost.draft, *cost.verify, cost.noise)),
        ):
            if not ((np.array(times) >= 0) & (np.array(times) <= LONGEST_SECONDS)).all():
                raise BlockPilotError(
                    f"not a latency profile: {name} has a number that is negative, not finite or "
                    "too large to be seconds"
                )
        if not possible_seconds(np.array(self.verify) @ (1.0, 1.0)).all():
            raise BlockPilotError("not a latency profile: verify has a pass that takes no time")
        if not isinstance(self.medians, dict):
            raise BlockPilotError("not a latency profile: medians must be an object")

    def check_medians(self) -> None:
        """Check that the medians, if there are any, hold a time for each context and block size.

        Raises:
            BlockPilotError: If they do not.
        """
        if not self.medians:  # a profile that was not measured
            return
        contexts = _numbers(self.medians.get("contexts"))
        if contexts.ndim != 1 or not len(contexts) or not (contexts >= 1).all():
            raise BlockPilotError(
                "not a latency profile: medians needs contexts, the measured context lengths"
            )
        shape: tuple[int, ...] = (len(contexts), len(self.block_sizes))
        expected: dict[str, tuple[int, ...]] = {"draft": shape, "verify": shape}
        for name in ("draft_intervals", "verify_intervals"):
            if name in self.medians:
                expected[name] = (*shape, 2)
        for name, needed in expected.items():
            times = _numbers(self.medians.get(name))
            if times.shape != needed:
                raise BlockPilotError(
                    f"not a latency profile: medians.{name} needs numbers in the shape "
                    f"{list(needed)}, by context length and block size"
                )
            # Plain decoding drafts nothing, so its drafts take no time.
            least = 0.0 if name.startswith("draft") else SHORTEST_SECONDS
            if not ((times >= least) & (times <= LONGEST_SECONDS)).all():
                raise BlockPilotError(
                    f"not a latency profile: medians.{name} has a number that is not a time"
                )

    def at_temperature(self) -> LatencyProfile:
        """Return the profile of passes at a temperature.

        Noise is computed per position, not per pass, so it is not included; see `noise_seconds`.
        """
        added = self.sampling.lines(self.block_sizes)
        draft, verify = (
            tuple(
                (offset + float(more), slope)
                for (offset, slope), more in zip(lines, seconds, strict=True)
            )
            for lines, seconds in zip((self.draft, self.verify), added, strict=True)
        )
        return dataclasses.replace(self, draft=draft, verify=verify)

    @property
    def noise_seconds(self) -> float:
        """Seconds to compute the noise of one position at a temperature."""
        return self.sampling.noise

    def draft_lines(self, block_sizes: Sequence[int]) -> np.ndarray:
        """Lines of drafter passes, `[n, 2]`.

        Args:
            block_sizes: Measured block sizes.

        Raises:
            BlockPilotError: If a size was not measured.
        """
        for size in block_sizes:
            if size not in self.block_sizes:
                raise BlockPilotError(
                    f"block size {size} is not in the latency profile {self.block_sizes}"
                )
        return np.array([self.draft[self.block_sizes.index(size)] for size in block_sizes])

    def verify_lines(self, tokens: Sequence[int]) -> np.ndarray:
        """Lines of target passes, `[n, 2]`.

        Args:
            tokens: Numbers of tokens in a pass. Numbers between measured sizes are interpolated.

        Raises:
            BlockPilotError: If a number is outside the measured sizes.
        """
        low, high = self.block_sizes[0], self.block_sizes[-1]
        for count in tokens:
            if not low <= count <= high:
                raise BlockPilotError(
                    f"a pass of {count} tokens is outside the latency profile's {low} to {high}"
                )
        return _interpolate(np.asarray(tokens), self.block_sizes, self.verify)

    def step_lines(self, block_sizes: Sequence[int]) -> np.ndarray:
        """Lines of whole steps, draft and verify together, `[n, 2]`.

        Args:
            block_sizes: Measured block sizes.

        Raises:
            BlockPilotError: If a size was not measured.
        """
        lines: np.ndarray = self.draft_lines(block_sizes) + self.verify_lines(block_sizes)
        return lines

    def draft_table(self) -> np.ndarray:
        """Lines of drafter passes of every size, `[largest + 1, 2]`; 0 for sizes up to 1.

        Sizes between measured ones are interpolated, and those below the smallest measured draft
        cost as much as it.
        """
        table = np.zeros((self.block_sizes[-1] + 1, 2))
        measured = [
            (size, line)
            for size, line in zip(self.block_sizes, self.draft, strict=True)
            if size > 1
        ]
        if measured:
            sizes, lines = zip(*measured, strict=True)
            table[2:] = _interpolate(np.arange(2, len(table)), sizes, lines)
        return table

    def verify_table(self) -> np.ndarray:
        """Lines of target passes of every number of tokens, `[largest + 1, 2]`.

        Numbers between measured ones are interpolated, and those below the smallest measured one
        cost as much as it.
        """
        return _interpolate(np.arange(self.block_sizes[-1] + 1), self.block_sizes, self.verify)

    def decode_seconds(
        self,
        block_size: int,
        prompt_tokens: int,
        emitted: Sequence[int] | np.ndarray,
        sampled: bool = False,
        max_new_tokens: int | None = None,
    ) -> float:
        """Predict the time of a decode after prefill.

        Args:
            block_size: Chosen block size.
            prompt_tokens: Length of the prompt.
            emitted: Tokens emitted by each pass.
            sampled: Whether the decode has a temperature.
            max_new_tokens: Budget of the text, near whose end blocks are shorter; None if every
                block is whole, as in release 0.1.

        Returns:
            Seconds: each draft and verify pass at its own context length and size, the drafter's
            pass over the prompt (block sizes above 1), and the sampling (at a temperature).

        Raises:
            BlockPilotError: If the block size was not measured.
        """
        if len(emitted) == 0:
            return 0.0
        seconds = self.price(
            (block_size,), [[emitted]], [prompt_tokens], np.array([sampled]), max_new_tokens
        )
        return float(seconds[0, 0])

    def price(
        self,
        block_sizes: Sequence[int],
        emitted: Sequence[Sequence[Sequence[int] | np.ndarray]],
        prompt_tokens: Sequence[int] | np.ndarray,
        sampled: np.ndarray,
        max_new_tokens: int | None,
    ) -> np.ndarray:
        """Predict the times of many decodes after prefill; see `decode_seconds`.

        Args:
            block_sizes: Block sizes.
            emitted: Tokens emitted by each pass, for each text and block size.
            prompt_tokens: Length of each prompt, `[n]`.
            sampled: Whether each text has a temperature, `[n]`.
            max_new_tokens: Budget of each text; None if every block is whole.

        Returns:
            Seconds, `[n, sizes]`.

        Raises:
            BlockPilotError: If a block size was not measured.
        """
        self.draft_lines(block_sizes)
        lines = [x.draft_table() + x.verify_table() for x in (self, self.at_temperature())]
        offset, slope = self.read_prompt
        seconds = np.zeros((len(emitted), len(block_sizes)))
        for row, (texts, tokens, warm) in enumerate(
            zip(emitted, prompt_tokens, sampled, strict=True)
        ):
            reading = offset + slope * tokens
            for column, (size, lengths) in enumerate(zip(block_sizes, texts, strict=True)):
                anchors = anchors_of(lengths)
                costs = lines[int(warm)][pass_sizes(size, anchors, max_new_tokens)]
                total = costs[:, 0].sum() + costs[:, 1] @ (int(tokens) + anchors)
                noise = noise_positions(size, lengths, max_new_tokens) if warm else 0
                seconds[row, column] = total + (size > 1) * reading + noise * self.noise_seconds
        return seconds

    def scaled(self, factor: float) -> LatencyProfile:
        """Return the profile of a device where further tokens of a block cost `factor` times more.

        The cost of plain decoding and of the shortest draft stays. With a factor of 0, any block is
        verified in the time of one token, which a large GPU at batch size 1 comes close to.
        """

        def stretch(lines: tuple[tuple[float, float], ...], base: int) -> Any:
            values = np.array(lines)
            values[base:] = values[base] + factor * (values[base:] - values[base])
            return tuple(map(tuple, values.tolist()))

        first_block = 1 if self.block_sizes[0] == 1 and len(self.block_sizes) > 1 else 0
        return dataclasses.replace(
            self,
            draft=stretch(self.draft, first_block),
            verify=stretch(self.verify, 0),
            medians={},
            sampling=self.sampling.scaled(factor),
        )

    def token_cost(self, context: float) -> float:
        """Extra verify time of each further token, as a share of a plain pass.

        Args:
            context: Context length, in tokens.

        Returns:
            The mean over the tokens of the largest block.
        """
        ends = np.array([self.verify[0], self.verify[-1]]) @ (1.0, context)
        return float((ends[1] / ends[0] - 1) / max(1, self.block_sizes[-1] - self.block_sizes[0]))


def anchors_of(emitted: Sequence[int] | np.ndarray) -> np.ndarray:
    """Output token that each pass of a decode is anchored at, counted from 0.

    Args:
        emitted: Tokens emitted by each pass after prefill.
    """
    lengths = np.asarray(emitted, dtype=int)
    return np.asarray(np.cumsum(lengths) - lengths)


def pass_sizes(
    block_size: int | np.ndarray, anchors: np.ndarray, max_new_tokens: int | None
) -> np.ndarray:
    """Size of the block of each pass, which is shorter near the end of a budget.

    A block has no more drafts than tokens are left.

    Args:
        block_size: Chosen block size, or one for each pass.
        anchors: Output token that each pass is anchored at, counted from 0.
        max_new_tokens: Budget of the text; None if every block is whole.

    Returns:
        Sizes, in the shape of `block_size` and `anchors` broadcast together.
    """
    if max_new_tokens is None:
        return np.broadcast_arrays(block_size, anchors)[0]
    return np.asarray(np.minimum(block_size, max_new_tokens - anchors))


def noise_positions(
    block_size: int, emitted: Sequence[int] | np.ndarray, max_new_tokens: int | None = None
) -> int:
    """Count the positions that need noise: all up to the end of the last block.

    Args:
        block_size: Chosen block size.
        emitted: Tokens emitted by each pass, at least one.
        max_new_tokens: Budget of the text; None if every block is whole.
    """
    last = anchors_of(emitted)[-1:]
    return int((last + pass_sizes(block_size, last, max_new_tokens))[0])


def _interpolate(sizes: np.ndarray, measured: Sequence[int], lines: Any) -> np.ndarray:
    """Interpolate lines of measured sizes, `[n, 2]`."""
    columns = [np.interp(sizes, measured, column) for column in np.transpose(lines)]
    return np.stack(columns, axis=1)


def _seconds(value: Any) -> float:
    """Read a number; whether it is a possible time is checked by those who know its name."""
    return number(value, finite=False)


def _numbers(values: Any) -> np.ndarray:
    """Turn nested lists of numbers into an array; anything else becomes an array of NaN."""
    try:
        array = np.array(values)
    except ValueError:
        return np.array(np.nan)
    return array if np.issubdtype(array.dtype, np.number) else np.array(np.nan)
