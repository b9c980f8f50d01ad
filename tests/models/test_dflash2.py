"""DFlash2: convolutions inside a block, and the selector of candidates."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from safetensors.torch import save_file

from blockpilot_rl.decoding.batched import continue_batch
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.drafting import Blocks
from blockpilot_rl.decoding.replay import replay, trace
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.checkpoints import load_drafter
from blockpilot_rl.models.dflash2 import CandidateSelector, GroupedDynamicConv
from blockpilot_rl.models.pairs import load_pair
from tests.decoding.test_replay import assert_replay_is_exact, assert_trace_is_exact
from tests.tiny_pair import MASK, PROMPTS, encode, tiny_drafter, variant

PARTS = {"conv_kernel_size": 2, "conv_group_size": 8, "selector_rank": 6, "selector_top_k": 5}
IDS = {"mask_token_id": MASK, "target_layer_ids": [0, 2]}
WINDOW = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 7}


def random_drafter(causal=None, **changes):
    """A DFlash2 drafter with random weights in every part."""
    settings = {**IDS, **PARTS, **({} if causal is None else {"causal": causal})}
    settings |= changes.pop("dflash_config", {})
    drafter = tiny_drafter(dflash_config=settings, architectures=["DFlash2DraftModel"], **changes)
    generator = torch.Generator().manual_seed(3)
    for name, parameter in drafter.named_parameters():
        if "conv" in name or "selector" in name:
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.data = 0.4 * noise + ("base_kernel" in name) * 0.7
    return drafter


@pytest.fixture(scope="module", params=["full", "window", "scales"])
def pair(request, tiny, tmp_path_factory):
    changes = {
        "full": {},
        "window": {**WINDOW, "use_sliding_window": True, "causal": False},
        "scales": {
            "dflash_config": {
                "input_embedding_scale": 2.5,
                "output_multiplier": 0.3,
                "final_logit_softcapping": 4.0,
                "conv_kernel_size": 3,
            }
        },
    }[request.param]
    folder = tmp_path_factory.mktemp("dflash2") / "drafter"
    random_drafter(**changes).save_pretrained(folder)
    return dataclasses.replace(load_pair(tiny[0], folder), stop_token_ids=())


def test_a_checkpoint_has_the_published_names(tmp_path):
    drafter = random_drafter()
    drafter.save_pretrained(tmp_path)
    loaded = load_drafter(tmp_path)
    loaded.save_pretrained(tmp_path / "again")
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    assert config["architectures"] == ["DFlash2DraftModel"]
    names = set(loaded.state_dict())
    assert {
        "candidate_selector.hidden_projection.weight",
        "candidate_selector.predecessor_codebook",
        "candidate_selector.successor_codebook",
        "layers.0.attention_conv.base_kernel",
        "layers.1.mlp_conv.kernel_projection.weight",
    } <= names
    shapes = {name: tuple(value.shape) for name, value in drafter.state_dict().items()}
    assert shapes["layers.0.attention_conv.base_kernel"] == (2, 2, 32)
    assert shapes["layers.0.attention_conv.kernel_projection.weight"] == (2 * 2 * 4, 32)
    assert shapes["candidate_selector.successor_codebook"] == (64, 6)


def convolved_by_hand(conv, hidden, kernels, side, first):
    """`sum over taps of (base + dynamic) * hidden[t - tap]`, number by number."""
    output = torch.zeros_like(hidden)
    for t in range(len(hidden)):
        for tap in range(min(conv.kernel_size, t - first[t] + 1)):
            dynamic = kernels[t, tap].repeat_interleave(conv.group_size)
            output[t] += (conv.base_kernel[side, tap] + dynamic) * hidden[t - tap]
    return output


@torch.no_grad()
@pytest.mark.parametrize("kernel_size", [1, 2, 3, 9])
def test_convolutions_stay_inside_a_block(kernel_size):
    generator = torch.Generator().manual_seed(0)
    conv = GroupedDynamicConv(12, kernel_size, 4)
    for parameter in conv.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator))
    hidden = torch.randn(1, 9, 12, generator=generator)
    first = torch.tensor([0, 0, 0, 0, 4, 4, 6, 6, 6])
    offsets = torch.arange(9) - first
    ours, kernels = conv.prepare(hidden, offsets)
    dynamic = conv.kernel_projection(hidden)[0].view(9, 2, kernel_size, 3)
    expected = convolved_by_hand(conv, hidden[0], dynamic[:, 0], 0, first.tolist())
    torch.testing.assert_close(ours[0], expected)
    expected = convolved_by_hand(conv, hidden[0], dynamic[:, 1], 1, first.tolist())
    torch.testing.assert_close(conv.finish(hidden, kernels, offsets)[0], expected)


@torch.no_grad()
def test_the_selector_scores_the_candidates_only():
    generator = torch.Generator().manual_seed(0)
    selector = CandidateSelector(8, 20, 3, 4)
    for parameter in selector.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator))
    logits = torch.randn(2, 20, generator=generator)
    hidden = torch.randn(2, 8, generator=generator)
    before = torch.tensor([7, 2])
    scores = selector.score(*selector.read(logits, hidden), before)
    for row in range(2):
        best = logits[row].topk(4).indices.tolist()
        gate = selector.predecessor_codebook[before[row]] * selector.hidden_projection(hidden[row])
        for token in range(20):
            expected = logits[row, token] + gate @ selector.successor_codebook[token]
            if token in best:
                torch.testing.assert_close(scores[row, token], expected)
            else:
                assert scores[row, token] == -torch.inf


@torch.inference_mode()
def test_the_lean_pass_is_the_model_in_every_batch_form(pair):
    """One block per row, several blocks in a row, and several texts with blocks of all sizes."""
    drafter, lean = pair.drafter, Decoder(pair).drafter
    features = torch.randn(2, 14, 64, generator=torch.Generator().manual_seed(1))
    rows = torch.tensor([0, 0, 0, 1, 1])
    starts, sizes = torch.tensor([5, 9, 12, 3, 14]), torch.tensor([8, 3, 2, 5, 8])
    anchors = torch.tensor([4, 9, 4, 11, 30])
    expected = []
    for row, start, size, anchor in zip(rows, starts, sizes, anchors, strict=True):
        tokens = torch.tensor([[int(anchor), *[MASK] * (int(size) - 1)]])
        table = pair.target.get_input_embeddings().weight
        output = drafter(
            noise_embeds=drafter.embed(tokens, table),
            context_hidden_states=features[row : row + 1, :start],
        )
        expected.append(output.last_hidden_state[0])
        cache = lean.new_cache(1, 40)
        lean.extend(features[row : row + 1, :start], cache)
        alone = lean.norm(lean.draft(anchor.view(1, 1), int(size), cache))[0]
        torch.testing.assert_close(alone, expected[-1][1:], atol=1e-4, rtol=1e-4)
    cache = lean.new_cache(2, 60)
    lean.extend(features, cache)
    together = lean.norm(lean.draft_at(Blocks(rows, starts, anchors, sizes), cache))
    torch.testing.assert_close(together, torch.cat(expected), atol=1e-4, rtol=1e-4)

    tokens = torch.tensor([[4, *[MASK] * 7, 9, MASK, MASK]])
    own = torch.tensor([0] * 8 + [1] * 3)
    seen = torch.arange(9) < torch.tensor([5] * 8 + [9] * 3)[:, None]
    output = drafter(
        noise_embeds=drafter.embed(tokens, pair.target.get_input_embeddings().weight),
        context_hidden_states=features[:1, :9],
        attention_mask=torch.cat([seen, own[:, None] == own], dim=1)[None, None],
        position_ids=torch.tensor([[*range(9), *range(5, 13), *range(9, 12)]]),
    )
    packed = torch.cat(expected[:2])
    torch.testing.assert_close(output.last_hidden_state[0], packed, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_drafts_are_a_path_through_the_candidates(pair):
    """Each draft is the best candidate given the draft before it."""
    lean, anchor = Decoder(pair).drafter, torch.tensor([9])
    features = torch.randn(1, 6, 64, generator=torch.Generator().manual_seed(2))
    cache = lean.new_cache(1, 20)
    lean.extend(features, cache)
    states = lean.draft(anchor[None], 8, cache)
    drafts = lean.propose(states[0], anchor, lambda logits, _: logits.argmax(-1))
    before = torch.cat([anchor, drafts[:-1]])
    scores = lean.logits(states[0], before)
    assert scores.argmax(-1).tolist() == drafts.tolist()
    assert (scores.isfinite().sum(-1) == 5).all()
    greedy = lean.greedy_logits(states, anchor)[0]
    torch.testing.assert_close(greedy, scores)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_texts_and_replay_equal_decoding(pair, temperature):
    decoder, sampling = Decoder(pair), Sampling(temperature, seed=4)
    ids = encode(pair, PROMPTS[0])
    generations = {size: decoder.generate(ids, size, 30, sampling) for size in (1, 2, 5, 8, 11)}
    assert len({tuple(item.tokens) for item in generations.values()}) == 1
    item = continue_batch(decoder.target, [ids[0]], 30, (), sampling)
    [replayed] = replay(decoder.drafter, item, (1, 2, 5, 8))
    assert replayed == [generations[size].accepted[1:] for size in (1, 2, 5, 8)]
    [traced] = trace(decoder.drafter, item, (1, 2, 5, 8))
    assert [traced.trajectory(arm) for arm in range(4)] == replayed


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_blocks_of_every_size_near_the_end_of_a_budget(pair, temperature):
    sampling, sizes = Sampling(temperature, seed=4), tuple(range(1, 17))
    for budget in (3, 9, 18):
        assert_replay_is_exact(pair, PROMPTS[:1], budget, sizes, sampling)
    assert_trace_is_exact(pair, PROMPTS[0], 30, sampling)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({name: None}, f"of DFlash2 has no {name}") for name in PARTS]
    + [
        (dict.fromkeys(PARTS), "of DFlash2 has no conv_kernel_size, conv_group_size, selector"),
        ({"conv_group_size": 5}, "conv_group_size 5 must divide hidden_size 32"),
        ({"selector_top_k": 65}, "selector_top_k 65 is larger than the vocabulary of 64"),
        ({"selector_top_k": 0}, "selector_top_k 0 must be at least 1"),
        ({"conv_kernel_size": "2"}, "conv_kernel_size '2' must be a whole number"),
        ({"correction_rank": 4}, "a DFlash2 drafter cannot have correction_rank 4"),
        ({"selector_kind": "triple"}, "has selector_kind 'triple', which is neither"),
        ({"input_embedding_scale": float("inf")}, "input_embedding_scale inf must be a positive"),
    ],
)
def test_unknown_variants_are_refused_by_name(tmp_path, changes, message):
    random_drafter().save_pretrained(tmp_path / "saved")
    settings = {k: v for k, v in {**IDS, **PARTS, **changes}.items() if v is not None}
    changed = {"dflash_config": settings, "architectures": ["DFlash2DraftModel"]}
    folder = variant(tmp_path / "saved", tmp_path / "drafter", **changed)
    with pytest.raises(BlockPilotError, match=message):
        load_drafter(folder)


def test_speculators_form_is_the_same_model(tiny, tmp_path):
    drafter = random_drafter(**WINDOW, use_sliding_window=True, causal=False)
    drafter.save_pretrained(tmp_path / "zlab")
    config = json.loads((tmp_path / "zlab" / "config.json").read_text())
    nested = {
        name: config[name]
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "max_position_embeddings",
            "rms_norm_eps",
            "rope_parameters",
            "layer_types",
            "sliding_window",
        )
    }
    theirs = {
        "architectures": ["DFlash2DraftModel"],
        "speculators_model_type": "dflash2",
        "aux_hidden_state_layer_ids": [1, 3],
        "block_size": 8,
        "draft_vocab_size": 64,
        "mask_token_id": MASK,
        "sample_from_anchor": False,
        "transformer_layer_config": {"model_type": "qwen3", "use_sliding_window": True, **nested},
        **PARTS,
    }
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(theirs))
    tensors = {name: tensor.contiguous() for name, tensor in drafter.state_dict().items()}
    save_file(tensors, tmp_path / "theirs" / "model.safetensors")
    texts = []
    for name in ("zlab", "theirs"):
        pair = load_pair(tiny[0], tmp_path / name)
        generation = Decoder(pair).generate(encode(pair, PROMPTS[0]), 8, 20)
        texts.append((generation.tokens, generation.accepted))
    assert texts[0] == texts[1]
