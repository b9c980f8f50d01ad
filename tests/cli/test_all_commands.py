"""The README's promises for every command: exit codes, and no lost results."""

from __future__ import annotations

import dataclasses
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from blockpilot_rl import Decoder, load_pair
from blockpilot_rl.cli.main import COMMANDS, main
from blockpilot_rl.decoding.calibration import Calibration
from blockpilot_rl.decoding.latency import LatencyProfile
from tests.synthetic import synthetic_table
from tests.tiny_pair import MASK, PROMPTS, save_tiny_pair, tiny_target, tiny_tokenizer

pytestmark = pytest.mark.slow

PROGRAM = """
import importlib, os, signal, sys, threading
from blockpilot_rl.cli.main import main
number, seconds, command, *words = sys.argv[1:]
importlib.import_module("blockpilot_rl.cli." + command.replace("-", "_"))
timer = threading.Timer(float(seconds), os.kill, (os.getpid(), int(number)))
timer.daemon = True
timer.start()
raise SystemExit(main([command, *words]))
"""
"""Sends itself a signal some seconds after the command has started."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A short call of a command.

    Attributes:
        words: Its arguments; `{data}` is the folder of inputs, `{out}` that of outputs.
        results: The files that it saves, below the folder of outputs.
    """

    words: str
    results: tuple[str, ...]


PAIR = "--target {data}/target --drafter {data}/drafter"
CASES = {
    "generate": Case(
        f"{PAIR} --prompt 'a b c d' --block-size 4 --max-new-tokens 9 --json {{out}}/record.json",
        ("record.json",),
    ),
    "collect-sweep": Case(
        f"{PAIR} --prompts {{data}}/prompts.txt --arms 1,2,8 --max-new-tokens 9 "
        "--profile {data}/profile.json --out {out}/sweep",
        ("sweep/metadata.json", "sweep/sweep.parquet"),
    ),
    "train-agent": Case(
        "--algo supervised -params epochs:2 --sweep {data}/sweep -f {out}/logs",
        ("logs/supervised/BlockSize-v0_1/agent.json",),
    ),
    "headroom": Case("{data}/sweep --json {out}/headroom.json", ("headroom.json",)),
    "compare": Case(
        "--sweep {data}/sweep --algos ridge-regression --seeds 2 --jobs 2 --report {out}/report "
        "--json {out}/compare.json",
        ("compare.json", "report/report.md", "report/report.html"),
    ),
    "evaluate": Case(
        "--policy {data}/policy --sweep {data}/sweep --report {out}/report --json {out}/a.json",
        ("a.json", "report/report.md", "report/report.html"),
    ),
    "export-policy": Case("{data}/run --out {out}/policy", ("policy/config.json",)),
    "train-drafter": Case(
        "--target {data}/long-target --out {out}/run --target-layer-ids 0,2 --layers 1 "
        "--block-sizes 4,2 --queries 16 --sequences 2 --steps 3 --suite-size 20 "
        f"--max-new-tokens 6 --report-prompts 2 --mask-token-id {MASK} --draft-vocab-size 40 "
        "--dtype float32",
        ("run/drafter/config.json", "run/drafter/acceptance.json"),
    ),
    "calibrate": Case(
        f"{PAIR} --arms 1,2,8 --repeats 3 --contexts 12,40 --dtype float32 "
        "--out {out}/profile.json",
        ("profile.json",),
    ),
}
SILENT = ("collect-sweep", "train-drafter")
"""Commands that print only to standard error."""


@pytest.fixture(scope="session")
def data(trained, tmp_path_factory):
    """Inputs of all commands."""
    data = tmp_path_factory.mktemp("commands")
    save_tiny_pair(data)
    trained.drafter.save_pretrained(data / "drafter")
    (data / "prompts.txt").write_text("\n".join(PROMPTS), encoding="utf-8")
    synthetic_table(1500).save(data / "sweep")
    sizes = (1, 2, 4, 8, 16)
    lines = tuple((0.01 + 0.001 * size, 1e-6) for size in sizes)
    latency = LatencyProfile(sizes, ((0.0, 0.0), *lines[1:]), lines, (0.001, 1e-6), {})
    decoder = Decoder(load_pair(data / "target", data / "drafter"))
    Calibration.from_decoder(decoder, latency).save(data / "profile.json")
    tiny_target(max_position_embeddings=4096, eos_token_id=None).save_pretrained(
        data / "long-target"
    )
    tiny_tokenizer().save_pretrained(data / "long-target")
    assert main(["train-agent", *words_of("train-agent", data, data)]) == 0
    (data / "logs/supervised/BlockSize-v0_1").rename(data / "run")
    assert main(["export-policy", str(data / "run"), "--out", str(data / "policy")]) == 0
    return data


def words_of(name: str, data: Path, out: Path) -> list[str]:
    """The arguments of a command's case."""

    return [word.format(data=data, out=out) for word in shlex.split(CASES[name].words)]


def start(name: str, data: Path, out: Path, *, program=None, **options) -> subprocess.Popen:
    """Start a command in its own process."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", **options.pop("env", {})}
    environment.pop("PYTHONUNBUFFERED", None)
    first = ["-m", "blockpilot_rl.cli.main"] if program is None else ["-c", *program]
    return subprocess.Popen(
        [sys.executable, *first, name, *words_of(name, data, out)], env=environment, **options
    )


def assert_saved(name: str, out: Path) -> None:
    """All results exist, and no temporary files are left."""
    missing = [result for result in CASES[name].results if not (out / result).stat().st_size]
    assert not missing
    assert_no_leftovers(out)


def assert_no_leftovers(out: Path) -> None:
    assert not [path for path in out.rglob(".*") if path.name[1:9].isalnum() and "-" in path.name]


def closed_pipe() -> int:
    """The writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def test_every_command_has_a_case():
    """`quickstart` calls the functions of the others."""
    assert [*CASES, "quickstart"] == list(COMMANDS)


@pytest.mark.parametrize("name", CASES)
def test_a_closed_pipe_ends_quietly_and_loses_nothing(name, data, tmp_path):
    """As in `blockpilot compare … 2>&1 | true`."""
    pipe = closed_pipe()
    with start(name, data, tmp_path, stdout=pipe, stderr=pipe) as process:
        os.close(pipe)
        assert process.wait(timeout=600) == 141
    assert_saved(name, tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_a_closed_standard_output_ends_without_a_word(name, data, tmp_path):
    """As in `blockpilot compare … | true`."""
    pipe = closed_pipe()
    with start(name, data, tmp_path, stdout=pipe, stderr=subprocess.PIPE, text=True) as process:
        os.close(pipe)
        _, err = process.communicate(timeout=600)
        assert process.returncode == (0 if name in SILENT else 141)
    assert "error:" not in err
    assert "Traceback" not in err
    assert_saved(name, tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_another_encoding_stops_nothing(name, data, tmp_path):
    encoding = "cp1252" if name in SILENT else "ascii"
    with start(
        name,
        data,
        tmp_path,
        env={"PYTHONIOENCODING": encoding},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
    assert (out + err).decode(encoding)
    assert_saved(name, tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_streams_on_a_full_disk_lose_nothing(name, data, tmp_path):
    with (
        open("/dev/full", "wb") as full,
        start(name, data, tmp_path, stdout=full, stderr=full) as process,
    ):
        assert process.wait(timeout=600) == 2
    assert_saved(name, tmp_path)


def interrupt(name: str, data: Path, out: Path, number: int, seconds: float) -> tuple[int, str]:
    """Run a command that gets a signal; return its exit code and standard error."""
    with start(
        name,
        data,
        out,
        program=(PROGRAM, str(number), str(seconds)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        _, err = process.communicate(timeout=600)
        return process.returncode, err


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("number", "code", "seconds"),
    [(signal.SIGTERM, 143, 0.5), (signal.SIGINT, 130, 0.1)],
    ids=["SIGTERM", "SIGINT"],
)
def test_a_signal_ends_a_command_without_leftovers(name, number, code, seconds, data, tmp_path):
    returned, err = interrupt(name, data, tmp_path, number, seconds)
    assert returned in (code, 0)
    if returned == 0:
        assert_saved(name, tmp_path)
    assert "Traceback" not in err
    assert_no_leftovers(tmp_path)
