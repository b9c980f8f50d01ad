"""Measuring a latency profile: the decoder's own steps, timed one by one.

Times are medians over a grid of block size and context length, with all cells interleaved in random
order within each round, so that the drift of a shared machine hits all alike. The medians are
smoothed as `blockpilot_rl.decoding.smoothing` describes. What a temperature adds is the difference
between a step that samples and one that does not, in the same round.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
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
"""Above the built-in suite's longest prompts, of about 900 tokens; a line goes on behind it."""


def default_contexts(limit: int) -> tuple[int, ...]:
    """Four context lengths up to 1024 tokens, or up to `limit` if that is less.

    Each is twice the one before, since most requests are short.
    """
    longest = min(LONGEST_CONTEXT, limit)
    return tuple(longest // part for part in (8, 4, 2, 1))


@torch.inference_mode()
def measure_latency(
    decoder: Decoder,
    block_sizes: Sequence[int],
    contexts: Sequence[int] | None = None,
    repeats: int = 30,
    seed: int = 0,
    after_round: Callable[[int, int], None] = lambda done, total: None,
) -> LatencyProfile:
    """Measure the profile of a decoder on its device.

    Args:
        decoder: The pair's decoder.
        block_sizes: Sizes to measure, increasing from 1.
        contexts: Context lengths, in tokens; at least two. None for `default_contexts`.
        repeats: Rounds over the whole grid. Intervals, and smoothing along the block size, need two
            or more.
        seed: Of the order within rounds.
        after_round: Called with the finished rounds and their total; what it does is not timed.

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
    # A temperature adds the same behind any context, so it is measured behind the shortest alone.
    shortest = int(np.argmin(contexts))
    steps = np.zeros((2, len(contexts), len(block_sizes), repeats))
    sampled = np.zeros((2, len(block_sizes), repeats))
    noise = np.zeros((len(block_sizes), repeats))
    read = np.zeros((len(contexts), 1, repeats))
    for repeat in range(repeats):
        if decoder.drafter is not None:
            for c, prefill in enumerate(prefills):
                read[c, 0, repeat] = _seconds(partial(_read_prompt, decoder, prefill))
        for cell in rng.permutation((len(contexts) + 1) * len(block_sizes)):
            c, b = divmod(int(cell), len(block_sizes))
            size = block_sizes[b]
            if c < len(contexts):
                steps[:, c, b, repeat] = _time_step(decoder, prefills[c], size)
            else:
                warm = _at_temperature(decoder, prefills[shortest], repeat)
                noise[b, repeat] = _seconds(partial(_make_noise, decoder, warm, size)) / size
                sampled[:, b, repeat] = _time_step(decoder, warm, size)
        after_round(repeat + 1, repeats)
    draft, verify = steps
    added = np.median(sampled - steps[:, shortest], axis=2)
    return LatencyProfile(
        block_sizes=tuple(block_sizes),
        draft=_pairs(_draft_lines(block_sizes, contexts, draft)),
        verify=_pairs(smooth_lines(block_sizes, contexts, verify)),
        read_prompt=_pairs(smooth_lines((1,), contexts, read))[0],
        medians={
            "contexts": list(contexts),
            "repeats": repeats,
            **medians_with_intervals("draft", draft),
            **medians_with_intervals("verify", verify),
            "sampling": dict(zip(("draft", "verify"), added.tolist(), strict=True)),
        },
        sampling=_sampling_cost(block_sizes, added, noise),
    )


def _draft_lines(
    block_sizes: Sequence[int], contexts: Sequence[int], draft: np.ndarray
) -> np.ndarray:
    """Lines of drafter passes, `[sizes, 2]`; plain decoding drafts nothing and is left out."""
    lines = np.zeros((len(block_sizes), 2))
    blocks = [index for index, size in enumerate(block_sizes) if size > 1]
    if blocks:
        sizes = [block_sizes[index] for index in blocks]
        lines[blocks] = smooth_lines(sizes, contexts, draft[:, blocks])
    return lines


def _sampling_cost(
    block_sizes: Sequence[int], added: np.ndarray, noise: np.ndarray
) -> SamplingCost:
    """Fit what a temperature adds: a straight line in the tokens that are proposed or chosen.

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
    """The same prompt, to be sampled, with no noise made yet."""
    sampler = Sampler(Sampling(1.0, seed=seed), decoder.target.vocab_size)
    return dataclasses.replace(prefill, sampler=sampler)


def _make_noise(decoder: Decoder, prefill: Prefill, block_size: int) -> None:
    """Make the noise that one block behind a prefilled prompt needs."""
    prefill.sampler.noise(prefill.prompt_tokens + 1, block_size, decoder.pair.device)
    _wait(decoder)


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
