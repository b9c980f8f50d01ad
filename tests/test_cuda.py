"""The main tests of each part, repeated on a GPU if there is one."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from blockpilot_rl.decoding.batched import continue_batch
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.replay import replay, trace
from blockpilot_rl.decoding.sampling import GREEDY, Sampling
from blockpilot_rl.decoding.state import GROUPS
from blockpilot_rl.models.pairs import Pair, load_pair
from blockpilot_rl.training.initial import new_drafter
from blockpilot_rl.training.recipe import Trainer
from tests import benchmark_scripts
from tests.tiny_pair import MASK, PROMPTS, RECIPE, answers, encode, save_tiny_pair

DEVICE = "cuda"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

SIZES = (1, 2, 3, 5, 8, 16)
SAMPLINGS = [GREEDY, Sampling(1.0, seed=3), Sampling(1.0, top_k=12, top_p=0.9, seed=3)]
BUDGET = 40
EXACTNESS = benchmark_scripts.load("exactness")


@pytest.fixture(params=["trained", "corrected"])
def pair(request, tmp_path) -> Pair:
    """A pair in fp32 on the GPU, whose drafter drafts at once, or corrects draft after draft."""
    target, _ = save_tiny_pair(tmp_path)
    request.getfixturevalue(request.param).drafter.save_pretrained(tmp_path / "trained")
    loaded = load_pair(target, tmp_path / "trained", "float32", DEVICE)
    assert {loaded.device.type, loaded.drafter.device.type} == {DEVICE}
    return dataclasses.replace(loaded, stop_token_ids=())


def prompts(pair: Pair) -> list[torch.Tensor]:
    return [encode(pair, text)[0] for text in PROMPTS]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_block_size_gives_the_text_of_plain_decoding(pair, sampling):
    decoder, lengths = Decoder(pair), set()
    for ids in prompts(pair):
        plain = decoder.generate(ids[None], 1, BUDGET, sampling)
        assert len(plain.tokens) == BUDGET
        for size in SIZES[1:]:
            result = decoder.generate(ids[None], size, BUDGET, sampling)
            assert result.tokens == plain.tokens
            lengths |= set(result.accepted[1:])
    assert max(lengths) > 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("sampling", SAMPLINGS[:2])
def test_half_precision_differs_only_by_rounding(pair, tmp_path, dtype, sampling):
    """The fixture's pair in another dtype; the criterion does not know top-k and top-p."""
    half = load_pair(tmp_path / "target", tmp_path / "trained", dtype, DEVICE)
    assert half.dtype == half.drafter.dtype == getattr(torch, dtype)
    decoder, lengths = Decoder(dataclasses.replace(half, stop_token_ids=())), set()
    for ids in prompts(half):
        found = EXACTNESS.compare(decoder, ids[None], sampling, SIZES[1:], BUDGET)
        assert found["tokens"] == BUDGET
        assert all(size["rounding"] for size in found["divergences"].values()), found
        lengths |= set(decoder.generate(ids[None], 8, BUDGET, sampling).accepted[1:])
    assert max(lengths) > 1


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_answers_in_a_batch_are_the_decoders(pair, sampling):
    decoder = Decoder(pair)
    ids, seeds = prompts(pair), [0, 0, 0, 0] if sampling == GREEDY else [7, 1, 4, 1]
    items = continue_batch(decoder.target, ids, BUDGET, (), sampling, seeds)
    for row, item in zip(ids, items, strict=True):
        assert (
            item.output_ids.tolist() == decoder.generate(row[None], 8, BUDGET, item.sampling).tokens
        )
        whole = torch.cat([row, item.output_ids.to(row.device)])[None, :-1]
        with torch.inference_mode():
            hidden = decoder.target(whole, decoder.target.new_cache(1, whole.shape[1]))
        torch.testing.assert_close(item.features, hidden.features[0].cpu(), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(item.last, hidden.last[0].cpu(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_replay_equals_decoding(pair, sampling):
    decoder = Decoder(pair)
    items = continue_batch(decoder.target, prompts(pair), BUDGET, (), sampling)
    traces = trace(decoder.drafter, items, SIZES)
    replayed = replay(decoder.drafter, items, SIZES)
    for item, traced, by_arm in zip(items, traces, replayed, strict=True):
        for arm, accepted in enumerate(by_arm):
            ids = item.prompt_ids[None].to(DEVICE)
            real = decoder.generate(ids, SIZES[arm], BUDGET, item.sampling)
            assert accepted == traced.trajectory(arm) == real.accepted[1:]


def test_the_state_is_that_of_the_cpu(pair, tmp_path):
    on_cpu = Decoder(load_pair(tmp_path / "target", tmp_path / "trained"))
    decoder = Decoder(pair)
    for text in PROMPTS:
        ours, theirs = (
            one.state(one.prefill(encode(one.pair, text), BUDGET, 16), GROUPS).cpu()
            for one in (decoder, on_cpu)
        )
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(("rank", "architecture"), [(0, None), (8, None), (0, "dflash2")])
def test_training_steps_lower_the_loss(pair, tmp_path, rank, architecture):
    recipe = dataclasses.replace(RECIPE, correction_rank=rank, architecture=architecture)
    texts = answers(pair)
    trainer = Trainer(new_drafter(pair, texts, MASK, recipe), pair, texts, recipe)
    losses = [trainer.train_step()[0] for _ in range(40)]
    assert all(math.isfinite(loss) for loss in losses)
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    trainer.export().save_pretrained(tmp_path / "new")
    loaded = load_pair(tmp_path / "target", tmp_path / "new", "float32", DEVICE)
    ids = encode(loaded, PROMPTS[0])
    texts = [Decoder(loaded).generate(ids, size, BUDGET).tokens for size in (1, 8)]
    assert texts[0] == texts[1]
