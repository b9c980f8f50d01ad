from __future__ import annotations

import dataclasses
import json
import shutil

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.forward import target_forward
from blockpilot_rl.decoding.sampling import Sampling
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.prompts import Prompt
from blockpilot_rl.sweeps.continuations import SHARD_PROMPTS, ContinuationStore
from tests.tiny_pair import tiny_target

BUDGET = 6
TEXTS = [f"{word}{'e' * (i % 7)} {i}" for i in range(75) for word in ("ab", "xy")]
PROMPTS = [Prompt.from_text(text) for text in TEXTS]


@pytest.fixture(scope="module")
def decoder(trained):
    return Decoder(dataclasses.replace(trained, stop_token_ids=(2,)))


SAMPLED = (Sampling(1.0, top_k=30, top_p=0.9), (3, 0))


def record(decoder, folder, prompts=PROMPTS, budget=BUDGET, sampled=(), **options):
    store = ContinuationStore(folder, prompts, budget, *sampled)
    store.record(decoder.pair, decoder.target, decoder.layer_ids, **options)
    return store


@pytest.fixture(scope="module")
def recorded(decoder, tmp_path_factory):
    """Three shards."""
    return record(decoder, tmp_path_factory.mktemp("answers") / "store")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_prompt_has_the_answer_of_plain_decoding(recorded, decoder):
    by_id = {prompt.id: prompt for prompt in PROMPTS}
    seen, stopped = [], 0
    for shard in recorded.read():
        assert len(shard.prompt_ids) == len(shard.continuations) <= SHARD_PROMPTS
        for key, answer in zip(shard.prompt_ids[::9], shard.continuations[::9], strict=True):
            ids = decoder.pair.encode(by_id[key].chat())
            plain = decoder.generate(ids, 1, BUDGET)
            assert torch.equal(answer.prompt_ids, ids[0])
            assert answer.output_ids.tolist() == plain.tokens
            stopped += plain.finish_reason == "stop"
            whole = torch.cat([ids[0], answer.output_ids])[None, :-1]
            with torch.inference_mode():
                hidden = decoder.target(whole, decoder.target.new_cache(1, whole.shape[1]))
            torch.testing.assert_close(answer.features, hidden.features[0], atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(answer.last, hidden.last[0], atol=1e-4, rtol=1e-4)
        seen += shard.prompt_ids
    assert sorted(seen) == sorted(by_id)
    assert stopped


def test_sampled_answers_are_the_decoders(decoder, tmp_path):
    """Every prompt once with each seed, in any batch."""
    store = record(decoder, tmp_path, PROMPTS[:40], sampled=SAMPLED)
    assert store.size == 80
    assert len(store.shards) == 2
    by_id = {prompt.id: prompt for prompt in PROMPTS}
    seen = []
    for shard in store.read():
        for key, answer in zip(shard.prompt_ids, shard.continuations, strict=True):
            seen.append((key, answer.sampling.seed))
            assert dataclasses.replace(answer.sampling, seed=0) == SAMPLED[0]
            if len(seen) % 7 == 0:
                ids = decoder.pair.encode(by_id[key].chat())
                real = decoder.generate(ids, 4, BUDGET, answer.sampling)
                assert answer.output_ids.tolist() == real.tokens
    assert sorted(seen) == sorted((prompt.id, seed) for prompt in PROMPTS[:40] for seed in (0, 3))


@pytest.mark.parametrize(
    ("temperature", "seeds", "message"),
    [
        (1.0, (), "must be one or more"),
        (1.0, (1, 1), "each once"),
        (0.0, (0, 1), "need a temperature"),
        (0.0, (1,), "need a temperature"),
    ],
)
def test_bad_seeds(tmp_path, temperature, seeds, message):
    with pytest.raises(BlockPilotError, match=message):
        ContinuationStore(tmp_path, PROMPTS, BUDGET, Sampling(temperature), seeds)


def test_prompts_of_similar_length_share_a_shard(recorded):
    longest = [max(len(c.prompt_ids) for c in shard.continuations) for shard in recorded.read()]
    shortest = [min(len(c.prompt_ids) for c in shard.continuations) for shard in recorded.read()]
    assert longest[0] <= shortest[1]
    assert longest[1] <= shortest[2]


def test_a_run_killed_between_shards_ends_in_the_same(recorded, decoder, tmp_path):
    folder = shutil.copytree(recorded.folder, tmp_path / "store")
    (folder / "shard-00001.safetensors").unlink()
    (folder / "shard-00002.safetensors").unlink()
    kept = (folder / "shard-00000.safetensors").stat().st_mtime_ns
    record(decoder, folder)
    assert contents(folder) == contents(recorded.folder)
    assert (folder / "shard-00000.safetensors").stat().st_mtime_ns == kept


def test_parts_make_the_same(recorded, decoder, tmp_path):
    record(decoder, tmp_path / "store", part=(1, 2))
    names = [path.name for path in (tmp_path / "store").glob("shard-*")]
    assert names == ["shard-00001.safetensors"]
    record(decoder, tmp_path / "store", part=(0, 2))
    assert contents(tmp_path / "store") == contents(recorded.folder)


def test_progress(recorded, decoder):
    seen = []
    record(decoder, recorded.folder, progress=lambda *at: seen.append(at))
    assert seen == [(0, 150), (64, 150), (128, 150), (150, 150)]


def test_dtypes_are_kept(tiny, tmp_path):
    decoder = Decoder(load_pair(*tiny, "bfloat16"))
    (shard,) = record(decoder, tmp_path, PROMPTS[:3]).read()
    answer = shard.continuations[0]
    assert answer.features.dtype == answer.last.dtype == torch.bfloat16
    assert answer.output_ids.dtype == torch.long


def test_a_prompt_that_is_too_long_is_named_and_nothing_is_written(decoder, tmp_path):
    long = Prompt.from_text("a" * 250)
    with pytest.raises(BlockPilotError, match=f"prompt {long.id} has 251 tokens; with 6 new ones"):
        record(decoder, tmp_path / "store", [*PROMPTS[:2], long])
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompts": PROMPTS[:-1]}, "with other prompts, count;"),
        ({"prompts": PROMPTS[::-1]}, "with other prompts;"),
        ({"budget": 7}, "with other max_new_tokens;"),
        ({"sampled": SAMPLED}, "with other sampling;"),
    ],
)
def test_answers_of_other_work_are_refused(recorded, decoder, changes, message):
    before = contents(recorded.folder)
    with pytest.raises(BlockPilotError, match=message) as refused:
        record(decoder, recorded.folder, **changes)
    assert str(recorded.folder) in str(refused.value)
    assert contents(recorded.folder) == before


def test_answers_of_another_target_are_refused(recorded, decoder, trained):
    other = Decoder(dataclasses.replace(trained, target=tiny_target(seed=5)))
    half = Decoder(dataclasses.replace(trained, target=tiny_target().bfloat16(), drafter=None))
    store = ContinuationStore(recorded.folder, PROMPTS, BUDGET)
    for foreign, message in ((other, "other fingerprint;"), (half, "other dtype, layer_ids;")):
        with pytest.raises(BlockPilotError, match=message):
            store.record(foreign.pair, foreign.target, foreign.layer_ids)


def test_another_drafter_may_use_them(recorded, decoder, tiny):
    """Answers depend on the target and the layers that are read, not on the drafter."""
    untrained = Decoder(load_pair(*tiny))
    before = contents(recorded.folder)
    record(untrained, recorded.folder)
    assert contents(recorded.folder) == before


def test_missing_and_corrupt_shards(recorded, tmp_path):
    folder = shutil.copytree(recorded.folder, tmp_path / "store")
    store = ContinuationStore(folder, PROMPTS, BUDGET)
    broken = folder / "shard-00002.safetensors"
    broken.write_bytes(broken.read_bytes()[:-50])
    with pytest.raises(BlockPilotError, match=r"shard-00002\.safetensors is corrupt .*remove it"):
        list(store.read())
    broken.unlink()
    with pytest.raises(BlockPilotError, match="lacks 1 of 3 shards; run the same command again"):
        list(store.read())


def test_a_shard_that_does_not_name_its_prompts(recorded, decoder, tmp_path):
    folder = shutil.copytree(recorded.folder, tmp_path / "store")
    broken = folder / "shard-00001.safetensors"
    save_file(load_file(broken), broken)
    message = rf"{broken} is corrupt \(it does not name its prompts\); remove it and run again"
    with pytest.raises(BlockPilotError, match=message):
        list(ContinuationStore(folder, PROMPTS, BUDGET).read())
    with pytest.raises(BlockPilotError, match=message):
        record(decoder, folder)


def test_a_shard_that_lacks_a_tensor(recorded, tmp_path):
    folder = shutil.copytree(recorded.folder, tmp_path / "store")
    broken = folder / "shard-00001.safetensors"
    with safe_open(broken, "pt") as file:
        described = file.metadata()
    tensors = load_file(broken)
    del tensors["features"]
    save_file(tensors, broken, described)
    with pytest.raises(BlockPilotError, match=rf"{broken} is corrupt \('features'\); remove it"):
        list(ContinuationStore(folder, PROMPTS, BUDGET).read())


def test_a_shard_copied_over_another(recorded, decoder, tmp_path):
    folder = shutil.copytree(recorded.folder, tmp_path / "store")
    broken = folder / "shard-00001.safetensors"
    whole = broken.read_bytes()
    shutil.copy(folder / "shard-00000.safetensors", broken)
    message = rf"{broken} holds the answers of another shard; remove it and run again"
    with pytest.raises(BlockPilotError, match=message):
        record(decoder, folder)
    broken.unlink()
    record(decoder, folder)
    assert broken.read_bytes() == whole


@pytest.mark.parametrize("other", ["target", "dtype", "budget"])
def test_a_shard_of_other_answers(recorded, decoder, trained, tmp_path, other):
    """Of the same prompts, but of another target, dtype or budget, and copied in."""
    pair, budget = decoder.pair, BUDGET
    if other == "target":
        pair = dataclasses.replace(trained, target=tiny_target(seed=5), stop_token_ids=(2,))
    elif other == "dtype":
        pair = dataclasses.replace(trained, target=tiny_target().bfloat16(), drafter=None)
    else:
        budget = 5
    foreign = ContinuationStore(tmp_path / "foreign", PROMPTS, budget)
    foreign.record(pair, target_forward(pair.target, [0, 2]), [0, 2], part=(1, 3))
    folder = shutil.copytree(recorded.folder, tmp_path / "store")
    shard = folder / "shard-00001.safetensors"
    shutil.copy(foreign.shard(1), shard)
    message = rf"{shard} was made by other work than the rest of its folder: .*; remove it and run"
    with pytest.raises(BlockPilotError, match=message):
        list(ContinuationStore(folder, PROMPTS, BUDGET).read())
    with pytest.raises(BlockPilotError, match=message):
        record(decoder, folder)
    shard.unlink()
    record(decoder, folder)
    assert contents(folder) == contents(recorded.folder)


def test_answers_without_their_description(recorded, tmp_path):
    folder = shutil.copytree(recorded.folder, tmp_path / "store")
    (folder / "continuations.json").unlink()
    with pytest.raises(BlockPilotError, match=r"continuations\.json is missing; run the same"):
        list(ContinuationStore(folder, PROMPTS, BUDGET).read())


def test_files_of_killed_writes_are_removed(recorded, decoder, tmp_path):
    """But only of the shards of this part: others may be at work on the rest."""
    folder = shutil.copytree(recorded.folder, tmp_path / "store")
    for name in (".0123abcd-shard-00000.safetensors", ".0123abcd-shard-00001.safetensors"):
        (folder / name).write_bytes(b"half a shard")
    (folder / ".mine-shard-00000.safetensors").write_bytes(b"precious")
    record(decoder, folder, part=(1, 2))
    assert {path.name[:7] for path in folder.glob(".*")} == {".0123ab", ".mine-s"}
    record(decoder, folder)
    assert [path.name for path in folder.glob(".*")] == [".mine-shard-00000.safetensors"]


def test_answers_with_other_template_options_are_refused(recorded, decoder):
    """They change the target's answers (z-lab/dflash#133)."""
    pair = dataclasses.replace(decoder.pair, template={"enable_thinking": False})
    pair.tokenizer.chat_template, kept = "{{ enable_thinking }}", pair.tokenizer.chat_template
    try:
        with pytest.raises(BlockPilotError, match="with other template;"):
            record(Decoder(pair), recorded.folder)
    finally:
        pair.tokenizer.chat_template = kept


def test_answers_to_completions_are_not_those_to_chats(recorded, decoder):
    pair = dataclasses.replace(decoder.pair, template={"completion": True})
    with pytest.raises(BlockPilotError, match="with other template;"):
        record(Decoder(pair), recorded.folder)


def test_a_shard_without_a_claim(recorded, decoder, tmp_path):
    """It may be of any target."""
    folder = shutil.copytree(recorded.folder, tmp_path / "store")
    path = folder / "shard-00000.safetensors"
    with safe_open(path, "pt") as file:
        described = json.loads(file.metadata()["shard"])
    del described["claim"]
    save_file(load_file(path), path, {"shard": json.dumps(described)})
    message = rf"{path} does not say what it was made from; remove it and run again"
    with pytest.raises(BlockPilotError, match=message):
        list(ContinuationStore(folder, PROMPTS, BUDGET).read())
    with pytest.raises(BlockPilotError, match=message):
        record(decoder, folder)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_corrupt_description(decoder, tmp_path, text):
    (tmp_path / "continuations.json").write_text(text)
    with pytest.raises(BlockPilotError, match=r"continuations\.json is corrupt .*start again"):
        record(decoder, tmp_path, PROMPTS[:2])
