"""The drafter recipe: what is optimised, and how training goes on after a stop.

The loss at a masked position mixes cross-entropy on the target's token with distillation of the
target's distribution, and decays along the block, as later positions matter only if all earlier
ones were accepted (DFlash: weight `exp(-(k - 1) / gamma)` at position `k`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from blockpilot_rl.decoding.batched import Continuation
from blockpilot_rl.decoding.forward import LeanForward, TargetForward, target_forward
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import atomic_write
from blockpilot_rl.models.drafter import DFlashDraftModel
from blockpilot_rl.models.pairs import Pair
from blockpilot_rl.training.batches import Batch, sample_batch, training_example


@dataclass(frozen=True)
class RecipeConfig:
    """How to train a drafter.

    Attributes:
        steps: Optimiser steps; the learning rate decays to zero over them.
        sequences: Sequences per step.
        queries: Positions that are denoised per sequence and step, anchors included.
        block_sizes: Block size of each step, in rotation; the largest is the drafter's own.
        learning_rate: Peak of the cosine schedule.
        warmup: Steps of linear warm-up.
        weight_decay: Of the matrices.
        distillation: Share of the loss that follows the target's distribution.
        teacher_top: Tokens of the target's distribution that are kept for it.
        gamma: Decay length of the position weights, in positions.
        layers: Drafter layers.
        target_layer_ids: 0-based target layers whose outputs are the features.
        draft_vocab_size: Most frequent response tokens that may be drafted.
        correction_rank: Rank of the drafter's `CorrectionHead`; 0 for none.
        init: Name of the drafter whose weights training starts from; None for random ones.
        seed: Of initial weights and batches.
        checkpoint_every: Steps between checkpoints.
    """

    steps: int = 1800
    sequences: int = 8
    queries: int = 256
    block_sizes: tuple[int, ...] = (16, 8, 4, 8, 16, 8)
    learning_rate: float = 3e-3
    warmup: int = 50
    weight_decay: float = 0.1
    distillation: float = 0.6
    teacher_top: int = 16
    gamma: float = 4.0
    layers: int = 3
    target_layer_ids: tuple[int, ...] = (1, 9, 18, 27)
    draft_vocab_size: int = 8192
    correction_rank: int = 0
    init: str | None = None
    seed: int = 0
    checkpoint_every: int = 50

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            BlockPilotError: If a value is out of range.
        """
        positive = ("steps", "sequences", "layers", "draft_vocab_size", "gamma", "learning_rate")
        for name in (*positive, "checkpoint_every", "teacher_top"):
            if not 0 < getattr(self, name) < math.inf:
                raise BlockPilotError(f"{name} must be positive, not {getattr(self, name)}")
        if not 0 <= self.seed < 2**32:
            raise BlockPilotError(f"seed must be 0 or more and below 2**32, not {self.seed}")
        if not self.target_layer_ids:
            raise BlockPilotError("target_layer_ids must name at least one layer")
        if not self.block_sizes or min(self.block_sizes) < 2:
            raise BlockPilotError(f"block_sizes {self.block_sizes} must be at least 2 each")
        if self.queries < self.block_size:
            raise BlockPilotError(f"queries {self.queries} must hold a block of {self.block_size}")
        if self.correction_rank < 0:
            raise BlockPilotError(f"correction_rank must be 0 or more, not {self.correction_rank}")
        if not 0 <= self.distillation <= 1:
            raise BlockPilotError(f"distillation must be in [0, 1], not {self.distillation}")

    @property
    def block_size(self) -> int:
        """Block size of the drafter."""
        return max(self.block_sizes)


_CHECKPOINT = {"config", "step", "drafter", "optimizers"}
"""What a checkpoint tells."""


def _optimizers(
    drafter: DFlashDraftModel, config: RecipeConfig
) -> tuple[torch.optim.Optimizer, ...]:
    """Muon for the matrices, AdamW for the norms.

    Muon (Jordan et al., 2024) left the first plateau in half of AdamW's time, the costlier steps
    included.
    """
    matrices = [p for p in drafter.parameters() if p.dim() > 1]
    vectors = [p for p in drafter.parameters() if p.dim() == 1]
    rate = config.learning_rate
    return (
        torch.optim.Muon(
            matrices, lr=rate, weight_decay=config.weight_decay, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(vectors, lr=rate, betas=(0.9, 0.95), weight_decay=0.0),
    )


@torch.inference_mode()
def _teacher_logits(
    target: TargetForward, ids: torch.Tensor | None, head: torch.Tensor, last: torch.Tensor
) -> torch.Tensor:
    """The target's logits over the draft vocabulary, whose rows of the head are `head`."""
    if isinstance(target, LeanForward):
        return F.linear(last.to(head), head)
    # Other families may add a bias, scale or cap.
    logits = target.logits(last.to(target.head))
    return logits if ids is None else logits[:, ids]


class Trainer:
    """Trains a drafter on a corpus, step by step, with checkpoints that continue exactly.

    Every step draws its batch from `(seed, step)` alone, so that a resumed run sees what an
    unbroken one would. Feature columns are divided by their root mean square while training (a few
    columns of a language model are hundreds of times larger than the rest); `export` folds the
    division into `fc`, which leaves the standard format.
    """

    def __init__(
        self,
        drafter: DFlashDraftModel,
        pair: Pair,
        answers: Sequence[Continuation],
        config: RecipeConfig,
    ) -> None:
        """Prepare the optimiser and the frozen rows of the target's embeddings.

        Args:
            drafter: What to train, in place.
            pair: The target.
            answers: The corpus.
            config: The recipe; where it names an `init`, `fc` is taken to read unscaled features.

        Raises:
            BlockPilotError: If no answer has two tokens.
        """
        self.drafter: DFlashDraftModel = drafter
        self.device = pair.device
        module: torch.nn.Module = drafter
        module.to(self.device).float().train()
        self.config = config
        self.step = 0
        target = target_forward(pair.target, list(config.target_layer_ids))
        tokens = torch.arange(target.vocab_size, device=self.device)
        # As decoding embeds them: some targets scale their embeddings.
        self.embedding: torch.Tensor = target.embed(tokens[None])[0].detach().float()
        self.mask_embedding = self.embedding[drafter.config.mask_token_id]
        ids = drafter.draft_token_ids
        self.head = (target.head if ids is None else target.head[ids]).bfloat16()
        label_of = torch.full((len(tokens) + 1,), -100)
        known = torch.arange(len(tokens)) if ids is None else ids.cpu()
        label_of[known] = torch.arange(len(known))
        self.label_of = label_of.to(self.device)
        usable = [answer for answer in answers if len(answer.output_ids) >= 2]
        if not usable:
            raise BlockPilotError("no answer has two tokens, so there is nothing to train on")
        read = partial(_teacher_logits, target, ids, self.head)
        self.examples = [training_example(a, read, config.teacher_top) for a in usable]
        every = max(1, len(usable) // 64)
        sample = torch.cat([answer.features.float() for answer in usable[::every]])
        scale = sample.square().mean(0).sqrt().clamp(min=1e-3).reciprocal()
        self.feature_scale = scale.to(self.device)
        if config.init is not None:
            with torch.no_grad():
                self.drafter.fc.weight.div_(self.feature_scale)
        distance = torch.arange(config.block_size - 1, device=self.device)
        self.position_weight = torch.exp(-distance / config.gamma)
        self.optimizers = _optimizers(self.drafter, config)

    def learning_rate(self, step: int) -> float:
        """Learning rate of a step: linear warm-up, then cosine to zero."""
        config = self.config
        if step < config.warmup:
            return config.learning_rate * (step + 1) / config.warmup
        progress = (step - config.warmup) / max(1, config.steps - config.warmup)
        return config.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))

    def batch(self, step: int) -> Batch:
        """The batch of a step: sequences of a shuffled epoch, anchors drawn anew."""
        count, total = self.config.sequences, len(self.examples)
        first = step * count
        chosen = []
        for offset in range(first, first + count):
            epoch, index = divmod(offset, total)
            chosen.append(self.examples[self._permutation(epoch)[index]])
        generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + step)
        size = self.config.block_sizes[step % len(self.config.block_sizes)]
        return sample_batch(chosen, self.config.queries // size, size, generator).to(self.device)

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
        noise[:, :, 0] = self.embedding[batch.anchors]
        output = self.drafter(
            noise_embeds=noise.flatten(1, 2),
            context_hidden_states=batch.features.float() * self.feature_scale,
            attention_mask=batch.mask,
            position_ids=batch.position_ids,
        )
        hidden: torch.Tensor = output.last_hidden_state.view(rows, blocks, size, -1)[:, :, 1:]
        if self.drafter.correction is None:
            return hidden
        # Drafts are judged only behind right ones, so the text itself stands before each mask.
        before = torch.cat([batch.anchors[..., None], batch.labels[..., :-1].clamp(min=0)], dim=-1)
        corrected: torch.Tensor = self.drafter.correction(hidden, self.embedding[before])
        return corrected

    def loss(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Weighted loss, and the share of correct guesses at each masked position."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits = F.linear(self.draft_hidden(batch), self.head)
        real = batch.labels >= 0
        # Index -1 is the extra last entry, which stands for no label.
        labels = self.label_of[batch.labels.clamp(min=-1)]
        log_probs = F.log_softmax(logits.float(), dim=-1)
        cross = -log_probs.gather(-1, labels.clamp(min=0)[..., None])[..., 0] * (labels >= 0)
        distilled = -(batch.teacher_probs * log_probs.gather(-1, batch.teacher_ids)).sum(-1)
        share = self.config.distillation
        weight = self.position_weight[: labels.shape[2]] * real
        total = ((1 - share) * cross + share * distilled) * weight
        with torch.no_grad():
            right = (logits.max(-1).indices == labels) & real
            accuracy = right.sum((0, 1)) / real.sum((0, 1)).clamp(min=1)
        return total.sum() / weight.sum(), accuracy

    def train_step(self) -> tuple[float, list[float]]:
        """Take one step; returns the loss and the accuracy at each masked position."""
        loss, accuracy = self.loss(self.batch(self.step))
        if not bool(loss.isfinite()):
            raise BlockPilotError(
                f"the loss of step {self.step + 1} is not finite: training has diverged; lower "
                "--learning-rate"
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
        return loss.item(), accuracy.tolist()

    def run(self, checkpoint: Path, log: Callable[[int, float, list[float]], None]) -> None:
        """Train to the end, from the checkpoint if there is one.

        Args:
            checkpoint: File to continue from and to write every `checkpoint_every` steps.
            log: Called after each step with its number, loss and accuracies.
        """
        if checkpoint.exists():
            self.load(checkpoint)
        while self.step < self.config.steps:
            loss, accuracy = self.train_step()
            log(self.step, loss, accuracy)
            if self.step % self.config.checkpoint_every == 0 or self.step == self.config.steps:
                self.save(checkpoint)

    def save(self, path: Path) -> None:
        """Write everything that the next step depends on, atomically."""
        state = {
            "config": self.config,
            "step": self.step,
            "drafter": self.drafter.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }
        with atomic_write(path) as partial:
            torch.save(state, partial)

    def load(self, path: Path) -> None:
        """Continue from a checkpoint.

        Raises:
            BlockPilotError: If it is of another recipe or cannot be read.
        """
        mend = "remove it to start anew, or name another folder"
        try:
            with torch.serialization.safe_globals([RecipeConfig]):
                state = torch.load(path, map_location=self.device, weights_only=True)
        except Exception as error:  # torch raises many kinds, with pages of advice
            raise BlockPilotError(f"checkpoint {path} cannot be read; {mend}") from error
        if not isinstance(state, dict) or not state.keys() >= _CHECKPOINT:
            raise BlockPilotError(
                f"{path} is no checkpoint: it must have {', '.join(sorted(_CHECKPOINT))}; {mend}"
            )
        if state["config"] != self.config:
            raise BlockPilotError(
                f"checkpoint {path} was made with another recipe; give the same options to "
                "continue it, or another folder to start anew"
            )
        try:
            self.drafter.load_state_dict(state["drafter"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise BlockPilotError(f"checkpoint {path} does not fit the drafter; {mend}") from error
        self.step = state["step"]

    def export(self) -> DFlashDraftModel:
        """The trained drafter in the standard format, in bfloat16."""
        config: Any = self.drafter.config
        exported = DFlashDraftModel(config)
        exported.load_state_dict(self.drafter.state_dict())
        with torch.no_grad():
            exported.fc.weight.mul_(self.feature_scale.cpu())
        exported.bfloat16()
        exported.eval()  # type: ignore[no-untyped-call]
        return exported
