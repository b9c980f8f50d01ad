from __future__ import annotations

import dataclasses
import json
import shutil

import pytest
import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from blockpilot_rl.cli.train_drafter import main
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.files import locked
from blockpilot_rl.models.pairs import load_pair
from blockpilot_rl.prompts import builtin_suite, load_prompts
from blockpilot_rl.sweeps.continuations import ContinuationStore
from blockpilot_rl.training import DrafterTrainingConfig, train_drafter
from blockpilot_rl.training.acceptance import measure_acceptance, summarise_acceptance
from blockpilot_rl.training.corpus import evenly
from blockpilot_rl.training.recipe import Trainer
from tests.tiny_pair import MASK, encode, tiny_drafter, tiny_target, tiny_tokenizer

QUICK = {
    "--target-layer-ids": "0,2",
    "--layers": "1",
    "--block-sizes": "4,2",
    "--queries": "16",
    "--sequences": "2",
    "--steps": "5",
    "--suite-size": "70",
    "--max-new-tokens": "6",
    "--report-prompts": "4",
    "--eval-every": "2",
    "--eval-prompts": "2",
    "--mask-token-id": str(MASK),
    "--draft-vocab-size": "40",
    "--dtype": "float32",
}


DFLASH2 = {
    "conv_kernel_size": 2,
    "conv_group_size": 8,
    "selector_rank": 6,
    "selector_top_k": 5,
}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target") / "target"
    tiny_target(max_position_embeddings=4096, eos_token_id=None).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def finished(target, tmp_path_factory):
    """A run that nothing has stopped."""
    out = tmp_path_factory.mktemp("finished") / "run"
    assert train(target, out) == 0
    return out


def train(target, out, **changes: str) -> int:
    flags = QUICK | {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    words = [word for pair in flags.items() for word in pair]
    return main(["--target", str(target), "--out", str(out), *words])


def weights(out) -> dict[str, torch.Tensor]:
    return load_file(out / "drafter" / "model.safetensors")


def assert_same(ours, theirs) -> None:
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_target_without_a_chat_template_learns_from_completions(target, tmp_path, capsys):
    """The layers that it reads follow from the target's depth."""
    base = shutil.copytree(target, tmp_path / "base")
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    (base / "chat_template.jinja").unlink()
    tokenizer.save_pretrained(base)
    words = ["--target", str(base), "--out", str(tmp_path / "run")]
    chosen = {k: v for k, v in QUICK.items() if k != "--target-layer-ids"} | {"--steps": "2"}
    words += [word for pair in chosen.items() for word in pair]
    assert main(words) == 2
    assert "has no chat template; give it prompts as plain text" in capsys.readouterr().err
    assert main([*words, "--completion"]) == 0
    report = json.loads((tmp_path / "run" / "drafter" / "acceptance.json").read_text())
    assert report["template"] == {"completion": True}
    assert load_pair(base, tmp_path / "run" / "drafter").drafter.config.target_layer_ids == [1]


def test_leaves_a_drafter_that_loads_and_decodes(target, finished):
    pair = load_pair(target, finished / "drafter")
    config = pair.drafter.config
    assert (config.block_size, config.mask_token_id, config.draft_vocab_size) == (4, MASK, 40)
    assert config.target_layer_ids == [0, 2]
    assert {t.dtype for t in weights(finished).values()} == {torch.bfloat16, torch.long}
    decoder, ids = Decoder(pair), encode(pair, "hello there")
    assert decoder.generate(ids, 4, 20).tokens == decoder.generate(ids, 1, 20).tokens


def test_reports_acceptance_in_real_decoding(target, finished):
    """Not training accuracy (sgl-project/SpecForge#533); both averages (vllm#52816)."""
    report = json.loads((finished / "drafter" / "acceptance.json").read_text(encoding="utf-8"))
    pair = load_pair(target, finished / "drafter")
    prompts = builtin_suite(4, splits=["validation"])
    again = summarise_acceptance(measure_acceptance(Decoder(pair), prompts, 4, 6))
    assert report["acceptance_length"] == again
    assert set(again["all"]) == {"prompts", "pooled", "per_prompt"}
    assert report["fingerprint"] == pair.fingerprint
    assert report["recipe"]["steps"] == 5
    assert report["provenance"]["command"]


def test_config_and_card_record_the_trained_length(target, finished):
    """The longest prompt with its answer; it is not part of the fingerprint."""
    pair = load_pair(target, finished / "drafter")
    prompts = [
        pair.encode(prompt.chat()).shape[1] for prompt in builtin_suite(70, splits=["drafter"])
    ]
    assert max(prompts) < pair.trained_length <= max(prompts) + 6
    card = (finished / "drafter" / "README.md").read_text(encoding="utf-8")
    assert f"Trained length: {pair.trained_length} tokens" in card
    before = pair.fingerprint
    pair.drafter.config.dflash_config["trained_length"] = 7
    assert dataclasses.replace(pair).fingerprint == before


def test_leaves_curves(finished):
    curves = EventAccumulator(str(finished / "tensorboard")).Reload()
    assert {"loss", "accuracy/1", "accuracy/2"} <= set(curves.Tags()["scalars"])
    assert [event.step for event in curves.Scalars("loss")] == [1, 2, 3, 4, 5]


def test_held_out_prompts_are_not_trained_on():
    trained = {prompt.id for prompt in builtin_suite(70, splits=["drafter"])}
    assert trained.isdisjoint(prompt.id for prompt in builtin_suite(40, splits=["validation"]))


def test_parts_of_the_corpus_and_then_the_whole(target, finished, tmp_path, capsys):
    out = tmp_path / "run"
    assert train(target, out, part="2/2") == 0
    assert "run without --part to train" in capsys.readouterr().err
    assert not (out / "drafter").exists()
    assert train(target, out) == 0
    assert_same(weights(out), weights(finished))


def test_a_run_that_was_killed_resumes(target, finished, tmp_path, monkeypatch):
    out = tmp_path / "run"
    step = Trainer.train_step

    def killed(self):
        if self.step == 3:
            self.save(out / "checkpoint.pt")
            raise KeyboardInterrupt
        return step(self)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "train_step", killed)
        assert train(target, out) == 130
    assert not (out / "drafter").exists()
    taken = []
    monkeypatch.setattr(Trainer, "train_step", lambda self: taken.append(self.step) or step(self))
    assert train(target, out) == 0
    assert taken == [3, 4]
    assert_same(weights(out), weights(finished))


def test_a_finished_run_is_not_trained_again(target, finished, tmp_path, monkeypatch):
    out = shutil.copytree(finished, tmp_path / "run")
    monkeypatch.setattr(Trainer, "train_step", lambda self: pytest.fail("trained again"))
    assert train(target, out) == 0
    assert_same(weights(out), weights(finished))


def test_starts_from_another_drafter(target, finished, tmp_path):
    """A step at a learning rate of almost nothing does not change the initial drafter."""
    out, start = tmp_path / "run", finished / "drafter"
    changes = {"init": str(start), "steps": "1", "learning_rate": "1e-9", "seed": "7"}
    assert train(target, out, **changes) == 0
    recipe = json.loads((out / "drafter" / "acceptance.json").read_text())["recipe"]
    assert (recipe["init"], recipe["layers"], recipe["draft_vocab_size"]) == (str(start), 1, 40)
    ours, theirs = weights(out), weights(finished)
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], atol=1e-4, rtol=0.01)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": "5"}, "has layers 1, not 5; training does not change it, so leave layers out"),
        ({"layers": "3"}, "has layers 1, not 3"),
        ({"target_layer_ids": "0,1"}, "has target_layer_ids (0, 2), not (0, 1)"),
        ({"mask_token_id": str(MASK - 1)}, f"has mask_token_id {MASK}, not {MASK - 1}"),
    ],
)
def test_a_shape_that_the_initial_drafter_does_not_have_is_refused(
    target, finished, tmp_path, capsys, changes, message
):
    out = tmp_path / "run"
    assert train(target, out, init=str(finished / "drafter"), **changes) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_a_shape_that_is_not_stated_is_that_of_the_initial_drafter(target, finished, tmp_path):
    shape = ("--layers", "--target-layer-ids", "--draft-vocab-size", "--mask-token-id")
    flags = {**QUICK, "--init": str(finished / "drafter"), "--steps": "1"}
    words = [word for name in flags.keys() - set(shape) for word in (name, flags[name])]
    out = tmp_path / "run"
    assert main(["--target", str(target), "--out", str(out), *words]) == 0
    recipe = json.loads((out / "drafter" / "acceptance.json").read_text())["recipe"]
    assert (recipe["layers"], recipe["target_layer_ids"]) == (1, [0, 2])
    assert recipe["draft_vocab_size"] == 40


def test_acceptance_is_measured_while_training(target, finished):
    """On stored answers, with the values of decoding."""
    lines = (finished / "acceptance.jsonl").read_text(encoding="utf-8").splitlines()
    measured = [json.loads(line) for line in lines]
    assert [(line["leg"], line["step"]) for line in measured] == [(1, 2), (1, 4), (1, 5)]
    last = measured[-1]["acceptance"]
    curves = EventAccumulator(str(finished / "tensorboard")).Reload()
    assert [x.step for x in curves.Scalars("acceptance/all")] == [2, 4, 5]
    assert {"all", "seen", "language/en"} <= last.keys()
    assert "unseen" not in last
    pair = load_pair(target, finished / "drafter")
    prompts = evenly(builtin_suite(4, splits=["validation"]), 2)
    frame = measure_acceptance(Decoder(pair), prompts, 4, 6)
    assert last["all"] == pytest.approx(summarise_acceptance(frame)["all"]["pooled"])


def write_legs(path, *legs):
    path.write_text(yaml.safe_dump(list(legs)), encoding="utf-8")
    return str(path)


LEGS = (
    {"steps": 3, "prompts": ["builtin"]},
    {"steps": 2, "learning_rate": "1e-3", "temperature": 1.0, "draft_vocab_size": 20},
)


def test_legs_follow_each_other(target, tmp_path):
    """Each starts from the drafter before it, with its own options, and is recorded."""
    out = tmp_path / "run"
    assert train(target, out, legs=write_legs(tmp_path / "legs.yaml", *LEGS)) == 0
    assert {path.name for path in (out / "corpus").iterdir()} == {"builtin", "builtin-t1"}
    legs = json.loads((out / "drafter" / "training.json").read_text(encoding="utf-8"))["legs"]
    assert [leg["recipe"]["steps"] for leg in legs] == [3, 2]
    assert [leg["temperature"] for leg in legs] == [0.0, 1.0]
    assert legs[1]["recipe"]["learning_rate"] == 1e-3
    assert legs[1]["recipe"]["init"] == str(out / "leg-1" / "drafter")
    assert all(leg["seconds"] > 0 and leg["acceptance"]["seen"] >= 1 for leg in legs)
    assert len(load_pair(target, out / "drafter").drafter.draft_token_ids) == 20
    card = (out / "drafter" / "README.md").read_text(encoding="utf-8")
    assert f"| 2 | {legs[1]['sequences_in_corpus']} | 1 | 2 | 0.001 | 0.00 |" in card
    curves = EventAccumulator(str(out / "tensorboard")).Reload()
    assert [event.step for event in curves.Scalars("loss")] == [1, 2, 3, 4, 5]


@pytest.mark.slow
@pytest.mark.parametrize("stop", [(1, 2), (2, 0), (2, 1)])
def test_legs_that_were_killed_resume(target, tmp_path, monkeypatch, stop):
    """In the first leg, before the second, and in the second."""
    file = write_legs(tmp_path / "legs.yaml", *LEGS)
    whole, out = tmp_path / "whole", tmp_path / "run"
    assert train(target, whole, legs=file, checkpoint_every="1") == 0
    step, leg = Trainer.train_step, {3: 1, 2: 2}

    def killed(self):
        if (leg[self.config.steps], self.step) == stop:
            raise KeyboardInterrupt
        return step(self)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "train_step", killed)
        assert train(target, out, legs=file, checkpoint_every="1", eval_every="0") == 130
    assert not (out / "drafter").exists()
    assert train(target, out, legs=file, checkpoint_every="1") == 0
    assert_same(weights(out), weights(whole))
    legs = json.loads((out / "drafter" / "training.json").read_text(encoding="utf-8"))["legs"]
    assert [leg["recipe"]["steps"] for leg in legs] == [3, 2]


def test_finished_legs_with_other_options_are_refused(target, tmp_path, capsys):
    out, file = tmp_path / "run", tmp_path / "legs.yaml"
    assert train(target, out, legs=write_legs(file, *LEGS)) == 0
    before = weights(out)
    for changed in (
        {"steps": 4},
        {"learning_rate": 0.1},
        {"prompts": [str(write_prompts(tmp_path / "more.jsonl"))]},
    ):
        write_legs(file, {**LEGS[0], **changed}, LEGS[1])
        assert train(target, out, legs=str(file)) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert "leg-1" in error
        assert "was made with another" in error
        assert_same(weights(out), before)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be a YAML list with the options of each leg"),
        ("steps: 3", "must be a YAML list"),
        ("- 3", "must be a YAML list"),
        ("- {step: 3}", "leg 1: 'step' is not an option of a leg. Did you mean 'steps'?"),
        ("- {steps: 3}\n- {layers: 4}", "leg 2: 'layers' is not an option of a leg"),
        ("- {steps: 0}", "leg 1: steps must be at least 1, got 0"),
        ("- {steps: many}", "leg 1: steps must be a number, got 'many'"),
        ("- {learning_rate: fast}", "leg 1: learning_rate must be a number, got 'fast'"),
        ("- {steps: 3", "is not YAML"),
        ("- {answer_seeds: [1]}", "leg 1: greedy answers do not depend on a seed"),
    ],
)
def test_bad_legs_are_one_line(target, tmp_path, capsys, text, message):
    file = tmp_path / "legs.yaml"
    file.write_text(text, encoding="utf-8")
    assert train(target, tmp_path / "run", legs=str(file)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run" / "corpus").exists()


def test_a_dflash2_drafter_is_trained_from_the_command(target, finished, tmp_path):
    out = tmp_path / "run"
    flags = {"init": str(finished / "drafter"), "architecture": "dflash2", "steps": "2"}
    assert train(target, out, **flags) == 0
    pair = load_pair(target, out / "drafter")
    assert pair.drafter.config.is_dflash2
    assert "# DFlash2 drafter" in (out / "drafter" / "README.md").read_text(encoding="utf-8")
    decoder, ids = Decoder(pair), encode(pair, "hello there")
    assert decoder.generate(ids, 4, 20).tokens == decoder.generate(ids, 1, 20).tokens
    again = tmp_path / "again"
    flags = {"init": str(out / "drafter"), "steps": "2", "draft_vocab_size": "30"}
    assert train(target, again, **flags) == 0
    assert load_pair(target, again / "drafter").drafter.config.is_dflash2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "dflash"}, "is a DFlash2 drafter; training keeps its parts"),
        ({"correction_rank": "4"}, "is a DFlash2 drafter, whose selector takes the place"),
        ({"architecture": "dflash2", "correction_rank": "4"}, "correction-rank is for dflash"),
        ({"architecture": "eagle"}, "'eagle' is not one of dflash, dflash2"),
    ],
)
def test_architectures_that_do_not_fit_are_refused(target, tmp_path, capsys, changes, message):
    start = tmp_path / "drafter"
    settings = {"mask_token_id": MASK, "target_layer_ids": [0, 2], **DFLASH2}
    drafter = tiny_drafter(dflash_config=settings, architectures=["DFlash2DraftModel"])
    drafter.save_pretrained(start)
    shape = ("--layers", "--target-layer-ids", "--draft-vocab-size", "--mask-token-id")
    flags = {key: value for key, value in QUICK.items() if key not in shape}
    flags |= {f"--{key.replace('_', '-')}": value for key, value in changes.items()}
    words = [word for pair in flags.items() for word in pair]
    out = tmp_path / "run"
    assert main(["--target", str(target), "--out", str(out), "--init", str(start), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def write_prompts(path, count=120, family="mine"):
    words = [chr(ord("a") + i % 26) * (1 + i % 5) for i in range(count)]
    rows = [{"prompt": f"{word} {i} {family}", "family": family} for i, word in enumerate(words)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_only_the_drafter_share_of_seen_families_is_trained_on(target, tmp_path):
    """Validation prompts of seen and unseen families are measured instead."""
    files = [write_prompts(tmp_path / f"{name}.jsonl", family=name) for name in ("one", "blue sky")]
    out = tmp_path / "run"
    sources = ",".join(["builtin", *map(str, files)])
    assert train(target, out, prompts=sources, unseen="blue sky", suite_size="5") == 0
    assert {path.name for path in (out / "corpus").iterdir()} == {"builtin", "one.jsonl"}
    claims = [
        json.loads((out / "corpus" / name / "continuations.json").read_text())["count"]
        for name in ("builtin", "one.jsonl")
    ]
    drafter = [prompt for prompt in load_prompts(files[0]) if prompt.split == "drafter"]
    assert claims == [5, len(drafter)]
    report = json.loads((out / "drafter" / "acceptance.json").read_text(encoding="utf-8"))
    assert {"one", "blue sky"} <= report["acceptance_length"].keys()
    assert report["unseen_families"] == ["blue sky"]
    assert report["by_source"]["unseen"] == report["acceptance_length"]["blue sky"]
    card = (out / "drafter" / "README.md").read_text(encoding="utf-8")
    assert "| blue sky (unseen) |" in card
    assert "Nothing of these families was trained on: blue sky." in card


def test_finished_answers_are_used_as_they_are(target, finished, tmp_path, monkeypatch):
    monkeypatch.setattr(ContinuationStore, "record", lambda *_, **__: pytest.fail("answered again"))
    out = tmp_path / "run"
    assert train(target, out, answers=str(finished / "corpus" / "builtin"), eval_every="0") == 0
    assert_same(weights(out), weights(finished))
    assert not (out / "corpus").exists()


def test_prompts_that_are_answered_are_not_answered_again(target, finished, tmp_path):
    out, answers = tmp_path / "run", str(finished / "corpus" / "builtin")
    assert train(target, out, answers=answers, prompts="builtin", suite_size="75") == 0
    claim = out / "corpus" / "builtin" / "continuations.json"
    assert json.loads(claim.read_text(encoding="utf-8"))["count"] == 5
    sampled = tmp_path / "sampled"
    assert train(target, sampled, answers=answers, prompts="builtin", temperature="1") == 0
    claim = sampled / "corpus" / "builtin-t1" / "continuations.json"
    assert json.loads(claim.read_text(encoding="utf-8"))["count"] == 70


def test_answers_that_do_not_fit_are_refused(target, finished, tmp_path, capsys):
    answers, out = finished / "corpus" / "builtin", tmp_path / "run"
    copy = shutil.copytree(answers, tmp_path / "copy")
    next(copy.glob("shard-00001*")).unlink()
    cases = {
        "lacks 1 of 2 shards": {"answers": str(copy)},
        "with layer_ids [0, 2], not [1, 2]": {"target_layer_ids": "1,2"},
        "with dtype float32, not bfloat16": {"dtype": "bfloat16"},
        "continuations.json is missing": {"answers": str(tmp_path)},
    }
    for message, changes in cases.items():
        assert train(target, out, **{"answers": str(answers), **changes}) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_the_draft_vocabulary_of_an_initial_drafter_may_change(target, finished, tmp_path):
    out = tmp_path / "run"
    start = str(finished / "drafter")
    assert train(target, out, init=start, draft_vocab_size="20", learning_rate="1e-9") == 0
    pair = load_pair(target, out / "drafter")
    assert len(pair.drafter.draft_token_ids) == 20
    ours, theirs = weights(out), weights(finished)
    torch.testing.assert_close(ours["fc.weight"], theirs["fc.weight"], atol=1e-4, rtol=0.01)
    whole = tmp_path / "whole"
    assert train(target, whole, init=start, draft_vocab_size="9999", steps="1") == 0
    assert load_pair(target, whole / "drafter").drafter.draft_token_ids is None


def test_the_workflow_runs_from_python(target, finished, tmp_path):
    seen = []
    config = DrafterTrainingConfig(
        out=str(tmp_path / "run"),
        target=str(target),
        target_layer_ids=(0, 2),
        layers=1,
        block_sizes=(4, 2),
        queries=16,
        sequences=2,
        steps=5,
        suite_size=70,
        max_new_tokens=6,
        report_prompts=4,
        mask_token_id=MASK,
        draft_vocab_size=40,
        dtype="float32",
    )
    result = train_drafter(config, lambda *step: seen.append(step))
    assert result.folder == config.drafter_folder
    assert result.report["acceptance_length"]["all"]["prompts"] == 4
    assert_same(weights(tmp_path / "run"), weights(finished))
    assert seen[-1] == ("acceptance", 4, 4)
    assert ("train", 5, 5) in seen
    assert any(task == "corpus" and done == total for task, done, total in seen)


def test_other_files_in_the_drafters_folder_stay(target, finished, tmp_path, capsys):
    out = shutil.copytree(finished, tmp_path / "run")
    (out / "drafter" / "notes.txt").write_text("mine", encoding="utf-8")
    assert train(target, out) == 2
    assert "holds notes.txt, which replacing it would lose" in capsys.readouterr().err
    assert_same(weights(out), weights(finished))
    assert train(target, out, init=str(out / "drafter")) == 2
    assert "is where the new drafter goes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": "6"}, "was made with another recipe"),
        ({"max_new_tokens": "7"}, "holds unfinished work with other max_new_tokens"),
        ({"target_layer_ids": "1,2"}, "holds unfinished work with other layer_ids"),
    ],
)
def test_other_options_in_the_same_folder_are_refused(
    target, finished, tmp_path, capsys, changes, message
):
    out = shutil.copytree(finished, tmp_path / "run")
    capsys.readouterr()
    assert train(target, out, **changes) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert_same(weights(out), weights(finished))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_layer_ids": "0,3"}, "reads target layers [3], but the target's usable layers"),
        ({"target_layer_ids": ""}, "--target-layer-ids must be whole numbers"),
        ({"target_layer_ids": "a"}, "--target-layer-ids must be whole numbers"),
        ({"block_sizes": "4,1"}, "must be at least 2 each"),
        ({"block_sizes": ""}, "--block-sizes must be whole numbers"),
        ({"mask_token_id": "64"}, "64 is outside the target's vocabulary"),
        ({"mask_token_id": "1"}, "1 is the target's pad_token_id"),
        ({"steps": "0"}, "steps must be at least 1, got 0"),
        ({"layers": "0"}, "layers must be at least 1 and at most 1024, got 0"),
        ({"queries": "2"}, "queries 2 must be at least the largest block size, 4"),
        ({"report_prompts": "0"}, "--report-prompts must be at least 1"),
        ({"max_new_tokens": "1"}, "--max-new-tokens must be at least 2"),
        ({"max_new_tokens": "4096"}, "no room for a prompt in the target's 4096 positions"),
        ({"suite_size": "-1"}, "size of the built-in suite is -1"),
        ({"groups": "english,latin"}, "unknown group 'latin'"),
        ({"skip": "-1"}, "skip must be at least 0"),
        ({"skip": "70", "suite_size": "70"}, "skip 70 must leave some of the 70 prompts"),
        ({"correction_rank": "-1"}, "--correction-rank must be at least 0"),
        ({"part": "2/1"}, "--part must be I/N"),
        ({"block_sizes": "4,4096", "queries": "5000"}, "leave no room for a prompt"),
        ({"prompts": "target:some"}, "must be target:N with a number of prompts N"),
        ({"prompts": "nowhere.jsonl"}, "cannot read prompts from nowhere.jsonl"),
        ({"answers": "./nowhere"}, "continuations.json is missing"),
        ({"temperature": "-1"}, "temperature must be at least 0"),
        ({"answer_seeds": "3"}, "greedy answers do not depend on a seed"),
        ({"legs": "./nowhere.yaml"}, "legs nowhere.yaml cannot be read: No such file"),
        ({"init": "./nowhere"}, "drafter './nowhere' is neither a folder nor a hub id"),
        ({"mask_token_id": "2"}, "mask token 2 is the target's eos_token_id"),
        ({"drafter": "x"}, "unknown option --drafter"),
        ({"device": "gpu7"}, "on gpu7"),
        ({"step": "5"}, "Did you mean '--steps'?"),
        ({"dtype": "fp31"}, "unknown dtype"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(target, tmp_path, capsys, changes, message):
    assert train(target, tmp_path / "run", **changes) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert (out, err[:7], err.count("\n")) == ("", "error: ", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_target(tmp_path, capsys):
    assert train("./nowhere", tmp_path / "run") == 2
    assert "target './nowhere' is neither a folder nor a hub id" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_a_file(target, tmp_path, capsys):
    (tmp_path / "run").write_text("mine", encoding="utf-8")
    assert train(target, tmp_path / "run") == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert (tmp_path / "run").read_text(encoding="utf-8") == "mine"


FULL = "No space left on device"


@pytest.mark.parametrize(
    ("broken", "error", "named"),
    [
        ("torch.save", RuntimeError("[enforce fail] PytorchStreamWriter failed"), "checkpoint.pt"),
        ("torch.save", OSError(28, FULL), "checkpoint.pt"),
        (
            "blockpilot_rl.training.train.DFlashDraftModel.save_pretrained",
            SafetensorError(f"Error while serializing: I/O error: {FULL} (os error 28)"),
            "drafter",
        ),
        (
            "blockpilot_rl.sweeps.continuations.save_file",
            SafetensorError("Error while serializing: I/O error: Read-only (os error 30)"),
            "shard-00000.safetensors",
        ),
        ("torch.utils.tensorboard.SummaryWriter.add_scalar", OSError(28, FULL), "tensorboard"),
    ],
)
def test_a_disk_that_is_full_or_read_only_is_one_line_and_leaves_no_drafter(
    target, tmp_path, capsys, monkeypatch, broken, error, named
):
    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr(broken, fail)
    out = tmp_path / "run"
    assert train(target, out) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith(f"error: cannot write {out}")
    assert named in message
    assert not (out / "drafter").exists()
    assert not [path for path in out.rglob(".*")]
    monkeypatch.undo()
    assert train(target, out) == 0


def test_a_second_process_does_not_train_in_the_same_folder(target, finished, tmp_path, capsys):
    out = shutil.copytree(finished, tmp_path / "run")
    with locked(out):
        assert train(target, out) == 2
    assert "another process is writing" in capsys.readouterr().err
    assert train(target, out) == 0
    assert_same(weights(out), weights(finished))
