"""The drafter that training starts from: random weights in the target's shape, or a trained one."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from blockpilot_rl.decoding.batched import Continuation
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.checkpoints import load_drafter
from blockpilot_rl.models.dflash2 import GroupedDynamicConv
from blockpilot_rl.models.drafter import DFlash2DraftModel, DFlashConfig, DFlashDraftModel
from blockpilot_rl.models.drafter_config import OWN_MODULES
from blockpilot_rl.models.fit import check_fit, embedding_scale
from blockpilot_rl.models.pairs import Pair
from blockpilot_rl.training.recipe import RecipeConfig

_KERNEL, _GROUP, _CANDIDATES = 3, 64, 16
"""Taps and channels of a group of new convolutions, and candidates of a new selector."""


def pretrained_drafter(
    name: str, pair: Pair, config: RecipeConfig, mask_token_id: int | None = None
) -> tuple[DFlashDraftModel, RecipeConfig]:
    """Load a drafter to train further.

    Args:
        name: Hub id or folder.
        pair: The target.
        config: The recipe.
        mask_token_id: The mask token that the drafter must have; None accepts any.

    Returns:
        The drafter in float32 with the recipe's block size, and the recipe with the drafter's
        shape. If the recipe asks for a correction head and the drafter has none, the drafter gets
        an untrained one. Its draft vocabulary stays; `set_draft_vocabulary` changes it.

    Raises:
        BlockPilotError: If the drafter cannot be loaded, does not fit the target, has another shape
            or mask token than the recipe states, or has its own embeddings or head, which this
            recipe does not train.
    """
    drafter = load_drafter(name, torch.float32, "cpu")
    check_fit(pair.target, drafter, pair.tokenizer)
    if drafter.config.is_dflash2 and config.architecture == "dflash":
        raise BlockPilotError(
            f"drafter {name} is a DFlash2 drafter; training keeps its parts, so leave architecture "
            "out"
        )
    own = [module for module in OWN_MODULES if drafter.own(module) is not None]
    if own:
        raise BlockPilotError(
            f"drafter {name} has its own {' and '.join(own)}; training starts only from drafters "
            "that share the target's"
        )
    found = drafter.config
    assert found.target_layer_ids is not None
    shape: dict[str, Any] = {
        "layers": found.num_hidden_layers,
        "target_layer_ids": tuple(found.target_layer_ids),
        "draft_vocab_size": found.draft_vocab_size or found.vocab_size,
    }
    _check_shape(name, {**shape, "mask_token_id": found.mask_token_id}, config, mask_token_id)
    shape["draft_vocab_size"] = config.draft_vocab_size or shape["draft_vocab_size"]
    found.block_size = config.block_size
    has, wanted = found.correction_rank, config.correction_rank
    if has is not None and wanted not in (0, has):
        raise BlockPilotError(
            f"drafter {name} has a correction head of rank {has}, not {wanted}; leave "
            "correction_rank at 0 to keep it"
        )
    if config.architecture == "dflash2" and not found.is_dflash2:
        with _seeded(config):
            drafter = as_dflash2(drafter, config)
    elif has is None and wanted:
        if found.is_dflash2:
            raise BlockPilotError(
                f"drafter {name} is a DFlash2 drafter, whose selector takes the place of a "
                "correction head; leave correction_rank at 0"
            )
        with _seeded(config):
            drafter.add_correction(wanted)
    return drafter, dataclasses.replace(
        config, init=name, correction_rank=drafter.config.correction_rank or 0, **shape
    )


def as_dflash2(drafter: DFlashDraftModel, config: RecipeConfig) -> DFlash2DraftModel:
    """Make a DFlash2 drafter that drafts what a DFlash drafter drafts before it is trained.

    Its convolutions change nothing and its selector prefers no pair of tokens. A correction head is
    left out, because the selector takes its place.

    Args:
        drafter: The DFlash drafter.
        config: The recipe, which has the rank of the selector.
    """
    changed: Any = copy.deepcopy(drafter.config)
    size = changed.draft_vocab_size or changed.vocab_size
    changed.dflash_config = {
        **(changed.dflash_config or {}),
        "correction_rank": None,
        "conv_kernel_size": _KERNEL,
        "conv_group_size": math.gcd(_GROUP, changed.hidden_size),
        "selector_rank": config.selector_rank,
        "selector_top_k": min(_CANDIDATES, size),
    }
    changed.architectures = ["DFlash2DraftModel"]
    made = DFlash2DraftModel(changed)
    made.load_state_dict(
        {k: v for k, v in drafter.state_dict().items() if not k.startswith("correction.")},
        strict=False,
    )
    with torch.no_grad():
        for module in made.modules():
            if isinstance(module, GroupedDynamicConv):
                module.kernel_projection.weight.zero_()
        assert made.candidate_selector is not None
        # With two tables of zeros, neither would have a gradient.
        made.candidate_selector.predecessor_codebook.normal_()
    return made


def _check_shape(
    name: str, found: Mapping[str, Any], config: RecipeConfig, mask_token_id: int | None
) -> None:
    """Refuse a recipe whose stated shape is not that of the drafter that training starts from."""
    wanted = {**config.shape, "mask_token_id": mask_token_id}
    wanted.pop("draft_vocab_size", None)
    for option, value in wanted.items():
        if value is not None and value != found[option]:
            raise BlockPilotError(
                f"drafter {name} has {option} {found[option]}, not {value}; training does not "
                f"change it, so leave {option} out"
            )


def choose_mask_token(pair: Pair, answers: Sequence[Continuation]) -> int:
    """Find a special token of the target that no answer uses.

    Raises:
        BlockPilotError: If there is none.
    """
    tokenizer = pair.tokenizer
    taken = {*pair.stop_token_ids, tokenizer.pad_token_id, tokenizer.bos_token_id}
    for answer in answers:
        taken.update(answer.prompt_ids.tolist(), answer.output_ids.tolist())
    free = [
        token
        for token in tokenizer.all_special_ids + list(tokenizer.added_tokens_decoder)
        if token not in taken and token < pair.target.config.vocab_size
    ]
    if not free:
        raise BlockPilotError(
            f"target {pair.target_name} has no unused special token; set mask_token_id to a "
            "token that no text uses"
        )
    return max(free)


def new_drafter(
    pair: Pair,
    answers: Sequence[Continuation],
    mask_token_id: int,
    config: RecipeConfig,
    groups: Sequence[str] | None = None,
) -> DFlashDraftModel:
    """Make an untrained drafter in the target's shape.

    Args:
        pair: The target.
        answers: Answers whose most frequent tokens become the draft vocabulary.
        mask_token_id: Token of the target's vocabulary that never occurs in text.
        config: The recipe.
        groups: Group of each answer, as in `set_draft_vocabulary`.
    """
    config = config.with_default_shape(pair.target.config.num_hidden_layers)
    assert config.layers is not None
    assert config.target_layer_ids is not None
    assert config.draft_vocab_size is not None
    shape = pair.target.config
    vocabulary, scale = shape.vocab_size, embedding_scale(pair.target)
    size = min(config.draft_vocab_size, vocabulary)
    drafter_config = DFlashConfig(
        vocab_size=vocabulary,
        hidden_size=shape.hidden_size,
        intermediate_size=getattr(shape, "intermediate_size", None) or 4 * shape.hidden_size,
        num_hidden_layers=config.layers,
        num_attention_heads=shape.num_attention_heads,
        num_key_value_heads=getattr(shape, "num_key_value_heads", shape.num_attention_heads),
        head_dim=shape.hidden_size // shape.num_attention_heads,
        max_position_embeddings=shape.max_position_embeddings,
        rms_norm_eps=getattr(shape, "rms_norm_eps", 1e-6),
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=False,
        block_size=config.block_size,
        num_target_layers=shape.num_hidden_layers,
        dflash_config={
            "mask_token_id": mask_token_id,
            "target_layer_ids": list(config.target_layer_ids),
            "correction_rank": config.correction_rank or None,
            "input_embedding_scale": None if scale == 1 else scale,
        },
        draft_vocab_size=None if size == vocabulary else size,
        architectures=["DFlashDraftModel"],
    )
    with _seeded(config):
        drafter = DFlashDraftModel(drafter_config)
    if drafter.draft_token_ids is not None:
        set_draft_vocabulary(drafter, pair, answers, size, groups)
    if config.architecture == "dflash2":
        with _seeded(config):
            return as_dflash2(drafter, config)
    return drafter


def set_draft_vocabulary(
    drafter: DFlashDraftModel,
    pair: Pair,
    answers: Sequence[Continuation],
    size: int,
    groups: Sequence[str] | None = None,
) -> None:
    """Let a drafter draft the tokens that are most frequent in a corpus.

    A token counts `sum over groups of count / sqrt(tokens of the group)`, so that small groups,
    such as a language with few prompts, weigh more than their share. The tokens that end a text are
    always drafted. No weights depend on the draft vocabulary, except the rows of a selector.

    Args:
        drafter: The drafter, changed in place.
        pair: The target.
        answers: The corpus.
        size: Number of tokens.
        groups: Group of each answer, such as its family; None if all are one group.
    """
    vocabulary = pair.target.config.vocab_size
    size = min(size, vocabulary)
    ids = _frequent_tokens(pair, answers, size, groups)
    _move_successors(drafter, ids)
    if size == vocabulary:
        drafter.config.draft_vocab_size = None
        drafter._buffers.pop("d2t", None)
        return
    drafter.config.draft_vocab_size = size
    drafter.register_buffer("d2t", (ids - torch.arange(size)).to(drafter.fc.weight.device))


@torch.no_grad()
def _move_successors(drafter: DFlashDraftModel, ids: torch.Tensor) -> None:
    """Rearrange the rows of a selector for another draft vocabulary; new tokens get zeros."""
    selector = drafter.candidate_selector
    if selector is None:
        return
    rows = selector.successor_codebook
    every = rows.new_zeros(drafter.config.vocab_size, rows.shape[1])
    old = drafter.draft_token_ids
    every[slice(None) if old is None else old] = rows
    selector.successor_codebook = torch.nn.Parameter(every[ids])


def _frequent_tokens(
    pair: Pair, answers: Sequence[Continuation], size: int, groups: Sequence[str] | None
) -> torch.Tensor:
    """The tokens that `set_draft_vocabulary` chooses, increasing, `[size]`."""
    vocabulary = pair.target.config.vocab_size
    score = torch.zeros(vocabulary, dtype=torch.float64)
    names = groups or [""] * len(answers)
    tokens: dict[str, list[torch.Tensor]] = {}
    for name, answer in zip(names, answers, strict=True):
        tokens.setdefault(name, []).append(answer.output_ids)
    for parts in tokens.values():
        counts = torch.cat(parts).bincount(minlength=vocabulary).double()
        score += counts / counts.sum().sqrt()
    score[list(pair.stop_token_ids)] = torch.inf
    # A stable sort fills the rest with tokens that do not occur, in order of their id.
    ranked = score.sort(descending=True, stable=True).indices[:size]
    return ranked.sort().values


@contextmanager
def _seeded(config: RecipeConfig) -> Iterator[None]:
    """Draw initial weights with the recipe's seed, without changing the global random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        yield
