"""The drafter's lean pass: grow its context, then draft blocks of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F

from blockpilot_rl.decoding.forward import TargetForward
from blockpilot_rl.decoding.lean import KVCache, LeanLayer, RopeTable, norm_of
from blockpilot_rl.decoding.sampling import greedy
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.correction import CorrectionHead
from blockpilot_rl.models.drafter import DFlashDraftModel, visible


@dataclass(frozen=True)
class Blocks:
    """Blocks to draft, each at its own place of its own text.

    Attributes:
        rows: Text that each block continues, `[blocks]`; those of a text follow each other.
        starts: Position of each block's anchor; context before it is read, `[blocks]`.
        anchors: Token at that position, `[blocks]`.
        sizes: Anchor and masks together, at least 2, `[blocks]`.
    """

    rows: torch.Tensor
    starts: torch.Tensor
    anchors: torch.Tensor
    sizes: torch.Tensor

    @cached_property
    def firsts(self) -> torch.Tensor:
        """Number of each block's anchor among the tokens of all blocks, `[blocks]`."""
        return self.sizes.cumsum(0) - self.sizes


class LeanDrafter:
    """Lean pass of a DFlash drafter: grow its context, then draft blocks of any size."""

    def __init__(self, drafter: DFlashDraftModel, target: TargetForward) -> None:
        """Read the drafter's weights, and the target's embeddings and head if it has none."""
        config: Any = drafter.config
        if config.is_dflash2:
            raise BlockPilotError("DFlash2 drafters cannot be decoded with yet")
        self.drafter = drafter
        self.target = target
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.head_dim
        self.layers = [
            LeanLayer(x, self.heads, self.kv_heads, self.head_dim) for x in drafter.layers
        ]
        layers: Any = drafter.layers
        self.views: list[tuple[int | None, bool]] = [
            (layer.self_attn.sliding_window, layer.self_attn.is_causal) for layer in layers
        ]
        self.norm = norm_of(drafter.norm)
        self.token_ids = drafter.draft_token_ids
        self.head = drafter.draft_head(target.head)
        model: Any = target.model
        self.head_bias = drafter.draft_bias(model.get_output_embeddings().bias)
        self._table = model.get_input_embeddings().weight.detach()
        self.correction = drafter.correction
        like = drafter.fc.weight
        mask = torch.tensor([[config.mask_token_id]], device=like.device)
        self.mask_embedding = self.embed(mask)
        self._rope = RopeTable(drafter.rotary_emb, like)
        if self.correction is not None:
            self._correction_head = self.head @ self.correction.output.weight.detach()
            self._tokens_read = self._read_tokens(self.correction)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Embed tokens as the drafter reads them, `[...]` to `[..., hidden]`."""
        return self.drafter.embed(tokens, self._table)

    @property
    def device(self) -> torch.device:
        """Device of the drafter."""
        return self.drafter.fc.weight.device

    def new_cache(self, batch: int, max_length: int) -> KVCache:
        """Make an empty cache for `batch` rows of at most `max_length` positions."""
        like = self.drafter.fc.weight.detach()
        shape = (len(self.layers), batch, self.kv_heads, max_length, self.head_dim)
        self._rope.reach(max_length)
        return KVCache(like.new_empty(shape), like.new_empty(shape))

    def extend(self, features: torch.Tensor, cache: KVCache) -> None:
        """Append the features of accepted tokens, `[batch, n, layers * hidden]`, to the context."""
        start, end = cache.length, cache.length + features.shape[1]
        cos, sin = (part[start:end, None] for part in self._rope.parts)
        context = self.drafter.project(features)
        for index, layer in enumerate(self.layers):
            key, value = layer.project_context(context, cos, sin)
            cache.keys[index, :, :, start:end] = key
            cache.values[index, :, :, start:end] = value
        cache.length = end

    def draft(self, anchor: torch.Tensor, block_size: int, cache: KVCache) -> torch.Tensor:
        """Denoise one block behind the cached context.

        The block's own keys and values are written beyond `cache.length` and left stale.

        Args:
            anchor: The last emitted token of each row, `[batch, 1]`.
            block_size: Anchor and masks together, at least 2.
            cache: Context of the tokens before the anchor.

        Returns:
            States of the masks, for `propose` to read, `[batch, block_size - 1, hidden]`.
        """
        start, end = cache.length, cache.length + block_size
        cos, sin = (part[start:end, None] for part in self._rope.parts)
        places = torch.arange(end, device=anchor.device)[None]
        hidden = self._noise(anchor, block_size)
        for index, layer in enumerate(self.layers):
            query, key, value = layer.project(hidden, cos, sin)
            cache.keys[index, :, :, start:end] = key
            cache.values[index, :, :, start:end] = value
            hidden = layer.finish(
                hidden,
                query,
                cache.keys[index, :, :, :end],
                cache.values[index, :, :, :end],
                self._near(self.views[index], places[:, start:], places),
            )
        return hidden[:, 1:]

    def draft_at(self, blocks: Blocks, cache: KVCache) -> torch.Tensor:
        """Draft many blocks in one pass.

        The blocks of a text are one query of its context, which is read where it lies. Their own
        keys and values are written beyond `cache.length` and left stale, so the cache needs room
        there for as many tokens as the blocks of one text have.

        Args:
            blocks: What to draft.
            cache: Context of whole texts, one per row.

        Returns:
            States of the tokens of all blocks, one block behind the other, for `logits` to read,
            `[tokens, hidden]`.
        """
        block = torch.repeat_interleave(blocks.sizes)
        offsets = torch.arange(len(block), device=block.device) - blocks.firsts[block]
        positions = blocks.starts[block] + offsets
        hidden = self.mask_embedding.repeat(1, len(block), 1)
        hidden[:, blocks.firsts] = self.embed(blocks.anchors[None])
        cos, sin = (part[positions, None] for part in self._rope.parts)
        rows, tokens = torch.unique_consecutive(blocks.rows[block], return_counts=True)
        counts = tokens.tolist()
        masks = [
            self._masks(own, blocks.starts[own], places, cache)
            for own, places in zip(block.split(counts), positions.split(counts), strict=True)
        ]
        for index, layer in enumerate(self.layers):
            parts = (part.split(counts, dim=2) for part in layer.project(hidden, cos, sin))
            mixed = [
                self._attend(index, row, query, key, value, mask[self.views[index]], cache)
                for row, mask, query, key, value in zip(rows.tolist(), masks, *parts, strict=True)
            ]
            hidden = layer.feed_forward(hidden, torch.cat(mixed, dim=1))
        return hidden[0]

    def _attend(
        self,
        index: int,
        row: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor,
        cache: KVCache,
    ) -> torch.Tensor:
        """Let the blocks of one text look at its context and at themselves in one layer."""
        start, end = cache.length, cache.length + key.shape[2]
        keys, values = cache.keys[index, row, None], cache.values[index, row, None]
        keys[:, :, start:end], values[:, :, start:end] = key, value
        return self.layers[index].attend(query, keys[:, :, :end], values[:, :, :end], mask)

    def _masks(
        self, block: torch.Tensor, starts: torch.Tensor, positions: torch.Tensor, cache: KVCache
    ) -> dict[tuple[int | None, bool], torch.Tensor]:
        """Additive masks of the blocks of one text, for every view that a layer has.

        Args:
            block: Block of each token, `[n]`.
            starts: Position of that block's anchor, `[n]`.
            positions: Position of each token, `[n]`.
            cache: Context of the text.

        Returns:
            `[1, 1, groups * n, context + n]` for each view.
        """
        context = torch.arange(cache.length, device=block.device)
        seen = torch.cat([context < starts[:, None], block[:, None] == block], dim=1)
        seen = seen.repeat(self.heads // self.kv_heads, 1)[None, None]
        places = torch.cat([context, positions])[None]
        masks = {}
        for view in set(self.views):
            near = self._near(view, positions[None], places)
            hidden = ~seen if near is None else ~(seen & near)
            masks[view] = cache.keys.new_zeros(hidden.shape).masked_fill_(hidden, -torch.inf)
        return masks

    def _near(
        self, view: tuple[int | None, bool], queries: torch.Tensor, keys: torch.Tensor
    ) -> torch.Tensor | None:
        """Mask of a layer that does not see everything.

        Args:
            view: Its sliding window, or None, and whether it is causal.
            queries: Position of each query, `[blocks, n]`.
            keys: Position of each key, `[blocks, length]`.

        Returns:
            Boolean `[blocks, 1, groups * n, length]`, or None to look everywhere.
        """
        near = visible(queries, keys, *view)
        return None if near is None else near.repeat(1, self.heads // self.kv_heads, 1)[:, None]

    def _noise(self, anchor: torch.Tensor, block_size: int) -> torch.Tensor:
        masks = self.mask_embedding.expand(anchor.shape[0], block_size - 1, -1)
        return torch.cat([self.embed(anchor), masks], dim=1)

    def logits(self, states: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Read states of masks as logits.

        Args:
            states: As `draft` gives them, `[..., hidden]`.
            before: Token before each mask, `[...]`; only a `CorrectionHead` looks at it.

        Returns:
            Logits over the draft vocabulary, `[..., draft_vocab]`.
        """
        normed = self._normed(states)
        logits = F.linear(normed, self.head, self.head_bias)
        if self.correction is not None:
            mixed = self.correction.mix(normed, self.embed(before))
            logits = logits + F.linear(mixed, self._correction_head)
        return self.drafter.scale_logits(logits)

    def propose(
        self,
        states: torch.Tensor,
        anchor: torch.Tensor,
        choose: Callable[[torch.Tensor, int], torch.Tensor],
    ) -> torch.Tensor:
        """Draft the tokens of one block, each knowing the one before it if the drafter corrects.

        Args:
            states: Of its masks, `[n, hidden]`.
            anchor: The token before them, `[1]`.
            choose: Chooses draft ids from the logits `[k, draft_vocab]` of consecutive masks, the
                first of which has the given number.

        Returns:
            Tokens, `[n]`.
        """
        if self.correction is None:
            return self.to_target_ids(choose(self.logits(states, anchor), 0))
        chain = self._chain(self.correction, states[None], anchor, choose)
        return self.to_target_ids(torch.cat([drafts for _, drafts in chain]))

    def greedy_logits(self, states: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
        """Read blocks of one size, each mask behind the most probable draft of the one before.

        Args:
            states: Of the masks, `[blocks, n, hidden]`.
            anchors: Token before the masks of each block, `[blocks]`.

        Returns:
            Logits over the draft vocabulary, `[blocks, n, draft_vocab]`.
        """
        if self.correction is None:
            return self.logits(states, anchors)
        chain = self._chain(self.correction, states, anchors, lambda logits, _: greedy(logits))
        return torch.stack([logits for logits, _ in chain], dim=1)

    def _chain(
        self,
        correction: CorrectionHead,
        states: torch.Tensor,
        anchors: torch.Tensor,
        choose: Callable[[torch.Tensor, int], torch.Tensor],
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Correct mask after mask; yields logits `[blocks, draft_vocab]` and draft ids `[blocks]`.

        What does not depend on the drafts is computed for all masks at once.
        """
        normed = self._normed(states)
        logits, known = F.linear(normed, self.head, self.head_bias), correction.state(normed)
        read = correction.read(self.embed(anchors))
        for index in range(states.shape[1]):
            mixed = correction.join(known[:, index], read)
            corrected = logits[:, index] + F.linear(mixed, self._correction_head)
            corrected = self.drafter.scale_logits(corrected)
            drafts = choose(corrected, index)
            yield corrected, drafts
            read = self._tokens_read[drafts]

    @torch.no_grad()
    def _read_tokens(self, correction: CorrectionHead) -> torch.Tensor:
        """What the correction head reads of every token that can be drafted, `[draft_vocab, rank]`.

        Some rows at a time, since embeddings of a large vocabulary take gigabytes.
        """
        tokens = self.to_target_ids(torch.arange(len(self.head), device=self.device))
        return torch.cat([correction.read(self.embed(some)) for some in tokens.split(8192)])

    def _normed(self, states: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(states, states.shape[-1:], *self.norm)

    def to_target_ids(self, draft_ids: torch.Tensor) -> torch.Tensor:
        """Map ids of the draft vocabulary to the target's."""
        return draft_ids if self.token_ids is None else self.token_ids[draft_ids]
