"""Training batches: one drafter pass denoises many blocks of each sequence.

Each block starts at an anchor token of the response. It sees itself and the target's features
before the anchor, but no other block, so one pass computes the same as one decoding step per block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch

from blockpilot_rl.decoding.batched import Continuation


@dataclass(frozen=True)
class Batch:
    """Blocks of several sequences.

    Attributes:
        features: The drafter's context, `[batch, context, layers * hidden]`, zero-padded.
        anchors: Anchor tokens, `[batch, blocks]`.
        position_ids: Positions of context and blocks, `[batch, context + blocks * block_size]`.
        mask: Which keys each query may see, `[batch, 1, blocks * block_size, context +
            blocks * block_size]`.
        labels: Token at each masked position, `[batch, blocks, block_size - 1]`; -100 after the end
            of the response.
        teacher_ids: Draft ids of the target's most probable tokens at each masked position,
            `[batch, blocks, block_size - 1, k]`.
        teacher_probs: Probabilities of these tokens, same shape.
    """

    features: torch.Tensor
    anchors: torch.Tensor
    position_ids: torch.Tensor
    mask: torch.Tensor
    labels: torch.Tensor
    teacher_ids: torch.Tensor
    teacher_probs: torch.Tensor

    def to(self, device: torch.device) -> Batch:
        """Copy the batch to a device."""
        return Batch(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})


@dataclass(frozen=True)
class TrainingExample:
    """A sequence of the corpus, with only the top tokens of the target's distribution.

    Attributes:
        tokens: Prompt and response, `[n + m]`.
        features: Outputs of the target's feature layers at all positions except the last,
            `[n + m - 1, layers * hidden]`.
        teacher_ids: Draft ids of the most probable next tokens at the same positions,
            `[n + m - 1, k]`.
        teacher_probs: Probabilities of these tokens within the draft vocabulary, same shape.
        prompt_length: Number of prompt tokens, `n`.
    """

    tokens: torch.Tensor
    features: torch.Tensor
    teacher_ids: torch.Tensor
    teacher_probs: torch.Tensor
    prompt_length: int


@torch.inference_mode()
def training_example(
    answer: Continuation, read: Callable[[torch.Tensor], torch.Tensor], top: int
) -> TrainingExample:
    """Compute the target's most probable tokens once, before training.

    Args:
        answer: The target's answer with its hidden states.
        read: Maps final-norm states `[n, hidden]` to the target's logits over the draft
            vocabulary, `[n, draft_vocab]`.
        top: Number of tokens to keep per position.
    """
    n = len(answer.prompt_ids)
    logits = read(answer.last[n:]).float()
    probs, ids = torch.softmax(logits, dim=-1).topk(min(top, logits.shape[-1]), dim=-1)
    probs, ids = probs.cpu(), ids.cpu()
    pad = (0, 0, n, 0)
    return TrainingExample(
        tokens=torch.cat([answer.prompt_ids, answer.output_ids]).cpu(),
        features=answer.features.cpu(),
        teacher_ids=torch.nn.functional.pad(ids, pad).int(),
        teacher_probs=torch.nn.functional.pad(probs, pad),
        prompt_length=n,
    )


def sample_batch(
    examples: Sequence[TrainingExample], blocks: int, block_size: int, generator: torch.Generator
) -> Batch:
    """Draw anchors for each sequence and lay out their blocks.

    Args:
        examples: Sequences with responses of at least two tokens.
        blocks: Blocks per sequence. A sequence with fewer possible anchors repeats some of them.
        block_size: Tokens per block, the anchor included.
        generator: Draws the anchors.
    """
    context = max(len(example.tokens) - 1 for example in examples)
    parts = [_lay_out(example, blocks, block_size, context, generator) for example in examples]
    features = torch.nn.utils.rnn.pad_sequence([e.features for e in examples], batch_first=True)
    queries = blocks * block_size
    own = torch.arange(queries) // block_size
    own_mask = (own[:, None] == own[None, :]).expand(len(examples), 1, -1, -1)
    starts = torch.stack([part[0] for part in parts])
    positions = starts[..., None] + torch.arange(block_size)
    seen = torch.arange(context) < starts.repeat_interleave(block_size, dim=1)[..., None]
    return Batch(
        features=features,
        anchors=torch.stack([part[1] for part in parts]),
        position_ids=torch.cat(
            [torch.arange(context).expand(len(examples), -1), positions.flatten(1)], dim=1
        ),
        mask=torch.cat([seen[:, None], own_mask], dim=-1),
        labels=torch.stack([part[2] for part in parts]),
        teacher_ids=torch.stack([part[3] for part in parts]).long(),
        teacher_probs=torch.stack([part[4] for part in parts]),
    )


def _lay_out(
    example: TrainingExample, blocks: int, block_size: int, context: int, generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """Draw anchors; return their positions and tokens, labels, teacher ids and probabilities."""
    length = len(example.tokens)
    possible = length - 1 - example.prompt_length
    order = torch.randperm(possible, generator=generator).repeat(-(-blocks // possible))[:blocks]
    starts = example.prompt_length + order
    masked = starts[:, None] + torch.arange(1, block_size)
    inside = masked < length
    masked = masked.clamp(max=length - 1)
    labels = example.tokens[masked].masked_fill(~inside, -100)
    before = masked - 1
    return (
        starts,
        example.tokens[starts],
        labels,
        example.teacher_ids[before],
        example.teacher_probs[before],
    )
