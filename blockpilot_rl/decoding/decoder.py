"""The decoder: lossless DFlash decoding with the block size chosen per request.

One loop serves every block size; 1 is plain decoding. A round drafts `b - 1` tokens after the last
emitted one (the anchor), verifies the block in one target pass, and keeps the drafts that agree
with the target plus one token of the target itself. A controller chooses the lengths of each round.
The text is the target's whatever it chooses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import torch
from transformers import PreTrainedModel

from blockpilot_rl.decoding.control import Controller, FixedLength, RequestPolicy, StepPolicy
from blockpilot_rl.decoding.drafting import LeanDrafter
from blockpilot_rl.decoding.forward import TargetForward, logits_of, target_forward
from blockpilot_rl.decoding.generation import Chosen, Generation, Pass, Prefill, shortened
from blockpilot_rl.decoding.replay import decode_probabilities, encode_probabilities
from blockpilot_rl.decoding.sampling import GREEDY, Sampler, Sampling
from blockpilot_rl.decoding.state import (
    StateLayout,
    compute_state,
    next_token_features,
    state_layout,
)
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import Pair


class Selector(RequestPolicy, Protocol):
    """Chooses a block size from a prefill state, such as a `BlockSizePolicy`."""

    def select(self, state: torch.Tensor) -> int:
        """Choose a block size for the state `[width]`."""


class _Round(NamedTuple):
    """One round.

    Attributes:
        tokens: The tokens to emit.
        features: Of the anchor and the accepted drafts.
        drafted: Draft length.
        verified: Verify length.
    """

    tokens: list[int]
    features: torch.Tensor
    drafted: int
    verified: int


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
        self,
        prefill: Prefill,
        block_size: int | Controller,
        max_new_tokens: int | None = None,
    ) -> Iterator[Pass]:
        """Decode a prefilled prompt and yield each target pass, prefill first.

        Args:
            prefill: The prompt. Earlier streams of it change nothing.
            block_size: Tokens per block, the anchor included, where 1 is plain decoding; or a
                controller that chooses the lengths of each round. Near the end of the budget,
                blocks are shorter: they have no more drafts than tokens are left.
            max_new_tokens: Budget, the first token included. Default: the prefill's.

        Raises:
            BlockPilotError: If the request does not fit, or if the model has changed since prefill.
        """
        budget = prefill.max_new_tokens if max_new_tokens is None else max_new_tokens
        if budget > prefill.max_new_tokens:
            raise BlockPilotError(
                f"max_new_tokens {budget} exceeds the prefill's {prefill.max_new_tokens}"
            )
        controller = FixedLength(block_size) if isinstance(block_size, int) else block_size
        if isinstance(controller, FixedLength):
            self._check_block(prefill, controller.length)
            self.check_length(prefill.prompt_tokens, budget, controller.length)
        self.refresh()
        if prefill.target is not self.target:
            raise BlockPilotError("the model has changed since this prefill; prefill again")
        return self._passes(prefill, controller, budget, self._stops)

    def _check_block(self, prefill: Prefill, length: int) -> None:
        """Check that a block fits the caches of a prefill.

        Raises:
            BlockPilotError: If it does not.
        """
        if length > prefill.max_block_size:
            raise BlockPilotError(
                f"block size {length} exceeds the prefill's {prefill.max_block_size}"
            )

    def _passes(
        self, prefill: Prefill, controller: Controller, budget: int, stops: frozenset[int]
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
        if controller.reads_target:
            with torch.inference_mode():
                controller.read_target(next_token_features(prefill.logits).tolist())
        while emitted < budget and anchor not in stops:
            if prefill.stream is not mine:
                raise BlockPilotError(
                    "another stream of this prefill was started while this one was open; prefill "
                    "once for each stream"
                )
            began = time.perf_counter()
            with torch.inference_mode():
                done = self._round(prefill, anchor, emitted, budget - emitted, controller, unread)
            tokens = done.tokens
            cache.crop(prefill.prompt_tokens + emitted + len(tokens) - 1)
            tokens = _clip(tokens[: budget - emitted], stops)
            controller.observe(done.drafted, done.verified, len(tokens))
            seconds = time.perf_counter() - began
            if draft_cache is not None:
                unread.append(done.features)
            anchor, emitted = tokens[-1], emitted + len(tokens)
            yield Pass(done.verified, tuple(tokens), seconds, done.drafted)

    def _round(
        self,
        prefill: Prefill,
        anchor: int,
        emitted: int,
        left: int,
        controller: Controller,
        unread: list[torch.Tensor],
    ) -> _Round:
        """Draft and verify the block after `emitted` tokens, the last of which is the anchor.

        `left` tokens of the budget are left.
        """
        position = prefill.prompt_tokens + emitted
        length = controller.draft_length(position - 1)
        if not 1 <= length <= prefill.max_block_size:
            raise BlockPilotError(
                f"the controller chose a draft length of {length}, outside 1 to "
                f"{prefill.max_block_size}"
            )
        length = shortened(length, left)
        block = torch.tensor([[anchor]], device=self.pair.device)
        if length > 1:
            assert self.drafter is not None
            if unread:
                self.drafter.extend(torch.cat(unread, dim=1), prefill.draft_cache)
                unread.clear()
            drafts, confidences = self._draft(prefill, block, length, position, controller)
            verified = max(1, min(controller.verify_length(confidences), len(drafts) + 1))
            block = torch.cat([block, drafts[None, : verified - 1]], dim=1)
        hidden = self.target(block, prefill.cache)
        logits = logits_of(self.target, hidden)[0]
        choice = prefill.sampler.choose(logits, position)
        tokens, chosen = torch.stack([block[0], choice]).tolist()
        accepted = 0
        while accepted < len(tokens) - 1 and tokens[accepted + 1] == chosen[accepted]:
            accepted += 1
        if controller.reads_target:
            controller.read_target(next_token_features(logits[accepted]).tolist())
        return _Round(
            chosen[: accepted + 1], hidden.features[:, : accepted + 1], length, len(tokens)
        )

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
        return self._draft(prefill, anchor, block_size, position, FixedLength(block_size))[0]

    def _draft(
        self,
        prefill: Prefill,
        anchor: torch.Tensor,
        length: int,
        position: int,
        controller: Controller,
    ) -> tuple[torch.Tensor, list[float]]:
        """Draft one block, or a part of it if the controller ends the draft early.

        Returns:
            The drafts, `[n]`, and the drafter's probability of each if the controller reads them.
        """
        assert self.drafter is not None
        sampler, token_ids = prefill.sampler, self.drafter.token_ids
        reads = controller.reads_confidences or controller.stops_early
        made: list[tuple[torch.Tensor, torch.Tensor]] = []
        confidences: list[float] = []

        def choose(logits: torch.Tensor, first: int) -> torch.Tensor:
            drafts = sampler.propose(logits, position + first, token_ids)
            if reads:
                made.append((logits, drafts))
            return drafts

        def read_confidences() -> None:
            logits, drafts = (torch.cat(part) for part in zip(*made, strict=True))
            made.clear()
            exact = sampler.sampling.confidence(logits, drafts).cpu().numpy()
            # Rounded as in traces, so that a controller decides as it does in the simulator.
            confidences.extend(decode_probabilities(encode_probabilities(exact)).tolist())

        def goes_on() -> bool:
            read_confidences()
            return controller.keeps_drafting(confidences)

        states = self.drafter.draft(anchor, length, prefill.draft_cache)[0]
        sampler.begin_block(position, length, states.device)
        stop = goes_on if controller.stops_early else None
        drafts = self.drafter.propose(states, anchor[0], choose, stop)
        if made:
            read_confidences()
        if controller.stops_early and not self.drafter.reads_drafts:
            # All drafts were made at once; those after the end of the draft are not used.
            ends = range(1, len(drafts))
            end = next((k for k in ends if not controller.keeps_drafting(confidences[:k])), None)
            drafts, confidences = drafts[:end], confidences[:end]
        return drafts, confidences

    def decode(
        self,
        prefill: Prefill,
        block_size: int | Controller,
        max_new_tokens: int | None = None,
    ) -> Generation:
        """Decode a prefilled prompt to its end; arguments as for `stream`."""
        return self.collect(self.stream(prefill, block_size, max_new_tokens), 0.0)

    def collect(self, passes: Iterable[Pass], policy_seconds: float) -> Generation:
        """Gather the passes of a finished text."""
        record = list(passes)
        tokens = [token for item in record for token in item.tokens]
        reason = "stop" if tokens[-1] in self._stops else "length"
        return Generation(tokens, record, policy_seconds, reason, self.pair.template)

    def choose(self, prefill: Prefill, chooser: int | Selector | StepPolicy) -> Chosen:
        """Decide how to decode a prefilled prompt, and measure the seconds that it takes.

        Args:
            prefill: The prompt.
            chooser: A fixed block size, a policy that chooses one, or a policy that controls every
                round.

        Raises:
            BlockPilotError: If a policy was made for another pair or other template options.
        """
        if isinstance(chooser, int):
            return Chosen(FixedLength(chooser))
        chooser.check_pair(self.pair.fingerprint, self.pair.template)
        sampling = prefill.sampler.sampling
        chooser.check_request(sampling.temperature, prefill.prompt_tokens)
        began = time.perf_counter()
        groups = chooser.state_groups
        state = self.state(prefill, groups) if groups else torch.empty(0)
        confidence = None
        if isinstance(chooser, StepPolicy):
            controller = chooser.start(state, sampling)
        elif decide := getattr(chooser, "decide", None):
            block_size, confidence = decide(state)
            controller = FixedLength(block_size)
        else:
            controller = FixedLength(chooser.select(state))
        return Chosen(controller, time.perf_counter() - began, confidence)

    def generate(
        self,
        prompt: str | Sequence[Mapping[str, Any]] | torch.Tensor,
        block_size: int | Selector | StepPolicy | None = None,
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
            block_size: A fixed size (1 is plain decoding), a policy that chooses one, or a policy
                that controls every round. Default: the drafter's own size.
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
        if isinstance(chosen.controller, FixedLength):
            self._check_block(prefill, chosen.controller.length)
        # `stream` would check again that the models are unchanged, which `prefill` has just done.
        for item in self._passes(prefill, chosen.controller, max_new_tokens, self._stops):
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
            emitted, budget = 0, new_tokens + size
            for item in self._passes(prefill, FixedLength(size), budget, frozenset()):
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
