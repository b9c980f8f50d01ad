"""Small random checkpoints of a target and a drafter that fit each other, made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from blockpilot_rl.models.drafter import DFlashConfig, DFlashDraftModel
from blockpilot_rl.models.pairs import Pair, load_pair

VOCABULARY = 64
MASK = VOCABULARY - 1
STOP = 2
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


def save_tiny_pair(folder: Path) -> tuple[Path, Path]:
    """Write both checkpoints under `folder`; returns the target's and the drafter's folders."""
    target, drafter = folder / "target", folder / "drafter"
    tiny_target().save_pretrained(target)
    tiny_tokenizer().save_pretrained(target)
    tiny_drafter().save_pretrained(drafter)
    return target, drafter


def tiny_pair(folder: Path, dtype: str = "float32") -> Pair:
    """Save and load a tiny pair."""
    target, drafter = save_tiny_pair(folder)
    return load_pair(target, drafter, dtype)
