"""Training batches: one drafter pass denoises many blocks of each sequence.

Each block starts at an anchor token of the response. It sees itself and the target's features
before the anchor, but no other block, so one pass computes the same as one decoding step per block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from blockpilot_rl.decoding.batched import Continuation
from blockpilot_rl.errors import BlockPilotError


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

    @property
    def before(self) -> torch.Tensor:
        """Token before each masked position, `[batch, blocks, block_size - 1]`.

        A draft counts only if all drafts before it are right, so the text precedes each mask.
        """
        return torch.cat([self.anchors[..., None], self.labels[..., :-1].clamp(min=0)], dim=-1)


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


class TrainingExamples:
    """Examples of a corpus, made from the answers when a batch needs them.

    The answers may be on disk. The target's most probable tokens are computed when an answer is
    first used and then kept in memory.

    Attributes:
        lengths: Number of tokens of each sequence.
        digest: Digest of the texts, in order.
    """

    def __init__(
        self,
        answers: Sequence[Continuation],
        read: Callable[[torch.Tensor], torch.Tensor],
        top: int,
    ) -> None:
        """Take the answers of at least two tokens.

        Args:
            answers: The target's answers with their hidden states.
            read: Maps final-norm states `[n, hidden]` to the target's logits over the draft
                vocabulary, `[n, draft_vocab]`.
            top: Number of most probable tokens to keep per position.

        Raises:
            BlockPilotError: If there is no such answer.
        """
        self._answers, self._read, self._top = answers, read, top
        self._usable, self.lengths, digest = [], [], hashlib.sha256()
        for index, answer in enumerate(answers):
            prompt, output = answer.prompt_ids, answer.output_ids
            if len(output) >= 2:
                self._usable.append(index)
                self.lengths.append(len(prompt) + len(output))
                digest.update(torch.cat([prompt, torch.tensor([-1]), output]).numpy().tobytes())
        if not self._usable:
            raise BlockPilotError("no answer has two tokens, so there is nothing to train on")
        self.digest = digest.hexdigest()[:16]
        self._teachers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self._usable)

    def __getitem__(self, index: int) -> TrainingExample:
        """Make an example."""
        answer = self._answers[self._usable[index]]
        if index not in self._teachers:
            self._teachers[index] = teacher(answer, self._read, self._top)
        ids, probs = self._teachers[index]
        n = len(answer.prompt_ids)
        pad = (0, 0, n, 0)
        return TrainingExample(
            tokens=torch.cat([answer.prompt_ids, answer.output_ids]),
            features=answer.features,
            teacher_ids=torch.nn.functional.pad(ids, pad),
            teacher_probs=torch.nn.functional.pad(probs, pad),
            prompt_length=n,
        )

    def features(self, every: int) -> torch.Tensor:
        """Features of every n-th sequence, `[positions, layers * hidden]`, in float32."""
        chosen = [self._answers[index] for index in self._usable[::every]]
        return torch.cat([answer.features.float() for answer in chosen])


@torch.inference_mode()
def teacher(
    answer: Continuation, read: Callable[[torch.Tensor], torch.Tensor], top: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the target's most probable next tokens at the positions of an answer.

    Args:
        answer: An answer of `m` tokens with its hidden states.
        read: See `TrainingExamples`.
        top: Number of tokens to keep per position.

    Returns:
        Draft ids and probabilities within the draft vocabulary, `[m - 1, top]` each, on the CPU.
    """
    logits = read(answer.last[len(answer.prompt_ids) :]).float()
    probs, ids = torch.softmax(logits, dim=-1).topk(min(top, logits.shape[-1]), dim=-1)
    return ids.int().cpu(), probs.cpu()


def sample_batch(
    examples: Sequence[TrainingExample],
    blocks: int,
    block_size: int,
    generator: torch.Generator,
    device: torch.device | None = None,
) -> Batch:
    """Draw anchors for each sequence and lay out their blocks.

    Args:
        examples: Sequences with responses of at least two tokens.
        blocks: Blocks per sequence. A sequence with fewer possible anchors repeats some of them.
        block_size: Tokens per block, the anchor included.
        generator: Draws the anchors, on the CPU, so that they are the same for every device.
        device: Device of the batch; masks and positions are computed there.
    """
    device = device or torch.device("cpu")
    context = max(len(example.tokens) - 1 for example in examples)
    parts = zip(*(_lay_out(x, blocks, block_size, generator) for x in examples), strict=True)
    features = torch.nn.utils.rnn.pad_sequence([e.features for e in examples], batch_first=True)
    if device.type == "cuda":
        features = features.pin_memory()
    starts, anchors, labels, teacher_ids, teacher_probs = (
        torch.stack(part).to(device) for part in parts
    )
    own = torch.arange(blocks * block_size, device=device) // block_size
    own_mask = (own[:, None] == own[None, :]).expand(len(examples), 1, -1, -1)
    positions = starts[..., None] + torch.arange(block_size, device=device)
    places = torch.arange(context, device=device)
    seen = places < starts.repeat_interleave(block_size, dim=1)[..., None]
    return Batch(
        features=features.to(device, non_blocking=True),
        anchors=anchors,
        position_ids=torch.cat([places.expand(len(examples), -1), positions.flatten(1)], dim=1),
        mask=torch.cat([seen[:, None], own_mask], dim=-1),
        labels=labels,
        teacher_ids=teacher_ids.long(),
        teacher_probs=teacher_probs,
    )


def _lay_out(
    example: TrainingExample, blocks: int, block_size: int, generator: torch.Generator
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
