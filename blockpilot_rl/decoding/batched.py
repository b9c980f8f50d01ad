"""Plain decoding of many prompts at once, with the states that drafters and sweeps need.

Prompts of similar length are read together. Rows that have ended leave the batch once they make up
an eighth of it. Batched texts are the target's own, but kernels round differently for other shapes,
so a near-tie can be decided differently than for one row alone. Everything that is derived from a
continuation therefore refers to that continuation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from blockpilot_rl.decoding.forward import TargetForward
from blockpilot_rl.decoding.lean import Hidden
from blockpilot_rl.decoding.sampling import GREEDY, Sampling, greedy, gumbel
from blockpilot_rl.errors import BlockPilotError

PREFILL_ROWS = 8
"""Prompts read in one pass."""


@dataclass(frozen=True)
class Continuation:
    """A prompt with the target's own continuation and hidden states.

    Attributes:
        prompt_ids: Prompt tokens, `[n]`.
        output_ids: Emitted tokens, `[m]`, up to and including the first stop token.
        features: Outputs of the feature layers at the prompt and at every emitted token but the
            last, `[n + m - 1, layers * hidden]`.
        last: Final-norm hidden states at the same positions, `[n + m - 1, hidden]`.
        max_new_tokens: Budget of the text. It ended with a stop token if it is shorter. Blocks are
            shorter near the end of the budget, not near a stop token.
        sampling: How its tokens were chosen.
    """

    prompt_ids: torch.Tensor
    output_ids: torch.Tensor
    features: torch.Tensor
    last: torch.Tensor
    max_new_tokens: int
    sampling: Sampling = GREEDY


@torch.inference_mode()
def continue_batch(
    target: TargetForward,
    prompts: Sequence[torch.Tensor],
    max_new_tokens: int,
    stop_token_ids: Collection[int],
    sampling: Sampling = GREEDY,
    seeds: Sequence[int] | None = None,
) -> list[Continuation]:
    """Decode a batch of prompts.

    Args:
        target: The target's pass.
        prompts: Token ids of each prompt, `[n_i]`.
        max_new_tokens: Budget of each row.
        stop_token_ids: Tokens that end a row.
        sampling: How tokens are chosen; greedy by default.
        seeds: Seed of each row; None for that of `sampling`.

    Returns:
        One continuation per prompt, in order, on the CPU.

    Raises:
        BlockPilotError: If the model has changed since its pass was prepared.
    """
    if not target.is_current():
        raise BlockPilotError(
            "the target has changed since its pass was prepared; prepare it again"
        )
    if seeds is None:
        seeds = [sampling.seed] * len(prompts)
    records = [
        _Record(ids, replace(sampling, seed=seed)) for ids, seed in zip(prompts, seeds, strict=True)
    ]
    rows = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
    places = _places([records[row] for row in rows])
    cache, padding, token = _prefill(target, [records[row] for row in rows], places, max_new_tokens)
    stops = set(stop_token_ids)
    for step in range(max_new_tokens):
        values = token.tolist()
        for row, value in zip(rows, values, strict=True):
            records[row].tokens.append(value)
        alive = [
            i
            for i, (row, value) in enumerate(zip(rows, values, strict=True))
            if not records[row].ended and value not in stops
        ]
        for i in set(range(len(rows))) - set(alive):
            records[rows[i]].end()
        if not alive or step == max_new_tokens - 1:
            break
        if 8 * len(alive) <= 7 * len(rows):
            keep = torch.tensor(alive, device=token.device)
            rows = [rows[i] for i in alive]
            token, padding, places = token[keep], padding[keep], places[keep]
            cache.select(keep)
        hidden = target(token[:, None], cache, padding)
        for i, row in enumerate(rows):
            records[row].append(hidden, i)
        token = _choose(target, hidden, sampling, places, step + 1)
    return [record.finish(max_new_tokens) for record in records]


def _choose(
    target: TargetForward, hidden: Hidden, sampling: Sampling, places: torch.Tensor, step: int
) -> torch.Tensor:
    """Choose the next token of each row with the noise of its own seed and position, `[rows]`.

    Args:
        target: The target's pass.
        hidden: Its result.
        sampling: How tokens are chosen; its seed is not read.
        places: Seed and position of the first token of each row, `[rows, 2]`.
        step: Tokens that each row has.
    """
    logits = target.logits(hidden.last[:, -1]) if hidden.logits is None else hidden.logits[:, -1]
    if sampling.is_greedy:
        return greedy(logits)
    tokens = torch.arange(target.vocab_size, device=logits.device)
    return sampling.choose(logits, gumbel(places[:, 0], places[:, 1] + step, tokens))


def _prefill(
    target: TargetForward, records: Sequence[_Record], places: torch.Tensor, max_new_tokens: int
) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """Read the prompts a few at a time, so that little of a pass is padding.

    Args:
        target: The target's pass.
        records: One per prompt, sorted by its length.
        places: See `_choose`.
        max_new_tokens: Budget of each row.

    Returns:
        Cache of all rows, their padding and their first tokens, `[rows]` each.
    """
    caches, tokens = [], []
    for start in range(0, len(records), PREFILL_ROWS):
        group = records[start : start + PREFILL_ROWS]
        prompts = [record.prompt_ids for record in group]
        ids = pad_sequence(prompts, batch_first=True, padding_side="left")
        cache = target.new_cache(*ids.shape)
        hidden = target(ids, cache, _padding(group, ids.device))
        for row, record in enumerate(group):
            record.start(hidden, row)
        own = places[start : start + PREFILL_ROWS]
        tokens.append(_choose(target, hidden, group[0].sampling, own, 0))
        caches.append(cache)
    cache = caches[0].join(caches[1:], len(records[-1].prompt_ids) + max_new_tokens)
    return cache, _padding(records, ids.device), torch.cat(tokens)


def _places(records: Sequence[_Record]) -> torch.Tensor:
    """Seed and position of the first new token of each row, `[rows, 2]`, on the prompts' device."""
    device = records[0].prompt_ids.device
    places = [(record.sampling.seed, len(record.prompt_ids)) for record in records]
    return torch.tensor(places, device=device)


def _padding(records: Sequence[_Record], device: torch.device) -> torch.Tensor:
    """Count the padding slots of each row of a batch sorted by length, `[rows]`."""
    lengths = torch.tensor([len(record.prompt_ids) for record in records], device=device)
    return lengths[-1] - lengths


class _Record:
    """One row while it is being decoded."""

    def __init__(self, prompt_ids: torch.Tensor, sampling: Sampling) -> None:
        self.prompt_ids = prompt_ids
        self.sampling = sampling
        self.tokens: list[int] = []
        self.ended = False
        self.features: list[torch.Tensor] = []
        self.last: list[torch.Tensor] = []
        self.length = 0

    def start(self, hidden: Hidden, row: int) -> None:
        """Keep the states of the prompt."""
        n = len(self.prompt_ids)
        self.features.append(hidden.features[row, -n:].clone().cpu())
        self.last.append(hidden.last[row, -n:].clone().cpu())

    def append(self, hidden: Hidden, row: int) -> None:
        if not self.ended:
            self.features.append(hidden.features[row].cpu())
            self.last.append(hidden.last[row].cpu())

    def end(self) -> None:
        if not self.ended:
            self.ended, self.length = True, len(self.tokens)

    def finish(self, max_new_tokens: int) -> Continuation:
        tokens = self.tokens[: self.length] if self.ended else self.tokens
        return Continuation(
            prompt_ids=self.prompt_ids.cpu(),
            output_ids=torch.tensor(tokens),
            features=torch.cat(self.features)[: len(self.prompt_ids) + len(tokens) - 1],
            last=torch.cat(self.last)[: len(self.prompt_ids) + len(tokens) - 1],
            max_new_tokens=max_new_tokens,
            sampling=self.sampling,
        )
