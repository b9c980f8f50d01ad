from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import yaml

from blockpilot_rl.cli.parsing import arg, parse, run
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import write_json


@dataclass(frozen=True)
class Decode:
    """Decode one prompt.

    A second paragraph that `--help` leaves out.
    """

    prompt: str | None = arg(None, help="what to answer")
    block_size: int = arg(16, help="tokens per block", aliases=["-b"])
    arms: str = arg("1,2,4", help="block sizes")
    algo: Literal["ppo", "supervised", "fixed"] = arg("ppo", help="learner")
    sizes: list[int] = arg(default_factory=list, help="several numbers")
    names: list[str] = arg(default_factory=list, help="several words")
    layers: list[int] = arg(default_factory=lambda: [1, 2], help="never empty")
    rate: float = arg(0.1, help="a rate")
    plain: bool = arg(False, help="decode plainly")
    stream: bool = arg(True, help="print while decoding")
    json: str | None = arg(None, help="write JSON", nargs="?", const="-", metavar="FILE")

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise BlockPilotError(f"block_size must be at least 1, got {self.block_size}")


@dataclass(frozen=True)
class Export:
    """Export a run."""

    run_folder: str = arg(help="the run")
    out: str = arg(help="where to")


def write(folder: Path, text: str) -> str:
    file = folder / "run.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_no_arguments_give_the_defaults():
    assert parse(Decode, []) == Decode(sizes=[], names=[], layers=[1, 2])


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        (["--block-size", "8"], "block_size", 8),
        (["--block_size=8"], "block_size", 8),
        (["-b", "8"], "block_size", 8),
        (["--arms", "1,8"], "arms", "1,8"),
        (["--algo", "fixed"], "algo", "fixed"),
        (["--sizes", "3", "-4"], "sizes", [3, -4]),
        (["--rate", "1e-3"], "rate", 1e-3),
        (["--plain"], "plain", True),
        (["--no-stream"], "stream", False),
        (["--json"], "json", "-"),
        (["--json", "--plain"], "json", "-"),
        (["--json", "out.json"], "json", "out.json"),
        (["--prompt=--plain"], "prompt", "--plain"),
    ],
)
def test_flags(argv, field, value):
    assert getattr(parse(Decode, argv), field) == value


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--blok-size", "8"], "unknown option --blok-size. Did you mean '--block-size'?"),
        (["--blok_size=8"], "unknown option --blok_size. Did you mean '--block-size'?"),
        (["--block", "8"], "unknown option --block. Did you mean '--block-size'?"),
        (["--algo", "supervized"], "--algo: 'supervized' is not one of ppo, supervised, fixed. "
         "Did you mean 'supervised'?"),
        (["--block-size", "x"], "--block-size: invalid int value: 'x'"),
        (["-b", "0"], "block_size must be at least 1, got 0"),
        (["--plain", "maybe"], "--plain: Truthy value expected: got maybe"),
        (["--rate"], "--rate: expected one argument"),
        (["--config"], "--config: expected one argument"),
        (["--arms", "1", "2"], "unexpected argument '2'"),
        (["hello"], "unexpected argument 'hello'"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(argv, message):
    with pytest.raises(BlockPilotError) as error:
        parse(Decode, argv)
    assert message in str(error.value)


def test_required_flags():
    assert parse(Export, ["--run-folder", "a", "--out", "b"]) == Export("a", "b")
    with pytest.raises(BlockPilotError, match=r"required: .*--out"):
        parse(Export, ["--run-folder", "a"])


@pytest.mark.parametrize("words", [["--outt", "z"], ["--outt=z"], ["--outt"]])
def test_a_misspelt_required_flag_is_named(words):
    with pytest.raises(BlockPilotError, match=r"unknown option --outt\. Did you mean '--out'\?"):
        parse(Export, ["--run-folder", "a", *words])
    with pytest.raises(BlockPilotError, match=r"required: .*--out"):
        parse(Export, ["--run-folder", "--a sentence"])


def test_config_file_fills_the_fields_and_the_command_line_wins(tmp_path):
    file = write(
        tmp_path,
        """
        prompt: "no"
        block_size: 8
        arms: [1, 2, 16]
        algo: fixed
        sizes: [1, -2]
        names: [no, 1e-3, "a b"]
        rate: 1e-3
        plain: true
        stream: no
        json: ~
        """,
    )
    expected = {
        "prompt": "no",
        "block_size": 8,
        "arms": "1,2,16",
        "algo": "fixed",
        "sizes": [1, -2],
        "names": ["no", "1e-3", "a b"],
        "layers": [1, 2],
        "rate": 1e-3,
        "plain": True,
        "stream": False,
        "json": None,
    }
    assert parse(Decode, ["--config", file]) == Decode(**expected)
    overridden = parse(Decode, ["-b", "4", f"--config={file}", "--plain", "no", "--sizes", "7"])
    assert overridden == Decode(**{**expected, "block_size": 4, "plain": False, "sizes": [7]})


def test_config_file_may_give_what_is_required(tmp_path):
    file = write(tmp_path, "run_folder: a\nout:\n")
    assert parse(Export, ["--config", file, "--out", "b"]) == Export("a", "b")
    with pytest.raises(BlockPilotError, match=r"required: --out$"):
        parse(Export, ["--config", file])


def test_saved_arguments_are_a_config_file(tmp_path):
    config = Decode(
        prompt="- 'quoted': \"é\"\n", sizes=[2], names=[], layers=[3], plain=True, rate=2.5e-7
    )
    file = write(tmp_path, yaml.safe_dump(dataclasses.asdict(config)))
    assert parse(Decode, ["--config", file]) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("block_sise: 8", "unknown key 'block_sise'. Did you mean 'block_size'?"),
        ("block-size: 8", "unknown key 'block-size'. Did you mean 'block_size'?"),
        ("block_size: many", "block_size: invalid int value: 'many'"),
        ("block_size: [1, 2]", "block_size: invalid int value: '1,2'"),
        ("block_size: null", "block_size: must not be empty"),
        ("layers: []", "layers: must not be empty"),
        ("algo: pppo", "algo: 'pppo' is not one of ppo, supervised, fixed. Did you mean 'ppo'?"),
        ("plain: perhaps", "plain: Truthy value expected"),
        ("names: [--plain]", "names: "),
        ("prompt: {a: 1}", "prompt: takes one value or a list of values"),
        ("~: 3", "unknown key None"),
        ("config: other.yaml", "unknown key 'config'"),
        ("a: [", "is not valid YAML"),
        ("just words", "must hold `key: value` lines"),
        ("- a\n- b", "must hold `key: value` lines"),
    ],
)
def test_bad_config_files_are_named(tmp_path, text, message):
    file = write(tmp_path, text)
    with pytest.raises(BlockPilotError) as error:
        parse(Decode, ["--config", file])
    assert message in str(error.value)
    assert file in str(error.value)
    assert "\n" not in str(error.value)


def test_config_file_must_be_readable_text(tmp_path):
    with pytest.raises(BlockPilotError, match=r"cannot read the config .*absent\.yaml"):
        parse(Decode, ["--config", str(tmp_path / "absent.yaml")])
    (tmp_path / "binary.yaml").write_bytes(b"prompt: \xff\xfe")
    with pytest.raises(BlockPilotError, match=r"binary\.yaml is not UTF-8"):
        parse(Decode, ["--config", str(tmp_path / "binary.yaml")])


def test_an_empty_config_file_changes_nothing(tmp_path):
    assert parse(Decode, ["--config", write(tmp_path, "# nothing\n")]) == parse(Decode, [])


def test_help_shows_the_docstring_defaults_and_config(capsys):
    with pytest.raises(SystemExit) as leaving:
        parse(Decode, ["--help"])
    assert leaving.value.code == 0
    text = capsys.readouterr().out
    assert "Decode one prompt." in text
    assert "second paragraph" not in text
    assert "(default: 16)" in text
    assert "--config FILE.yaml" in text


def test_run_returns_the_exit_code(capsys):
    def main(config: Decode) -> int | None:
        if config.prompt == "refuse":
            raise BlockPilotError("no\n such prompt")
        if config.prompt == "stop":
            raise KeyboardInterrupt
        if config.prompt == "lost":
            raise FileNotFoundError(2, "No such file", "weights")
        return 7 if config.plain else None

    assert run(main, Decode, []) == 0
    assert run(main, Decode, ["--plain"]) == 7
    assert capsys.readouterr().err == ""
    assert run(main, Decode, ["--prompt", "refuse"]) == 2
    assert capsys.readouterr().err == "error: no such prompt\n"
    assert run(main, Decode, ["--promt", "x"]) == 2
    assert capsys.readouterr().err == "error: unknown option --promt. Did you mean '--prompt'?\n"
    assert run(main, Decode, ["--prompt", "lost"]) == 2
    assert "weights" in capsys.readouterr().err
    assert run(main, Decode, ["--prompt", "stop"]) == 130


def test_sigterm_unwinds():
    """So that temporary files go and other processes end, as after an interrupt."""
    unwound = []

    def main(config: Decode) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        finally:
            unwound.append(True)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as leaving:
        run(main, Decode, [])
    assert leaving.value.code == 143
    assert unwound == [True]
    assert signal.getsignal(signal.SIGTERM) is before


def test_run_lets_programming_errors_through():
    def main(config: Decode) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(main, Decode, [])


def test_run_is_quiet_when_the_reader_leaves(tmp_path):
    script = tmp_path / "talk.py"
    script.write_text(
        """
from dataclasses import dataclass
from blockpilot_rl.cli.parsing import run

@dataclass(frozen=True)
class Nothing:
    '''Take no arguments.'''

def main(config):
    for number in range(200_000):
        print(number)

raise SystemExit(run(main, Nothing))
""",
        encoding="utf-8",
    )
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "0\n"
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == 141


def test_json_of_run_is_readable(tmp_path):
    target = tmp_path / "out.json"

    def main(config: Decode) -> None:
        assert config.json is not None
        write_json(config.json, {"block_size": config.block_size})

    assert run(main, Decode, ["--json", str(target)]) == 0
    assert json.loads(target.read_text(encoding="utf-8")) == {"block_size": 16}
