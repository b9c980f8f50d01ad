from __future__ import annotations

import subprocess
import sys

import pytest

from blockpilot_rl import __version__
from blockpilot_rl.cli.main import COMMANDS, main


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_help_lists_every_command(capsys, argv):
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out and purpose in out for name, purpose in COMMANDS.items())


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"blockpilot-rl {__version__}\n"


def test_an_unknown_command(capsys):
    assert main(["colect-sweep", "--out", "x"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: unknown command 'colect-sweep'. Did you mean 'collect-sweep'?\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_runs_by_its_name(capsys, name):
    with pytest.raises(SystemExit) as leaving:
        main([name, "--help"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: blockpilot {name} ")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_unknown_flags_in_one_line(capsys, name):
    assert main([name, "--no-such-flag"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_arguments_of_the_process_are_the_default(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["blockpilot", "--version"])
    assert main() == 0
    assert __version__ in capsys.readouterr().out


def test_decoding_needs_no_rl_library():
    program = """
import sys
for name in ("stable_baselines3", "gymnasium"):
    sys.modules[name] = None
from blockpilot_rl.cli.main import main
raise SystemExit(main(["generate", "--prompt", ""]))
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert result.stderr == "error: the prompt is empty; give some text\n"
