from __future__ import annotations

import pytest
import torch

from blockpilot_rl.decoding.batched import Continuation
from blockpilot_rl.training.batches import Batch, TrainingExample, TrainingExamples, sample_batch

HIDDEN = 3


def example(prompt: int, response: int, first: int = 100) -> TrainingExample:
    """A sequence whose tokens, features and teachers all encode their position."""
    n = prompt + response
    positions = torch.arange(n)
    return TrainingExample(
        tokens=first + positions,
        features=(first + positions[:-1, None]).float().expand(-1, HIDDEN),
        teacher_ids=(first + positions[:-1, None]).int(),
        teacher_probs=(positions[:-1, None] / 1000).float(),
        prompt_length=prompt,
    )


def batch_of(*examples, blocks=4, block_size=5, seed=0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return sample_batch(examples, blocks, block_size, generator)


def starts(batch: Batch, blocks: int, block_size: int) -> torch.Tensor:
    context = batch.features.shape[1]
    return batch.position_ids[:, context:].view(-1, blocks, block_size)[:, :, 0]


def test_labels_are_at_the_positions_of_their_masks():
    """sgl-project/SpecForge#473 and #472: shifted by one, acceptance was 1.02.

    Tokens encode their position, so the label of the mask at position p must be token p.
    """
    batch = batch_of(example(6, 30))
    begins = starts(batch, 4, 5)
    assert torch.equal(batch.anchors, 100 + begins)
    positions = begins[..., None] + torch.arange(1, 5)
    inside = positions < 36
    assert torch.equal(batch.labels[inside], 100 + positions[inside])
    assert (batch.labels[~inside] == -100).all()


def test_the_anchor_is_not_scored():
    """It is known when a block is drafted (sgl-project/SpecForge#472)."""
    batch = batch_of(example(6, 30))
    assert batch.labels.shape == (1, 4, 4)


def test_the_teacher_is_the_prediction_made_just_before():
    batch = batch_of(example(6, 30))
    positions = starts(batch, 4, 5)[..., None] + torch.arange(1, 5)
    inside = positions < 36
    assert torch.equal(batch.teacher_ids[inside][:, 0], 100 + positions[inside] - 1)
    expected = (positions[inside] - 1) / 1000
    torch.testing.assert_close(batch.teacher_probs[inside][:, 0], expected)


def test_anchors_are_response_tokens_with_something_to_draft():
    seen = set()
    for seed in range(40):
        seen |= set(starts(batch_of(example(6, 5), blocks=2, seed=seed), 2, 5).flatten().tolist())
    assert seen == {6, 7, 8, 9}


def test_the_context_is_strictly_before_the_anchor():
    """A block sees features of positions before its anchor, and itself."""
    blocks, size = 3, 4
    batch = batch_of(example(5, 20), blocks=blocks, block_size=size)
    context = batch.features.shape[1]
    mask = batch.mask[0, 0].view(blocks, size, -1)
    for block, start in enumerate(starts(batch, blocks, size)[0].tolist()):
        for query in mask[block]:
            assert query[:context].nonzero()[:, 0].tolist() == list(range(start))
            own = query[context:].nonzero()[:, 0].tolist()
            assert own == list(range(block * size, (block + 1) * size))


def test_positions_are_absolute():
    batch = batch_of(example(5, 20), blocks=2, block_size=4)
    context = batch.features.shape[1]
    assert batch.position_ids[0, :context].tolist() == list(range(24))
    for block in batch.position_ids[0, context:].view(2, 4).tolist():
        assert block == list(range(block[0], block[0] + 4))


def test_sequences_of_different_length_share_a_batch():
    short, long = example(4, 6), example(9, 30, first=500)
    batch = batch_of(short, long)
    assert batch.features.shape == (2, 38, HIDDEN)
    assert torch.equal(batch.features[0, :9], short.features)
    assert (batch.features[0, 9:] == 0).all()
    begins = starts(batch, 4, 5)
    assert (begins[0] < 9).all()
    assert torch.equal(batch.anchors[1], 500 + begins[1])
    # Padding comes after every anchor, so no block sees it.
    assert not batch.mask[0, 0, :, 9:38].any()


def test_few_anchors_are_repeated_and_many_are_distinct():
    begins = starts(batch_of(example(3, 3), blocks=6), 6, 5)[0].tolist()
    assert set(begins) == {3, 4}
    begins = starts(batch_of(example(3, 30), blocks=6), 6, 5)[0].tolist()
    assert len(set(begins)) == 6


def test_batches_depend_on_the_generator_only():
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first, again, other = (batch_of(example(6, 30), seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.anchors, again.anchors)
    assert not torch.equal(first.anchors, other.anchors)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_batches_are_laid_out_on_their_device():
    """Operations that mix devices fail."""
    generator = torch.Generator().manual_seed(0)
    examples = [example(6, 30), example(3, 20)]
    batch = sample_batch(examples, 4, 5, generator, torch.device("meta"))
    for name in ("features", "anchors", "position_ids", "mask", "labels", "teacher_probs"):
        assert getattr(batch, name).device.type == "meta"
        assert getattr(batch, name).shape == getattr(batch_of(*examples), name).shape


@pytest.mark.parametrize("top", [2, 5, 99])
def test_the_target_is_read_once(top):
    generator = torch.Generator().manual_seed(0)
    last = torch.randn(9, HIDDEN, generator=generator)
    head = torch.randn(5, HIDDEN, generator=generator)
    answer = Continuation(torch.arange(4), torch.arange(10, 16), torch.randn(9, 2), last, 6)
    result = TrainingExamples([answer], lambda last: last @ head.T, top)[0]
    kept = min(top, 5)
    probs = torch.softmax(last @ head.T, dim=-1)
    assert result.tokens.tolist() == [0, 1, 2, 3, 10, 11, 12, 13, 14, 15]
    assert result.prompt_length == 4
    assert result.teacher_ids.shape == result.teacher_probs.shape == (9, kept)
    # Position p holds what the target expects at p + 1; only responses are learned.
    expected = probs[4:].sort(dim=-1, descending=True)
    torch.testing.assert_close(result.teacher_probs[4:], expected.values[:, :kept])
    assert torch.equal(result.teacher_ids[4:].long(), expected.indices[:, :kept])
    assert (result.teacher_probs[:4] == 0).all()
