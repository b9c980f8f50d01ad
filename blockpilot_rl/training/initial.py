"""Where drafter training starts: random weights in the target's shape, or another drafter's."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from blockpilot_rl.decoding.batched import Continuation
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.checkpoints import load_drafter
from blockpilot_rl.models.drafter import DFlashConfig, DFlashDraftModel
from blockpilot_rl.models.drafter_config import OWN_MODULES
from blockpilot_rl.models.fit import check_fit
from blockpilot_rl.models.pairs import Pair
from blockpilot_rl.training.recipe import RecipeConfig


def pretrained_drafter(
    name: str, pair: Pair, config: RecipeConfig
) -> tuple[DFlashDraftModel, RecipeConfig]:
    """Load a drafter to train further.

    Args:
        name: Hub id or folder.
        pair: The target.
        config: The recipe; what the drafter already decides in it is replaced.

    Returns:
        The drafter in float32, with the recipe's block size and, if it has none, an untrained
        correction head where the recipe asks for one; and the recipe with the drafter's
        layers, target layers and draft vocabulary.

    Raises:
        BlockPilotError: If it cannot be loaded, does not fit the target, has its own embeddings or
            head, which this recipe does not train, or a correction head of another rank.
    """
    drafter = load_drafter(name, torch.float32, "cpu")
    check_fit(pair.target, drafter, pair.tokenizer)
    own = [module for module in OWN_MODULES if drafter.own(module) is not None]
    if own:
        raise BlockPilotError(
            f"drafter {name} has its own {' and '.join(own)}; training starts only from drafters "
            "that share the target's"
        )
    shape = drafter.config
    assert shape.target_layer_ids is not None
    shape.block_size = config.block_size
    has, wanted = shape.correction_rank, config.correction_rank
    if has is not None and wanted not in (0, has):
        raise BlockPilotError(
            f"drafter {name} has a correction head of rank {has}, not {wanted}; leave "
            "correction_rank at 0 to keep it"
        )
    if has is None and wanted:
        with _seeded(config):
            drafter.add_correction(wanted)
    return drafter, dataclasses.replace(
        config,
        init=name,
        layers=shape.num_hidden_layers,
        correction_rank=shape.correction_rank or 0,
        target_layer_ids=tuple(shape.target_layer_ids),
        draft_vocab_size=shape.draft_vocab_size or shape.vocab_size,
    )


def choose_mask_token(pair: Pair, answers: Sequence[Continuation]) -> int:
    """Find a special token of the target that no text uses.

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
            f"target {pair.target_name} has no unused special token; name one with --mask-token-id"
        )
    return max(free)


def new_drafter(
    pair: Pair, answers: Sequence[Continuation], mask_token_id: int, config: RecipeConfig
) -> DFlashDraftModel:
    """Make an untrained drafter in the target's shape.

    Args:
        pair: The target.
        answers: Answers whose most frequent tokens become the draft vocabulary.
        mask_token_id: Token of the target's vocabulary that never occurs in text.
        config: The recipe.
    """
    shape = pair.target.config
    counts = Counter[int](pair.stop_token_ids)
    for answer in answers:
        counts.update(answer.output_ids.tolist())
    vocabulary = shape.vocab_size
    size = min(config.draft_vocab_size, vocabulary)
    # Tokens that never occurred fill up the vocabulary in order of their id.
    ranked = [token for token, _ in counts.most_common(size)]
    ranked += [token for token in range(vocabulary) if token not in counts][: size - len(ranked)]
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
        },
        draft_vocab_size=None if size == vocabulary else size,
        architectures=["DFlashDraftModel"],
    )
    with _seeded(config):
        drafter = DFlashDraftModel(drafter_config)
    if drafter.draft_token_ids is not None:
        drafter.d2t.copy_(torch.tensor(sorted(ranked)) - torch.arange(size))
    return drafter


@contextmanager
def _seeded(config: RecipeConfig) -> Iterator[None]:
    """Let modules draw their initial weights by the recipe's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        yield
