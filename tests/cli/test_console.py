from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

from blockpilot_rl.cli import console
from blockpilot_rl.cli.console import command, guarded, open_messages, run, show_progress
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.files import write_json
from blockpilot_rl.options import option


@dataclass(frozen=True)
class Decode:
    """Decode one prompt."""

    prompt: str | None = option(None, help="what to answer")
    plain: bool = option(False, help="decode plainly")
    block_size: int = option(16, help="tokens per block")
    json: str | None = option(None, help="write JSON", nargs="?", const="-", metavar="FILE")


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
    """So that temporary files are removed and other processes end, as after an interrupt."""
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


TALK = """
import sys
from dataclasses import dataclass
from blockpilot_rl.cli.console import open_console, open_messages, run
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.options import option

@dataclass(frozen=True)
class Talk:
    to: str = option("print", help="what prints")

def main(config):
    if config.to == "refuse":
        raise BlockPilotError("no such prompt: τ")
    for number in range(20_000):
        if config.to == "print":
            print("τ", number)
        elif config.to == "err":
            print("τ", number, file=sys.stderr)
        elif config.to == "tables":
            tables.print(f"τ {number}")
        elif config.to == "messages":
            messages.print(f"τ {number}")

tables, messages = open_console(), open_messages()
raise SystemExit(run(main, Talk))
"""


def talk(tmp_path, *words, out=subprocess.PIPE, err=subprocess.PIPE, **environment):
    script = tmp_path / "talk.py"
    script.write_text(TALK, encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, str(script), *words],
        stdout=out,
        stderr=err,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("to", ["print", "tables"])
def test_a_closed_standard_output_ends_quietly(tmp_path, to):
    with talk(tmp_path, "--to", to) as process:
        assert process.stdout.readline() == "τ 0\n".encode()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 141


@pytest.mark.parametrize("to", ["err", "messages"])
def test_a_closed_standard_error_ends_quietly(tmp_path, to):
    with talk(tmp_path, "--to", to) as process:
        assert process.stderr.readline() == "τ 0\n".encode()
        process.stderr.close()
        assert process.stdout.read() == b""
        assert process.wait(timeout=60) == 141


@pytest.mark.parametrize("words", [["--to", "refuse"], ["--no-such-flag"], ["--help"]])
def test_messages_to_a_closed_pipe_end_quietly(tmp_path, words):
    reading, writing = os.pipe()
    os.close(reading)
    with talk(tmp_path, *words, out=writing, err=writing) as process:
        os.close(writing)
        assert process.wait(timeout=60) == 141


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
@pytest.mark.parametrize("to", ["print", "err", "tables", "messages"])
def test_characters_that_a_stream_cannot_encode_are_replaced(tmp_path, encoding, to):
    with talk(tmp_path, "--to", to, PYTHONIOENCODING=encoding) as process:
        out, err = process.communicate()
        assert process.returncode == 0
    assert (err if to in ("err", "messages") else out).startswith(b"? 0\n")


@pytest.mark.parametrize("to", ["print", "tables"])
def test_standard_output_on_a_full_disk_is_one_line(tmp_path, to):
    with open("/dev/full", "wb") as full, talk(tmp_path, "--to", to, out=full) as process:
        assert process.stderr.read() == b"error: [Errno 28] No space left on device\n"
        assert process.wait(timeout=60) == 2


@pytest.mark.parametrize("to", ["err", "messages", "refuse"])
def test_standard_error_on_a_full_disk_is_quiet(tmp_path, to):
    with open("/dev/full", "wb") as full, talk(tmp_path, "--to", to, err=full) as process:
        assert process.stdout.read() == b""
        assert process.wait(timeout=60) == 2


def test_a_command_is_called_with_its_arguments(capsys):
    main = command(lambda config: 7 if config.plain else None, Decode)
    assert main([]) == 0
    assert main(["--plain"]) == 7
    with pytest.raises(SystemExit):
        main(["--help"], prog="blockpilot decode")
    assert capsys.readouterr().out.startswith("usage: blockpilot decode ")


def test_long_work_reports_progress_without_a_terminal(capsys, monkeypatch):
    clock = iter([0.0, 9.0, 10.0, 10.0, 11.0, 12.0, 25.0, 25.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    with show_progress(open_messages()) as progress:
        for done in range(4):
            progress("decode", 1000 * done, 4000)
        progress("train", 5, None)
    assert capsys.readouterr().err == "decode: 1,000 of 4,000\ntrain: 5\n"


@pytest.mark.parametrize("error", [BrokenPipeError(32, "closed"), OSError(28, "No space left")])
def test_a_failing_stream_does_not_end_the_work_whose_progress_it_shows(monkeypatch, error):
    class Failing(io.StringIO):
        def write(self, text):
            raise error

    monkeypatch.setattr(console, "_SILENCE_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", Failing())
    with show_progress(open_messages()) as progress:
        progress("decode", 1, 2)
        progress("decode", 2, 2)


def test_progress_can_be_switched_off(capsys):
    with show_progress(open_messages(), enabled=False) as progress:
        progress("decode", 1, 2)
    assert capsys.readouterr().err == ""


def test_json_of_run_is_readable(tmp_path):
    target = tmp_path / "out.json"

    def main(config: Decode) -> None:
        assert config.json is not None
        write_json(config.json, {"block_size": config.block_size})

    assert run(main, Decode, ["--json", str(target)]) == 0
    assert json.loads(target.read_text(encoding="utf-8")) == {"block_size": 16}


@pytest.mark.parametrize("call", [lambda: range(10**20).__len__(), lambda: 0.5 * 10**400])
def test_numbers_too_large_for_a_library_are_one_line(call, capsys):
    assert guarded(call) == 2
    assert capsys.readouterr().err.startswith("error: a number is too large (")


def _raise(error):
    raise error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        RuntimeError("not enough memory: you tried to allocate 8 bytes"),
    ],
)
def test_a_lack_of_memory_is_one_line(error, capsys):
    assert guarded(lambda: _raise(error)) == 2
    assert capsys.readouterr().err.startswith("error: out of memory;")


def test_other_runtime_errors_pass_through():
    with pytest.raises(RuntimeError, match="shapes"):
        guarded(lambda: _raise(RuntimeError("shapes do not match")))
