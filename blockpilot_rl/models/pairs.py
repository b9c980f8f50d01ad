"""A target with its drafter: loading, checks that they fit, and the fingerprint."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from blockpilot_rl.errors import BlockPilotError, closest, one_line
from blockpilot_rl.models.checkpoints import check_finite, load_drafter, resolve_checkpoint
from blockpilot_rl.models.default_target import (
    cache_folder,
    convert_once,
    default_target_folder,
)
from blockpilot_rl.models.devices import check_device as check_device
from blockpilot_rl.models.drafter import DFlashDraftModel
from blockpilot_rl.models.fit import (
    check_architecture,
    check_fit,
    max_positions,
    share_modules,
    token_ids,
)
from blockpilot_rl.models.messages import COMPLETION, completion_text, normalize_messages
from blockpilot_rl.provenance import sha256_file

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
DEFAULT_TARGET = "HuggingFaceTB/SmolLM2-135M-Instruct"
BUNDLED_DRAFTER = Path(__file__).parents[1] / "bundled" / "drafter"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pair:
    """A target, its drafter and its tokenizer, ready to decode.

    Attributes:
        target: The target LM.
        tokenizer: The target's tokenizer, with its chat template.
        drafter: The DFlash drafter, or None for a target alone.
        target_name: Hub id or folder name of the target.
        drafter_name: Hub id or folder name of the drafter.
        stop_token_ids: Tokens that end a text.
        template: How prompts become tokens: options of the chat template, such as
            `enable_thinking`, or `{"completion": True}` for plain text. It changes acceptance, so
            records and policies store it. None if prompts are tokens.
    """

    target: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    drafter: DFlashDraftModel | None
    target_name: str
    drafter_name: str | None
    stop_token_ids: tuple[int, ...]
    template: Mapping[str, Any] | None = None

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of both models."""
        return self.target.dtype

    @property
    def device(self) -> torch.device:
        """Device of both models."""
        return self.target.device

    @property
    def block_size(self) -> int:
        """Block size that the drafter was trained for (1 without a drafter)."""
        return 1 if self.drafter is None else int(self.drafter.config.block_size)

    @property
    def max_length(self) -> int:
        """Number of positions that both models can address."""
        models = (self.target, self.drafter)
        return min(max_positions(model.config) for model in models if model is not None)

    @property
    def trained_length(self) -> int | None:
        """Tokens of the longest text that the drafter was trained on, or None if unknown."""
        return None if self.drafter is None else self.drafter.config.trained_length

    @cached_property
    def fingerprint(self) -> str:
        """Digest of both models' configs and weights, independent of the dtype they run in."""
        return _fingerprint(self.target, self.drafter)

    @cached_property
    def target_fingerprint(self) -> str:
        """Digest of the target's config and weights."""
        return _fingerprint(self.target)

    def encode(self, prompt: str | Sequence[Mapping[str, Any]], **template: Any) -> torch.Tensor:
        """Turn a prompt into tokens, with the target's chat template or as plain text.

        Plain text gets the special tokens that the tokenizer adds by default, such as a first one.

        Args:
            prompt: A user's message, or turns with `role` and `content`, in any form that
                `normalize_messages` reads. A completion is one message of the user.
            **template: Values for this prompt, over the pair's own `template`.

        Returns:
            Token ids, `[1, n]`, on the pair's device.

        Raises:
            BlockPilotError: If the prompt is empty or malformed, or a conversation for completions,
                or the chat template is missing, lacks these options or refuses the conversation.
        """
        if isinstance(prompt, str):
            prompt = [{"role": "user", "content": prompt}]
        turns = normalize_messages(prompt)
        if not turns or not turns[-1]["content"].strip():
            raise BlockPilotError("the prompt is empty; give some text")
        options = {**(self.template or {}), **template}
        _check_template(self.tokenizer, options, self.target_name)
        if options.pop(COMPLETION, False):
            plain: Any = self.tokenizer(completion_text(turns), return_tensors="pt")
            return plain.input_ids.to(self.device)  # type: ignore[no-any-return]
        try:
            ids: Any = self.tokenizer.apply_chat_template(
                turns,
                add_generation_prompt=True,
                return_tensors="pt",
                return_dict=False,
                **options,
            )
        # A template can raise anything for an option of the wrong kind.
        except Exception as error:
            raise BlockPilotError(
                f"target {self.target_name} refuses this conversation: {one_line(error)}"
            ) from error
        return ids.to(self.device)  # type: ignore[no-any-return]


def _check_template(
    tokenizer: PreTrainedTokenizerBase, options: Mapping[str, Any], target_name: str
) -> None:
    """Refuse options that a chat template would silently ignore, and a target without one."""
    if options.get(COMPLETION):
        unused = [name for name in options if name != COMPLETION]
        if unused:
            raise BlockPilotError(
                f"completions are plain text, without the option {unused[0]!r} of a chat template; "
                "drop one of them"
            )
        return
    templates = tokenizer.chat_template
    if templates is None:
        raise BlockPilotError(
            f"target {target_name} has no chat template; give it prompts as plain text, with "
            "completion=True (--completion)"
        )
    text = templates if isinstance(templates, str) else " ".join(templates.values())
    # Arguments of the renderer itself are not options of the template.
    taken = {"messages", *signature(tokenizer.apply_chat_template).parameters}
    known = (set(re.findall(r"\w+", text)) | {COMPLETION}) - taken
    for name in options:
        if name not in known:
            raise BlockPilotError(
                f"target {target_name} has a chat template without the option {name!r}."
                f"{closest(name, known)}"
            )


def _fingerprint(*models: PreTrainedModel | None) -> str:
    """Digest of configs and weights.

    Every tensor contributes 64 evenly spaced values, rounded to bfloat16, so that the digest of a
    large model takes a second.
    """
    digest = hashlib.sha256()
    for model in models:
        if model is None:
            continue
        digest.update(_shape_of(model.config).encode())
        for name, tensor in sorted(model.state_dict().items()):
            flat = tensor.detach().flatten()
            step = max(1, flat.numel() // 64)
            sample = flat[::step][:64].to("cpu", torch.float32).bfloat16().view(torch.uint8)
            digest.update(name.encode())
            digest.update(sample.numpy().tobytes())
    return digest.hexdigest()[:16]


def _shape_of(config: Any) -> str:
    """The parts of a config that determine what the model computes."""
    skip = {"dtype", "torch_dtype", "_name_or_path", "transformers_version", "architectures"}
    kept = {k: v for k, v in config.to_dict().items() if k not in skip}
    if isinstance(kept.get("dflash_config"), dict):
        settings = kept["dflash_config"].items()
        kept["dflash_config"] = {k: v for k, v in settings if k != "trained_length"}
    return json.dumps(kept, sort_keys=True, default=str)


def parse_dtype(name: str) -> torch.dtype:
    """Turn `float32`, `bfloat16`, `float16` (or `fp32`, `bf16`, `fp16`) into a dtype.

    Raises:
        BlockPilotError: If the name is unknown.
    """
    short = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
    full = short.get(name, name)
    if full not in DTYPES:
        raise BlockPilotError(f"unknown dtype {name!r}.{closest(name, [*DTYPES, *short])}")
    return DTYPES[full]


def load_pair(
    target: str | Path | None = None,
    drafter: str | Path | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    *,
    with_drafter: bool = True,
    template: Mapping[str, Any] | None = None,
    completion: bool = False,
) -> Pair:
    """Load a target with its drafter and check that they fit.

    Args:
        target: Hub id, folder, or GGUF file; None for the default target.
        drafter: Hub id or folder; None for the bundled drafter, which fits the default target.
        dtype: `float32`, `bfloat16` or `float16`, for both models.
        device: Where to put both models.
        with_drafter: Whether to load a drafter.
        template: Options of the chat template, such as `enable_thinking`.
        completion: Whether prompts are plain text to complete, as for a target without a chat
            template. The same as the option `completion` in `template`.

    Raises:
        BlockPilotError: If a checkpoint is missing, corrupt or not supported, or the drafter does
            not fit the target.
    """
    torch_dtype = parse_dtype(dtype)
    check_device(device)
    transformers_logging.disable_progress_bar()
    folder = _target_folder(target)
    model = _load_target(folder, torch_dtype, device)
    tokenizer = _load_tokenizer(folder)
    target_name = DEFAULT_TARGET if target is None else _short_name(target)
    options = dict(template or {})
    if options.pop(COMPLETION, False) or completion:
        options[COMPLETION] = True
    if options:
        _check_template(tokenizer, options, target_name)
    draft_model = None
    if with_drafter:
        if drafter is None and target is not None:
            raise BlockPilotError(f"target {str(target)!r} has no default drafter; name a drafter")
        draft_model = load_drafter(drafter or BUNDLED_DRAFTER, torch_dtype, device)
        check_fit(model, draft_model, tokenizer)
        share_modules(model, draft_model)
    return Pair(
        target=model,
        tokenizer=tokenizer,
        drafter=draft_model,
        target_name=target_name,
        drafter_name=None if draft_model is None else _short_name(drafter or "bundled"),
        stop_token_ids=_stop_tokens(model, tokenizer),
        template=options,
    )


def _short_name(name: str | Path) -> str:
    """A hub id unchanged, or the last part of a local path: records hold no local paths."""
    path = Path(name)
    return path.resolve().name if path.exists() else str(name)


def _target_folder(target: str | Path | None) -> Path:
    if target is None:
        return default_target_folder()
    path = Path(target)
    if path.suffix != ".gguf":
        return resolve_checkpoint(target, "target")
    if not path.is_file():
        raise BlockPilotError(f"target {path} does not exist")
    folder = cache_folder() / f"{path.stem.lower()}-{sha256_file(path)[:12]}"
    convert_once(path, folder)
    return folder


def _load_target(folder: Path, dtype: torch.dtype, device: str) -> PreTrainedModel:
    # The readers of transformers raise many kinds of errors for a broken checkpoint.
    try:
        config = AutoConfig.from_pretrained(folder)
    except Exception as error:
        raise BlockPilotError(
            f"the config of target {folder} cannot be read: {one_line(error)}"
        ) from error
    check_architecture(folder, config)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, output_loading_info=True
        )
        model, report = loaded
        model.to(device).eval()
    except Exception as error:
        raise BlockPilotError(
            f"cannot load target {folder} on {device}: {one_line(error)}"
        ) from error
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise BlockPilotError(
            f"target {folder} lacks {len(missing)} tensors, such as {missing[0]}; its weights "
            "would be random"
        )
    check_finite(model.named_parameters(), f"target {folder}")
    return model  # type: ignore[no-any-return]


def _load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    except Exception as error:
        raise BlockPilotError(
            f"the tokenizer of target {folder} cannot be read: {one_line(error)}"
        ) from error
    return tokenizer


def _stop_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    stops = token_ids("eos_token_id", model.generation_config, model.config, tokenizer)
    return tuple(sorted(stops))
