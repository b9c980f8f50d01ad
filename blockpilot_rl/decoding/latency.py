"""The latency profile: what drafting and verifying cost on this device.

Times are medians of the decoder's own steps over a grid of block size and context length, with all
cells interleaved in random order within each round, so that the drift of a shared machine hits all
alike. The medians are smoothed as `blockpilot_rl.decoding.smoothing` describes.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.generation import Prefill
from blockpilot_rl.decoding.smoothing import medians_with_intervals, smooth_lines
from blockpilot_rl.errors import BlockPilotError, one_line


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
            (`draft_intervals`, `verify_intervals`; absent after a single round).
    """

    block_sizes: tuple[int, ...]
    draft: tuple[tuple[float, float], ...]
    verify: tuple[tuple[float, float], ...]
    read_prompt: tuple[float, float]
    medians: dict[str, Any]

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
            )
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise BlockPilotError(
                f"not a latency profile: {type(error).__name__}: {one_line(error)}"
            ) from error
        if not len(profile.block_sizes) == len(profile.draft) == len(profile.verify) > 0:
            raise BlockPilotError("not a latency profile: it needs a line for every block size")
        if sorted({0, *profile.block_sizes}) != [0, *profile.block_sizes]:
            raise BlockPilotError(
                f"not a latency profile: block sizes {list(profile.block_sizes)} must increase "
                "from 1 or more"
            )
        for name in ("draft", "verify", "read_prompt"):
            times = np.array(getattr(profile, name))
            if not (np.isfinite(times) & (times >= 0)).all():
                raise BlockPilotError(
                    f"not a latency profile: {name} has a number that is negative or not finite"
                )
        if not np.array(profile.verify).any(axis=1).all():
            raise BlockPilotError("not a latency profile: verify has a pass that takes no time")
        if not isinstance(profile.medians, dict):
            raise BlockPilotError("not a latency profile: medians must be an object")
        return profile

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
        self, block_size: int, prompt_tokens: int, emitted: Sequence[int] | np.ndarray
    ) -> float:
        """Predict the time of a decode behind prefill.

        Args:
            block_size: Block size of every pass.
            prompt_tokens: Length of the prompt.
            emitted: Tokens emitted by each pass.

        Returns:
            Seconds: every draft and verify pass at its own context length and, for blocks, the
            drafter's first reading of the prompt.

        Raises:
            BlockPilotError: If the block size was not measured.
        """
        if len(emitted) == 0:
            return 0.0
        passes, contexts = np.array([[len(emitted)]]), context_sum(prompt_tokens, emitted)
        seconds = self.price((block_size,), passes, np.array(contexts), np.array([prompt_tokens]))
        return float(seconds[0, 0])

    def price(
        self,
        block_sizes: Sequence[int],
        passes: np.ndarray,
        contexts: np.ndarray,
        prompt_tokens: np.ndarray,
    ) -> np.ndarray:
        """Predict the times of many decodes behind prefill; see `decode_seconds`.

        Args:
            block_sizes: Block sizes.
            passes: Passes of each decode under each size, `[n, sizes]`.
            contexts: Sum of their context lengths, `[n, sizes]`.
            prompt_tokens: Length of each prompt, `[n]`.

        Returns:
            Seconds, `[n, sizes]`.

        Raises:
            BlockPilotError: If a block size was not measured.
        """
        lines = self.step_lines(block_sizes)
        reading = self.read_prompt[0] + self.read_prompt[1] * prompt_tokens[:, None]
        drafts = np.asarray(block_sizes) > 1
        return np.asarray(passes * lines[:, 0] + contexts * lines[:, 1] + drafts * reading)

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


def default_contexts(limit: int) -> tuple[int, ...]:
    """Four context lengths up to 384 tokens, or up to `limit` if that is less."""
    longest = min(384, limit)
    return tuple(longest * quarter // 4 for quarter in (1, 2, 3, 4))


@torch.inference_mode()
def measure_latency(
    decoder: Decoder,
    block_sizes: Sequence[int],
    contexts: Sequence[int] | None = None,
    repeats: int = 30,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> LatencyProfile:
    """Measure the profile of a decoder on its device.

    Args:
        decoder: The pair's decoder.
        block_sizes: Sizes to measure, increasing from 1.
        contexts: Context lengths, in tokens; at least two. None for `default_contexts`.
        repeats: Rounds over the whole grid. Intervals, and smoothing along the block size, need two
            or more.
        seed: Of the order within rounds.
        progress: Called with the finished rounds and their total.

    Raises:
        BlockPilotError: If the grid is empty or does not fit the models.
    """
    if contexts is None:
        contexts = default_contexts(decoder.pair.max_length - max(block_sizes, default=1) - 8)
    if len(set(contexts)) < 2 or min(contexts) < 2 or repeats < 1 or not block_sizes:
        raise BlockPilotError(
            "a latency profile needs block sizes, two contexts of two or more tokens and one repeat"
        )
    if decoder.drafter is None and max(block_sizes) > 1:
        raise BlockPilotError("block sizes above 1 need a drafter; this pair has none")
    rng = np.random.default_rng(seed)
    shape = (len(contexts), len(block_sizes), repeats)
    draft, verify = np.zeros(shape), np.zeros(shape)
    read = np.zeros((len(contexts), 1, repeats))
    decoder.warm_up(block_sizes)
    prefills = []
    for context in contexts:
        ids = torch.tensor(rng.integers(3, decoder.target.vocab_size, size=(1, context)))
        prefills.append(decoder.prefill(ids.to(decoder.pair.device), 8, max(block_sizes)))
    for repeat in range(repeats):
        if decoder.drafter is not None:
            for c, prefill in enumerate(prefills):
                read[c, 0, repeat] = _seconds(partial(_read_prompt, decoder, prefill))
        for cell in rng.permutation(len(contexts) * len(block_sizes)):
            c, b = divmod(int(cell), len(block_sizes))
            step = _time_step(decoder, prefills[c], block_sizes[b])
            draft[c, b, repeat], verify[c, b, repeat] = step
        progress(repeat + 1, repeats)
    # Plain decoding drafts nothing, so its zeros take no part in smoothing.
    blocks = [index for index, size in enumerate(block_sizes) if size > 1]
    draft_lines = np.zeros((len(block_sizes), 2))
    if blocks:
        sizes = [block_sizes[index] for index in blocks]
        draft_lines[blocks] = smooth_lines(sizes, contexts, draft[:, blocks])
    return LatencyProfile(
        block_sizes=tuple(block_sizes),
        draft=_pairs(draft_lines),
        verify=_pairs(smooth_lines(block_sizes, contexts, verify)),
        read_prompt=_pairs(smooth_lines((1,), contexts, read))[0],
        medians={
            "contexts": list(contexts),
            "repeats": repeats,
            **medians_with_intervals("draft", draft),
            **medians_with_intervals("verify", verify),
        },
    )


def _pairs(lines: np.ndarray) -> tuple[tuple[float, float], ...]:
    return tuple((float(offset), float(slope)) for offset, slope in lines)


def _seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _read_prompt(decoder: Decoder, prefill: Prefill) -> None:
    assert decoder.drafter is not None
    prefill.draft_cache.crop(0)
    decoder.drafter.extend(prefill.features, prefill.draft_cache)
    _wait(decoder)


def _wait(decoder: Decoder) -> None:
    """Let queued work of an accelerator finish; a no-op on the CPU."""
    if decoder.pair.device.type == "cuda":
        torch.cuda.synchronize(decoder.pair.device)


def _time_step(decoder: Decoder, prefill: Prefill, block_size: int) -> tuple[float, float]:
    """Seconds of drafting and of verifying one block behind a prefilled prompt.

    It does what a step of the decoder does, to the reading of the verdict by the host. The drafter
    reads two tokens' features first, about what a step accepts. An accelerator is waited for in
    between, which a decode does not do; that costs the host one launch.
    """
    position, sampler = prefill.prompt_tokens + 1, prefill.sampler
    began = time.perf_counter()
    block = torch.tensor([[prefill.first_token]], device=decoder.pair.device)
    drafted = began
    if block_size > 1:
        assert decoder.drafter is not None
        prefill.draft_cache.crop(prefill.prompt_tokens - 2)
        unread = torch.cat([prefill.features[:, -2:-1], prefill.features[:, -1:]], dim=1)
        decoder.drafter.extend(unread, prefill.draft_cache)
        drafts = decoder.draft(prefill, block, block_size, position)
        block = torch.cat([block, drafts[None]], dim=1)
        _wait(decoder)
        drafted = time.perf_counter()
    hidden = decoder.target(block, prefill.cache)
    choice = sampler.choose(decoder.target.logits(hidden.last[0]), position)
    torch.stack([block[0], choice]).tolist()
    prefill.cache.crop(prefill.prompt_tokens)
    return drafted - began, time.perf_counter() - drafted
