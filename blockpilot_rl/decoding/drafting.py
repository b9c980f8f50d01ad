"""The drafter's lean pass: grow its context, then draft blocks of any size."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from blockpilot_rl.decoding.forward import TargetForward
from blockpilot_rl.decoding.lean import KVCache, LeanLayer, norm_of, rope_table
from blockpilot_rl.models.drafter import DFlashDraftModel


class LeanDrafter:
    """Lean pass of a DFlash drafter: grow its context, then draft blocks of any size."""

    def __init__(self, drafter: DFlashDraftModel, target: TargetForward) -> None:
        """Read the drafter's weights and the rows of the target's head that it may propose."""
        config: Any = drafter.config
        self.drafter = drafter
        self.target = target
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.head_dim
        self.layers = [
            LeanLayer(x, self.heads, self.kv_heads, self.head_dim) for x in drafter.layers
        ]
        layers: Any = drafter.layers
        self.windows: list[int | None] = [layer.self_attn.sliding_window for layer in layers]
        self.norm = norm_of(drafter.norm)
        self.token_ids = drafter.draft_token_ids
        head = target.head
        self.head = head if self.token_ids is None else head[self.token_ids].contiguous()
        like = drafter.fc.weight
        mask = torch.tensor([[config.mask_token_id]], device=like.device)
        self.mask_embedding = target.embed(mask)
        self._rope = rope_table(drafter.rotary_emb, 512, like)

    @property
    def device(self) -> torch.device:
        """Device of the drafter."""
        return self.drafter.fc.weight.device

    def new_cache(self, batch: int, max_length: int) -> KVCache:
        """Make an empty cache for `batch` rows of at most `max_length` positions."""
        like = self.drafter.fc.weight.detach()
        shape = (len(self.layers), batch, self.kv_heads, max_length, self.head_dim)
        if max_length > self._rope[0].shape[0]:
            self._rope = rope_table(self.drafter.rotary_emb, 2 * max_length, like)
        return KVCache(like.new_empty(shape), like.new_empty(shape))

    def extend(self, features: torch.Tensor, cache: KVCache) -> None:
        """Append the features of accepted tokens, `[batch, n, layers * hidden]`, to the context."""
        start, end = cache.length, cache.length + features.shape[1]
        cos, sin = (part[start:end, None] for part in self._rope)
        context = self.drafter.project(features)
        for index, layer in enumerate(self.layers):
            key, value = layer.project_context(context, cos, sin)
            cache.keys[index, :, :, start:end] = key
            cache.values[index, :, :, start:end] = value
        cache.length = end

    def draft(self, anchor: torch.Tensor, block_size: int, cache: KVCache) -> torch.Tensor:
        """Read the draft logits of one block behind the cached context.

        The block's own keys and values are written beyond `cache.length` and left stale.

        Args:
            anchor: The last emitted token of each row, `[batch, 1]`.
            block_size: Anchor and masks together, at least 2.
            cache: Context of the tokens before the anchor.

        Returns:
            Logits over the draft vocabulary, `[batch, block_size - 1, draft_vocab]`.
        """
        start, end = cache.length, cache.length + block_size
        cos, sin = (part[start:end, None] for part in self._rope)
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
                self._near(index, places[:, start:], places),
            )
        return self._logits(hidden)

    def draft_at(
        self,
        rows: torch.Tensor,
        starts: torch.Tensor,
        anchors: torch.Tensor,
        block_size: int,
        cache: KVCache,
    ) -> torch.Tensor:
        """Read the draft logits of many blocks at once, each at its own place of its own text.

        Args:
            rows: Row of the cache that each block continues, `[blocks]`.
            starts: Position of each block's anchor; context before it is read, `[blocks]`.
            anchors: Token at that position, `[blocks]`.
            block_size: Anchor and masks together, at least 2.
            cache: Context of whole texts, one per row; unchanged.

        Returns:
            Logits over the draft vocabulary, `[blocks, block_size - 1, draft_vocab]`.
        """
        context = int(starts.max())
        positions = starts[:, None] + torch.arange(block_size, device=starts.device)
        before = torch.arange(context, device=starts.device).expand(len(rows), -1)
        places = torch.cat([before, positions], dim=1)
        cos, sin = (part[positions].unsqueeze(2) for part in self._rope)
        seen = before < starts[:, None]
        own = seen.new_ones(len(rows), block_size)
        queries = block_size * self.heads // self.kv_heads
        mask = torch.cat([seen, own], dim=1)[:, None, None].expand(-1, 1, queries, -1)
        hidden = self._noise(anchors[:, None], block_size)
        for index, layer in enumerate(self.layers):
            query, key, value = layer.project(hidden, cos, sin)
            key = torch.cat([cache.keys[index, rows, :, :context], key], dim=2)
            value = torch.cat([cache.values[index, rows, :, :context], value], dim=2)
            near = self._near(index, positions, places)
            hidden = layer.finish(hidden, query, key, value, mask if near is None else mask & near)
        return self._logits(hidden)

    def _near(self, index: int, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor | None:
        """Mask of a layer's sliding window, for the layers that have one.

        Args:
            index: The layer.
            queries: Position of each query, `[blocks, n]`.
            keys: Position of each key, `[blocks, length]`.

        Returns:
            Boolean `[blocks, 1, groups * n, length]`, or None to look everywhere.
        """
        window = self.windows[index]
        if window is None:
            return None
        near = (queries[:, :, None] - keys[:, None]).abs() < window
        return near.repeat(1, self.heads // self.kv_heads, 1)[:, None]

    def _noise(self, anchor: torch.Tensor, block_size: int) -> torch.Tensor:
        masks = self.mask_embedding.expand(anchor.shape[0], block_size - 1, -1)
        return torch.cat([self.target.embed(anchor), masks], dim=1)

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        last = F.rms_norm(hidden[:, 1:], (hidden.shape[-1],), *self.norm)
        flat = F.linear(last.reshape(-1, last.shape[-1]), self.head)
        return flat.view(*last.shape[:2], -1)

    def to_target_ids(self, draft_ids: torch.Tensor) -> torch.Tensor:
        """Map ids of the draft vocabulary to the target's."""
        return draft_ids if self.token_ids is None else self.token_ids[draft_ids]
