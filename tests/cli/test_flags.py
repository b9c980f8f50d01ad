from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from blockpilot_rl.cli.flags import assignments, parse, part_of, whole_numbers, words
from blockpilot_rl.errors import BlockPilotError
from blockpilot_rl.options import check_options, option


@dataclass(frozen=True)
class Decode:
    """Decode one prompt.

    A second paragraph that `--help` leaves out.
    """

    prompt: str | None = option(None, help="what to answer")
    block_size: int = option(16, help="tokens per block", aliases=["-b"])
    arms: str = option("1,2,4", help="block sizes")
    algo: Literal["ppo", "supervised", "fixed"] = option("ppo", help="learner")
    sizes: list[int] = option(default_factory=list, help="several numbers")
    names: list[str] = option(default_factory=list, help="several words")
    layers: list[int] = option(default_factory=lambda: [1, 2], help="never empty")
    rate: float = option(0.1, help="a rate")
    plain: bool = option(False, help="decode plainly")
    stream: bool = option(True, help="print while decoding")
    json: str | None = option(None, help="write JSON", nargs="?", const="-", metavar="FILE")

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise BlockPilotError(f"block_size must be at least 1, got {self.block_size}")


@dataclass(frozen=True)
class Export:
    """Export a run."""

    run_folder: str = option(help="the run")
    out: str = option(help="where to")


@dataclass(frozen=True)
class Record:
    """Record what was asked for."""

    source: str | None = option(None, help="a sweep", first=True)
    arms: tuple[int, ...] = option((1, 2, 4), help="block sizes", minimum=1)
    state_groups: tuple[str, ...] = option(("hidden",), help="state", renamed_from="features")
    template: dict[str, Any] = option(default_factory=dict, help="options of the chat template")
    trace: int | Literal["all"] = option(
        0, nargs="?", const="all", help="prompts to trace", choices=("all",), minimum=0
    )
    temperature: float | Literal["all"] | None = option(None, help="rows to take")
    part: tuple[int, int] = option((0, 1), help="part I/N", parse=part_of)
    keep: bool = option(False, help="keep files", renamed_from=["preserve", "retain"])

    def __post_init__(self) -> None:
        check_options(self)


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
        (["--blok_size=8"], "unknown option --blok-size. Did you mean '--block-size'?"),
        (["--block", "8"], "unknown option --block. Did you mean '--block-size'?"),
        (["--algo", "supervized"], "--algo: 'supervized' is not one of ppo, supervised, fixed. "
         "Did you mean 'supervised'?"),
        (["--block-size", "x"], "--block-size must be a whole number, got 'x'"),
        (["-b", "0"], "--block-size must be at least 1, got 0"),
        (["--plain", "maybe"], "unexpected argument 'maybe'"),
        (["--plain=maybe"], "--plain must be true or false, got 'maybe'"),
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


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        (["--arms", "1, 2,16"], "arms", (1, 2, 16)),
        (["--state-groups", "hidden,entropy"], "state_groups", ("hidden", "entropy")),
        (["--template", "thinking:false", "n:3"], "template", {"thinking": False, "n": 3}),
        (["--trace"], "trace", "all"),
        (["--trace", "all"], "trace", "all"),
        (["--trace", "12"], "trace", 12),
        (["--temperature", "0.7"], "temperature", 0.7),
        (["--temperature", "all"], "temperature", "all"),
        (["--part", "2/3"], "part", (1, 3)),
        (["folder"], "source", "folder"),
        (["folder", "--keep"], "source", "folder"),
        (["--source", "folder"], "source", "folder"),
    ],
)
def test_the_type_of_a_field_decides_how_its_flag_is_read(argv, field, value):
    assert getattr(parse(Record, argv), field) == value


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--arms", "1,two"], "--arms must be whole numbers such as 1,2,4,8, not '1,two'"),
        (["--arms", "0,2"], "--arms must be at least 1, got 0"),
        (["--arms", ""], "--arms must be whole numbers such as 1,2,4,8, not ''"),
        (["--trace", "some"], "--trace must be a whole number or all, got 'some'"),
        (["--trace=-1"], "--trace must be at least 0, got -1"),
        (["--temperature", "warm"], "--temperature must be a number or all, got 'warm'"),
        (["--part", "3/2"], "--part must be I/N with 1 <= I <= N, such as 1/2, got '3/2'"),
        (["--template", "loud"], "--template must be KEY:VALUE, such as size:3, not 'loud'"),
        (["--template", "a:["], "--template a:[: the value is not YAML"),
        (["folder", "another"], "unexpected argument 'another'"),
    ],
)
def test_bad_values_are_named_in_one_line(argv, message):
    with pytest.raises(BlockPilotError) as error:
        parse(Record, argv)
    assert message in str(error.value)
    assert str(error.value).count("--") == 1 or "--" not in message
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("argv", "field", "value", "notice"),
    [
        (["--features", "a,b"], "state_groups", ("a", "b"),
         "--features is now called --state-groups"),
        (["--features=a"], "state_groups", ("a",), "--features is now called --state-groups"),
        (["--preserve"], "keep", True, "--preserve is now called --keep"),
        (["--retain", "true"], "keep", True, "--retain is now called --keep"),
        (["--keep", "true"], "keep", True, "--keep true is now written --keep"),
        (["--keep=FALSE"], "keep", False, "--keep FALSE is now written --no-keep"),
        (["--keep", "0"], "keep", False, "--keep 0 is now written --no-keep"),
    ],
)  # fmt: skip
def test_spellings_of_earlier_releases_work_with_a_notice(capsys, argv, field, value, notice):
    assert getattr(parse(Record, argv), field) == value
    assert f"note: {notice}\n" in capsys.readouterr().err


def test_renamed_keys_of_a_file_work_with_a_notice(tmp_path, capsys):
    file = write(tmp_path, "features: [a, b]\nretain: true\n")
    config = parse(Record, ["--config", file])
    assert (config.state_groups, config.keep) == (("a", "b"), True)
    assert capsys.readouterr().err == (
        f"note: {file}: features is now called state_groups\n"
        f"note: {file}: retain is now called keep\n"
    )


def test_current_spellings_print_no_notice(tmp_path, capsys):
    file = write(tmp_path, "state_groups: [a]\nkeep: true\n")
    parse(Record, ["--config", file, "--no-keep", "--state-groups", "b"])
    assert capsys.readouterr().err == ""


def test_help_shows_one_spelling_of_each_flag(capsys):
    for config_class in (Decode, Record):
        with pytest.raises(SystemExit):
            parse(config_class, ["--help"], prog="blockpilot record")
        text = capsys.readouterr().out
        assert "_" not in text
        assert "--features" not in text
    assert "--keep, --no-keep" in text
    assert "(default: 1,2,4)" in text


def test_saved_tuples_and_mappings_are_a_config_file(tmp_path):
    config = Record(arms=(1, 8), template={"thinking": False}, trace="all", temperature=0.5)
    file = write(tmp_path, yaml.safe_dump({**dataclasses.asdict(config), "part": "1/1"}))
    assert parse(Record, ["--config", file]) == config


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
        ("block_size: many", "block_size must be a whole number, got 'many'"),
        ("block_size: [1, 2]", "block_size must be a whole number, got '1,2'"),
        ("block_size: null", "block_size must not be empty"),
        ("layers: []", "layers must not be empty"),
        ("algo: pppo", "algo: 'pppo' is not one of ppo, supervised, fixed. Did you mean 'ppo'?"),
        ("plain: perhaps", "plain must be true or false, got 'perhaps'"),
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


def test_words():
    assert words("a, b,,c ") == ("a", "b", "c")
    assert words("") == ()


def test_whole_numbers():
    assert whole_numbers("1, 2,16", "--arms") == (1, 2, 16)
    for text in ("1,two", "1.5", "-1", "1e3", "²"):
        with pytest.raises(BlockPilotError, match=r"--arms must be whole numbers such as 1,2,4,8"):
            whole_numbers(text, "--arms")


def test_parts_count_from_one():
    assert part_of("1/1") == (0, 1)
    assert part_of("3/4") == (2, 4)
    for text in ("0/2", "3/2", "1", "1/", "/2", "a/b", "-1/2", "1/2/3"):
        with pytest.raises(BlockPilotError, match="--part must be I/N with 1 <= I <= N"):
            part_of(text)


def test_assignments_are_yaml():
    words = ["enable_thinking:false", "effort:low", "n:3", "url:a:b", "none:null"]
    assert assignments(words, "--template") == {
        "enable_thinking": False,
        "effort": "low",
        "n": 3,
        "url": "a:b",
        "none": None,
    }
    assert assignments([], "--template") == {}
    for word in ("loud", "loud:", ":true", ""):
        with pytest.raises(BlockPilotError, match="--template must be KEY:VALUE, such as size:3"):
            assignments([word], "--template")
    for word in ("a:[", "a:2020-13-45", "a:0b_", "a:" + "[" * 5000):
        with pytest.raises(BlockPilotError, match=r"--template a:.*: the value is not YAML"):
            assignments([word], "--template")


@pytest.mark.parametrize(
    "text", ["2020-01-01", "[2020-01-01]", ".inf", ".nan", "&a [*a]", "!!set {a}"]
)
def test_assignments_hold_what_can_be_recorded(text):
    with pytest.raises(BlockPilotError, match=r"--template day:.* has no JSON counterpart"):
        assignments([f"day:{text}"], "--template")
    assert assignments(["day:'2020-01-01'"], "--template") == {"day": "2020-01-01"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("features: a\nstate_groups: b\n", "features is now called state_groups, which the file"),
        ("state_groups: b\nfeatures: b\n", "features is now called state_groups, which the file"),
        ("preserve: true\nkeep: false\n", "preserve is now called keep, which the file"),
        ("retain: true\npreserve: false\n", "preserve is now called keep, which the file"),
        ("rate: 1\nrate: 2\n", "the key 'rate' comes twice"),
        ("rate: 1\nalgo: ppo\nrate: 1\n", "the key 'rate' comes twice"),
    ],
)
def test_a_key_that_comes_twice_is_refused(text, message, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BlockPilotError, match=message):
        parse(Record, ["--config", str(file)])
