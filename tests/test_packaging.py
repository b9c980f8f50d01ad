from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import blockpilot_rl
from blockpilot_rl.cli.main import COMMANDS

CHECKOUT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "blockpilot_rl": CHECKOUT / "blockpilot_rl",
    "blockpilot_rl.envs": CHECKOUT / "envs",
    "blockpilot_rl.agents": CHECKOUT / "agents",
}
CORE = {
    f"blockpilot_rl.{name}"
    for name in (
        "models",
        "decoding",
        "sweeps",
        "policies",
        "control",
        "evaluation",
        "training",
        "provenance",
    )
}


# Modules and packages import only those on their own line or above.
LAYERS = (
    ("options", "errors", "files", "plain_yaml", "progress", "provenance", "threads"),
    ("models",),
    ("decoding",),
    ("prompts", "policies"),
    ("sweeps",),
    ("control",),
    ("evaluation",),
    ("headroom", "reports"),
    ("envs",),
    ("agents",),
    ("experiments",),
    ("integrations", "training", "cli"),
)


def imports_of(folder):
    """The modules of this package that each file below a folder imports, by path."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "blockpilot_rl."
            ):
                yield path.relative_to(folder), str(node.module).split(".")[1]


@pytest.mark.parametrize("package", FOLDERS)
def test_imports_go_one_way(package):
    levels = {name: level for level, names in enumerate(LAYERS) for name in names}
    for path, imported in imports_of(FOLDERS[package]):
        own = path.parts[0].removesuffix(".py") if package == "blockpilot_rl" else package[14:]
        if own not in ("__init__", "bundled"):
            assert levels[imported] <= levels[own], f"{path} imports {imported}"


@pytest.mark.parametrize("package", FOLDERS)
def test_package_imports_under_its_name(package):
    assert importlib.import_module(package).__name__ == package


@pytest.mark.parametrize("package", FOLDERS)
def test_every_file_of_the_checkout_is_installed(package):
    """Trivial in an editable install; run against the wheel, it finds files that are missing."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    installed = [Path(location) for location in spec.submodule_search_locations]
    files = [
        file.relative_to(FOLDERS[package])
        for file in FOLDERS[package].rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    ]
    assert files
    missing = [
        str(file) for file in files if not any((root / file).is_file() for root in installed)
    ]
    assert not missing


def test_package_is_typed():
    spec = importlib.util.find_spec("blockpilot_rl")
    assert spec is not None
    assert spec.origin is not None
    assert (Path(spec.origin).parent / "py.typed").is_file()


def test_core_needs_no_rl_library():
    program = """
import importlib, json, pathlib, sys
import blockpilot_rl
root = pathlib.Path(blockpilot_rl.__file__).parent
paths = [path.relative_to(root.parent) for path in root.rglob("*.py")]
names = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths}
apart = tuple(f"blockpilot_rl.{name}" for name in ("envs", "agents", "experiments", "cli"))
modules = sorted(name for name in names if not name.startswith(apart))
for name in modules:
    importlib.import_module(name)
    for library in ("gymnasium", "stable_baselines3"):
        if library in sys.modules:
            raise SystemExit(f"{name} imports {library}")
print(json.dumps(modules))
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert set(json.loads(result.stdout)) >= CORE


def test_the_public_names_are_typed_and_listed():
    """A type checker reads the imports, Python the table, users `__all__`; all three agree."""
    tree = ast.parse((FOLDERS["blockpilot_rl"] / "__init__.py").read_text(encoding="utf-8"))
    typed = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("blockpilot_rl.")
        for alias in node.names
    }
    homes = {name: f"blockpilot_rl.{home}" for name, home in blockpilot_rl._HOMES.items()}
    assert typed == homes
    assert sorted(blockpilot_rl.__all__) == sorted(homes)


@pytest.mark.parametrize("name", blockpilot_rl.__all__)
def test_a_public_name_is_what_its_module_defines(name):
    value = getattr(blockpilot_rl, name)
    assert value is getattr(
        importlib.import_module(f"blockpilot_rl.{blockpilot_rl._HOMES[name]}"), name
    )
    assert value.__doc__
    assert name in dir(blockpilot_rl)


def test_unknown_names_of_the_package_are_refused():
    for name in ("load_pairs", "SweepTable", "__wrapped__"):
        with pytest.raises(AttributeError, match=f"'blockpilot_rl' has no attribute '{name}'"):
            getattr(blockpilot_rl, name)


@pytest.mark.parametrize(
    ("program", "libraries"),
    [
        ("import blockpilot_rl", ["torch", "numpy", "pandas", "transformers", "rich"]),
        ("from blockpilot_rl.cli.main import main; main([])", ["torch", "numpy", "pandas"]),
        (
            "from blockpilot_rl import Decoder, Sweep, block_pilot, measure_headroom",
            ["gymnasium", "stable_baselines3"],
        ),
        ("from blockpilot_rl import Prompt, builtin_suite", ["torch", "gymnasium"]),
    ],
)
def test_importing_loads_no_more_than_is_used(program, libraries):
    check = f"{program}\nimport sys\nprint(sorted(set({libraries!r}) & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "script", sorted((CHECKOUT / "scripts").glob("*.py")), ids=lambda path: path.stem
)
def test_a_script_is_the_command_of_its_name(script):
    """`python scripts/train_agent.py` and `blockpilot train-agent` are one command."""
    command = script.stem.replace("_", "-")
    assert command in COMMANDS
    assert f'main(["{command}", *sys.argv[1:]])' in script.read_text(encoding="utf-8")


def test_a_script_runs_its_command():
    result = subprocess.run(
        [sys.executable, str(CHECKOUT / "scripts/generate.py"), "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.startswith("usage: blockpilot generate ")


@pytest.mark.parametrize("package", FOLDERS)
def test_no_message_names_a_file_of_the_checkout(package):
    """The wheel has no folder `scripts`; messages name `blockpilot COMMAND` instead."""
    wrong = [
        f"{file.relative_to(CHECKOUT)}:{number}"
        for file in FOLDERS[package].rglob("*")
        if file.suffix in (".py", ".md", ".yml", ".jinja")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        if "scripts/" in line or ".py --" in line
    ]
    assert not wrong
