from __future__ import annotations

import dataclasses
import json

import pytest

from blockpilot_rl.cli.console import run
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.sampling import GREEDY, Sampling
from blockpilot_rl.models.pairs import load_pair
from tests import benchmark_scripts
from tests.tiny_pair import PROMPTS, encode

SCRIPT = benchmark_scripts.load("exactness")
BUDGET = 24


@pytest.fixture(scope="module")
def files(tmp_path_factory, trained):
    """Folders of the pair, and a file of prompts."""
    folder = tmp_path_factory.mktemp("pair")
    trained.target.save_pretrained(folder / "target")
    trained.tokenizer.save_pretrained(folder / "target")
    trained.drafter.save_pretrained(folder / "drafter")
    (folder / "prompts.txt").write_text("\n".join(PROMPTS), encoding="utf-8")
    return folder


def benchmark(files, out=None, **changes: str) -> int:
    flags = {"target": str(files / "target"), "drafter": str(files / "drafter"), "prompts": "0"}
    flags |= {"prompts_file": str(files / "prompts.txt"), "max_new_tokens": str(BUDGET)}
    flags |= {"block_sizes": "2,8"} | ({} if out is None else {"json": str(out)}) | changes
    argv = [word for k, v in flags.items() for word in (f"--{k.replace('_', '-')}", v)]
    return run(SCRIPT.main, SCRIPT.ExactnessBenchmark, argv)


def unstopped(files, dtype):
    """A decoder without stop tokens."""
    pair = load_pair(files / "target", files / "drafter", dtype)
    return Decoder(dataclasses.replace(pair, stop_token_ids=()))


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_every_text_is_equal_in_float32(files, tmp_path, capsys):
    """Token by token, greedy and sampled (z-lab/dflash#23, #172)."""
    assert benchmark(files, tmp_path / "out.json") == 0
    report = read(tmp_path / "out.json")
    assert report["equal"] == {"0": {"2": 4, "8": 4}, "1": {"2": 4, "8": 4}}
    assert (report["prompts"], report["divergences"], report["beyond_rounding"]) == (4, [], 0)
    assert report["tokens"] > 60
    assert "texts equal to plain decoding, of 4" in capsys.readouterr().out


def test_a_killed_run_resumes_with_the_same_result(files, tmp_path, monkeypatch):
    """The last line may be cut off anywhere."""
    whole, out = tmp_path / "whole.json", tmp_path / "out.json"
    assert benchmark(files, whole) == 0
    lines = (tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 5
    decoded = []
    compare = SCRIPT.compare
    monkeypatch.setattr(SCRIPT, "compare", lambda *args: decoded.append(1) or compare(*args))
    for kept, again in ((b"", 4), (b"".join(lines[:3]) + lines[3][:20], 2), (b"".join(lines), 0)):
        (tmp_path / "out.jsonl").write_bytes(kept)
        decoded.clear()
        assert benchmark(files, out) == 0
        assert len(decoded) == 2 * again
        assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
        assert {**read(out), "provenance": 0} == {**read(whole), "provenance": 0}


@pytest.mark.parametrize("broken", [b"nonsense\n", b'{"a": 1}\n', b"[1]\n"])
def test_a_corrupt_file_or_one_of_another_run_is_refused(files, tmp_path, capsys, broken):
    (tmp_path / "out.jsonl").write_bytes(broken)
    assert benchmark(files, tmp_path / "out.json") == 2
    assert "out.jsonl is " in capsys.readouterr().err
    assert (tmp_path / "out.jsonl").read_bytes() == broken


def test_other_options_do_not_mix(files, tmp_path, capsys):
    assert benchmark(files, tmp_path / "out.json", temperatures="0") == 0
    assert benchmark(files, tmp_path / "out.json", temperatures="0", max_new_tokens="9") == 2
    assert "of another pair or other options" in capsys.readouterr().err


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(1.0, seed=4)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_wrong_token_is_not_rounding(files, monkeypatch, sampling, dtype):
    """Not even the next best, since it is not the best by the scores of its own pass."""
    decoder = unstopped(files, dtype)
    ids = encode(decoder.pair, "one two")
    decode = decoder.decode

    def wrong(prefill, size, budget=None):
        generation = decode(prefill, size, budget)
        tokens = list(generation.tokens)
        if size == 4:
            noting = SCRIPT.NotingSampler(sampling, decoder.target.vocab_size)
            decode(dataclasses.replace(prefill, sampler=noting), 1, budget)
            position = prefill.prompt_tokens + 5
            scores = noting.noted[position].float()
            if not sampling.is_greedy:
                scores = scores / sampling.temperature + noting.noise(position, 1, scores.device)[0]
            assert int(scores.argmax()) == tokens[5]
            tokens[5] = int(scores.topk(2).indices[1])
        return dataclasses.replace(generation, tokens=tokens)

    monkeypatch.setattr(decoder, "decode", wrong)
    result = SCRIPT.compare(decoder, ids, sampling, (2, 4), BUDGET)
    found = result["divergences"]["4"]
    assert (found["index"], found["own"], found["rounding"]) == (5, False, False)
    report = SCRIPT.summarise({"a": [{**result, "divergences": {"4": found}}]}, (2, 4))
    assert report["beyond_rounding"] == 1
    assert [*report["equal"].values()] == [{"2": 1, "4": 0}]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_pass_over_a_wrong_text_is_not_rounding(files, monkeypatch, dtype):
    """Each way chooses its best, but the scores are not those of one text."""
    decoder = unstopped(files, dtype)
    ids = encode(decoder.pair, "one two")
    round_of = decoder._round

    def wrong(prefill, anchor, emitted, left, controller, unread):
        if controller.length == 4 and emitted == 5:
            anchor = (anchor + 7) % 60
        return round_of(prefill, anchor, emitted, left, controller, unread)

    lengths = decoder.generate(ids, 4, BUDGET).accepted
    assert 5 in [sum(lengths[:n]) for n in range(len(lengths))], lengths
    monkeypatch.setattr(decoder, "_round", wrong)
    found = SCRIPT.compare(decoder, ids, GREEDY, (4,), BUDGET)["divergences"]["4"]
    assert found["index"] >= 5
    assert (found["own"], found["rounding"]) == (True, False)
    assert found["steps"] > SCRIPT.ROUNDING_STEPS


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(0.7, seed=4)])
@pytest.mark.parametrize("size", [1, 4])
def test_the_chosen_tokens_have_the_best_recorded_scores(trained, sampling, size):
    """At every position, by the scores of the pass that emitted it."""
    decoder, ids = Decoder(trained), encode(trained, "one two")
    noting = SCRIPT.NotingSampler(sampling, decoder.target.vocab_size)
    prefill = dataclasses.replace(decoder.prefill(ids, BUDGET, size, sampling), sampler=noting)
    tokens = decoder.decode(prefill, size).tokens
    for index, token in list(enumerate(tokens))[1:]:
        position = prefill.prompt_tokens + index
        assert int(noting.choose(noting.noted[position][None], position)) == token


def test_half_precision_differs_only_by_rounding(files):
    decoder = Decoder(load_pair(files / "target", files / "drafter", "bfloat16"))
    results = {
        text: [SCRIPT.compare(decoder, encode(decoder.pair, text), GREEDY, (2, 8), 40)]
        for text in PROMPTS
    }
    report = SCRIPT.summarise(results, (2, 8))
    assert report["beyond_rounding"] == 0
    for found in report["divergences"]:
        assert found["margin"] >= 0
        assert 0 < found["steps"] <= report["largest_steps"] <= SCRIPT.ROUNDING_STEPS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_sizes": "1,2"}, "--block-sizes must be at least 2 each"),
        ({"block_sizes": "x"}, "--block-sizes must be whole numbers"),
        ({"temperatures": "0,hot"}, "--temperatures must be numbers"),
        ({"temperatures": ","}, "--temperatures must name at least one"),
        ({"temperatures": "-1"}, "temperature must be 0 or more"),
        ({"max_new_tokens": "1"}, "--max-new-tokens must be at least 2"),
        ({"prompts": "-1"}, "give --prompts of at least 1"),
        ({"json": "."}, "must be a file such as exact.json"),
        ({"json": "out.jsonl"}, "must be a file such as exact.json"),
    ],
)
def test_bad_arguments(files, capsys, changes, message):
    assert benchmark(files, **changes) == 2
    assert message in capsys.readouterr().err
