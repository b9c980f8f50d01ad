"""The latency profile: what drafting and verifying cost on this device.

Times are medians of the decoder's own steps over a grid of block size and context length, with
all of them interleaved in random order so that drift of a shared machine hits all alike, and each
block size smoothed by a straight line in the context length.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.sampling import greedy
from blockpilot_rl.errors import BlockPilotError


@dataclass(frozen=True)
class LatencyProfile:
    """Seconds of each part of a decode step, linear in the context length.

    Each line is `(seconds at context 0, seconds per context token)`.

    Attributes:
        block_sizes: Block sizes that were measured, increasing.
        draft: One line per block size for a drafter pass; zero for plain decoding.
        verify: One line per block size for a target pass.
        read_prompt: Line for the drafter's first reading of a prompt's features.
        medians: What was measured: for each context length and block size, the median seconds of
            draft and verify.
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
        """Read what `to_dict` gave."""
        lines = {
            name: tuple((float(a), float(b)) for a, b in values[name])
            for name in ("draft", "verify")
        }
        first, slope = values["read_prompt"]
        return cls(
            block_sizes=tuple(int(size) for size in values["block_sizes"]),
            draft=lines["draft"],
            verify=lines["verify"],
            read_prompt=(float(first), float(slope)),
            medians=values["medians"],
        )

    def decode_seconds(self, block_size: int, prompt_tokens: int, emitted: Sequence[int]) -> float:
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
        if block_size not in self.block_sizes:
            raise BlockPilotError(
                f"block size {block_size} is not in the latency profile {self.block_sizes}"
            )
        if len(emitted) == 0:
            return 0.0
        index = self.block_sizes.index(block_size)
        contexts = prompt_tokens + np.concatenate([[0], np.cumsum(emitted)[:-1]])
        fixed = self.draft[index][0] + self.verify[index][0]
        slope = self.draft[index][1] + self.verify[index][1]
        seconds = fixed * len(emitted) + slope * float(contexts.sum())
        if block_size > 1:
            seconds += self.read_prompt[0] + self.read_prompt[1] * prompt_tokens
        return seconds


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
        repeats: Rounds over the whole grid.
        seed: Of the order within rounds.
        progress: Called with the finished rounds and their total.

    Raises:
        BlockPilotError: If the grid is empty.
    """
    if contexts is None:
        contexts = default_contexts(decoder.pair.max_length - max(block_sizes) - 8)
    if len(set(contexts)) < 2 or repeats < 1 or not block_sizes:
        raise BlockPilotError("a latency profile needs block sizes, two contexts and one repeat")
    if decoder.drafter is None and max(block_sizes) > 1:
        raise BlockPilotError("block sizes above 1 need a drafter; this pair has none")
    rng = np.random.default_rng(seed)
    shape = (len(contexts), len(block_sizes), repeats)
    draft, verify, read = np.zeros(shape), np.zeros(shape), np.zeros((len(contexts), repeats))
    decoder.warm_up(block_sizes)
    prefills = []
    for context in contexts:
        ids = torch.tensor(rng.integers(3, decoder.target.vocab_size, size=(1, context)))
        prefills.append(decoder.prefill(ids.to(decoder.pair.device), 8, max(block_sizes)))
    for repeat in range(repeats):
        if decoder.drafter is not None:
            for c, prefill in enumerate(prefills):
                read[c, repeat] = _seconds(partial(_read_prompt, decoder, prefill))
        for cell in rng.permutation(len(contexts) * len(block_sizes)):
            c, b = divmod(int(cell), len(block_sizes))
            step = _time_step(decoder, prefills[c], block_sizes[b])
            draft[c, b, repeat], verify[c, b, repeat] = step
        progress(repeat + 1, repeats)
    medians = {"draft": np.median(draft, axis=2), "verify": np.median(verify, axis=2)}
    return LatencyProfile(
        block_sizes=tuple(block_sizes),
        draft=_lines(contexts, medians["draft"]),
        verify=_lines(contexts, medians["verify"]),
        read_prompt=_lines(contexts, np.median(read, axis=1)[:, None])[0],
        medians={
            "contexts": list(contexts),
            "repeats": repeats,
            **{name: values.tolist() for name, values in medians.items()},
        },
    )


def _seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _read_prompt(decoder: Decoder, prefill: Any) -> None:
    assert decoder.drafter is not None
    prefill.draft_cache.crop(0)
    decoder.drafter.extend(prefill.features, prefill.draft_cache)
    _wait(decoder)


def _wait(decoder: Decoder) -> None:
    """Let queued work of an accelerator finish; a no-op on the CPU."""
    if decoder.pair.device.type == "cuda":
        torch.cuda.synchronize(decoder.pair.device)


def _time_step(decoder: Decoder, prefill: Any, block_size: int) -> tuple[float, float]:
    """Seconds of drafting and of verifying one block behind a prefilled prompt.

    The drafter reads two tokens' features first, about what a step accepts.
    """
    block = torch.tensor([[prefill.first_token]], device=decoder.pair.device)
    began = time.perf_counter()
    if block_size > 1 and decoder.drafter is not None:
        prefill.draft_cache.crop(prefill.prompt_tokens - 2)
        decoder.drafter.extend(prefill.features[:, -2:], prefill.draft_cache)
        logits = decoder.drafter.draft(block, block_size, prefill.draft_cache)
        block = torch.cat([block, decoder.drafter.to_target_ids(greedy(logits))], dim=1)
        _wait(decoder)
    drafted = time.perf_counter()
    hidden = decoder.target(block, prefill.cache)
    greedy(decoder.target.logits(hidden.last)).tolist()
    verified = time.perf_counter()
    prefill.cache.crop(prefill.prompt_tokens)
    return (drafted - began if block_size > 1 else 0.0), verified - drafted


def _lines(contexts: Sequence[int], medians: np.ndarray) -> tuple[tuple[float, float], ...]:
    """Fit a line in the context length to each column, with no negative part.

    Work never shrinks with the context, so a negative slope or offset could only be noise.
    """
    design = np.stack([np.ones(len(contexts)), np.asarray(contexts, dtype=float)], axis=1)
    fits = [nnls(design, column)[0] for column in medians.T]
    return tuple((float(offset), float(slope)) for offset, slope in fits)
