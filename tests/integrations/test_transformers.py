"""Our decoding inside transformers' `generate`, and transformers' own with our drafter."""

from __future__ import annotations

import dataclasses
from threading import Thread

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    StoppingCriteriaList,
    StopStringCriteria,
    TemperatureLogitsWarper,
    TextIteratorStreamer,
    TopPLogitsWarper,
)
from transformers.generation.streamers import BaseStreamer

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.integrations.transformers import BlockPilotOutput, block_pilot
from blockpilot_rl.training.initial import new_drafter
from blockpilot_rl.training.recipe import Trainer
from tests.decoding.test_decoder import chooser
from tests.tiny_pair import MASK, PROMPTS, RECIPE, answers, encode, tiny_drafter, tiny_target

BUDGET = 40


@pytest.fixture(scope="module")
def reduced(trained):
    """A pair whose drafter may propose 24 of the 64 tokens."""
    pair = dataclasses.replace(trained, drafter=None)
    texts = answers(pair)
    recipe = dataclasses.replace(RECIPE, draft_vocab_size=24)
    trainer = Trainer(new_drafter(pair, texts, MASK, recipe), pair, texts, recipe)
    for _ in range(recipe.steps):
        trainer.train_step()
    return dataclasses.replace(pair, drafter=trainer.export().float())


def generate(pair, text="a b c d", **options):
    """`generate` of transformers, with a budget and by default without stop tokens."""
    ids = encode(pair, text)
    settings = {"max_new_tokens": BUDGET, "do_sample": False, "eos_token_id": None}
    settings |= {"pad_token_id": 1}
    return pair.target.generate(ids, attention_mask=torch.ones_like(ids), **{**settings, **options})


def record(pair, hook, text="a b c d", **options) -> BlockPilotOutput:
    output = generate(pair, text, custom_generate=hook, return_dict_in_generate=True, **options)
    assert isinstance(output, BlockPilotOutput)
    return output


class Log(BaseStreamer):
    """Keeps what it is given."""

    def __init__(self):
        self.given: list[torch.Tensor] = []
        self.ended = 0

    def put(self, value):
        self.given.append(value)

    def end(self):
        self.ended += 1


# transformers' own DFlash generation


@pytest.mark.parametrize("text", PROMPTS)
@pytest.mark.parametrize("kind", ["trained", "reduced", "corrected"])
def test_transformers_own_dflash_gives_the_targets_text(request, kind, text):
    """Their generation reads drafts with the target's whole head alone."""
    pair = request.getfixturevalue(kind)
    assert (pair.drafter.draft_token_ids is None) == (kind == "trained")
    assert (pair.drafter.correction is None) == (kind != "corrected")
    theirs = generate(pair, text, assistant_model=pair.drafter, speculation_type="dflash")
    assert torch.equal(theirs, generate(pair, text))


def test_transformers_accepts_drafts_of_a_reduced_vocabulary(reduced):
    """Checks that drafts are accepted in the test above."""
    passes: list[int] = []
    handle = reduced.target.register_forward_hook(lambda *_: passes.append(1))
    generate(reduced, assistant_model=reduced.drafter, speculation_type="dflash")
    handle.remove()
    assert len(passes) < BUDGET / 1.5


# Our decoding inside `generate`


@pytest.mark.parametrize("text", PROMPTS)
@pytest.mark.parametrize("size", [1, 2, 5, 8, 16])
def test_the_text_is_that_of_plain_generate(trained, text, size):
    output = generate(trained, text, custom_generate=block_pilot(trained, block_size=size))
    expected = generate(trained, text)
    assert torch.equal(output, expected)
    assert (output.dtype, output.device) == (expected.dtype, expected.device)


@pytest.mark.parametrize("budget", [2, 3, 7, 18])
def test_blocks_near_the_end_of_a_budget_are_those_of_the_decoder(trained, budget):
    """They have no more drafts than tokens are left."""
    decoder = Decoder(trained)
    for size in (1, 2, 5, 8, 16):
        hook = block_pilot(trained, block_size=size)
        ours = record(trained, hook, max_new_tokens=budget).generation
        expected = decoder.generate(encode(trained, "a b c d"), size, budget)
        assert ours.accepted == expected.accepted
        assert ours.block_sizes == expected.block_sizes
        assert max(ours.block_sizes[1:]) <= min(size, budget)


def test_a_reduced_vocabulary(reduced):
    hook = block_pilot(reduced.drafter)
    output = record(reduced, hook)
    assert torch.equal(output.sequences, generate(reduced))
    assert output.generation.acceptance_length > 1.5


def test_a_drafter_alone_is_enough(trained):
    hook = block_pilot(trained.drafter, block_size=4)
    for text in PROMPTS:
        assert torch.equal(generate(trained, text, custom_generate=hook), generate(trained, text))


def test_the_policy_is_asked_and_its_size_is_used(trained):
    """A setting that is parsed and ignored would show (charlie12345/ROCmFPX#31)."""
    for favourite, size in enumerate((1, 2, 4, 16)):
        policy = chooser(trained, favourite=favourite)
        output = record(trained, block_pilot(trained.drafter, policy=policy))
        own = Decoder(trained).generate(encode(trained, "a b c d"), size, BUDGET)
        assert max(output.generation.block_sizes) == size
        assert output.generation.accepted == own.accepted
        assert output.generation.policy_seconds > 0
        assert torch.equal(output.sequences, generate(trained))


def test_a_policy_controls_every_round(trained):
    """The text is that of plain decoding, and the record holds the lengths of each round."""

    class Alternating:
        arms, state_groups = (1, 4, 8), ()
        reads_confidences = stops_early = reads_target = False

        def check_pair(self, fingerprint, template):
            pass

        def check_request(self, temperature, prompt_tokens):
            pass

        def start(self, state, sampling):
            self.lengths = [1, 8, 4] * BUDGET
            return self

        def draft_length(self, context):
            return self.lengths.pop(0)

        def verify_length(self, confidences):
            return 3

        def observe(self, drafted, verified, accepted):
            pass

    output = record(trained, block_pilot(trained.drafter, policy=Alternating()))
    assert output.generation.drafted[1:7] == [1, 8, 4, 1, 8, 4]
    assert output.generation.block_sizes[1:7] == [1, 3, 3, 1, 3, 3]
    assert torch.equal(output.sequences, generate(trained))


def test_without_a_choice_the_drafters_own_size_is_used(trained):
    output = record(trained, block_pilot(trained))
    assert max(output.generation.block_sizes) == 8
    assert output.generation.finish_reason == "length"
    assert output.generation.policy_seconds == 0.0


def test_one_hook_serves_many_calls_and_models(trained):
    other = tiny_target(seed=5)
    hook = block_pilot(trained.drafter)
    expected = generate(trained)
    for model in (trained.target, other, trained.target):
        pair = dataclasses.replace(trained, target=model)
        assert torch.equal(generate(pair, custom_generate=hook), generate(pair))
    assert torch.equal(generate(trained, custom_generate=hook), expected)


@pytest.mark.parametrize("position", [0, 1, 5, 11])
def test_stop_tokens_of_the_call_end_the_text(trained, position):
    """As the first token, within a block, or one of a list."""
    whole = generate(trained)[0, -BUDGET:].tolist()
    unused = next(token for token in range(64) if token not in whole)
    stops = [unused, whole[position]]
    output = record(trained, block_pilot(trained), eos_token_id=stops)
    assert torch.equal(output.sequences, generate(trained, eos_token_id=stops))
    assert output.generation.finish_reason == "stop"
    assert sum(output.generation.accepted) == whole.index(whole[position]) + 1


def test_the_stop_tokens_of_the_model_are_the_default(trained):
    target = trained.target
    whole = generate(trained)[0, -BUDGET:].tolist()
    old = target.generation_config.eos_token_id
    target.generation_config.eos_token_id = whole[4]
    try:
        ids = encode(trained, "a b c d")
        options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": BUDGET}
        expected = target.generate(ids, **options)
        output = target.generate(ids, custom_generate=block_pilot(trained), **options)
    finally:
        target.generation_config.eos_token_id = old
    assert expected.shape[1] == ids.shape[1] + whole.index(whole[4]) + 1
    assert torch.equal(output, expected)


@pytest.mark.parametrize("budget", [1, 2, 7, 8, 9])
def test_budgets(trained, budget):
    hook = block_pilot(trained)
    output = generate(trained, custom_generate=hook, max_new_tokens=budget)
    assert torch.equal(output, generate(trained, max_new_tokens=budget))
    longest = encode(trained, "a b c d").shape[1] + budget
    output = generate(trained, custom_generate=hook, max_new_tokens=None, max_length=longest)
    assert output.shape[1] == longest


def test_other_stopping_criteria_are_checked_token_by_token(trained):
    """Within an accepted block too; `generate` keeps the tokenizer of stop_strings to itself."""
    whole = trained.tokenizer.decode(generate(trained)[0, -BUDGET:])
    criteria = [StopStringCriteria(trained.tokenizer, whole[6:9])]
    plain = generate(trained, stopping_criteria=StoppingCriteriaList(criteria))
    output = record(trained, block_pilot(trained), stopping_criteria=StoppingCriteriaList(criteria))
    assert plain.shape[1] < encode(trained, "a b c d").shape[1] + 12
    assert torch.equal(output.sequences, plain)
    assert output.generation.finish_reason == "stop"


def test_a_time_limit(trained):
    """It has always passed after the first token."""
    output = record(trained, block_pilot(trained), max_time=1e-9)
    assert torch.equal(output.sequences, generate(trained, max_time=1e-9))
    assert output.generation.accepted == [1]


# Sampling


def sampled(pair, hook, **options):
    return generate(pair, custom_generate=hook, do_sample=True, **options)


@pytest.mark.parametrize("size", [1, 2, 8])
def test_a_seed_decides_a_sampled_text_whatever_the_size(trained, size):
    hook = block_pilot(trained, block_size=size, seed=3)
    output = sampled(trained, hook, temperature=0.7, top_k=20, top_p=0.9)
    ids = encode(trained, "a b c d")
    own = Decoder(trained).generate(ids, 1, BUDGET, Sampling(0.7, 20, 0.9, seed=3))
    assert output[0, ids.shape[1] :].tolist() == own.tokens
    assert torch.equal(sampled(trained, hook, temperature=0.7, top_k=20, top_p=0.9), output)


def test_the_defaults_of_generate_are_kept(trained):
    """`generate` samples at temperature 1 among the 50 most probable tokens."""
    output = sampled(trained, block_pilot(trained, seed=3))
    ids = encode(trained, "a b c d")
    own = Decoder(trained).generate(ids, 1, BUDGET, Sampling(1.0, 50, seed=3))
    assert output[0, ids.shape[1] :].tolist() == own.tokens


def test_without_a_seed_torchs_generator_is_used(trained):
    texts = []
    with torch.random.fork_rng():
        for size, seed in ((1, 7), (8, 7), (8, None), (8, 8)):
            if seed is not None:
                torch.manual_seed(seed)
            texts.append(sampled(trained, block_pilot(trained, block_size=size)).tolist())
    assert texts[0] == texts[1]
    assert len({str(text) for text in texts}) == 3


def test_warpers_may_be_given_as_processors(trained):
    warpers = LogitsProcessorList([TemperatureLogitsWarper(0.7)])
    given = sampled(trained, block_pilot(trained, seed=3), logits_processor=warpers)
    assert torch.equal(given, sampled(trained, block_pilot(trained, seed=3), temperature=0.7))


# Streamers


@pytest.mark.parametrize("size", [1, 8])
def test_a_streamer_gets_what_plain_generate_gives_it(trained, size):
    plain, ours = Log(), Log()
    options = {"eos_token_id": generate(trained)[0, -30].item()}
    generate(trained, streamer=plain, **options)
    generate(
        trained, streamer=ours, custom_generate=block_pilot(trained, block_size=size), **options
    )
    assert len(ours.given) == len(plain.given) > 3
    for mine, theirs in zip(ours.given, plain.given, strict=True):
        assert torch.equal(mine, theirs)
    assert ours.ended == plain.ended == 1


def test_an_iterating_streamer_reaches_its_end(trained):
    """`generate` passes callables no streamer; a consumer would wait for its end forever."""
    streamer = TextIteratorStreamer(trained.tokenizer, skip_prompt=True, timeout=30)
    options = {"streamer": streamer, "custom_generate": block_pilot(trained)}
    thread = Thread(target=generate, args=(trained,), kwargs=options)
    thread.start()
    text = "".join(streamer)
    thread.join()
    assert text == trained.tokenizer.decode(generate(trained)[0, -BUDGET:])


# Refusals


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"num_beams": 2}, "beam search"),
        ({"num_beams": 2, "do_sample": True}, "beam sample"),
        ({"prompt_lookup_num_tokens": 3}, "assisted generation"),
        ({"do_sample": True, "num_return_sequences": 2}, "num_return_sequences above 1"),
        ({"repetition_penalty": 1.2}, "RepetitionPenaltyLogitsProcessor"),
        ({"min_new_tokens": 3, "eos_token_id": 2}, "MinNewTokensLengthLogitsProcessor"),
        ({"do_sample": True, "min_p": 0.1}, "MinPLogitsWarper"),
        ({"do_sample": True, "typical_p": 0.5}, "TypicalLogitsWarper"),
        ({"bad_words_ids": [[5]]}, "NoBadWordsLogitsProcessor"),
        (
            {"logits_processor": LogitsProcessorList([RepetitionPenaltyLogitsProcessor(1.2)])},
            "RepetitionPenaltyLogitsProcessor",
        ),
        (
            {
                "do_sample": True,
                "temperature": 0.5,
                "logits_processor": LogitsProcessorList([TopPLogitsWarper(0.5)]),
            },
            "in this order",
        ),
        ({"return_dict_in_generate": True, "output_scores": True}, "output_scores"),
        ({"return_dict_in_generate": True, "output_hidden_states": True}, "output_hidden_states"),
        ({"synced_gpus": True}, "synced_gpus"),
        ({"position_ids": torch.arange(3, 11)[None]}, "position_ids other than 0, 1, 2"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(trained, options, named):
    with pytest.raises(BlockPilotError, match=named) as caught:
        generate(trained, custom_generate=block_pilot(trained), **options)
    assert "\n" not in str(caught.value)


def test_an_assistant_model_is_refused(trained):
    with pytest.raises(BlockPilotError, match="assistant_model"):
        generate(
            trained,
            custom_generate=block_pilot(trained),
            assistant_model=trained.drafter,
            speculation_type="dflash",
        )


def test_batches_padding_and_other_caches_are_refused(trained):
    """Batches share one acceptance in Blaizzy/mlx-vlm#1833."""
    hook, target = block_pilot(trained), trained.target
    two = torch.cat([encode(trained, "abcd")] * 2)
    with pytest.raises(BlockPilotError, match="a batch of several prompts"):
        target.generate(two, custom_generate=hook, max_new_tokens=4)
    ids = encode(trained, "abcd")
    padded = torch.ones_like(ids)
    padded[0, 0] = 0
    with pytest.raises(BlockPilotError, match="attention_mask that hides part"):
        target.generate(ids, attention_mask=padded, custom_generate=hook, max_new_tokens=4)
    cache = target(ids, use_cache=True).cache
    longer = torch.cat([ids, ids], dim=1)
    with pytest.raises(BlockPilotError, match="your own cache"):
        target.generate(longer, cache=cache, custom_generate=hook, max_new_tokens=4)


def test_mismatches_are_refused(trained):
    stranger = dataclasses.replace(trained, target=tiny_target(seed=5))
    with pytest.raises(BlockPilotError, match="call generate on that pair's `target`"):
        generate(stranger, custom_generate=block_pilot(trained))
    narrow = tiny_drafter(hidden_size=16)
    with pytest.raises(BlockPilotError, match="hidden size 16 against 32"):
        generate(trained, custom_generate=block_pilot(narrow))
    with pytest.raises(BlockPilotError, match=r"drafter is torch.bfloat16 .* load both with"):
        generate(trained, custom_generate=block_pilot(tiny_drafter().bfloat16()))
    foreign = block_pilot(trained, policy=chooser(dataclasses.replace(trained, drafter=None)))
    with pytest.raises(BlockPilotError, match="policy was trained on the pair"):
        generate(trained, custom_generate=foreign)


def test_invalid_arguments_of_block_pilot_are_refused_at_once(trained):
    with pytest.raises(BlockPilotError, match="not both"):
        block_pilot(trained, policy=chooser(trained), block_size=4)
    with pytest.raises(BlockPilotError, match="must be 1"):
        block_pilot(trained, block_size=0)
    with pytest.raises(BlockPilotError, match="has no drafter"):
        block_pilot(dataclasses.replace(trained, drafter=None))
    with pytest.raises(BlockPilotError, match="seed must be from 0 to"):
        block_pilot(trained, seed=-1)


def test_a_request_that_is_too_long_is_refused_before_any_work(trained):
    """wtdcode/vllm-backport#59 crashed in the middle."""
    with pytest.raises(BlockPilotError, match="exceed the models' 256 positions"):
        generate(trained, custom_generate=block_pilot(trained), max_new_tokens=250)
