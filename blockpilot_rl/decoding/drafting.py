"""The drafter's lean pass: grow its context, then draft blocks of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP

from blockpilot_rl.decoding.fidelity import Snapshot, customization
from blockpilot_rl.decoding.forward import TargetForward, matrix_of
from blockpilot_rl.decoding.lean import (
    KVCache,
    LayerCache,
    LeanForward,
    LeanLayer,
    Norm,
    RopeTable,
    layer_caches,
    rotate,
)
from blockpilot_rl.decoding.products import product, stacked_bias
from blockpilot_rl.decoding.sampling import greedy
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.correction import CorrectionHead
from blockpilot_rl.models.dflash2 import CandidateSelector
from blockpilot_rl.models.drafter import DFlashDraftModel, DFlashLayer, around, visible
from blockpilot_rl.models.drafter_config import SCALES

_View = tuple[int | None, bool]
"""Sliding window of a layer, or None, and whether the layer is causal."""


@dataclass(frozen=True)
class Blocks:
    """Blocks to draft, each at its own position of its own text.

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


class DraftLayer(LeanLayer):
    """One decoder layer of a drafter, with the convolutions of DFlash2 if it has them."""

    def __init__(self, layer: DFlashLayer, heads: int, kv_heads: int, head_dim: int) -> None:
        """Read the weights of a layer."""
        super().__init__(layer, heads, kv_heads, head_dim)
        self.attention_conv, self.mlp_conv = layer.attention_conv, layer.mlp_conv

    def denoise(
        self,
        hidden: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        offsets: torch.Tensor,
        attend: Callable[[torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        """Run the layer on blocks.

        Args:
            hidden: Residual stream, `[batch, n, hidden]`.
            cos: As for `project`.
            sin: As for `project`.
            offsets: Position of each token in its block, `[n]`.
            attend: Attention, from the result of `project` to `[batch, n, heads * head_dim]`.
        """
        if self.attention_conv is None:
            return self.feed_forward(hidden, attend(self.project(hidden, cos, sin)))

        def attention(normed: torch.Tensor) -> torch.Tensor:
            return self.output(attend(self.split_heads(self.qkv(normed), cos, sin)))

        def mlp(normed: torch.Tensor) -> torch.Tensor:
            gate, up = self.gate_up(normed).chunk(2, dim=-1)
            return self.down(self.activation(gate) * up)

        normed = self.input_norm(hidden)
        hidden = hidden + around(self.attention_conv, attention, normed, offsets)
        return hidden + around(self.mlp_conv, mlp, self.mlp_norm(hidden), offsets)


def _attend(
    layer: LeanLayer,
    texts: Sequence[tuple[int, LayerCache, torch.Tensor]],
    states: torch.Tensor,
) -> torch.Tensor:
    """Let the blocks of each text attend to its context and to themselves in one layer.

    Args:
        layer: The layer.
        texts: Number of tokens of each text, its cache and its mask in this layer.
        states: Result of `project` for the tokens of all texts.

    Returns:
        `[1, tokens, heads * head_dim]`.
    """
    parts = states.split([count for count, _, _ in texts], dim=2)
    mixed = [
        layer.attend(part, cache, mask) for part, (_, cache, mask) in zip(parts, texts, strict=True)
    ]
    return torch.cat(mixed, dim=1)


class LeanDrafter:
    """Lean pass of a DFlash drafter: grow its context, then draft blocks of any size."""

    def __init__(self, drafter: DFlashDraftModel, target: TargetForward) -> None:
        """Read the drafter's weights, and the target's embeddings and head if it has none.

        Raises:
            BlockPilotError: If hooks, adapters or patches have changed the drafter.
        """
        config: Any = drafter.config
        self.drafter = drafter
        self.target = target
        changed = self._customization()
        if changed is not None:
            raise BlockPilotError(
                f"the drafter has {changed}, which its fused pass would skip; use the drafter as "
                "it was loaded"
            )
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.head_dim
        layers: Any = drafter.layers
        self.layers = [DraftLayer(x, self.heads, self.kv_heads, self.head_dim) for x in layers]
        self.views: list[_View] = [
            (layer.self_attn.sliding_window, layer.self_attn.is_causal) for layer in layers
        ]
        self._features = product(drafter.fc.weight.detach())
        self._context_norm = Norm(drafter.hidden_norm)
        attentions = [layer.self_attn for layer in layers]
        linears = [linear for part in attentions for linear in (part.k_proj, part.v_proj)]
        weight = torch.cat([linear.weight.detach() for linear in linears])
        self._context = product(weight, stacked_bias(linears))
        self._key_norms = torch.stack([part.k_norm.weight.detach() for part in attentions])[:, None]
        self._key_eps = attentions[0].k_norm.variance_epsilon
        self.norm = Norm(drafter.norm)
        self.token_ids = drafter.draft_token_ids
        self.head = drafter.draft_head(target.head)
        model: Any = target.model
        bias = drafter.draft_bias(getattr(model.get_output_embeddings(), "bias", None))
        shared = isinstance(target, LeanForward) and self.head is target.head and bias is None
        self._read = target.read if shared else product(self.head, bias)  # type: ignore[attr-defined]
        self._scales = any(config.setting(name) for name in SCALES[1:])
        self._table = matrix_of(model.get_input_embeddings())
        self.correction = drafter.correction
        self.selector = drafter.candidate_selector
        like = drafter.fc.weight.detach()
        mask = torch.tensor([[config.mask_token_id]], device=like.device)
        self.mask_embedding = self.embed(mask)
        self._rope = RopeTable(drafter.rotary_emb, like)
        if self.correction is not None:
            self._correct = product(self.head @ self.correction.output.weight.detach())
            self._tokens_read = self._read_tokens(self.correction)
        self._snapshot = Snapshot(drafter)

    def is_current(self) -> bool:
        """Whether the drafter is unchanged since this pass was prepared."""
        return self._customization() is None and self._snapshot.is_current()

    def _customization(self) -> str | None:
        return customization(self.drafter, ("blockpilot_rl.models", Qwen3MLP.__module__))

    @property
    def reads_drafts(self) -> bool:
        """Whether each draft is based on the one before it, so that drafts are made in turn."""
        return self.correction is not None or self.selector is not None

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Embed tokens as the drafter reads them, `[...]` to `[..., hidden]`."""
        return self.drafter.embed(tokens, self._table)

    @property
    def device(self) -> torch.device:
        """Device of the drafter."""
        return self.drafter.fc.weight.device

    def new_cache(self, batch: int, max_length: int) -> KVCache:
        """Make an empty cache for `batch` rows of at most `max_length` positions."""
        self._rope.reach(max_length)
        shape = (len(self.layers), batch, 2 * self.kv_heads, max_length, self.head_dim)
        return KVCache(self.mask_embedding.new_empty(shape))

    def extend(self, features: torch.Tensor, cache: KVCache) -> None:
        """Append the features of accepted tokens, `[batch, n, layers * hidden]`, to the context.

        The keys and values of all layers are one product, since all layers read the same context.
        """
        batch, n = features.shape[:2]
        start, end = cache.length, cache.length + n
        context = self._context(self._context_norm(self._features(features)))
        states = context.view(batch, n, len(self.layers), 2 * self.kv_heads, self.head_dim)
        keys = states[..., : self.kv_heads, :]
        normed = F.rms_norm(keys, (self.head_dim,), None, self._key_eps)
        torch.mul(normed, self._key_norms, out=keys)
        rotate(keys, self._rope.cos[start:end, None], self._rope.sin[start:end, None])
        cache.states[:, :, :, start:end] = states.permute(2, 0, 3, 1, 4)
        cache.length = end

    def draft(self, anchor: torch.Tensor, block_size: int, cache: KVCache) -> torch.Tensor:
        """Denoise one block after the cached context.

        The block's own keys and values are written beyond `cache.length` and left stale.

        Args:
            anchor: The last emitted token of each row, `[batch, 1]`.
            block_size: Anchor and masks together, at least 2.
            cache: Context of the tokens before the anchor.

        Returns:
            States of the masks, for `propose` to read, `[batch, block_size - 1, hidden]`.
        """
        start, end = cache.length, cache.length + block_size
        cos, sin = self._rope.cos[start:end], self._rope.sin[start:end]
        masks = self.mask_embedding.expand(anchor.shape[0], block_size - 1, -1)
        hidden = torch.cat([self.embed(anchor), masks], dim=1)
        near = {view: self._near(view, start, end) for view in set(self.views)}
        offsets = torch.arange(block_size, device=anchor.device)
        caches = layer_caches(cache.states, start, end)
        for layer, view, part in zip(self.layers, self.views, caches, strict=True):
            attend = partial(layer.attend, cache=part, mask=near[view])
            hidden = layer.denoise(hidden, cos, sin, offsets, attend)
        return hidden[:, 1:]

    def draft_at(
        self, blocks: Blocks, cache: KVCache, *, keeps_context: bool = True
    ) -> torch.Tensor:
        """Draft many blocks in one pass.

        The blocks of a text are one query of its context, which is read in place. Their own keys
        and values are written beyond `cache.length` and left stale, so the cache needs room there
        for as many tokens as the blocks of one text have.

        Args:
            blocks: What to draft.
            cache: Context of whole texts, one per row.
            keeps_context: Whether the whole context stays. Otherwise the tokens of a text read and
                keep only what lies before its last block, which is faster: they are written right
                after it. So draft at the last positions first.

        Returns:
            States of the tokens of all blocks, block after block, for `logits` to read,
            `[tokens, hidden]`.
        """
        block = torch.repeat_interleave(blocks.sizes)
        offsets = torch.arange(len(block), device=block.device) - blocks.firsts[block]
        positions = blocks.starts[block] + offsets
        hidden = self.mask_embedding.repeat(1, len(block), 1)
        hidden[:, blocks.firsts] = self.embed(blocks.anchors[None])
        cos, sin = self._rope.cos[positions], self._rope.sin[positions]
        rows, tokens = torch.unique_consecutive(blocks.rows[block], return_counts=True)
        counts = tokens.tolist()
        starts = blocks.starts[block].split(counts)
        ends = [cache.length if keeps_context else int(own.max()) for own in starts]
        own = zip(block.split(counts), starts, positions.split(counts), ends, strict=True)
        masks = [self._masks(*each) for each in own]
        caches = [
            layer_caches(cache.states[:, row, None], end, end + count)
            for row, end, count in zip(rows.tolist(), ends, counts, strict=True)
        ]
        for layer, view, parts in zip(
            self.layers, self.views, zip(*caches, strict=True), strict=True
        ):
            texts = list(zip(counts, parts, (mask[view] for mask in masks), strict=True))
            attend = partial(_attend, layer, texts)
            hidden = layer.denoise(hidden, cos, sin, offsets, attend)
        return hidden[0]

    def _masks(
        self, block: torch.Tensor, starts: torch.Tensor, positions: torch.Tensor, length: int
    ) -> dict[_View, torch.Tensor]:
        """Make additive masks of the blocks of one text, for every view that a layer has.

        Args:
            block: Block of each token, `[n]`.
            starts: Position of that block's anchor, `[n]`.
            positions: Position of each token, `[n]`.
            length: Length of the text's context.

        Returns:
            `[1, 1, groups * n, context + n]` for each view.
        """
        context = torch.arange(length, device=block.device)
        seen = torch.cat([context < starts[:, None], block[:, None] == block], dim=1)
        places = torch.cat([context, positions])
        masks = {}
        for view in set(self.views):
            near = visible(positions, places, *view)
            masks[view] = self._additive(seen if near is None else seen & near)
        return masks

    def _near(self, view: _View, start: int, end: int) -> torch.Tensor | None:
        """Mask of a block at `start … end - 1` in a layer that does not see everything.

        Returns:
            `[1, 1, groups * n, end]`, or None to attend everywhere.
        """
        if view == (None, False):
            return None
        places = torch.arange(end, device=self.device)
        near = visible(places[start:], places, *view)
        return None if near is None else self._additive(near)

    def _additive(self, seen: torch.Tensor) -> torch.Tensor:
        """Turn a boolean mask `[n, length]` into an additive one for each query group."""
        mask = self.mask_embedding.new_zeros(seen.shape).masked_fill_(~seen, -torch.inf)
        return mask.repeat(self.heads // self.kv_heads, 1)[None, None]

    def logits(self, states: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Read states of masks as logits.

        Args:
            states: As `draft` gives them, `[..., hidden]`.
            before: Token before each mask, `[...]`; only a `CorrectionHead` or a
                `CandidateSelector` reads it.

        Returns:
            Logits over the draft vocabulary, `[..., draft_vocab]`.
        """
        normed = self.norm(states)
        logits = self._read(normed)
        if self.correction is not None:
            logits = self._correct(self.correction.mix(normed, self.embed(before))).add_(logits)
        logits = self._scaled(logits)
        if self.selector is None:
            return logits
        return self.selector.score(*self.selector.read(logits, normed), before)

    def _scaled(self, logits: torch.Tensor) -> torch.Tensor:
        return self.drafter.scale_logits(logits) if self._scales else logits

    def propose(
        self,
        states: torch.Tensor,
        anchor: torch.Tensor,
        choose: Callable[[torch.Tensor, int], torch.Tensor],
        goes_on: Callable[[], bool] | None = None,
    ) -> torch.Tensor:
        """Draft the tokens of one block, each based on the one before it if the drafter reads that.

        Args:
            states: Of its masks, `[n, hidden]`.
            anchor: The token before them, `[1]`.
            choose: Chooses draft ids from the logits `[k, draft_vocab]` of consecutive masks, the
                first of which has the given number.
            goes_on: Called after each draft but the last, if the drafter `reads_drafts`: whether to
                make the next one. Default: always.

        Returns:
            Tokens, `[n]`; fewer if drafting ended early.
        """
        if not self.reads_drafts:
            return self.to_target_ids(choose(self.logits(states, anchor), 0))
        made: list[torch.Tensor] = []
        for _, drafts in self._chain(states[None], anchor, choose):
            made.append(drafts)
            if goes_on is not None and len(made) < len(states) and not goes_on():
                break
        return self.to_target_ids(torch.cat(made))

    def greedy_logits(self, states: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
        """Read blocks of one size, each mask after the most probable draft of the mask before it.

        Args:
            states: Of the masks, `[blocks, n, hidden]`.
            anchors: Token before the masks of each block, `[blocks]`.

        Returns:
            Logits over the draft vocabulary, `[blocks, n, draft_vocab]`.
        """
        if not self.reads_drafts:
            return self.logits(states, anchors)
        chain = self._chain(states, anchors, lambda logits, _: greedy(logits))
        return torch.stack([logits for logits, _ in chain], dim=1)

    def _chain(
        self,
        states: torch.Tensor,
        anchors: torch.Tensor,
        choose: Callable[[torch.Tensor, int], torch.Tensor],
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Read mask after mask; yields logits `[blocks, draft_vocab]` and draft ids `[blocks]`.

        Everything that does not depend on the drafts is computed for all masks at once.
        """
        if self.correction is not None:
            yield from self._corrected(self.correction, states, anchors, choose)
        elif self.selector is not None:
            yield from self._selected(self.selector, states, anchors, choose)

    def _selected(
        self,
        selector: CandidateSelector,
        states: torch.Tensor,
        anchors: torch.Tensor,
        choose: Callable[[torch.Tensor, int], torch.Tensor],
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Read masks with a selector; see `_chain`."""
        normed = self.norm(states)
        unary, candidates, known = selector.read(self._scaled(self._read(normed)), normed)
        before = anchors
        for index in range(states.shape[1]):
            scores = selector.score(unary[:, index], candidates[:, index], known[:, index], before)
            drafts = choose(scores, index)
            yield scores, drafts
            before = self.to_target_ids(drafts)

    def _corrected(
        self,
        correction: CorrectionHead,
        states: torch.Tensor,
        anchors: torch.Tensor,
        choose: Callable[[torch.Tensor, int], torch.Tensor],
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Read masks with a correction head; see `_chain`."""
        normed = self.norm(states)
        logits = self._read(normed).unbind(1)
        known = correction.state(normed).unbind(1)
        read = correction.read(self.embed(anchors))
        for index, state in enumerate(known):
            corrected = self._correct(correction.join(state, read)).add_(logits[index])
            corrected = self._scaled(corrected)
            drafts = choose(corrected, index)
            yield corrected, drafts
            read = self._tokens_read[drafts]

    @torch.no_grad()
    def _read_tokens(self, correction: CorrectionHead) -> torch.Tensor:
        """Input of the correction head for every token that can be drafted, `[draft_vocab, rank]`.

        Some rows at a time, since embeddings of a large vocabulary take gigabytes.
        """
        tokens = self.to_target_ids(torch.arange(len(self.head), device=self.device))
        return torch.cat([correction.read(self.embed(some)) for some in tokens.split(8192)])

    def to_target_ids(self, draft_ids: torch.Tensor) -> torch.Tensor:
        """Map ids of the draft vocabulary to the target's."""
        return draft_ids if self.token_ids is None else self.token_ids[draft_ids]
