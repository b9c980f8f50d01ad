"""The training recipe of a drafter: the loss, the optimisers, and checkpoints.

The loss at a masked position mixes cross-entropy on the target's token with distillation of the
target's distribution. It decays along the block, because later positions matter only if all earlier
ones are accepted (DFlash: weight `exp(-(k - 1) / gamma)` at position `k`).
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from blockpilot_rl.decoding.batched import Continuation
from blockpilot_rl.decoding.forward import TargetForward, target_forward
from blockpilot_rl.decoding.lean import LeanForward
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import atomic_write
from blockpilot_rl.models.drafter import DFlashDraftModel
from blockpilot_rl.models.pairs import Pair
from blockpilot_rl.options import check_options, option
from blockpilot_rl.training.batches import Batch, TrainingExamples, sample_batch

_DEFAULT_LAYERS, _DEFAULT_VOCABULARY = 3, 8192


def default_layer_ids(depth: int) -> tuple[int, ...]:
    """Choose the target layers that a drafter reads, where the recipe does not state them.

    They are four layers at about equal distances, from the second to the third from the end:
    1, 9, 18 and 27 of 30.

    Args:
        depth: Number of layers of the target.
    """
    return tuple(sorted({min(depth - 2, 1 + i * max(depth - 4, 0) // 3) for i in range(4)}))


@dataclass(frozen=True)
class RecipeConfig:
    """How to train a drafter.

    Without `layers`, `target_layer_ids` or `draft_vocab_size`, the drafter has the shape of the one
    that training starts from, or 3 layers, the target layers of `default_layer_ids` and 8192
    tokens.
    """

    steps: int = option(1800, help="optimiser steps; the learning rate decays over them", minimum=1)
    sequences: int = option(8, help="sequences per step", minimum=1, maximum=65536)
    queries: int = option(
        256,
        help="positions to denoise per sequence and step, anchors included",
        minimum=1,
        maximum=65536,
    )
    block_sizes: tuple[int, ...] = option(
        (16, 8, 4, 8, 16, 8),
        help="block size of each step, in rotation; the largest becomes the drafter's own",
    )
    learning_rate: float = option(3e-3, help="peak of the cosine schedule", above=0, below=math.inf)
    warmup: int = option(50, help="steps of linear warm-up", minimum=0)
    weight_decay: float = option(0.1, help="weight decay of the matrices", minimum=0)
    distillation: float = option(
        0.6, help="share of the loss that follows the target's distribution", minimum=0, maximum=1
    )
    teacher_top: int = option(
        16, help="most probable tokens of the target to distil at each position", minimum=1
    )
    gamma: float = option(
        4.0, help="decay length of the position weights, in positions", above=0, below=math.inf
    )
    layers: int | None = option(None, help="drafter layers (default: 3)", minimum=1, maximum=1024)
    target_layer_ids: tuple[int, ...] | None = option(
        None, help="0-based target layers to read (default: four, evenly spaced)"
    )
    draft_vocab_size: int | None = option(
        None, help="tokens that may be drafted, the most frequent ones (default: 8192)", minimum=1
    )
    architecture: str | None = option(
        None,
        choices=("dflash", "dflash2"),
        help="dflash, or dflash2, which adds convolutions and a selector of candidates, also to "
        "the drafter that training starts from (default: its own, or dflash)",
    )
    selector_rank: int = option(
        32, help="rank of the selector of a new dflash2 drafter", minimum=1, maximum=65536
    )
    correction_rank: int = option(
        0,
        help="rank of a head that corrects each draft by the token before it; 0 adds none",
        minimum=0,
        maximum=65536,
    )
    init: str | None = option(
        None,
        metavar="DRAFTER",
        help="hub id or folder of a drafter to start from (default: random weights); it decides "
        "the layers, the target layers, the draft vocabulary and the mask token",
    )
    seed: int = option(
        0, help="random seed of the initial weights and the batches", minimum=0, maximum=2**32 - 1
    )
    checkpoint_every: int = option(50, help="steps between checkpoints", minimum=1)

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            BlockPilotError: If a value is not allowed.
        """
        check_options(self)
        if self.target_layer_ids is not None and not self.target_layer_ids:
            raise BlockPilotError("target_layer_ids must name at least one layer")
        if self.architecture == "dflash2" and self.correction_rank:
            raise BlockPilotError(
                "correction_rank is for dflash; the selector of dflash2 takes its place"
            )
        if not self.block_sizes or min(self.block_sizes) < 2:
            raise BlockPilotError(f"block_sizes {self.block_sizes} must be at least 2 each")
        if self.queries < self.block_size:
            raise BlockPilotError(
                f"queries {self.queries} must be at least the largest block size, {self.block_size}"
            )

    @property
    def block_size(self) -> int:
        """Block size of the drafter."""
        return max(self.block_sizes)

    @property
    def shape(self) -> dict[str, Any]:
        """What the recipe states of the drafter's shape."""
        names = ("layers", "target_layer_ids", "draft_vocab_size")
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def with_default_shape(self, depth: int) -> RecipeConfig:
        """This recipe with its whole shape stated, for a target of `depth` layers."""
        default = {
            "layers": _DEFAULT_LAYERS,
            "target_layer_ids": default_layer_ids(depth),
            "draft_vocab_size": _DEFAULT_VOCABULARY,
        }
        return dataclasses.replace(self, **{**default, **self.shape})


_CHECKPOINT = {"config", "step", "drafter", "optimizers"}
"""Keys of a checkpoint."""


def _optimizers(
    drafter: DFlashDraftModel, config: RecipeConfig
) -> tuple[torch.optim.Optimizer, ...]:
    """Muon for the matrices, AdamW for norms, kernels and the tables of a selector.

    Muon (Jordan et al., 2024) leaves the first plateau in half the time of AdamW, although its
    steps cost more.
    """
    named = list(drafter.named_parameters())
    matrices = [p for name, p in named if p.dim() == 2 and not name.endswith("_codebook")]
    others = [p for name, p in named if p.dim() != 2 or name.endswith("_codebook")]
    rate = config.learning_rate
    return (
        torch.optim.Muon(
            matrices, lr=rate, weight_decay=config.weight_decay, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.95), weight_decay=0.0),
    )


@torch.inference_mode()
def _teacher_logits(
    target: TargetForward, ids: torch.Tensor | None, head: torch.Tensor, last: torch.Tensor
) -> torch.Tensor:
    """The target's logits over the draft vocabulary; `head` holds its rows of the head."""
    if isinstance(target, LeanForward):
        return F.linear(last.to(head), head)
    # Other families may add a bias, a scale or a cap.
    logits = target.logits(last.to(target.head))
    return logits if ids is None else logits[:, ids]


class Trainer:
    """Trains a drafter on a corpus, step by step, with checkpoints that resume exactly.

    The batch of a step depends on `(seed, step)` only, so a resumed run sees the same batches as an
    uninterrupted one; a checkpoint belongs to its recipe and corpus. `seconds` is the time that all
    steps took. During training each feature column is divided by its root mean square,
    because a few columns of a language model are hundreds of times larger than the rest. `export`
    folds the division into `fc`, so the exported drafter has the standard format.
    """

    def __init__(
        self,
        drafter: DFlashDraftModel,
        pair: Pair,
        answers: Sequence[Continuation],
        config: RecipeConfig,
    ) -> None:
        """Prepare the examples, the optimisers and the frozen embeddings of the target.

        Args:
            drafter: The drafter to train, in place.
            pair: The target.
            answers: The corpus.
            config: The recipe. If it names an `init`, the drafter's `fc` reads unscaled features.

        Raises:
            BlockPilotError: If no answer has two tokens.
        """
        self.drafter: DFlashDraftModel = drafter
        self.device = pair.device
        module: torch.nn.Module = drafter
        module.to(self.device).float().train()
        self.config = config
        self.step = 0
        self.seconds = 0.0
        drafter_config: Any = drafter.config
        target = target_forward(pair.target, list(drafter_config.target_layer_ids))
        self.table: torch.Tensor = target.model.get_input_embeddings().weight.detach()
        self.mask_embedding = self.embed(
            torch.tensor(drafter.config.mask_token_id, device=self.device)
        )
        ids = drafter.draft_token_ids
        self.head = (target.head if ids is None else target.head[ids]).bfloat16()
        label_of = torch.full((target.vocab_size + 1,), -100)
        known = torch.arange(target.vocab_size) if ids is None else ids.cpu()
        label_of[known] = torch.arange(len(known))
        self.label_of = label_of.to(self.device)
        read = partial(_teacher_logits, target, ids, self.head)
        self.examples = TrainingExamples(answers, read, config.teacher_top)
        lengths = (drafter_config.trained_length or 0, *self.examples.lengths)
        drafter_config.dflash_config["trained_length"] = max(lengths)
        sample = self.examples.features(every=max(1, len(self.examples) // 64))
        scale = sample.square().mean(0).sqrt().clamp(min=1e-3).reciprocal()
        self.feature_scale = scale.to(self.device)
        if config.init is not None:
            with torch.no_grad():
                self.drafter.fc.weight.div_(self.feature_scale)
        distance = torch.arange(config.block_size - 1, device=self.device)
        self.position_weight = torch.exp(-distance / config.gamma)
        self.optimizers = _optimizers(self.drafter, config)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Embed tokens as the drafter reads them, `[...]` to `[..., hidden]`, in float32."""
        return self.drafter.embed(tokens, self.table).float()

    def learning_rate(self, step: int) -> float:
        """Learning rate of a step: linear warm-up, then cosine decay to zero."""
        config = self.config
        if step < config.warmup:
            return config.learning_rate * (step + 1) / config.warmup
        progress = (step - config.warmup) / max(1, config.steps - config.warmup)
        return config.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))

    def batch(self, step: int) -> Batch:
        """The batch of a step: sequences of a shuffled epoch with newly drawn anchors."""
        count, total = self.config.sequences, len(self.examples)
        first = step * count
        chosen = []
        for offset in range(first, first + count):
            epoch, index = divmod(offset, total)
            chosen.append(self.examples[int(self._permutation(epoch)[index])])
        generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + step)
        size = self.config.block_sizes[step % len(self.config.block_sizes)]
        blocks = self.config.queries // size
        return sample_batch(chosen, blocks, size, generator, self.device)

    def _permutation(self, epoch: int) -> torch.Tensor:
        if getattr(self, "_epoch", None) != epoch:
            generator = torch.Generator().manual_seed(self.config.seed * 7919 + epoch)
            self._epoch, self._order = (
                epoch,
                torch.randperm(len(self.examples), generator=generator),
            )
        return self._order

    def draft_hidden(self, batch: Batch) -> torch.Tensor:
        """Hidden states at the masked positions, `[batch, blocks, block_size - 1, hidden]`."""
        rows, blocks = batch.anchors.shape
        size = batch.labels.shape[2] + 1
        noise = self.mask_embedding.repeat(rows, blocks, size, 1)
        noise[:, :, 0] = self.embed(batch.anchors)
        output = self.drafter(
            noise_embeds=noise.flatten(1, 2),
            context_hidden_states=batch.features.float() * self.feature_scale,
            attention_mask=batch.mask,
            position_ids=batch.position_ids,
        )
        hidden: torch.Tensor = output.last_hidden_state.view(rows, blocks, size, -1)[:, :, 1:]
        if self.drafter.correction is None:
            return hidden
        corrected: torch.Tensor = self.drafter.correction(hidden, self.embed(batch.before))
        return corrected

    def loss(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Weighted loss, and the share of correct guesses at each masked position."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            hidden = self.draft_hidden(batch)
            logits = F.linear(hidden, self.head)
        real = batch.labels >= 0
        # Index -1 is the extra last entry, which means no label.
        labels = self.label_of[batch.labels.clamp(min=-1)]
        log_probs = F.log_softmax(logits.float(), dim=-1)
        cross = -log_probs.gather(-1, labels.clamp(min=0)[..., None])[..., 0] * (labels >= 0)
        distilled = -(batch.teacher_probs * log_probs.gather(-1, batch.teacher_ids)).sum(-1)
        share = self.config.distillation
        weight = self.position_weight[: labels.shape[2]] * real
        total = ((1 - share) * cross + share * distilled) * weight
        guesses = logits.max(-1).indices
        if self.drafter.candidate_selector is not None:
            selected, guesses = self._select(batch, hidden, logits, labels)
            total = total + selected * weight
        with torch.no_grad():
            right = (guesses == labels) & real
            accuracy = right.sum((0, 1)) / real.sum((0, 1)).clamp(min=1)
        return total.sum() / weight.sum(), accuracy

    def _select(
        self,
        batch: Batch,
        hidden: torch.Tensor,
        logits: torch.Tensor,
        labels: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Cross-entropy of the selector among its candidates, and the tokens that it selects.

        Args:
            batch: The batch.
            hidden: The result of `draft_hidden`.
            logits: Its logits, `[batch, blocks, block_size - 1, draft_vocab]`.
            labels: Draft ids at the same positions, `[batch, blocks, block_size - 1]`. Where the
                label is no candidate, the loss is 0.
        """
        selector = self.drafter.candidate_selector
        assert selector is not None
        unary, candidates, projected = selector.read(logits.float(), hidden.float())
        scores = unary + selector.pairs(candidates, projected, batch.before)
        found = candidates == labels[..., None]
        log_probs = F.log_softmax(scores, dim=-1)
        loss = -(log_probs * found).sum(-1)
        return loss, candidates.gather(-1, scores.argmax(-1, keepdim=True))[..., 0]

    def train_step(self) -> tuple[float, list[float]]:
        """Take one step and return the loss and the accuracy at each masked position.

        Raises:
            BlockPilotError: If the loss is not finite.
        """
        began = time.perf_counter()
        loss, accuracy = self.loss(self.batch(self.step))
        if not bool(loss.isfinite()):
            raise BlockPilotError(
                f"the loss of step {self.step + 1} is not finite: training has diverged; lower the "
                "learning rate"
            )
        for parameter in self.drafter.parameters():
            parameter.grad = None
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate(self.step)
            optimizer.step()
        self.step += 1
        values = loss.item(), accuracy.tolist()
        self.seconds += time.perf_counter() - began
        return values

    def run(self, checkpoint: Path, log: Callable[[int, float, list[float]], None]) -> None:
        """Train to the end, starting from the checkpoint if there is one.

        Args:
            checkpoint: File to resume from and to write every `checkpoint_every` steps.
            log: Called after each step with its number, loss and accuracies.

        Raises:
            BlockPilotError: If the checkpoint cannot be read or written, or training diverges.
        """
        if checkpoint.exists():
            self.load(checkpoint)
        while self.step < self.config.steps:
            loss, accuracy = self.train_step()
            log(self.step, loss, accuracy)
            if self.step % self.config.checkpoint_every == 0 or self.step == self.config.steps:
                self.save(checkpoint)

    def save(self, path: Path) -> None:
        """Write a checkpoint atomically.

        Raises:
            BlockPilotError: If it cannot be written.
        """
        state = {
            "config": self.config,
            "corpus": self.examples.digest,
            "seconds": self.seconds,
            "step": self.step,
            "drafter": self.drafter.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }
        with atomic_write(path) as partial:
            torch.save(state, partial)

    def load(self, path: Path) -> None:
        """Resume from a checkpoint.

        Raises:
            BlockPilotError: If it cannot be read or belongs to another recipe.
        """
        fix = "remove it to start over, or name another folder"
        try:
            with torch.serialization.safe_globals([RecipeConfig]):
                state = torch.load(path, map_location=self.device, weights_only=True)
        except Exception as error:  # torch raises many kinds, with pages of advice
            raise BlockPilotError(f"checkpoint {path} cannot be read; {fix}") from error
        if not isinstance(state, dict) or not state.keys() >= _CHECKPOINT:
            raise BlockPilotError(
                f"{path} is not a checkpoint: it must have {', '.join(sorted(_CHECKPOINT))}; {fix}"
            )
        if state["config"] != self.config:
            raise BlockPilotError(
                f"checkpoint {path} was made with another recipe; use the same options to resume "
                "it, or another folder to start over"
            )
        if state.get("corpus", self.examples.digest) != self.examples.digest:
            raise BlockPilotError(
                f"checkpoint {path} was made with another corpus; use the same prompts and answers "
                "to resume it, or another folder to start over"
            )
        try:
            self.drafter.load_state_dict(state["drafter"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise BlockPilotError(f"checkpoint {path} does not fit the drafter; {fix}") from error
        self.step = state["step"]
        self.seconds = state.get("seconds", 0.0)

    def export(self, dtype: torch.dtype = torch.bfloat16) -> DFlashDraftModel:
        """The trained drafter in the standard format.

        Args:
            dtype: Dtype of its weights.
        """
        config: Any = self.drafter.config
        exported: Any = type(self.drafter)(config)
        exported.load_state_dict(self.drafter.state_dict())
        with torch.no_grad():
            exported.fc.weight.mul_(self.feature_scale.cpu())
        exported.to(dtype)
        exported.eval()
        return exported  # type: ignore[no-any-return]
