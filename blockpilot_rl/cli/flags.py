"""Flags: config dataclasses read from the command line and from YAML files.

The fields of a config, declared with `blockpilot_rl.options.option`, become the flags of a command.
`--config FILE` reads a YAML file whose keys are the field names, through the same checks; the
command line wins. Every error is one line and names the closest match.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import types
from argparse import (
    SUPPRESS,
    Action,
    ArgumentDefaultsHelpFormatter,
    ArgumentError,
    ArgumentParser,
    ArgumentTypeError,
    BooleanOptionalAction,
    Namespace,
)
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from blockpilot_rl.errors import BlockPilotError, closest
from blockpilot_rl.options import option
from blockpilot_rl.plain_yaml import plain_yaml

Config = TypeVar("Config")

_TRUE = ("true", "t", "yes", "y", "1")
_FALSE = ("false", "f", "no", "n", "0")


def parse(
    config_class: type[Config],
    argv: Sequence[str] | None = None,
    *,
    prog: str | None = None,
    description: str | None = None,
) -> Config:
    """Read a config from the command line and, with `--config FILE`, from a YAML file.

    A scalar in the file means what the same word means on the command line. A list stands for a
    list of values, or for the values joined with commas where the flag takes one word; a mapping
    stands for `KEY:VALUE` words. Null and an empty list stand for themselves, so that saved
    arguments can be read again.

    Args:
        config_class: The dataclass to fill. Its fields may use `option`.
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
    values = parser.read(list(sys.argv[1:] if argv is None else argv))
    try:
        return config_class(**values)
    except BlockPilotError as error:
        name, space, rest = str(error).partition(" ")
        if name not in values:
            raise
        raise BlockPilotError(f"{_flag(name)}{space}{rest}") from error


def target_option() -> Any:
    """Declare `--target`."""
    return option(None, help="hub id, folder or GGUF file (default: SmolLM2-135M)")


def drafter_option() -> Any:
    """Declare `--drafter`."""
    return option(None, help="hub id or folder (default: the bundled drafter)")


def completion_option() -> Any:
    """Declare `--completion`."""
    return option(
        False,
        help="read prompts as plain text to complete instead of chats, as a target without a chat "
        "template needs it",
    )


def dtype_option(default: str) -> Any:
    """Declare `--dtype`."""
    return option(default, help="float32, bfloat16 or float16")


def device_option() -> Any:
    """Declare `--device`."""
    return option("cpu", help="where both models run")


def json_option() -> Any:
    """Declare `--json [FILE]` of a command that prints tables."""
    return option(
        None,
        nargs="?",
        const="-",
        metavar="FILE",
        help="write all numbers as JSON to FILE, or to standard output if no file is named; the "
        "tables then go to standard error",
    )


def words(text: str) -> tuple[str, ...]:
    """Split `a,b` into its words; blanks around them do not count."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def whole_numbers(text: str, flag: str, least: int = 0) -> tuple[int, ...]:
    """Split `1,2,4` into its numbers.

    Args:
        text: The list.
        flag: The flag that gave it, for the message.
        least: The smallest allowed number.

    Raises:
        BlockPilotError: If there is no word, one is not a whole number, or one is too small.
    """
    if not words(text) or not all(word.isdecimal() for word in words(text)):
        raise BlockPilotError(f"{flag} must be whole numbers such as 1,2,4,8, not {text!r}")
    numbers = tuple(int(word) for word in words(text))
    if any(number < least for number in numbers):
        raise BlockPilotError(f"{flag} must be at least {least} each, not {text}")
    return numbers


def part_of(text: str) -> tuple[int, int]:
    """Read `I/N`, counted from 1, as an index from 0 and a count.

    Raises:
        BlockPilotError: If it is not of that form.
    """
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise BlockPilotError(f"--part must be I/N with 1 <= I <= N, such as 1/2, got {text!r}")
    return int(index) - 1, int(count)


def assignments(pairs: Sequence[str], flag: str) -> dict[str, Any]:
    """Read `KEY:VALUE` words; values are YAML, so that `false` is not text.

    Args:
        pairs: The words.
        flag: The flag that gave them, for the message.

    Raises:
        BlockPilotError: If a word has no key, or its value is not YAML or has no JSON counterpart.
    """
    values = {}
    for pair in pairs:
        key, _, text = pair.partition(":")
        if not key or not text:
            raise BlockPilotError(f"{flag} must be KEY:VALUE, such as size:3, not {pair!r}")
        try:
            values[key] = plain_yaml(text)
        except BlockPilotError as error:
            raise BlockPilotError(f"{flag} {pair}: the value {error}") from error
    return values


class _Formatter(ArgumentDefaultsHelpFormatter):
    """Adds the default of a flag to its help, unless the help states it."""

    def _get_help_string(self, action: Action) -> str | None:
        default = action.default
        unsaid = default is None or default is False or default == SUPPRESS
        if unsaid or default in ((), [], {}) or "(default" in (action.help or ""):
            return action.help
        if default is True:
            return f"{action.help} (default: on)"
        if isinstance(default, tuple | list):
            separator = " " if action.nargs == "+" else ","
            return f"{action.help} (default: {separator.join(map(str, default))})"
        return super()._get_help_string(action)


class _Parser(ArgumentParser):
    """The flags of one config class and `--config`."""

    def __init__(self, config_class: Any, **options: Any) -> None:
        super().__init__(
            allow_abbrev=False, exit_on_error=False, formatter_class=_Formatter, **options
        )
        hints = get_type_hints(config_class)
        self.fields = {
            field.name: self._add_field(field, hints[field.name])
            for field in dataclasses.fields(config_class)
        }
        metadata = {field.name: field.metadata for field in dataclasses.fields(config_class)}
        self.first = next((name for name in metadata if metadata[name].get("first")), None)
        self.renamed = {
            old: name for name in metadata for old in metadata[name].get("renamed_from", ())
        }
        self.mappings = [name for name in metadata if _is_mapping(hints[name])]
        self.add_argument(
            "--config",
            metavar="FILE.yaml",
            help="read arguments from this file, whose keys are the flags' names with underscores; "
            "the command line wins",
        )

    def _add_field(self, field: dataclasses.Field[Any], hint: Any) -> Action:
        """Add the flag of one field."""
        metadata = field.metadata
        options: dict[str, Any] = {"dest": field.name, "help": metadata.get("help")}
        if field.default is not dataclasses.MISSING:
            options["default"] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            options["default"] = field.default_factory()
        else:
            options["required"] = True
        names = [*metadata.get("aliases", ()), _flag(field.name)]
        if hint is bool:
            return self.add_argument(*names, action=BooleanOptionalAction, **options)
        options |= _reading(hint, metadata)
        options.setdefault("metavar", field.name.replace("_", "-").upper())
        return self.add_argument(*names, **{**options, **metadata.get("argparse", {})})

    def read(self, argv: Sequence[str]) -> dict[str, Any]:
        """Return the field values that the config file and `argv` give."""
        argv = self._in_present_spelling(argv)
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
        values = {name: getattr(namespace, name) for name in self.fields}
        for name in self.mappings:
            if isinstance(values[name], list):
                values[name] = assignments(values[name], _flag(name))
        return values

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and exiting."""
        raise BlockPilotError(message)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print the help; argparse ignores a stream that fails."""
        print(message, end="", file=file)

    def _in_present_spelling(self, argv: Sequence[str]) -> list[str]:
        """Replace spellings of earlier releases: `--a_b`, renamed flags, and values of switches."""
        argv = list(argv)
        if self.first is not None and argv and not argv[0].startswith("-"):
            argv[0] = f"{_flag(self.first)}={argv[0]}"
        result: list[str] = []
        for word in argv:
            if word.startswith("--"):
                result.append(self._rename(word))
            elif result and self._is_switch(result[-1]) and word.lower() in (*_TRUE, *_FALSE):
                result[-1] = self._switch(result[-1], word)
            else:
                result.append(word)
        return result

    def _rename(self, word: str) -> str:
        """Replace an old spelling of one flag."""
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        name = self.renamed.get(flag[2:].replace("-", "_"))
        if name is not None:
            _notice(f"{flag} is now called {_flag(name)}")
            flag = _flag(name)
        if equals and self._is_switch(flag):
            return self._switch(flag, value)
        return f"{flag}{equals}{value}"

    def _is_switch(self, word: str) -> bool:
        action = self._option_string_actions.get(word)
        return isinstance(action, BooleanOptionalAction) and not word.startswith("--no-")

    def _switch(self, flag: str, value: str) -> str:
        """The switch that a flag with a value stands for."""
        if value.lower() not in (*_TRUE, *_FALSE):
            raise BlockPilotError(f"{flag} must be true or false, got {value!r}")
        name = self._option_string_actions[flag].dest
        chosen = _flag(name if value.lower() in _TRUE else f"no_{name}")
        _notice(f"{flag} {value} is now written {chosen}")
        return chosen

    def _read_file(self, path: Path, namespace: Namespace) -> None:
        """Put the file's values into `namespace`; a flag that it gives is no longer required."""
        required = [action for action in self.fields.values() if action.required]
        for action in required:
            action.required = False
        values = _load_yaml(path)
        for key in [key for key in values if key in self.renamed]:
            if self.renamed[key] in values:
                raise BlockPilotError(
                    f"{path}: {key} is now called {self.renamed[key]}, which the file has too; "
                    "keep one of them"
                )
            _notice(f"{path}: {key} is now called {self.renamed[key]}")
            values[self.renamed[key]] = values.pop(key)
        for key, value in values.items():
            if key not in self.fields:
                raise BlockPilotError(f"{path}: unknown key {key!r}.{closest(key, self.fields)}")
            try:
                words = _tokens(self.fields[key], value, key in self.mappings)
                _, rest = self.parse_known_args(words, namespace)
            except (ArgumentError, BlockPilotError) as error:
                message = error.message if isinstance(error, ArgumentError) else str(error)
                separator = " " if message.startswith("must") else ": "
                raise BlockPilotError(f"{path}: {key}{separator}{message}") from error
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
        """Report an unknown option first: it may be a misspelled required flag."""
        for word in argv:
            flag = word.partition("=")[0]
            if re.fullmatch(r"--\w[\w-]*", flag) and flag not in self._option_string_actions:
                raise BlockPilotError(self._describe_leftover([word]))

    def _describe_leftover(self, rest: list[str]) -> str:
        """Describe an argument that no flag takes."""
        unknown = next((word for word in rest if word.startswith("-")), None)
        if unknown is None:
            return f"unexpected argument {rest[0]!r}; every value follows its flag"
        flag = unknown.partition("=")[0]
        return f"unknown option {flag}.{closest(flag, self._option_string_actions)}"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _notice(line: str) -> None:
    print("note:", line, file=sys.stderr)


def _is_mapping(hint: Any) -> bool:
    return (get_origin(hint) or hint) is dict


def _reading(hint: Any, metadata: Any) -> dict[str, Any]:
    """Options of `add_argument` that read a value of this type."""
    if metadata.get("parse") is not None:
        return {"type": _readable(metadata["parse"])}
    members = [member for member in _members(hint) if member is not type(None)]
    if len(members) > 1:
        return {"type": _first_of([_reading(member, {}) for member in members])}
    (kind,) = members
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    choices = metadata.get("choices")
    if origin is Literal:
        return {"choices": arguments, "metavar": f"{{{','.join(arguments)}}}"}
    if origin is tuple:
        return {"type": _whole_numbers if arguments[0] is int else words}
    if origin is list:
        return {"nargs": "+", **_reading(arguments[0], {})}
    if origin is dict:
        return {"nargs": "+", "metavar": "KEY:VALUE"}
    if choices is not None and not metadata.get("bounds"):
        return {"type": kind, "choices": choices, "metavar": f"{{{','.join(map(str, choices))}}}"}
    if kind is int:
        return {"type": _number(int, "a whole number"), "metavar": "N"}
    if kind is float:
        return {"type": _number(float, "a number"), "metavar": "X"}
    return {}


def _members(hint: Any) -> tuple[Any, ...]:
    """The types of a union, or the type itself."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _number(kind: Callable[[str], Any], name: str) -> Callable[[str], Any]:
    """Read a number."""

    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise ArgumentTypeError(f"must be {name}, got {text!r}") from None

    return read


def _first_of(readings: list[dict[str, Any]]) -> Callable[[str], Any]:
    """Read a value of the first type of a union that takes it."""

    def read(text: str) -> Any:
        problems = []
        for reading in readings:
            if text in reading.get("choices", ()):
                return text
            if "choices" in reading:
                problems.append(f"must be {' or '.join(reading['choices'])}")
                continue
            try:
                return reading.get("type", str)(text)
            except ArgumentTypeError as error:
                problems.append(str(error).partition(", got")[0])
        expected = " or ".join(problem.removeprefix("must be ") for problem in problems)
        raise ArgumentTypeError(f"must be {expected}, got {text!r}")

    return read


def _readable(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Let argparse show the message of a `BlockPilotError`."""

    def read(text: str) -> Any:
        try:
            return parse(text)
        except BlockPilotError as error:
            raise ArgumentTypeError(str(error)) from error

    return read


def _whole_numbers(text: str) -> tuple[int, ...]:
    if not words(text) or not all(re.fullmatch("-?[0-9]+", word) for word in words(text)):
        raise ArgumentTypeError(f"must be whole numbers such as 1,2,4,8, not {text!r}")
    return tuple(int(word) for word in words(text))


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
    """Render an error with the long spelling of the flag."""
    if error.argument_name is None:
        return error.message
    names = error.argument_name.split("/")
    flag = next((name for name in names if name.startswith("--")), names[0])
    if error.message.startswith("must"):
        return f"{flag} {error.message}"
    return error.message if error.message.startswith(flag) else f"{flag}: {error.message}"


class _Loader(yaml.BaseLoader):
    """Keeps scalars as text, so that `no` and `1e-3` mean the same as on the command line."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that comes twice, of which YAML takes the last one silently."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} comes twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


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


def _tokens(action: Action, value: Any, mapping: bool) -> list[str]:
    """Render a YAML value as command-line words for `action`.

    Raises:
        BlockPilotError: If no words could.
    """
    flag = _flag(action.dest)
    if value is None or value in ([], {}):
        if action.default == value or (value is not None and action.default in ((), [], {})):
            return []
        raise BlockPilotError("must not be empty; leave the key out to get its default")
    if isinstance(action, BooleanOptionalAction) and isinstance(value, str):
        if value.lower() not in (*_TRUE, *_FALSE):
            raise BlockPilotError(f"must be true or false, got {value!r}")
        return [flag if value.lower() in _TRUE else _flag(f"no_{action.dest}")]
    if mapping and isinstance(value, dict):
        value = [f"{key}:{'null' if item is None else item}" for key, item in value.items()]
    if isinstance(value, str):
        return [f"{flag}={value}"]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [flag, *value] if action.nargs == "+" else [f"{flag}={','.join(value)}"]
    raise BlockPilotError("takes one value or a list of values")
