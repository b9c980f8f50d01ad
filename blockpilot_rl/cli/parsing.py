"""One schema for the command line and for YAML: a frozen dataclass of arguments per command.

`transformers.HfArgumentParser` turns the dataclass into flags. This module adds a `--config` file
whose keys are the field names, which passes the same checks and yields to the command line, and
errors of one line that name the closest match.
"""

from __future__ import annotations

import inspect
import os
import re
import signal
import sys
from argparse import (
    Action,
    ArgumentDefaultsHelpFormatter,
    ArgumentError,
    ArgumentParser,
    Namespace,
)
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, NoReturn, TypeVar

import yaml
from transformers.hf_argparser import HfArg, HfArgumentParser

from blockpilot_rl.errors import BlockPilotError, closest

Config = TypeVar("Config")

INPUT_ERROR = 2
INTERRUPTED = 130
PIPE_CLOSED = 141
TERMINATED = 143


def arg(
    default: Any = MISSING,
    *,
    help: str,
    aliases: Sequence[str] = (),
    default_factory: Any = MISSING,
    **argparse_options: Any,
) -> Any:
    """Declare one field of an arguments dataclass.

    `HfArg` with a type that lets a type checker accept `steps: int = arg(100, help="…")`.

    Args:
        default: The field's default. Without one the flag is required.
        help: What the flag does, for `--help`.
        aliases: Further names of the flag, such as `-f`.
        default_factory: Makes the default of a list.
        **argparse_options: Passed to `argparse.ArgumentParser.add_argument`; `nargs="?"` with
            `const="-"` makes the flag's value optional, `metavar` names it in `--help`.

    Returns:
        The dataclass field.
    """
    return HfArg(
        default=default,
        default_factory=default_factory,
        help=help,
        aliases=list(aliases),
        metadata=argparse_options,
    )


def parse(
    config_class: type[Config],
    argv: Sequence[str] | None = None,
    *,
    prog: str | None = None,
    description: str | None = None,
) -> Config:
    """Read a config from the command line and, with `--config FILE`, from a YAML file.

    The file's keys are the field names. A scalar in it means what the same word would mean on the
    command line, a list stands for a list of values or, where the field takes one text, for the
    values joined with commas. Null and an empty list stand for themselves, so that saved arguments
    can be read again. The command line wins.

    Args:
        config_class: The dataclass to fill. Its fields may use `arg`.
        argv: The arguments, without the program's name. Default: those of this process.
        prog: The program's name in `--help`. Default: the running script's.
        description: The text above the flags in `--help`. Default: the first paragraph of the
            dataclass's docstring.

    Returns:
        The config, checked by its own `__post_init__`.

    Raises:
        BlockPilotError: If a flag, a key or a value is not understood or a required one is missing.
        SystemExit: After printing the help, if `--help` is given.
    """
    if description is None:
        description = (inspect.getdoc(config_class) or "").partition("\n\n")[0]
    parser = _Parser(config_class, prog=prog, description=description)
    return config_class(**parser.read(sys.argv[1:] if argv is None else argv))


def run(
    main: Callable[[Config], int | None],
    config_class: type[Config],
    argv: Sequence[str] | None = None,
    *,
    prog: str | None = None,
) -> int:
    """Run a command: parse its config, call it, and print what the user can mend as one line.

    Args:
        main: The command. What it returns is the exit code; None counts as 0.
        config_class: The dataclass of its arguments.
        argv: The arguments. Default: those of this process.
        prog: The program's name in `--help`. Default: the running script's.

    Returns:
        The exit code: 2 after bad input or a file that cannot be read or written, 130 after an
        interrupt, and 141, silently, when the reader of standard output has gone, as shells have
        it. SIGTERM leaves with 143, and unwinds as an interrupt does: what is temporary is removed.
    """
    try:
        with _terminable():
            code = main(parse(config_class, argv, prog=prog)) or 0
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more on its way out; give it something that takes the text.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except (BlockPilotError, OSError) as error:
        print("error:", " ".join(str(error).split()), file=sys.stderr)
        return INPUT_ERROR
    return code


@contextmanager
def _terminable() -> Iterator[None]:
    """Raise `SystemExit` on SIGTERM; only the main thread can be asked to."""
    if current_thread() is not main_thread():
        yield
        return

    def leave(*_: object) -> NoReturn:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def name_first(argv: Sequence[str] | None, flag: str) -> list[str]:
    """Let a command's first argument do without its flag.

    Args:
        argv: The arguments. None: those of this process.
        flag: The flag that the first word belongs to, if it is no flag itself.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words and not words[0].startswith("-"):
        words[0] = f"{flag}={words[0]}"
    return words


class _Formatter(ArgumentDefaultsHelpFormatter):
    """Adds a flag's default to its help where there is one and the help does not tell it."""

    def _get_help_string(self, action: Action) -> str | None:
        if action.default is None or "(default" in (action.help or ""):
            return action.help
        return super()._get_help_string(action)


class _Parser(HfArgumentParser):
    """The flags of one config class and `--config`."""

    def __init__(self, config_class: Any, **options: Any) -> None:
        super().__init__(
            config_class,
            allow_abbrev=False,
            exit_on_error=False,
            formatter_class=_Formatter,
            **options,
        )
        self.fields = [action for action in self._actions if action.dest != "help"]
        self.add_argument(
            "--config",
            metavar="FILE.yaml",
            help="read arguments from this file, whose keys are the flags' names with underscores; "
            "the command line wins",
        )

    def read(self, argv: Sequence[str]) -> dict[str, Any]:
        """Return the field values that the config file and `argv` give."""
        namespace = Namespace()
        file = _config_path(argv)
        if file is not None:
            self._read_file(file, namespace)
        try:
            _, rest = self.parse_known_args(argv, namespace)
        except ArgumentError as error:
            self._refuse_misspelt(argv)
            raise BlockPilotError(_describe(error)) from error
        except BlockPilotError:
            self._refuse_misspelt(argv)
            raise
        if rest:
            raise BlockPilotError(self._describe_leftover(rest))
        return {action.dest: getattr(namespace, action.dest) for action in self.fields}

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving the process."""
        raise BlockPilotError(message)

    def _read_file(self, path: Path, namespace: Namespace) -> None:
        """Put the file's values into `namespace`; a required flag that it gives is so no more."""
        known = {action.dest: action for action in reversed(self.fields)}
        required = [action for action in self.fields if action.required]
        for action in required:
            action.required = False
        values = _load_yaml(path)
        for key, value in values.items():
            if key not in known:
                raise BlockPilotError(f"{path}: unknown key {key!r}.{closest(key, known)}")
            try:
                _, rest = self.parse_known_args(_tokens(known[key], value), namespace)
            except ArgumentError as error:
                raise BlockPilotError(f"{path}: {key}: {error.message}") from error
            except BlockPilotError as error:
                raise BlockPilotError(f"{path}: {key}: {error}") from error
            if rest:
                raise BlockPilotError(f"{path}: {key}: does not take the value {rest[0]!r}")
        for action in required:
            action.required = values.get(action.dest) is None

    def _check_value(self, action: Action, value: Any) -> None:
        """Refuse a value that is not among the choices, and name the closest one."""
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            hint = closest(str(value), choices)
            raise ArgumentError(action, f"{value!r} is not one of {', '.join(choices)}.{hint}")

    def _refuse_misspelt(self, argv: Sequence[str]) -> None:
        """Name an unknown option before what else is wrong: it may be the flag that is missing."""
        for word in argv:
            flag = word.partition("=")[0]
            if re.fullmatch(r"--\w[\w-]*", flag) and flag not in self._option_string_actions:
                raise BlockPilotError(self._describe_leftover([word]))

    def _describe_leftover(self, rest: list[str]) -> str:
        """Say which argument nothing takes."""
        unknown = next((word for word in rest if word.startswith("-")), None)
        if unknown is None:
            return f"unexpected argument {rest[0]!r}; every value follows its flag"
        flag = unknown.partition("=")[0]
        known = [name for name in self._option_string_actions if "_" not in name]
        return f"unknown option {flag}.{closest(flag.replace('_', '-'), known)}"


def _config_path(argv: Sequence[str]) -> Path | None:
    """Find the config file's path among the arguments."""
    finder = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    finder.add_argument("--config", type=Path)
    try:
        path: Path | None = finder.parse_known_args(argv)[0].config
    except ArgumentError as error:
        raise BlockPilotError(_describe(error)) from error
    return path


def _describe(error: ArgumentError) -> str:
    """Render an error with the flag's hyphenated name, which is how people write it."""
    if error.argument_name is None:
        return error.message
    names = error.argument_name.split("/")
    return f"{next(name for name in names if '_' not in name)}: {error.message}"


class _Loader(yaml.BaseLoader):
    """Leaves scalars as the text they are, so that `no` and `1e-3` mean what they mean as flags."""


_NULL = "tag:yaml.org,2002:null"
_Loader.add_implicit_resolver(_NULL, re.compile("^(~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_constructor(_NULL, lambda loader, node: None)


def _load_yaml(path: Path) -> dict[str, Any]:
    """Load the file's top-level mapping of keys to text, lists of text or None."""
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader) or {}
    except OSError as error:
        raise BlockPilotError(f"cannot read the config {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BlockPilotError(f"the config {path} is not UTF-8 text: {error}") from error
    except (yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise BlockPilotError(f"the config {path} is not valid YAML: {reason}") from error
    if not isinstance(values, dict):
        raise BlockPilotError(f"the config {path} must hold `key: value` lines")
    return values


def _tokens(action: Action, value: Any) -> list[str]:
    """Render a YAML value as the command line words that give it to `action`.

    Raises:
        BlockPilotError: If no words could.
    """
    flag = f"--{action.dest}"
    if value is None or (value == [] and action.nargs == "+"):
        if value == action.default:
            return []
        raise BlockPilotError("must not be empty; leave the key out to get its default")
    if isinstance(value, str):
        return [f"{flag}={value}"]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [flag, *value] if action.nargs == "+" else [f"{flag}={','.join(value)}"]
    raise BlockPilotError("takes one value or a list of values")
