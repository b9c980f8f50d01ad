"""Measure a latency profile by timing the decoder's own steps one by one.

Times are medians over a grid of block sizes and context lengths. Within each round, all cells are
measured in random order, so that the drift of a shared machine affects them equally. The medians
are smoothed as `blockpilot_rl.decoding.smoothing` describes. The cost of a temperature is the
difference between a step that samples and one that does not, in the same round. The order is kept,
so that the speed of the machine at any moment of the measurement is known.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.generation import Prefill
from blockpilot_rl.decoding.latency import LatencyProfile, SamplingCost
from blockpilot_rl.decoding.sampling import Sampler, Sampling
from blockpilot_rl.decoding.smoothing import fit_line, medians_with_intervals, smooth_lines
from blockpilot_rl.errors import BlockPilotError

LONGEST_CONTEXT = 1024
"""Longer than the longest prompts of the built-in suite (about 900 tokens); lines extend beyond."""


def default_contexts(limit: int) -> tuple[int, ...]:
    """Four context lengths up to 1024 tokens, or up to `limit` if that is less.

    Each is twice the one before, because most requests are short.
    """
    longest = min(LONGEST_CONTEXT, limit)
    return tuple(longest // part for part in (8, 4, 2, 1))


@dataclass(frozen=True)
class StepTimes:
    """Seconds of every step that was timed, of `R` rounds over `C` contexts and `S` block sizes.

    Attributes:
        block_sizes: The sizes.
        contexts: The context lengths, in tokens.
        steps: Seconds of drafting and of verifying, `[2, C, S, R]`.
        sampled: The same at a temperature, after the shortest context, `[2, S, R]`.
        noise: Seconds to compute the noise of a position, `[S, R]`.
        read: Seconds of the drafter's pass over a prompt, `[C, 1, R]`.
        order: The cells of each round in the order of measurement, `[R, (C + 1) * S]`: cell
            `c * S + b` is size `b` after context `c`, or at a temperature where `c` is `C`.
    """

    block_sizes: tuple[int, ...]
    contexts: tuple[int, ...]
    steps: np.ndarray
    sampled: np.ndarray
    noise: np.ndarray
    read: np.ndarray
    order: np.ndarray

    @classmethod
    def empty(
        cls,
        block_sizes: Sequence[int],
        contexts: Sequence[int],
        repeats: int,
        rng: np.random.Generator,
    ) -> StepTimes:
        """Return zero seconds everywhere and a random order."""
        sizes, lengths = len(block_sizes), len(contexts)
        cells = np.tile(np.arange((lengths + 1) * sizes), (repeats, 1))
        return cls(
            tuple(block_sizes),
            tuple(contexts),
            steps=np.zeros((2, lengths, sizes, repeats)),
            sampled=np.zeros((2, sizes, repeats)),
            noise=np.zeros((sizes, repeats)),
            read=np.zeros((lengths, 1, repeats)),
            order=rng.permuted(cells, axis=1),
        )

    def slowness(self, step: int, around: int = 15) -> float:
        """Estimate how slow the machine was at a moment: 1.1 if steps took 10% longer than usual.

        The estimate is the median, over the steps around that moment, of the time of a step divided
        by the median time of its cell.

        Args:
            step: The moment, as the number of steps timed so far.
            around: Number of steps to look at before the moment, and after it.
        """
        seconds = np.concatenate([self.steps.sum(axis=0), self.sampled.sum(axis=0)[None]])
        ratios = (seconds / np.median(seconds, axis=2, keepdims=True)).reshape(-1, len(self.order))
        in_turn = np.take_along_axis(ratios.T, self.order, axis=1).ravel()
        return float(np.median(in_turn[max(0, step - around) : step + around]))

    def profile(self) -> LatencyProfile:
        """Fit the latency profile."""
        draft, verify = self.steps
        shortest = int(np.argmin(self.contexts))
        added = np.median(self.sampled - self.steps[:, shortest], axis=2)
        return LatencyProfile(
            block_sizes=self.block_sizes,
            draft=_pairs(_draft_lines(self.block_sizes, self.contexts, draft)),
            verify=_pairs(smooth_lines(self.block_sizes, self.contexts, verify)),
            read_prompt=_pairs(smooth_lines((1,), self.contexts, self.read))[0],
            medians={
                "contexts": list(self.contexts),
                "repeats": len(self.order),
                **medians_with_intervals("draft", draft),
                **medians_with_intervals("verify", verify),
                "sampling": dict(zip(("draft", "verify"), added.tolist(), strict=True)),
            },
            sampling=_sampling_cost(self.block_sizes, added, self.noise),
        )


@torch.inference_mode()
def time_steps(
    decoder: Decoder,
    block_sizes: Sequence[int],
    contexts: Sequence[int] | None = None,
    repeats: int = 30,
    seed: int = 0,
    after_step: Callable[[int, int], None] = lambda done, total: None,
) -> StepTimes:
    """Time a decoder's steps on its device.

    Args:
        decoder: The pair's decoder.
        block_sizes: Sizes to measure, increasing from 1.
        contexts: Context lengths, in tokens; at least two. None for `default_contexts`.
        repeats: Rounds over the whole grid. Intervals, and smoothing along the block size, need two
            or more.
        seed: Random seed of the order within rounds.
        after_step: Called with the timed steps and their total. Its own time is not measured.

    Returns:
        The seconds of every step.

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
    decoder.warm_up(block_sizes)
    prefills = []
    for context in contexts:
        ids = torch.tensor(rng.integers(3, decoder.target.vocab_size, size=(1, context)))
        prefills.append(decoder.prefill(ids.to(decoder.pair.device), 8, max(block_sizes)))
    times = StepTimes.empty(block_sizes, contexts, repeats, rng)
    # A temperature adds the same at any context length, so only the shortest one is measured.
    shortest = int(np.argmin(contexts))
    for done, (repeat, turn) in enumerate(np.ndindex(times.order.shape), start=1):
        if decoder.drafter is not None and turn == 0:
            for c, prefill in enumerate(prefills):
                times.read[c, 0, repeat] = _seconds(partial(_read_prompt, decoder, prefill))
        c, b = divmod(int(times.order[repeat, turn]), len(block_sizes))
        size = block_sizes[b]
        if c < len(contexts):
            times.steps[:, c, b, repeat] = _time_step(decoder, prefills[c], size)
        else:
            warm = _at_temperature(decoder, prefills[shortest], repeat)
            times.noise[b, repeat] = _seconds(partial(_make_noise, decoder, warm, size)) / size
            times.sampled[:, b, repeat] = _time_step(decoder, warm, size)
        after_step(done, times.order.size)
    return times


def _draft_lines(
    block_sizes: Sequence[int], contexts: Sequence[int], draft: np.ndarray
) -> np.ndarray:
    """Lines of drafter passes, `[sizes, 2]`; zero for plain decoding, which drafts nothing."""
    lines = np.zeros((len(block_sizes), 2))
    blocks = [index for index, size in enumerate(block_sizes) if size > 1]
    if blocks:
        sizes = [block_sizes[index] for index in blocks]
        lines[blocks] = smooth_lines(sizes, contexts, draft[:, blocks])
    return lines


def _sampling_cost(
    block_sizes: Sequence[int], added: np.ndarray, noise: np.ndarray
) -> SamplingCost:
    """Fit the cost of a temperature: a straight line in the tokens that are proposed or chosen.

    Args:
        block_sizes: The sizes.
        added: Median seconds added to drafting and to verifying, `[2, sizes]`.
        noise: Measured seconds of the noise of a position, `[sizes, rounds]`.
    """
    sizes = np.asarray(block_sizes, dtype=float)
    blocks = sizes > 1
    draft = fit_line(sizes[blocks] - 2, added[0, blocks]) if blocks.any() else np.zeros(2)
    verify = fit_line(sizes - 1, added[1])
    draft_pair, verify_pair = _pairs(np.stack([draft, verify]))
    return SamplingCost(draft_pair, verify_pair, float(np.median(noise)))


def _pairs(lines: np.ndarray) -> tuple[tuple[float, float], ...]:
    return tuple((float(offset), float(slope)) for offset, slope in lines)


def _seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _at_temperature(decoder: Decoder, prefill: Prefill, seed: int) -> Prefill:
    """The same prompt at a temperature, with no noise computed yet."""
    sampler = Sampler(Sampling(1.0, seed=seed), decoder.target.vocab_size)
    return dataclasses.replace(prefill, sampler=sampler)


def _make_noise(decoder: Decoder, prefill: Prefill, block_size: int) -> None:
    """Compute the noise of one block after a prefilled prompt."""
    prefill.sampler.noise(prefill.prompt_tokens + 1, block_size, decoder.pair.device)
    _wait(decoder)


def _read_prompt(decoder: Decoder, prefill: Prefill) -> None:
    assert decoder.drafter is not None
    prefill.draft_cache.crop(0)
    decoder.drafter.extend(prefill.features, prefill.draft_cache)
    _wait(decoder)


def _wait(decoder: Decoder) -> None:
    """Wait for the queued work of an accelerator; a no-op on the CPU."""
    if decoder.pair.device.type == "cuda":
        torch.cuda.synchronize(decoder.pair.device)


def _time_step(decoder: Decoder, prefill: Prefill, block_size: int) -> tuple[float, float]:
    """Time drafting and verifying one block after a prefilled prompt.

    The work is that of a step of the decoder, until the host has the chosen tokens. The drafter
    first reads the features of two tokens, about as many as a step accepts. Unlike a decode, an
    accelerator is waited for between drafting and verifying, which costs the host one launch.

    Returns:
        Seconds of drafting and of verifying.
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
