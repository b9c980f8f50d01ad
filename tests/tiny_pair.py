"""Small random checkpoints of a target and a drafter that fit each other."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from blockpilot_rl.decoding.batched import Continuation, continue_batch
from blockpilot_rl.decoding.forward import target_forward
from blockpilot_rl.models.drafter import DFlashConfig, DFlashDraftModel
from blockpilot_rl.models.pairs import Pair, load_pair
from blockpilot_rl.training.initial import new_drafter
from blockpilot_rl.training.recipe import RecipeConfig, Trainer

VOCABULARY = 64
MASK = VOCABULARY - 1
STOP = 2
PROMPTS = ("a b c d", "hello there", "one two", "long prompt with words")
RECIPE = RecipeConfig(
    steps=130,
    sequences=4,
    queries=64,
    block_sizes=(8,),
    learning_rate=6e-3,
    warmup=10,
    distillation=0.3,
    layers=2,
    target_layer_ids=(0, 2),
    draft_vocab_size=VOCABULARY,
)
TEMPLATE = (
    "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '|' }}{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Tokenizer of single characters, with three special tokens in front."""
    letters = "abcdefghijklmnopqrstuvwxyz .,|ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    names = ["<unk>", "<pad>", "<eos>", *letters]
    names += [f"<extra{i}>" for i in range(VOCABULARY - len(names))]
    tokenizer = Tokenizer(models.WordLevel({n: i for i, n in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        pad_token="<pad>",
        eos_token="<eos>",
        chat_template=TEMPLATE,
    )


def tiny_target(seed: int = 0, **changes: Any) -> LlamaForCausalLM:
    """A random Llama of four layers."""
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 256,
        "pad_token_id": 1,
        "bos_token_id": None,
        "eos_token_id": STOP,
        "initializer_range": 0.3,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(LlamaConfig(**{**settings, **changes})).eval()


def tiny_drafter(seed: int = 1, **changes: Any) -> DFlashDraftModel:
    """A random drafter of two layers for `tiny_target`."""
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 256,
        "block_size": 8,
        "num_target_layers": 4,
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [0, 2]},
        "initializer_range": 0.3,
        "architectures": ["DFlashDraftModel"],
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return DFlashDraftModel(DFlashConfig(**{**settings, **changes})).eval()


def random_correction(drafter: DFlashDraftModel) -> DFlashDraftModel:
    """Let the drafter's correction head, if it has one, correct at random.

    A reduced draft vocabulary, if it has one, is every other token.
    """
    if drafter.config.draft_vocab_size is not None:
        drafter.d2t.copy_(torch.arange(len(drafter.d2t)))
    if drafter.correction is not None:
        generator = torch.Generator().manual_seed(5)
        torch.nn.init.normal_(drafter.correction.output.weight, generator=generator)
    return drafter


def save_tiny_pair(folder: Path) -> tuple[Path, Path]:
    """Write both checkpoints under `folder`; returns the target's and the drafter's folders."""
    target, drafter = folder / "target", folder / "drafter"
    tiny_target().save_pretrained(target)
    tiny_tokenizer().save_pretrained(target)
    tiny_drafter().save_pretrained(drafter)
    return target, drafter


def save_roomy_pair(folder: Path, *, stops: bool) -> Path:
    """Write a pair with room for the prompts of the built-in suite under `folder`, and return it.

    Args:
        folder: Where `target` and `drafter` go.
        stops: Whether it has a stop token.
    """
    changes: dict[str, Any] = {} if stops else {"eos_token_id": None}
    tiny_target(max_position_embeddings=4096, **changes).save_pretrained(folder / "target")
    tokenizer = tiny_tokenizer()
    if not stops:
        tokenizer.eos_token = None
    tokenizer.save_pretrained(folder / "target")
    tiny_drafter(max_position_embeddings=4096).save_pretrained(folder / "drafter")
    return folder


def tiny_pair(folder: Path, dtype: str = "float32") -> Pair:
    """Save and load a tiny pair."""
    target, drafter = save_tiny_pair(folder)
    return load_pair(target, drafter, dtype)


def variant(folder: Path, copy: Path, **changes: Any) -> Path:
    """Copy a checkpoint with some keys of its config changed, or left out where None is given."""
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text(encoding="utf-8")) | changes
    kept = {key: value for key, value in config.items() if value is not None}
    (copy / "config.json").write_text(json.dumps(kept), encoding="utf-8")
    return copy


def encode(pair: Pair, text: str) -> torch.Tensor:
    """Token ids of one user message, `[1, n]`."""
    return pair.encode([{"role": "user", "content": text}])


def answers(pair: Pair, texts: tuple[str, ...] = PROMPTS, tokens: int = 40) -> list[Continuation]:
    """The target's answers without stop tokens."""
    target = target_forward(pair.target, [0, 2])
    return continue_batch(target, [encode(pair, text)[0] for text in texts], tokens, ())


def trained_pair(folder: Path, **changes: Any) -> Pair:
    """A tiny pair without stop tokens, whose drafter learned a little of the answers to `PROMPTS`.

    So blocks are accepted whole, in part and not at all, and the text goes on to its budget.
    `changes` are those of the recipe.
    """
    pair = tiny_pair(folder)
    texts = answers(pair)
    recipe = dataclasses.replace(RECIPE, **changes)
    trainer = Trainer(new_drafter(pair, texts, MASK, recipe), pair, texts, recipe)
    for _ in range(recipe.steps):
        trainer.train_step()
    trainer.export().save_pretrained(folder / "trained")
    pair = load_pair(folder / "target", folder / "trained")
    return dataclasses.replace(pair, stop_token_ids=())
