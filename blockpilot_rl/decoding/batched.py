"""Plain decoding of many prompts at once, keeping what drafters and sweeps need.

Rows are left-padded to one length; rows that have ended leave the batch as soon as they fill an
eighth of it. Batched texts are the target's own, but kernels round differently by shape, so
near-ties may fall otherwise than for one row alone: what is built on a continuation names it as its
reference.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch

from blockpilot_rl.decoding.forward import Hidden, TargetForward
from blockpilot_rl.decoding.sampling import GREEDY, Sampling, greedy, gumbel_rows


@dataclass(frozen=True)
class Continuation:
    """A prompt with the target's own continuation and hidden states.

    Attributes:
        prompt_ids: Prompt tokens, `[n]`.
        output_ids: Emitted tokens, `[m]`, up to and including the first stop token.
        features: Outputs of the feature layers at the prompt and at every emitted token but the
            last, `[n + m - 1, layers * hidden]`.
        last: Final-norm hidden states at the same positions, `[n + m - 1, hidden]`.
        sampling: How its tokens were chosen.
    """

    prompt_ids: torch.Tensor
    output_ids: torch.Tensor
    features: torch.Tensor
    last: torch.Tensor
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
    """
    if seeds is None:
        seeds = [sampling.seed] * len(prompts)
    longest = max(len(ids) for ids in prompts)
    device = prompts[0].device
    padding = torch.tensor([longest - len(ids) for ids in prompts], device=device)
    batch = torch.stack([_left_pad(ids, longest) for ids in prompts])
    cache = target.new_cache(len(prompts), longest + max_new_tokens)
    hidden = target(batch, cache, padding)
    records = [
        _Record(ids, hidden, row, replace(sampling, seed=seed))
        for row, (ids, seed) in enumerate(zip(prompts, seeds, strict=True))
    ]
    rows = list(range(len(prompts)))
    stops = set(stop_token_ids)
    token = _choose(target, hidden, records)
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
            keep = torch.tensor(alive, device=device)
            rows = [rows[i] for i in alive]
            token, padding = token[keep], padding[keep]
            cache.select(keep)
        hidden = target(token[:, None], cache, padding)
        for i, row in enumerate(rows):
            records[row].append(hidden, i)
        token = _choose(target, hidden, [records[row] for row in rows])
    return [record.finish() for record in records]


def _choose(target: TargetForward, hidden: Hidden, records: Sequence[_Record]) -> torch.Tensor:
    """Choose the next token of each row by the noise of its own seed and position, `[rows]`."""
    logits = target.logits(hidden.last[:, -1])
    sampling = records[0].sampling
    if sampling.is_greedy:
        return greedy(logits)
    noise = gumbel_rows([record.place for record in records], target.vocab_size)
    return sampling.choose(logits, noise.to(logits.device))


def _left_pad(ids: torch.Tensor, length: int) -> torch.Tensor:
    return torch.nn.functional.pad(ids, (length - len(ids), 0))


class _Record:
    """One row while it is being decoded."""

    def __init__(
        self, prompt_ids: torch.Tensor, hidden: Hidden, row: int, sampling: Sampling
    ) -> None:
        self.prompt_ids = prompt_ids
        self.sampling = sampling
        self.tokens: list[int] = []
        self.ended = False
        n = len(prompt_ids)
        self.features = [hidden.features[row, -n:].clone().cpu()]
        self.last = [hidden.last[row, -n:].clone().cpu()]
        self.length = 0

    @property
    def place(self) -> tuple[int, int]:
        """Seed and position of the next token."""
        return self.sampling.seed, len(self.prompt_ids) + len(self.tokens)

    def append(self, hidden: Hidden, row: int) -> None:
        if not self.ended:
            self.features.append(hidden.features[row].cpu())
            self.last.append(hidden.last[row].cpu())

    def end(self) -> None:
        if not self.ended:
            self.ended, self.length = True, len(self.tokens)

    def finish(self) -> Continuation:
        tokens = self.tokens[: self.length] if self.ended else self.tokens
        return Continuation(
            prompt_ids=self.prompt_ids.cpu(),
            output_ids=torch.tensor(tokens),
            features=torch.cat(self.features)[: len(self.prompt_ids) + len(tokens) - 1],
            last=torch.cat(self.last)[: len(self.prompt_ids) + len(tokens) - 1],
            sampling=self.sampling,
        )
