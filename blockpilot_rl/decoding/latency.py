"""The latency profile: what drafting, verifying and sampling cost on a device.

`blockpilot_rl.decoding.measuring` measures one. Predicted seconds are sums over the passes of a
decode.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from blockpilot_rl.errors import BlockPilotError, one_line


@dataclass(frozen=True)
class SamplingCost:
    """Seconds that a temperature adds to a decode; top-k and top-p would add more.

    Attributes:
        draft: What proposing the first draft of a block adds, and each further one.
        verify: What choosing the first token of a target pass adds, and each further one.
        noise: Making the noise of one position, which the decoder does once for each.
    """

    draft: tuple[float, float]
    verify: tuple[float, float]
    noise: float

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SamplingCost:
        """Read the values of `dataclasses.asdict`.

        Raises:
            KeyError, TypeError or ValueError: If something is missing or of a wrong type.
        """
        (draft, more_drafts), (verify, more_tokens) = values["draft"], values["verify"]
        return cls(
            (float(draft), float(more_drafts)),
            (float(verify), float(more_tokens)),
            float(values["noise"]),
        )

    def lines(self, block_sizes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Seconds added to the drafter's and to the target's pass of each block size, `[n]` each.

        A block of `b` has `b - 1` drafts, and the target chooses `b` tokens behind it.
        """
        sizes = np.asarray(block_sizes)
        draft = np.where(sizes > 1, self.draft[0] + self.draft[1] * (sizes - 2), 0.0)
        return draft, self.verify[0] + self.verify[1] * (sizes - 1)

    def scaled(self, factor: float) -> SamplingCost:
        """Cost where further tokens of a block take `factor` times as long."""
        draft, verify = ((first, factor * more) for first, more in (self.draft, self.verify))
        return SamplingCost(draft, verify, self.noise)


@dataclass(frozen=True)
class LatencyProfile:
    """Seconds of each part of a decode step, linear in the context length.

    Each line is `(seconds at context 0, seconds per context token)`.

    Attributes:
        block_sizes: Block sizes that were measured, increasing.
        draft: One line per block size for a drafter pass; zero for plain decoding.
        verify: One line per block size for a target pass.
        read_prompt: Line for the drafter's first reading of a prompt's features.
        medians: What was measured: `contexts`, `repeats`, and for each context length and block
            size the median seconds of `draft` and `verify` with their 95% intervals
            (`draft_intervals`, `verify_intervals`; absent after a single round). `sampling` holds
            the median seconds that a temperature adds to `draft` and `verify` of each block size.
        sampling: What a temperature adds, by default nothing.
    """

    block_sizes: tuple[int, ...]
    draft: tuple[tuple[float, float], ...]
    verify: tuple[tuple[float, float], ...]
    read_prompt: tuple[float, float]
    medians: dict[str, Any]
    sampling: SamplingCost = SamplingCost((0.0, 0.0), (0.0, 0.0), 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Render as JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LatencyProfile:
        """Read what `to_dict` gave.

        Raises:
            BlockPilotError: If something is missing, of a wrong type or no possible time.
        """
        try:
            lines = {
                name: tuple((float(a), float(b)) for a, b in values[name])
                for name in ("draft", "verify")
            }
            first, slope = values["read_prompt"]
            profile = cls(
                block_sizes=tuple(int(size) for size in values["block_sizes"]),
                draft=lines["draft"],
                verify=lines["verify"],
                read_prompt=(float(first), float(slope)),
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
        """Check that it can price decodes.

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
            if not (np.isfinite(times) & (np.array(times) >= 0)).all():
                raise BlockPilotError(
                    f"not a latency profile: {name} has a number that is negative or not finite"
                )
        if not np.array(self.verify).any(axis=1).all():
            raise BlockPilotError("not a latency profile: verify has a pass that takes no time")
        if not isinstance(self.medians, dict):
            raise BlockPilotError("not a latency profile: medians must be an object")

    def at_temperature(self) -> LatencyProfile:
        """Profile of passes that sample: their lines hold what a temperature adds to a pass.

        Noise, which belongs to positions and not to passes, is not in it; see `noise_seconds`.
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
        """Seconds of making the noise of one position at a temperature."""
        return self.sampling.noise

    def draft_lines(self, block_sizes: Sequence[int]) -> np.ndarray:
        """Lines of drafter passes, `[n, 2]`.

        Args:
            block_sizes: Sizes that were measured.

        Raises:
            BlockPilotError: If one was not.
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
            tokens: Numbers of tokens in a pass. One between two measured sizes is interpolated.

        Raises:
            BlockPilotError: If one is outside the measured sizes.
        """
        low, high = self.block_sizes[0], self.block_sizes[-1]
        for count in tokens:
            if not low <= count <= high:
                raise BlockPilotError(
                    f"a pass of {count} tokens is outside the latency profile's {low} to {high}"
                )
        return np.stack(
            [np.interp(tokens, self.block_sizes, part) for part in np.transpose(self.verify)],
            axis=1,
        )

    def step_lines(self, block_sizes: Sequence[int]) -> np.ndarray:
        """Lines of whole steps, draft and verify together, `[n, 2]`; raises as `draft_lines`."""
        lines: np.ndarray = self.draft_lines(block_sizes) + self.verify_lines(block_sizes)
        return lines

    def decode_seconds(
        self,
        block_size: int,
        prompt_tokens: int,
        emitted: Sequence[int] | np.ndarray,
        sampled: bool = False,
    ) -> float:
        """Predict the time of a decode behind prefill.

        Args:
            block_size: Block size of every pass.
            prompt_tokens: Length of the prompt.
            emitted: Tokens emitted by each pass.
            sampled: Whether it has a temperature.

        Returns:
            Seconds: every draft and verify pass at its own context length, for blocks the drafter's
            first reading of the prompt, and at a temperature what sampling adds.

        Raises:
            BlockPilotError: If the block size was not measured.
        """
        if len(emitted) == 0:
            return 0.0
        passes, contexts = np.array([[len(emitted)]]), context_sum(prompt_tokens, emitted)
        noise = noise_positions(block_size, emitted) if sampled else 0
        seconds = self.price(
            (block_size,),
            passes,
            np.array(contexts),
            np.array([prompt_tokens]),
            np.array([[noise]]),
        )
        return float(seconds[0, 0])

    def price(
        self,
        block_sizes: Sequence[int],
        passes: np.ndarray,
        contexts: np.ndarray,
        prompt_tokens: np.ndarray,
        noise: np.ndarray,
    ) -> np.ndarray:
        """Predict the times of many decodes behind prefill; see `decode_seconds`.

        Args:
            block_sizes: Block sizes.
            passes: Passes of each decode under each size, `[n, sizes]`.
            contexts: Sum of their context lengths, `[n, sizes]`.
            prompt_tokens: Length of each prompt, `[n]`.
            noise: Positions that a decode makes noise for, 0 for greedy ones, `[n, sizes]`.

        Returns:
            Seconds, `[n, sizes]`.

        Raises:
            BlockPilotError: If a block size was not measured.
        """
        greedy, sampled = (
            profile.step_lines(block_sizes) for profile in (self, self.at_temperature())
        )
        lines = np.where((noise > 0)[..., None], sampled, greedy)
        reading = self.read_prompt[0] + self.read_prompt[1] * prompt_tokens[:, None]
        drafts = np.asarray(block_sizes) > 1
        return np.asarray(
            passes * lines[..., 0]
            + contexts * lines[..., 1]
            + drafts * reading
            + noise * self.noise_seconds
        )

    def scaled(self, factor: float) -> LatencyProfile:
        """Profile of a device on which further tokens of a block cost `factor` times as much.

        Plain decoding and the shortest draft cost what they cost here. 0 is a device that verifies
        any block in the time of one token, as a large GPU at batch size 1 nearly does.
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
            context: Context length to tell it for.

        Returns:
            The mean over the tokens of the largest block.
        """
        ends = np.array([self.verify[0], self.verify[-1]]) @ (1.0, context)
        return float((ends[1] / ends[0] - 1) / max(1, self.block_sizes[-1] - self.block_sizes[0]))


def context_sum(prompt_tokens: int, emitted: Sequence[int] | np.ndarray) -> int:
    """Sum of the context lengths of a decode's passes.

    Args:
        prompt_tokens: Context of the first pass.
        emitted: Tokens emitted by each pass, by which the context of all later ones grows.
    """
    later = np.arange(len(emitted))[::-1]
    return int(prompt_tokens * len(emitted) + np.asarray(emitted, dtype=int) @ later)


def noise_positions(block_size: int, emitted: Sequence[int] | np.ndarray) -> int:
    """Positions that a decode at a temperature makes noise for: up to the end of its last block.

    Args:
        block_size: Block size of every pass.
        emitted: Tokens emitted by each pass; one or more passes.
    """
    return int(np.sum(emitted) - emitted[-1] + block_size)
