"""The decoder: lossless DFlash decoding with the block size chosen per request.

One loop serves every block size; 1 is plain decoding. A step drafts `b - 1` tokens after the last
emitted one (the anchor), verifies the block in one target pass, and keeps the drafts that agree
with the target plus one token of the target itself. The text is therefore the target's for every
block size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel

from blockpilot_rl.decoding.drafting import LeanDrafter
from blockpilot_rl.decoding.forward import TargetForward, logits_of, target_forward
from blockpilot_rl.decoding.generation import Chosen, Generation, Pass, Prefill, shortened
from blockpilot_rl.decoding.sampling import GREEDY, Sampler, Sampling
from blockpilot_rl.decoding.state import StateLayout, compute_state, state_layout
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import Pair


class Selector(Protocol):
    """Chooses a block size from a prefill state, such as a `BlockSizePolicy`."""

    @property
    def arms(self) -> tuple[int, ...]:
        """Block sizes to choose from."""

    @property
    def state_groups(self) -> tuple[str, ...]:
        """State groups that the policy reads, in order."""

    def check_pair(self, fingerprint: str, template: Mapping[str, Any] | None) -> None:
        """Refuse another pair, or other chat-template options if they are known."""

    def check_request(self, temperature: float, prompt_tokens: int) -> None:
        """Warn once about requests that are unlike those it was made for."""

    def select(self, state: torch.Tensor) -> int:
        """Choose a block size for the state `[width]`."""


class Decoder:
    """Decodes one request at a time with a pair."""

    def __init__(self, pair: Pair) -> None:
        """Prepare the passes of both models."""
        self.pair = pair
        ids = [] if pair.drafter is None else pair.drafter.config.target_layer_ids
        self.layer_ids: list[int] = list(ids)
        self._stops = frozenset(pair.stop_token_ids)
        self._prepare()

    def _prepare(self) -> None:
        pair, drafter = self.pair, self.pair.drafter
        if drafter is not None:
            check_alike(pair.target, drafter)
        self.target: TargetForward = target_forward(pair.target, self.layer_ids)
        self.drafter = None if drafter is None else LeanDrafter(drafter, self.target)

    def refresh(self) -> None:
        """Prepare the passes again if a model has changed.

        Changes are hooks, patches, replaced modules, and other weights, dtypes or devices.
        `prefill` and `stream` call this.

        Raises:
            BlockPilotError: If a model can no longer be decoded.
        """
        if self.target.is_current() and (self.drafter is None or self.drafter.is_current()):
            return
        self._prepare()

    def state_layout(self, groups: Sequence[str]) -> StateLayout:
        """Names and widths of state groups for this pair."""
        return state_layout(
            int(self.pair.target.config.hidden_size),
            self.pair.block_size,
            groups,
            len(self.layer_ids),
        )

    def check_length(self, prompt_tokens: int, max_new_tokens: int, block_size: int) -> None:
        """Check a request against the models' maximum length, before any work.

        Raises:
            BlockPilotError: If prompt, budget and one block do not fit, or the budget or the block
                size is out of range.
        """
        if prompt_tokens < 1:
            raise BlockPilotError("the prompt is empty; give some text")
        if max_new_tokens < 1:
            raise BlockPilotError(f"max_new_tokens must be at least 1, not {max_new_tokens}")
        if block_size < 1:
            raise BlockPilotError(f"block size must be at least 1 (plain), not {block_size}")
        if block_size > 1 and self.drafter is None:
            raise BlockPilotError(f"block size {block_size} needs a drafter; this pair has none")
        needed = prompt_tokens + max_new_tokens + block_size
        if needed > self.pair.max_length:
            raise BlockPilotError(
                f"prompt of {prompt_tokens} tokens + {max_new_tokens} new tokens + a block of "
                f"{block_size} exceed the models' {self.pair.max_length} positions; shorten the "
                "prompt or lower --max-new-tokens"
            )

    @torch.inference_mode()
    def prefill(
        self,
        input_ids: torch.Tensor,
        max_new_tokens: int,
        max_block_size: int | None = None,
        sampling: Sampling = GREEDY,
    ) -> Prefill:
        """Read a prompt and find its first token.

        Args:
            input_ids: `[1, n]`.
            max_new_tokens: Largest budget it will be decoded with.
            max_block_size: Largest block size it will be decoded with. Default: the drafter's own.
            sampling: How tokens are chosen. Default: greedy.

        Raises:
            BlockPilotError: If the request is empty, batched or too long, or if a model has changed
                so that it can no longer be decoded.
        """
        if input_ids.dim() != 2 or input_ids.shape[0] != 1:
            raise BlockPilotError(
                f"the decoder takes one request at a time, [1, n], not {list(input_ids.shape)}"
            )
        n = input_ids.shape[1]
        block = max_block_size or (1 if self.drafter is None else self.pair.block_size)
        self.check_length(n, max_new_tokens, block)
        self.refresh()
        if block > 1 and not self.target.reads_blocks:
            raise BlockPilotError(
                "the target's hooks change a pass over several tokens differently than passes "
                "over one token, so drafts cannot be verified; decode with block size 1"
            )
        began = time.perf_counter()
        # The state group `draft` reads a block of the drafter's own size.
        length = n + max_new_tokens + max(block, self.pair.block_size)
        cache = self.target.new_cache(1, length)
        hidden = self.target(input_ids.to(self.pair.device), cache)
        last = hidden.last[0, -1]
        logits = self.target.logits(last) if hidden.logits is None else hidden.logits[0, -1]
        sampler = Sampler(sampling, self.target.vocab_size)
        first_token = int(sampler.choose(logits[None], n))
        return Prefill(
            prompt_tokens=n,
            logits=logits,
            last_hidden=last,
            first_token=first_token,
            sampler=sampler,
            features=hidden.features,
            seconds=time.perf_counter() - began,
            max_new_tokens=max_new_tokens,
            max_block_size=block,
            target=self.target,
            cache=cache,
            draft_cache=None if self.drafter is None else self.drafter.new_cache(1, length),
        )

    @torch.inference_mode()
    def state(self, prefill: Prefill, groups: Sequence[str]) -> torch.Tensor:
        """Compute state groups of a prefilled prompt.

        Args:
            prefill: The prompt.
            groups: Names of the groups, in order.

        Returns:
            `[width]`, float32.
        """
        return compute_state(
            groups,
            prefill.last_hidden,
            prefill.logits,
            prefill.prompt_tokens,
            lambda: self._first_draft(prefill),
            sampling=prefill.sampler.sampling,
            features=prefill.features[0, -1],
        )

    def _first_draft(self, prefill: Prefill) -> torch.Tensor:
        """Compute the draft logits of the first block at the drafter's own size."""
        if self.drafter is None:
            raise BlockPilotError("the state group 'draft' needs a drafter; this pair has none")
        prefill.stream = None
        if not prefill.drafter_read:
            prefill.draft_cache.crop(0)
            self.drafter.extend(prefill.features, prefill.draft_cache)
            prefill.drafter_read = True
        prefill.draft_cache.crop(prefill.prompt_tokens)
        anchor = torch.tensor([[prefill.first_token]], device=prefill.features.device)
        states = self.drafter.draft(anchor, self.pair.block_size, prefill.draft_cache)
        return self.drafter.greedy_logits(states, anchor[0])[0]

    def stream(
        self, prefill: Prefill, block_size: int, max_new_tokens: int | None = None
    ) -> Iterator[Pass]:
        """Decode a prefilled prompt and yield each target pass, prefill first.

        Args:
            prefill: The prompt. Earlier streams of it change nothing.
            block_size: Tokens per block, the anchor included; 1 is plain decoding. Near the end of
                the budget, blocks are shorter: they have no more drafts than tokens are left.
            max_new_tokens: Budget, the first token included. Default: the prefill's.

        Raises:
            BlockPilotError: If the request does not fit, or if the model has changed since prefill.
        """
        budget = prefill.max_new_tokens if max_new_tokens is None else max_new_tokens
        if budget > prefill.max_new_tokens:
            raise BlockPilotError(
                f"max_new_tokens {budget} exceeds the prefill's {prefill.max_new_tokens}"
            )
        if block_size > prefill.max_block_size:
            raise BlockPilotError(
                f"block size {block_size} exceeds the prefill's {prefill.max_block_size}"
            )
        self.check_length(prefill.prompt_tokens, budget, block_size)
        self.refresh()
        if prefill.target is not self.target:
            raise BlockPilotError("the model has changed since this prefill; prefill again")
        return self._passes(prefill, block_size, budget, self._stops)

    def _passes(
        self, prefill: Prefill, block_size: int, budget: int, stops: frozenset[int]
    ) -> Iterator[Pass]:
        yield Pass(1, (prefill.first_token,), prefill.seconds)
        cache, draft_cache = prefill.cache, prefill.draft_cache
        prefill.stream = mine = object()
        cache.crop(prefill.prompt_tokens)
        if draft_cache is not None:
            draft_cache.crop(prefill.prompt_tokens if prefill.drafter_read else 0)
        # Noise of an earlier stream would make this one seem faster.
        prefill.sampler.forget()
        # Features of accepted tokens that the drafter has not read yet.
        unread = [] if prefill.drafter_read else [prefill.features]
        anchor, emitted = prefill.first_token, 1
        while emitted < budget and anchor not in stops:
            if prefill.stream is not mine:
                raise BlockPilotError(
                    "another stream of this prefill was started while this one was open; prefill "
                    "once for each stream"
                )
            began = time.perf_counter()
            size = shortened(block_size, budget - emitted)
            with torch.inference_mode():
                tokens, features = self._step(prefill, anchor, emitted, size, unread)
            cache.crop(prefill.prompt_tokens + emitted + len(tokens) - 1)
            tokens = _clip(tokens[: budget - emitted], stops)
            seconds = time.perf_counter() - began
            if draft_cache is not None:
                unread.append(features)
            anchor, emitted = tokens[-1], emitted + len(tokens)
            yield Pass(size, tuple(tokens), seconds)

    def _step(
        self,
        prefill: Prefill,
        anchor: int,
        emitted: int,
        block_size: int,
        unread: list[torch.Tensor],
    ) -> tuple[list[int], torch.Tensor]:
        """Draft and verify the block after `emitted` tokens, the last of which is the anchor.

        Returns:
            The tokens to emit, and the features of the anchor and the accepted drafts.
        """
        position = prefill.prompt_tokens + emitted
        sampler = prefill.sampler
        block = torch.tensor([[anchor]], device=self.pair.device)
        if block_size > 1:
            assert self.drafter is not None
            if unread:
                self.drafter.extend(torch.cat(unread, dim=1), prefill.draft_cache)
                unread.clear()
            drafts = self.draft(prefill, block, block_size, position)
            block = torch.cat([block, drafts[None]], dim=1)
        hidden = self.target(block, prefill.cache)
        choice = sampler.choose(logits_of(self.target, hidden)[0], position)
        tokens, chosen = torch.stack([block[0], choice]).tolist()
        accepted = 0
        while accepted < block_size - 1 and tokens[accepted + 1] == chosen[accepted]:
            accepted += 1
        return chosen[: accepted + 1], hidden.features[:, : accepted + 1]

    def draft(
        self, prefill: Prefill, anchor: torch.Tensor, block_size: int, position: int
    ) -> torch.Tensor:
        """Draft the tokens of one block after the context that the drafter has read.

        Args:
            prefill: The prompt.
            anchor: The last emitted token, `[1, 1]`.
            block_size: Anchor and drafts together.
            position: Absolute position of the first draft.

        Returns:
            `[block_size - 1]`.
        """
        assert self.drafter is not None
        sampler, token_ids = prefill.sampler, self.drafter.token_ids
        states = self.drafter.draft(anchor, block_size, prefill.draft_cache)[0]
        sampler.begin_block(position, block_size, states.device)
        return self.drafter.propose(
            states,
            anchor[0],
            lambda logits, first: sampler.propose(logits, position + first, token_ids),
        )

    def decode(
        self, prefill: Prefill, block_size: int, max_new_tokens: int | None = None
    ) -> Generation:
        """Decode a prefilled prompt to its end; arguments as for `stream`."""
        return self.collect(self.stream(prefill, block_size, max_new_tokens), 0.0)

    def collect(self, passes: Iterable[Pass], policy_seconds: float) -> Generation:
        """Gather the passes of a finished text."""
        record = list(passes)
        tokens = [token for item in record for token in item.tokens]
        reason = "stop" if tokens[-1] in self._stops else "length"
        return Generation(tokens, record, policy_seconds, reason, self.pair.template)

    def choose(self, prefill: Prefill, chooser: int | Selector) -> Chosen:
        """Choose the block size of a prefilled prompt, and measure the seconds that it takes.

        Raises:
            BlockPilotError: If a policy was made for another pair or other template options.
        """
        if isinstance(chooser, int):
            return Chosen(chooser)
        chooser.check_pair(self.pair.fingerprint, self.pair.template)
        chooser.check_request(prefill.sampler.sampling.temperature, prefill.prompt_tokens)
        began = time.perf_counter()
        state = self.state(prefill, chooser.state_groups)
        decide = getattr(chooser, "decide", None)
        if decide is None:
            block_size, confidence = chooser.select(state), None
        else:
            block_size, confidence = decide(state)
        return Chosen(block_size, time.perf_counter() - began, confidence)

    def generate(
        self,
        prompt: str | Sequence[Mapping[str, Any]] | torch.Tensor,
        block_size: int | Selector | None = None,
        max_new_tokens: int = 128,
        sampling: Sampling = GREEDY,
        *,
        warm_up: bool = False,
        on_pass: Callable[[Pass], None] | None = None,
    ) -> Generation:
        """Prefill a prompt, choose the block size and decode.

        Args:
            prompt: A user's message (the text to complete, if the pair reads completions), a
                conversation of turns with `role` and `content`, or token ids, `[1, n]`.
            block_size: A fixed size (1 is plain decoding) or a policy that chooses one. Default:
                the drafter's own size.
            max_new_tokens: Budget, the first token included.
            sampling: How tokens are chosen. Default: greedy.
            warm_up: Whether to run every shape before the clock starts.
            on_pass: Called with each target pass as it ends, prefill first.

        Raises:
            BlockPilotError: If the request does not fit, or if the policy was trained for another
                pair or other template options.
        """
        is_text = not isinstance(prompt, torch.Tensor)
        ids = prompt if isinstance(prompt, torch.Tensor) else self.pair.encode(prompt)
        chooser = self.pair.block_size if block_size is None else block_size
        sizes = (chooser,) if isinstance(chooser, int) else chooser.arms
        if not isinstance(chooser, int):
            chooser.check_pair(self.pair.fingerprint, self.pair.template)
        if warm_up:
            self.check_length(ids.shape[-1], max_new_tokens, max(sizes))
            self.warm_up(sizes, sampling=sampling)
        prefill = self.prefill(ids, max_new_tokens, max(sizes), sampling)
        chosen = self.choose(prefill, chooser)
        passes = []
        for item in self.stream(prefill, chosen.block_size):
            passes.append(item)
            if on_pass is not None:
                on_pass(item)
        result = self.collect(passes, chosen.seconds)
        text = None
        if is_text:
            text = str(self.pair.tokenizer.decode(result.tokens, skip_special_tokens=True))
        return replace(
            result,
            block_size=chosen.block_size,
            prompt_tokens=prefill.prompt_tokens,
            text=text,
            confidence=chosen.confidence,
        )

    def warm_up(
        self, block_sizes: Sequence[int] = (), new_tokens: int = 8, sampling: Sampling = GREEDY
    ) -> None:
        """Run every shape once, so that no first call is timed.

        Stop tokens are ignored, since a target may answer the artificial prompt with one at once.

        Args:
            block_sizes: Sizes to run besides 1 and the drafter's own.
            new_tokens: Tokens after which each run ends.
            sampling: How tokens will be chosen in the timed calls.
        """
        sizes = {1, self.pair.block_size, *block_sizes}
        ids = torch.arange(1, 17, device=self.pair.device)[None] % self.target.vocab_size
        prefill = self.prefill(ids, new_tokens + max(sizes), max(sizes), sampling)
        for size in sorted(sizes):
            # With this budget no block is shortened before the run ends.
            emitted = 0
            for item in self._passes(prefill, size, new_tokens + size, frozenset()):
                emitted += len(item.tokens)
                if emitted >= new_tokens:
                    break


def check_alike(target: PreTrainedModel, drafter: PreTrainedModel) -> None:
    """Check that both models have one dtype and are on one device.

    Raises:
        BlockPilotError: If not.
    """
    if (drafter.dtype, drafter.device) != (target.dtype, target.device):
        raise BlockPilotError(
            f"the drafter is {drafter.dtype} on {drafter.device}, the target {target.dtype} on "
            f"{target.device}; load both with the same dtype and device"
        )


def _clip(tokens: list[int], stops: frozenset[int]) -> list[int]:
    """Cut after the first stop token."""
    for index, token in enumerate(tokens):
        if token in stops:
            return tokens[: index + 1]
    return tokens
