from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from blockpilot_rl.decoding.batched import continue_batch
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.drafting import LeanDrafter
from blockpilot_rl.decoding.forward import target_forward
from blockpilot_rl.decoding.products import product
from blockpilot_rl.decoding.replay import replay
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.checkpoints import load_drafter
from blockpilot_rl.models.drafter import DFlashDraftModel
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.training.initial import (
    choose_mask_token,
    new_drafter,
    pretrained_drafter,
    set_draft_vocabulary,
)
from blockpilot_rl.training.recipe import RecipeConfig, Trainer, default_layer_ids
from tests.tiny_pair import MASK, PROMPTS, RECIPE, VOCABULARY, answers, encode

FEW = dataclasses.replace(RECIPE, steps=8, checkpoint_every=2, block_sizes=(8, 4))


@pytest.fixture(scope="module")
def pair(tiny):
    return dataclasses.replace(load_pair(*tiny), stop_token_ids=())


@pytest.fixture(scope="module")
def texts(pair):
    return answers(pair)


def new_trainer(pair, texts, config: RecipeConfig = FEW) -> Trainer:
    return Trainer(new_drafter(pair, texts, MASK, config), pair, texts, config)


def training_logits(trainer: Trainer, batch) -> torch.Tensor:
    with torch.no_grad():
        return trainer.draft_hidden(batch) @ trainer.head.float().T


def same(a, b) -> bool:
    """Bitwise equality of nested state dicts."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@pytest.mark.parametrize(
    ("depth", "layers"),
    [(30, (1, 9, 18, 27)), (18, (1, 5, 10, 15)), (5, (1, 2)), (4, (1,)), (3, (1,)), (2, (0,))],
)
def test_default_target_layers_follow_the_depth(depth, layers):
    assert default_layer_ids(depth) == layers
    assert FEW.with_default_shape(depth).target_layer_ids == FEW.target_layer_ids
    assert max(layers) < depth - 1


def test_overfit_then_decoding_accepts_whole_blocks(pair, texts):
    """sgl-project/SpecForge#473: good training, acceptance 1.02. Here both must be good."""
    config = dataclasses.replace(RECIPE, steps=200, sequences=1)
    trainer = new_trainer(pair, texts[:1], config)
    for _ in range(config.steps):
        _, accuracy = trainer.train_step()
    assert min(accuracy) > 0.9
    drafter = trainer.export().float()
    decoder = Decoder(dataclasses.replace(pair, drafter=drafter))
    generation = decoder.generate(encode(pair, PROMPTS[0]), 8, 40)
    assert generation.tokens == texts[0].output_ids.tolist()
    assert generation.acceptance_length > 7


@pytest.mark.parametrize(("vocabulary", "rank"), [(VOCABULARY, 0), (20, 0), (20, 4)])
def test_training_logits_are_decoding_logits(pair, texts, vocabulary, rank):
    """vllm-project/speculators#738: for every anchor and block size, with scaled features."""
    config = dataclasses.replace(FEW, draft_vocab_size=vocabulary, correction_rank=rank)
    trainer = new_trainer(pair, texts, config)
    for _ in range(4):
        trainer.train_step()
    drafter = DFlashDraftModel(trainer.drafter.config).eval()
    drafter.load_state_dict(trainer.drafter.state_dict())
    with torch.no_grad():
        drafter.fc.weight.mul_(trainer.feature_scale)
    ours = LeanDrafter(drafter, target_forward(pair.target, [0, 2]))
    ours._read = product(trainer.head.float())
    drafted = ours.to_target_ids(torch.arange(vocabulary))
    assert trainer.label_of[drafted].tolist() == list(range(vocabulary))
    for step in (0, 1):
        batch = trainer.batch(step)
        size = batch.labels.shape[2] + 1
        logits = training_logits(trainer, batch)
        context = batch.features.shape[1]
        begins = batch.position_ids[:, context:].view(*batch.anchors.shape, size)[:, :, 0]
        for row in range(len(begins)):
            for block, start in enumerate(begins[row].tolist()):
                with torch.inference_mode():
                    cache = ours.new_cache(1, start + size)
                    ours.extend(batch.features[row : row + 1, :start], cache)
                    anchor, labels = batch.anchors[row, block], batch.labels[row, block]
                    states = ours.draft(anchor.view(1, 1), size, cache)[0]
                    before = torch.cat([anchor[None], labels[:-1].clamp(min=0)])
                    decoded = ours.logits(states, before)
                torch.testing.assert_close(logits[row, block], decoded, atol=1e-3, rtol=1e-3)


@torch.inference_mode()
def test_embeddings_and_teacher_are_what_decoding_reads(pair, texts):
    """Gemma scales its embeddings and caps its logits."""
    config = Gemma3TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        pad_token_id=0,
        final_logit_softcapping=3.0,
    )
    gemma = Gemma3ForCausalLM(config).eval()
    pair = dataclasses.replace(pair, target=gemma)
    trainer = new_trainer(pair, texts, dataclasses.replace(FEW, draft_vocab_size=20))
    target, ids = target_forward(gemma, [0, 2]), trainer.drafter.draft_token_ids
    tokens = torch.arange(VOCABULARY)
    embedded = trainer.embed(tokens)
    torch.testing.assert_close(embedded, target.embed(tokens[None])[0])
    assert embedded.norm() > 2 * gemma.get_input_embeddings().weight.norm()
    answer, example = texts[0], trainer.examples[0]
    n = len(answer.prompt_ids)
    expected = torch.softmax(target.logits(answer.last[n:])[:, ids], dim=-1).amax(-1)
    torch.testing.assert_close(example.teacher_probs[n:].amax(-1), expected)


@pytest.mark.parametrize("missing", ["intermediate_size", "num_key_value_heads", "rms_norm_eps"])
def test_targets_that_do_not_state_every_size(pair, texts, missing):
    config = SimpleNamespace(**pair.target.config.to_dict())
    delattr(config, missing)
    target = SimpleNamespace(config=config, get_input_embeddings=pair.target.get_input_embeddings)
    drafter = new_drafter(dataclasses.replace(pair, target=target), texts, MASK, FEW)
    assert drafter.config.intermediate_size == (128 if missing == "intermediate_size" else 48)
    assert drafter.config.num_key_value_heads == (4 if missing == "num_key_value_heads" else 2)


def test_the_feature_at_the_anchor_changes_nothing(pair, texts):
    """Its feature is not known when a block is drafted (SpecForge#473); the one before it is."""
    trainer = new_trainer(pair, texts[:1], dataclasses.replace(FEW, sequences=1, queries=8))
    batch = trainer.batch(0)
    context = batch.features.shape[1]
    start = int(batch.position_ids[0, context])
    before = training_logits(trainer, batch)
    at, behind = batch.features.clone(), batch.features.clone()
    at[:, start:] += 5.0
    behind[:, start - 1] += 5.0
    assert torch.equal(training_logits(trainer, dataclasses.replace(batch, features=at)), before)
    changed = training_logits(trainer, dataclasses.replace(batch, features=behind))
    assert not torch.allclose(changed, before)


def test_blocks_of_one_pass_do_not_see_each_other(pair, texts):
    """Otherwise training would see tokens that decoding does not (sgl-project/SpecForge#473)."""
    trainer = new_trainer(pair, texts[:1], dataclasses.replace(FEW, sequences=1, queries=24))
    batch = trainer.batch(0)
    before = training_logits(trainer, batch)
    anchors = batch.anchors.clone()
    anchors[0, 1] = (anchors[0, 1] + 7) % VOCABULARY
    after = training_logits(trainer, dataclasses.replace(batch, anchors=anchors))
    assert torch.equal(after[0, [0, 2]], before[0, [0, 2]])
    assert not torch.allclose(after[0, 1], before[0, 1])


def test_the_loss_by_hand(pair, texts):
    """Cross-entropy and distillation at each mask that has a label, decaying along the block."""
    config = dataclasses.replace(FEW, distillation=0.25, gamma=2.0, teacher_top=3)
    trainer = new_trainer(pair, texts, config)
    batch = trainer.batch(0)
    assert (batch.labels == -100).any()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        logits = F.linear(trainer.draft_hidden(batch), trainer.head)
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    total, weights = 0.0, 0.0
    right = torch.zeros(7)
    for row, block, k in (batch.labels >= 0).nonzero().tolist():
        label, here = int(batch.labels[row, block, k]), log_probs[row, block, k]
        teacher = zip(batch.teacher_ids[row, block, k], batch.teacher_probs[row, block, k])  # noqa: B905
        distilled = -sum(float(p) * float(here[i]) for i, p in teacher)
        weight = math.exp(-k / 2.0)
        total += weight * (0.75 * -float(here[label]) + 0.25 * distilled)
        weights += weight
        right[k] += int(here.argmax()) == label
    loss, accuracy = trainer.loss(batch)
    assert loss.item() == pytest.approx(total / weights, rel=1e-4)
    counts = (batch.labels >= 0).sum((0, 1))
    torch.testing.assert_close(accuracy, right / counts)


def test_tokens_that_cannot_be_drafted(pair, texts):
    """They count as wrong guesses, and only the target's distribution is learned there."""
    config = dataclasses.replace(FEW, draft_vocab_size=20, distillation=0.0)
    trainer = new_trainer(pair, texts, config)
    known = set(trainer.drafter.draft_token_ids.tolist())
    batch = trainer.batch(0)
    outside = [t for t in batch.labels.flatten().tolist() if t >= 0 and t not in known]
    assert outside
    loss, _ = trainer.loss(batch)
    assert torch.isfinite(loss)
    unseen = torch.full_like(batch.labels, outside[0])
    loss, accuracy = trainer.loss(dataclasses.replace(batch, labels=unseen))
    assert loss.item() == 0.0
    assert accuracy.tolist() == [0.0] * 7


def test_a_resumed_run_equals_an_uninterrupted_one(pair, texts, tmp_path):
    """Bit for bit: weights, optimiser, losses (VowpalWabbit/vowpal_wabbit#2943 was worse)."""
    unbroken = new_trainer(pair, texts)
    losses = [unbroken.train_step() for _ in range(6)]
    first = new_trainer(pair, texts)
    begun = [first.train_step() for _ in range(3)]
    first.save(tmp_path / "checkpoint.pt")
    second = new_trainer(pair, texts)
    second.load(tmp_path / "checkpoint.pt")
    assert second.step == 3
    assert begun + [second.train_step() for _ in range(3)] == losses
    assert same(second.drafter.state_dict(), unbroken.drafter.state_dict())
    for ours, theirs in zip(second.optimizers, unbroken.optimizers, strict=True):
        assert same(ours.state_dict(), theirs.state_dict())
    assert same(second.export().state_dict(), unbroken.export().state_dict())


def test_a_run_that_was_killed_resumes(pair, texts, tmp_path):
    unbroken, log = new_trainer(pair, texts), []
    unbroken.run(tmp_path / "unbroken.pt", lambda *entry: log.append(entry))
    assert [step for step, _, _ in log] == list(range(1, 9))

    def kill(step, *_):
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        new_trainer(pair, texts).run(tmp_path / "killed.pt", kill)
    resumed, rest = new_trainer(pair, texts), []
    resumed.run(tmp_path / "killed.pt", lambda *entry: rest.append(entry))
    assert rest == log[4:]
    assert same(resumed.drafter.state_dict(), unbroken.drafter.state_dict())
    assert {path.name for path in tmp_path.iterdir()} == {"unbroken.pt", "killed.pt"}
    finished = new_trainer(pair, texts)
    finished.run(tmp_path / "killed.pt", lambda *_: pytest.fail("trained on"))
    assert finished.step == 8


def test_other_and_broken_checkpoints_are_refused(pair, texts, tmp_path):
    file = tmp_path / "checkpoint.pt"
    new_trainer(pair, texts).save(file)
    other = new_trainer(pair, texts, dataclasses.replace(FEW, learning_rate=0.5))
    with pytest.raises(BlockPilotError, match="was made with another recipe"):
        other.load(file)
    file.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(BlockPilotError, match=r"checkpoint\.pt cannot be read; remove it") as no:
        new_trainer(pair, texts).load(file)
    assert "weights_only" not in str(no.value)
    for state in ([], {}, {"config": FEW}):
        torch.save(state, file)
        with pytest.raises(BlockPilotError, match=r"is not a checkpoint: .*; remove it to start"):
            new_trainer(pair, texts).load(file)
    torch.save({"config": FEW, "step": 3, "drafter": {}, "optimizers": []}, file)
    with pytest.raises(BlockPilotError, match=r"does not fit the drafter; remove it to start"):
        new_trainer(pair, texts).load(file)


def test_export_folds_the_scale_of_the_features(pair, texts):
    trainer = new_trainer(pair, texts)
    trainer.train_step()
    before = {name: value.clone() for name, value in trainer.drafter.state_dict().items()}
    exported = trainer.export()
    assert {p.dtype for p in exported.parameters()} == {torch.bfloat16}
    assert same(trainer.drafter.state_dict(), before)
    features = texts[0].features.float()
    with torch.no_grad():
        scaled = trainer.drafter.project(features * trainer.feature_scale)
        folded = exported.float().project(features)
    torch.testing.assert_close(folded, scaled, atol=0.1, rtol=0.1)
    spread = (features * trainer.feature_scale).square().mean(0).sqrt()
    assert 0.3 < spread.min() < spread.max() < 3


def test_training_starts_from_an_exported_drafter(pair, texts, tmp_path):
    """Its first logits equal those of the exported drafter, whatever the feature scale is."""
    first = new_trainer(pair, texts)
    for _ in range(3):
        first.train_step()
    first.export().save_pretrained(tmp_path / "drafter")
    asked = dataclasses.replace(FEW, layers=None, block_sizes=(4, 2))
    drafter, config = pretrained_drafter(str(tmp_path / "drafter"), pair, asked)
    assert config.layers == FEW.layers
    assert config.draft_vocab_size == FEW.draft_vocab_size
    assert drafter.config.block_size == 4
    second = Trainer(drafter, pair, texts[::-1], config)
    batch = first.batch(0)
    ours, theirs = training_logits(second, batch), training_logits(first, batch)
    torch.testing.assert_close(ours, theirs, atol=0.05, rtol=0.05)
    assert same(first.export().state_dict()["fc.weight"], second.export().state_dict()["fc.weight"])


def test_training_starts_from_no_drafter_with_its_own_head(pair, texts, tmp_path):
    drafter = new_drafter(pair, texts, MASK, FEW)
    drafter.config.dflash_config["has_own_lm_head"] = True
    owner = DFlashDraftModel(drafter.config)
    owner.save_pretrained(tmp_path / "drafter")
    with pytest.raises(BlockPilotError, match="has its own lm_head; training starts only from"):
        pretrained_drafter(str(tmp_path / "drafter"), pair, FEW)


def test_training_that_diverges_is_stopped(pair, texts):
    trainer = new_trainer(pair, texts)
    with torch.no_grad():
        trainer.drafter.fc.weight.fill_(math.nan)
    with pytest.raises(BlockPilotError, match="the loss of step 1 is not finite"):
        trainer.train_step()


def test_every_epoch_shows_every_sequence_once(pair, texts):
    config = dataclasses.replace(FEW, sequences=2, queries=8)
    trainer = new_trainer(pair, texts, config)
    rows = {tuple(answer.features[0].tolist()): i for i, answer in enumerate(texts)}
    order = [
        rows[tuple(row[0].tolist())] for step in range(6) for row in trainer.batch(step).features
    ]
    epochs = [order[i : i + 4] for i in (0, 4, 8)]
    assert all(sorted(epoch) == [0, 1, 2, 3] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_block_sizes_rotate(pair, texts):
    trainer = new_trainer(pair, texts, dataclasses.replace(FEW, block_sizes=(8, 4, 2)))
    shapes = [trainer.batch(step).labels.shape[1:] for step in range(4)]
    assert shapes == [(8, 7), (16, 3), (32, 1), (8, 7)]


def test_learning_rate(pair, texts):
    config = dataclasses.replace(FEW, steps=110, warmup=10, learning_rate=1.0)
    trainer = new_trainer(pair, texts, config)
    rates = [trainer.learning_rate(step) for step in (0, 4, 9, 10, 60, 110, 200)]
    assert rates == pytest.approx([0.1, 0.5, 1.0, 1.0, 0.5, 0.0, 0.0])


def test_initial_weights_depend_on_the_seed_only(pair, texts):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = new_drafter(pair, texts, MASK, FEW)
    torch.manual_seed(6)
    again = new_drafter(pair, texts, MASK, FEW)
    other = new_drafter(pair, texts, MASK, dataclasses.replace(FEW, seed=1))
    assert same(first.state_dict(), again.state_dict())
    assert not same(first.state_dict(), other.state_dict())
    torch.manual_seed(5)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_new_drafter_has_the_targets_shape(pair, texts):
    drafter = new_drafter(pair, texts, MASK, FEW)
    config = drafter.config
    assert (config.hidden_size, config.vocab_size, config.num_hidden_layers) == (32, 64, 2)
    assert (config.block_size, config.mask_token_id, config.num_target_layers) == (8, MASK, 4)
    assert config.target_layer_ids == [0, 2]
    assert config.architectures == ["DFlashDraftModel"]
    assert drafter.draft_token_ids is None


def test_the_draft_vocabulary_holds_the_most_frequent_tokens(pair, texts):
    stopping = dataclasses.replace(pair, stop_token_ids=(50,))
    drafter = new_drafter(stopping, texts, MASK, dataclasses.replace(FEW, draft_vocab_size=12))
    ids = drafter.draft_token_ids.tolist()
    assert ids == sorted(set(ids))
    assert len(ids) == 12
    said = torch.cat([answer.output_ids for answer in texts]).bincount(minlength=VOCABULARY)
    left_out = [token for token in range(VOCABULARY) if token not in ids]
    assert 50 in ids, "a token that ends a text is always drafted"
    assert min(said[i] for i in ids if i != 50) >= max(said[left_out].tolist())
    whole = new_drafter(stopping, texts[:1], MASK, dataclasses.replace(FEW, draft_vocab_size=60))
    assert 50 in whole.draft_token_ids.tolist()
    assert len(whole.draft_token_ids) == 60


def test_small_groups_weigh_more_in_the_draft_vocabulary(pair):
    """Ten texts of one group say tokens 10 to 19, one text of another says 30 and 31."""
    template = answers(pair, ("a b",), 4)[0]
    many = [dataclasses.replace(template, output_ids=torch.arange(10, 20))] * 10
    few = [dataclasses.replace(template, output_ids=torch.tensor([30, 31] * 6))]
    config = dataclasses.replace(FEW, draft_vocab_size=8)
    pooled = new_drafter(pair, [*many, *few], MASK, config)
    assert set(pooled.draft_token_ids.tolist()) <= set(range(10, 20))
    names = ["de"] * 10 + ["fr"]
    grouped = new_drafter(pair, [*many, *few], MASK, config, names)
    assert {30, 31} <= set(grouped.draft_token_ids.tolist())


def test_the_mask_is_a_token_that_no_text_uses(tiny, texts):
    pair = load_pair(*tiny)
    tokenizer = pair.tokenizer
    tokenizer.add_special_tokens({"additional_special_tokens": ["<extra1>", "<extra3>"]})
    extra = tokenizer.convert_tokens_to_ids(["<extra1>", "<extra3>"])
    used = dataclasses.replace(texts[0], output_ids=torch.tensor([extra[1]]))
    free = dataclasses.replace(texts[0], output_ids=torch.tensor([40]))
    assert choose_mask_token(pair, [free]) == extra[1]
    assert choose_mask_token(pair, [used]) == extra[0]
    everything = dataclasses.replace(texts[0], output_ids=torch.arange(VOCABULARY))
    with pytest.raises(BlockPilotError, match="no unused special token; set mask_token_id"):
        choose_mask_token(pair, [everything])


def test_answers_of_one_token_are_left_out(pair, texts):
    short = dataclasses.replace(texts[0], output_ids=texts[0].output_ids[:1])
    assert len(new_trainer(pair, [short, *texts[1:]]).examples) == 3
    with pytest.raises(BlockPilotError, match="nothing to train on"):
        new_trainer(pair, [short])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"learning_rate": math.inf}, "learning_rate must be above 0 and below inf, got inf"),
        ({"learning_rate": math.nan}, "learning_rate must be above 0 and below inf, got nan"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"queries": 10**20}, "queries must be at least 1 and at most 65536"),
        ({"correction_rank": 10**10}, "correction_rank must be at least 0 and at most 65536"),
        ({"learning_rate": -1.0}, "learning_rate must be above 0"),
        ({"gamma": 0.0}, "gamma must be above 0"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
        ({"block_sizes": ()}, "must be at least 2 each"),
        ({"block_sizes": (8, 1)}, "must be at least 2 each"),
        ({"queries": 7}, "queries 7 must be at least the largest block size, 8"),
        ({"distillation": 1.5}, "distillation must be at least 0 and at most 1"),
        ({"target_layer_ids": ()}, "at least one layer"),
    ],
)
def test_bad_recipes(changes, message):
    with pytest.raises(BlockPilotError, match=message):
        dataclasses.replace(RECIPE, **changes)


def test_a_correction_head_is_added_once_and_kept(pair, texts, tmp_path):
    plain = new_trainer(pair, texts)
    plain.export().save_pretrained(tmp_path / "plain")
    asked = dataclasses.replace(FEW, correction_rank=4)
    first, recipe = pretrained_drafter(str(tmp_path / "plain"), pair, asked)
    again, _ = pretrained_drafter(str(tmp_path / "plain"), pair, asked)
    assert same(first.state_dict(), again.state_dict())
    assert (first.correction.output.weight == 0).all()
    trainer = Trainer(first, pair, texts, recipe)
    for _ in range(3):
        trainer.train_step()
    assert (first.correction.output.weight != 0).any()
    trainer.export().save_pretrained(tmp_path / "corrected")
    for rank in (0, 4):
        asked = dataclasses.replace(FEW, correction_rank=rank)
        kept, recipe = pretrained_drafter(str(tmp_path / "corrected"), pair, asked)
        assert recipe.correction_rank == 4
        exported = trainer.export().float().state_dict()
        assert same(
            kept.correction.state_dict(),
            {
                name.removeprefix("correction."): value
                for name, value in exported.items()
                if name.startswith("correction.")
            },
        )
    asked = dataclasses.replace(FEW, correction_rank=8)
    with pytest.raises(BlockPilotError, match="head of rank 4, not 8"):
        pretrained_drafter(str(tmp_path / "corrected"), pair, asked)


def test_a_corrected_run_resumes_exactly(pair, texts, tmp_path):
    config = dataclasses.replace(FEW, correction_rank=4)
    whole, half = new_trainer(pair, texts, config), new_trainer(pair, texts, config)
    whole.run(tmp_path / "whole.pt", lambda *_: None)
    for _ in range(4):
        half.train_step()
    half.save(tmp_path / "half.pt")
    again = new_trainer(pair, texts, config)
    again.run(tmp_path / "half.pt", lambda *_: None)
    assert same(again.drafter.state_dict(), whole.drafter.state_dict())


def dflash2(config: RecipeConfig) -> RecipeConfig:
    return dataclasses.replace(config, architecture="dflash2", selector_rank=4)


@pytest.mark.parametrize("vocabulary", [VOCABULARY, 20])
def test_a_dflash2_drafter_starts_as_the_dflash_drafter_it_is_made_from(
    pair, texts, tmp_path, vocabulary
):
    first = new_trainer(pair, texts, dataclasses.replace(FEW, draft_vocab_size=vocabulary))
    for _ in range(3):
        first.train_step()
    first.export(torch.float32).save_pretrained(tmp_path / "drafter")
    asked = dataclasses.replace(dflash2(FEW), draft_vocab_size=None)
    drafter, config = pretrained_drafter(str(tmp_path / "drafter"), pair, asked)
    assert drafter.config.is_dflash2
    second = Trainer(drafter, pair, texts, config)
    batch = first.batch(0)
    ours, theirs = training_logits(second, batch), training_logits(first, batch)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    for _ in range(3):
        second.train_step()
    assert (second.drafter.layers[0].mlp_conv.kernel_projection.weight != 0).any()
    assert (second.drafter.candidate_selector.successor_codebook != 0).any()


@pytest.mark.parametrize(("vocabulary", "temperature"), [(VOCABULARY, 0.0), (40, 1.0)])
def test_a_trained_dflash2_drafter_decodes_and_replays(
    pair, texts, tmp_path, vocabulary, temperature
):
    config = dataclasses.replace(
        dflash2(RECIPE),
        steps=150 if vocabulary == VOCABULARY else 30,
        sequences=1,
        draft_vocab_size=vocabulary,
    )
    trainer = new_trainer(pair, texts[:1], config)
    for _ in range(config.steps):
        _, accuracy = trainer.train_step()
    trainer.export().save_pretrained(tmp_path / "drafter")
    saved = json.loads((tmp_path / "drafter" / "config.json").read_text())
    assert saved["architectures"] == ["DFlash2DraftModel"]
    drafter = load_drafter(tmp_path / "drafter", torch.float32, "cpu")
    decoder = Decoder(dataclasses.replace(pair, drafter=drafter))
    sampling = Sampling(temperature, seed=3)
    generation = decoder.generate(encode(pair, PROMPTS[0]), 8, 40, sampling)
    plain = decoder.generate(encode(pair, PROMPTS[0]), 1, 40, sampling)
    assert generation.tokens == plain.tokens
    if vocabulary == VOCABULARY:
        assert min(accuracy) > 0.9
        assert generation.acceptance_length > 6
    ids = [encode(pair, PROMPTS[0])[0]]
    again = continue_batch(decoder.target, ids, 40, (), sampling)
    assert replay(decoder.drafter, again, [8])[0][0] == generation.accepted[1:]


def test_another_draft_vocabulary_keeps_the_rows_of_a_selector(pair, texts):
    drafter = new_drafter(pair, texts, MASK, dataclasses.replace(dflash2(FEW), draft_vocab_size=30))
    selector = drafter.candidate_selector
    before = drafter.draft_token_ids.tolist()
    with torch.no_grad():
        selector.successor_codebook.copy_(drafter.draft_token_ids[:, None].float().expand(-1, 4))
    for size in (50, 10, VOCABULARY):
        set_draft_vocabulary(drafter, pair, texts, size)
        ids = drafter.draft_token_ids
        ids = list(range(VOCABULARY)) if ids is None else ids.tolist()
        rows = selector.successor_codebook[:, 0].tolist()
        kept = set(before) & set(ids) if size != VOCABULARY else set()
        assert len(rows) == len(ids) == size
        for token, row in zip(ids, rows, strict=True):
            assert row == token or token not in kept
        before = [token for token, row in zip(ids, rows, strict=True) if row == token]


def test_a_resumed_dflash2_run_equals_an_uninterrupted_one(pair, texts, tmp_path):
    unbroken = new_trainer(pair, texts, dflash2(FEW))
    losses = [unbroken.train_step() for _ in range(4)]
    first = new_trainer(pair, texts, dflash2(FEW))
    begun = [first.train_step() for _ in range(2)]
    first.save(tmp_path / "checkpoint.pt")
    second = new_trainer(pair, texts, dflash2(FEW))
    second.load(tmp_path / "checkpoint.pt")
    assert begun + [second.train_step() for _ in range(2)] == losses
    assert same(second.drafter.state_dict(), unbroken.drafter.state_dict())


def test_a_checkpoint_of_another_corpus_is_refused(pair, texts, tmp_path):
    new_trainer(pair, texts).save(tmp_path / "checkpoint.pt")
    longer = dataclasses.replace(texts[0], output_ids=texts[0].output_ids[:-1])
    for other in (texts[:-1], texts[::-1], [longer, *texts[1:]]):
        with pytest.raises(BlockPilotError, match="was made with another corpus"):
            new_trainer(pair, other).load(tmp_path / "checkpoint.pt")
