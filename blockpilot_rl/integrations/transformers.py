"""A block size for each request in transformers' `generate`.

`generate` reads and checks its arguments, and can then pass the decoding loop to a function:

    model.generate(ids, custom_generate=block_pilot(drafter, policy=policy), max_new_tokens=128)

The function decodes with `Decoder`. It uses every argument of `generate` or refuses it by name.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal, cast

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.generation.configuration_utils import GenerationMode
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria
from transformers.generation.streamers import BaseStreamer
from transformers.generation.utils import GenerateDecoderOnlyOutput

from blockpilot_rl.decoding.calibration import Calibration
from blockpilot_rl.decoding.control import StepPolicy
from blockpilot_rl.decoding.decoder import Decoder, Selector, check_alike
from blockpilot_rl.decoding.generation import Generation, Pass
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.drafter import DFlashDraftModel
from blockpilot_rl.models.fit import check_architecture, check_fit, share_modules
from blockpilot_rl.models.pairs import Pair
from blockpilot_rl.policies.policy import BlockSizePolicy
from blockpilot_rl.policies.pricing import AUTO, price_policy

_MODES = (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE)
_WARPERS: dict[type, str] = {
    TemperatureLogitsWarper: "temperature",
    TopKLogitsWarper: "top_k",
    TopPLogitsWarper: "top_p",
}
_EXTRAS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")


@dataclass
class BlockPilotOutput(GenerateDecoderOnlyOutput):
    """What `generate` returns with `return_dict_in_generate=True`.

    Attributes:
        sequences: Prompt and emitted tokens, `[1, n + m]`.
        generation: Record of every target pass (block size, emitted tokens, seconds) and of the
            policy's seconds.
    """

    generation: Generation | None = None


def block_pilot(
    drafter: DFlashDraftModel | Pair,
    *,
    policy: Selector | StepPolicy | None = None,
    block_size: int | None = None,
    seed: int | None = None,
    draft: Literal["shared", "argmax"] = "shared",
    calibration: Calibration | str | Path | None = AUTO,
) -> BlockPilotGeneration:
    """Make a `custom_generate` for `model.generate`.

    Args:
        drafter: A DFlash drafter that fits the model, or a pair whose target is the model.
        policy: Chooses the block size of each request, such as a `BlockSizePolicy`, or controls
            every round.
        block_size: A fixed block size instead; 1 is plain decoding. With neither, the drafter's
            own size is used.
        seed: Random seed of sampled texts, the same for every block size. Default: each call draws
            one from torch's global generator, so that `torch.manual_seed` works as for `generate`.
        draft: How drafts are made when sampling; see `Sampling`.
        calibration: Calibration whose prices an acceptance policy chooses by, or its file. Default:
            the one that `blockpilot calibrate` has kept for the pair and device, or else the prices
            that the policy was exported with. None always uses the latter.

    Raises:
        BlockPilotError: If there is no drafter, or both a policy and a block size are given.
    """
    if policy is not None and block_size is not None:
        raise BlockPilotError("block_pilot: give a policy or a block_size, not both")
    if block_size is not None and block_size < 1:
        raise BlockPilotError(
            f"block_pilot: block_size must be 1 (plain) or more, not {block_size}"
        )
    if isinstance(drafter, Pair) and drafter.drafter is None:
        raise BlockPilotError("block_pilot: this pair has no drafter; load it with one")
    chooser = block_size if policy is None else policy
    return BlockPilotGeneration(drafter, chooser, seed, draft, calibration)


class BlockPilotGeneration:
    """The decoding loop that `generate` calls; made by `block_pilot`.

    It serves any number of calls. The first one prepares the passes over the models; later ones
    prepare them again if a model has changed.
    """

    def __init__(
        self,
        drafter: DFlashDraftModel | Pair,
        chooser: int | Selector | StepPolicy | None,
        seed: int | None,
        draft: Literal["shared", "argmax"],
        calibration: Calibration | str | Path | None = AUTO,
    ) -> None:
        """Store how to decode."""
        self._source = drafter
        self._policy = chooser
        self._chooser = chooser
        self._calibration = calibration
        self._sampling = Sampling(seed=seed or 0, draft=draft)
        self._seeded = seed is not None
        self._decoder: Decoder | None = None

    def __call__(
        self,
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **model_kwargs: Any,
    ) -> torch.Tensor | BlockPilotOutput:
        """Decode one request; called by `generate` with the arguments that it has prepared.

        Returns:
            Prompt and emitted tokens, `[1, n + m]`, or a `BlockPilotOutput` if
            `return_dict_in_generate` is set.

        Raises:
            BlockPilotError: If the request asks for something that is not supported, is too long,
                or the drafter or policy was made for another model.
        """
        asked = _arguments_of_generate(inspect.currentframe())
        _check_request(input_ids, generation_config, model_kwargs, asked)
        sampling = self._sampling_of(generation_config, logits_processor)
        decoder = self._decoder_for(model)
        chooser = decoder.pair.block_size if self._chooser is None else self._chooser
        assert stopping_criteria.max_length is not None
        budget = stopping_criteria.max_length - input_ids.shape[1]
        largest = chooser if isinstance(chooser, int) else max(chooser.arms)
        prefill = decoder.prefill(input_ids.to(model.device), budget, largest, sampling)
        chosen = decoder.choose(prefill, chooser)
        stop = _Stop(input_ids, stopping_criteria)
        passes = list(
            _until(decoder.stream(prefill, chosen.controller), stop, asked.get("streamer"))
        )
        tokens = [token for item in passes for token in item.tokens]
        emitted = torch.tensor([tokens], dtype=input_ids.dtype, device=input_ids.device)
        sequences = torch.cat([input_ids, emitted], dim=1)
        if not generation_config.return_dict_in_generate:
            return sequences
        reason = "stop" if stop.reached else "length"
        return BlockPilotOutput(
            sequences=cast(torch.LongTensor, sequences),
            generation=Generation(
                tokens,
                passes,
                chosen.seconds,
                reason,
                decoder.pair.template,
                confidence=chosen.confidence,
            ),
        )

    def reset(self) -> None:
        """Forget the models, so that the next call reads all of their weights again."""
        self._decoder = None

    def _decoder_for(self, model: PreTrainedModel) -> Decoder:
        """The model's decoder, kept for the next call."""
        if self._decoder is None or self._decoder.pair.target is not model:
            self._decoder = Decoder(self._pair(model))
            self._chooser = self._policy
            if isinstance(self._policy, BlockSizePolicy):
                self._chooser = price_policy(self._policy, self._decoder.pair, self._calibration)
        return self._decoder

    def _pair(self, model: PreTrainedModel) -> Pair:
        """Make a pair of the model and its drafter, without stop tokens: `generate` has its own."""
        source = self._source
        if isinstance(source, Pair):
            if source.target is not model:
                raise BlockPilotError(
                    f"block_pilot was made for the target {source.target_name}; call generate on "
                    "that pair's `target`"
                )
            return dataclasses.replace(source, stop_token_ids=())
        name = model.name_or_path or type(model).__name__
        check_architecture(Path(name), model.config)
        check_fit(model, source)
        check_alike(model, source)
        share_modules(model, source)
        return Pair(
            target=model,
            tokenizer=cast(Any, None),  # Prompts and texts are tokens.
            drafter=source,
            target_name=name,
            drafter_name=source.name_or_path or type(source).__name__,
            stop_token_ids=(),
        )

    def _sampling_of(self, config: GenerationConfig, processors: LogitsProcessorList) -> Sampling:
        """Find how `generate` would choose tokens."""
        values = {_WARPERS.get(type(item), type(item).__name__): item for item in processors}
        expected = [name for name in _WARPERS.values() if config.do_sample and name in values]
        if list(values) != expected or len(values) != len(processors):
            unsupported = [name for name in values if name not in expected] or list(values)
            raise BlockPilotError(
                f"block_pilot cannot apply {', '.join(unsupported)}; it samples with temperature, "
                "top_k and top_p, in this order, or decodes greedily. Leave the option out, or "
                "decode without block_pilot"
            )
        if not config.do_sample:
            return self._sampling
        chosen = {name: getattr(values[name], name) for name in expected}
        seed = self._sampling.seed if self._seeded else int(torch.randint(2**31, ()))
        # `generate` adds no warper for temperature 1.
        return dataclasses.replace(self._sampling, seed=seed, **{"temperature": 1.0, **chosen})


class _Stop:
    """Applies the stopping criteria token by token, as plain decoding would."""

    def __init__(self, input_ids: torch.Tensor, criteria: StoppingCriteriaList) -> None:
        """Separate the criteria: stop tokens are compared here, the decoder keeps the budget."""
        ends = [item.eos_token_id for item in criteria if isinstance(item, EosTokenCriteria)]
        self.tokens = {int(token) for end in ends for token in end.flatten()}
        self.others = StoppingCriteriaList(
            item for item in criteria if not isinstance(item, EosTokenCriteria | MaxLengthCriteria)
        )
        self.sequence = input_ids
        self.reached = False

    def __call__(self, token: int) -> bool:
        """Whether the text ends with this next token."""
        self.reached = token in self.tokens
        if self.others:
            self.sequence = torch.cat([self.sequence, self.sequence.new_tensor([[token]])], dim=1)
            ended = self.others(cast(torch.LongTensor, self.sequence), None)
            self.reached = self.reached or bool(ended.all())
        return self.reached


def _until(passes: Iterator[Pass], stop: _Stop, streamer: BaseStreamer | None) -> Iterator[Pass]:
    """Yield passes up to the token that ends the text, and stream their tokens one by one."""
    for item in passes:
        kept: list[int] = []
        for token in item.tokens:
            kept.append(token)
            if streamer is not None:
                streamer.put(torch.tensor([token]))
            if stop(token):
                break
        yield dataclasses.replace(item, tokens=tuple(kept))
        if stop.reached:
            break
    if streamer is not None:
        streamer.end()


def _arguments_of_generate(frame: FrameType | None) -> Mapping[str, Any]:
    """Read the arguments that the calling `generate` does not pass on.

    transformers passes no streamer to the function (since huggingface/transformers#40586), though
    the streamer already has the prompt: a reader of a `TextIteratorStreamer` would wait forever.
    """
    caller = None if frame is None else frame.f_back
    if caller is None or caller.f_code.co_name != "generate":
        return {}
    names = ("streamer", "assistant_model", "synced_gpus")
    return {name: caller.f_locals.get(name) for name in names}


def _check_request(
    input_ids: torch.Tensor,
    config: GenerationConfig,
    model_kwargs: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> None:
    """Refuse by name what the decoder does not support.

    Raises:
        BlockPilotError: If the request is more than one text, searches, or asks for more than
            tokens.
    """
    refused = {
        "num_return_sequences above 1": config.num_return_sequences not in (None, 1),
        "a batch of several prompts": input_ids.shape[0] > 1,
        "an empty prompt (such as inputs_embeds without input_ids)": input_ids.shape[1] == 0,
        "assistant_model (the drafter is an argument of block_pilot)": (
            asked.get("assistant_model") is not None
        ),
        "synced_gpus": bool(asked.get("synced_gpus")),
        "an attention_mask that hides part of the prompt": not _is_full(
            model_kwargs.get("attention_mask")
        ),
        "position_ids other than 0, 1, 2, …": not _are_plain(model_kwargs.get("position_ids")),
        "your own cache (past_key_values)": getattr(
            model_kwargs.get("cache"), "_is_user_defined", False
        ),
    }
    mode = config.get_generation_mode()
    refused[f"{mode.value.replace('_', ' ')} (only greedy search and sampling)"] = (
        mode not in _MODES
    )
    if config.return_dict_in_generate:
        refused |= {name: bool(getattr(config, name)) for name in _EXTRAS}
    known = {"attention_mask", "position_ids", "cache", "use_cache", "logits_to_keep"}
    refused |= {
        name: value is not None for name, value in model_kwargs.items() if name not in known
    }
    names = [name for name, given in refused.items() if given]
    if names:
        raise BlockPilotError(
            f"block_pilot does not support {'; '.join(names)}. Leave it out, or decode without "
            "block_pilot"
        )


def _is_full(mask: torch.Tensor | None) -> bool:
    return mask is None or bool((mask == 1).all())


def _are_plain(positions: torch.Tensor | None) -> bool:
    if positions is None:
        return True
    plain = torch.arange(positions.shape[-1], device=positions.device)
    return bool((positions == plain).all())
