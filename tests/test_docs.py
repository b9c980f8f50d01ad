"""The README and the documentation: code blocks run, commands parse, figures match the report."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

import blockpilot_rl
from blockpilot_rl.agents import AGENTS
from blockpilot_rl.cli import console
from blockpilot_rl.cli.flags import parse
from blockpilot_rl.cli.main import COMMANDS, main
from blockpilot_rl.policies.policy import BUNDLED_POLICY
from blockpilot_rl.sweeps.table import BUNDLED_SWEEP

CHECKOUT = Path(__file__).resolve().parent.parent
DOCS = CHECKOUT / "docs"
ONLY_COMPILED = ("# not run:", "Qwen/", "assistant_model=")
"""Marks of blocks that need files or models which are not here."""


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(CHECKOUT)}:{self.line}"


def pages() -> list[Path]:
    names = (CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md"))
    written = (page for page in DOCS.rglob("*.md") if "report" not in page.parts)
    return [*names, *sorted(written)]


def blocks(language: str) -> list[Block]:
    """All blocks of a language."""
    found = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, flags=re.M | re.S):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(page, line, match[1], match[2]))
    return [block for block in found if block.language == language]


def command_lines() -> list:
    """Every line of the `bash` blocks, with continued lines joined."""
    lines = []
    for block in blocks("bash"):
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                lines.append(pytest.param(words, id=f"{block}: {' '.join(words)[:60]}"))
    return lines


def runs(block: Block) -> bool:
    return not any(mark in block.text for mark in ONLY_COMPILED)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory) -> Path:
    """A folder with the files that the pages name."""
    folder = tmp_path_factory.mktemp("workplace")
    (folder / "my-sweep").symlink_to(BUNDLED_SWEEP)
    shutil.copytree(BUNDLED_POLICY, folder / "my-policy")
    words = ["--algo", "epsilon-greedy", "-params", "n_timesteps:2560", "eval_freq:1280"]
    assert main(["train-agent", *words, "-f", str(folder / "logs")]) == 0
    return folder


@pytest.mark.parametrize("words", command_lines())
def test_every_command_line_is_understood(words, monkeypatch, tmp_path):
    """Commands read their arguments, targets of make exist, and so do scripts."""
    monkeypatch.chdir(tmp_path)
    while words and re.fullmatch(r"\w+=\S*", words[0]):
        words = words[1:]
    program, *arguments = words
    program = program.removeprefix(".venv/bin/")
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (CHECKOUT / "Makefile").read_text(), flags=re.M)
        assert {word for word in arguments if "=" not in word} <= set(targets)
    elif program == "python" and not arguments[0].startswith("scripts/"):
        assert (CHECKOUT / arguments[0]).is_file()
    elif program in ("blockpilot", "python"):
        name, *rest = arguments
        name = Path(name).stem.replace("_", "-")
        assert name in COMMANDS
        monkeypatch.setattr(
            console, "run", lambda _, config_class, argv, *, prog: parse(config_class, argv) and 0
        )
        module = importlib.import_module(f"blockpilot_rl.cli.{name.replace('-', '_')}")
        assert module.main(rest, prog=name) == 0
    else:
        assert program in ("pip", "source", "tensorboard", "pytest", "pre-commit")


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_every_python_block_compiles_and_uses_public_names(block):
    compile(block.text, str(block), "exec")
    for names in re.findall(r"^from blockpilot_rl import (\([^)]*\)|.*)$", block.text, flags=re.M):
        for name in re.findall(r"\w+", names):
            assert name in blockpilot_rl.__all__


@pytest.mark.slow
@pytest.mark.parametrize("block", [block for block in blocks("python") if runs(block)], ids=str)
def test_every_python_block_runs(block, workplace, tmp_path):
    folder = tmp_path / "work"
    shutil.copytree(workplace, folder, symlinks=True)
    (folder / "block.py").write_text(block.text, encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "block.py"],
        cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_every_yaml_block_is_valid(block):
    assert yaml.safe_load(block.text)


def test_the_readme_is_short():
    assert len((CHECKOUT / "README.md").read_text(encoding="utf-8").splitlines()) < 200


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert not [
        link
        for link in links
        if not link.startswith(("http", "#"))
        and not (page.parent / link.partition("#")[0]).exists()
    ]


def table_rows(text: str) -> dict[str, list[list[str]]]:
    """Rows of all tables of a page, as cells, by their first cell."""
    rows: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        if line.startswith("| "):
            first, *cells = (cell.strip() for cell in line.strip("| ").split(" | "))
            rows.setdefault(first, []).append(cells)
    return rows


def test_every_agent_has_a_page():
    pages = {page.stem for page in (DOCS / "algorithms").glob("*.md")}
    assert pages == {"index", *AGENTS}


@pytest.mark.parametrize("name", AGENTS)
def test_the_measured_tables_are_those_of_the_report(name):
    report = table_rows((DOCS / "report" / "report.md").read_text(encoding="utf-8"))
    page = table_rows((DOCS / "algorithms" / f"{name}.md").read_text(encoding="utf-8"))
    for choice, (cells,) in page.items():
        if choice == "choice" or choice not in report:
            continue
        speedups, decoding = report[choice][0], report[choice][1]
        assert cells[:3] == [speedups[0], speedups[2], speedups[3]]
        assert cells[3:5] == decoding[1:3]
